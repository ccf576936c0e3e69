import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.selection.decision_list import cut_list, decision_list
from wardround.selection.permutation_test import prune, shuffle_by_patient
from wardround.selection.rule_columns import rule_columns
from wardround.selection.rule_search import (
    RuleScore,
    best_rule,
    column_pairs,
    lower_bound,
    rule_score,
    tables_of,
    taken_from,
)
from wardround.selection.rules import RuleCondition, WordRule, first_rule, short_between
from wardround.selection.threshold import choose_competence_threshold


def made_up(rows, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "lactate": rng.normal(3, 1, rows).round(2),
            "age": rng.normal(60, 15, rows).round(1),
            "constant": 1.0,
            "sex": rng.choice(["f", "m"], rows),
        }
    )
    frame.loc[rng.random(rows) < 0.1, "age"] = np.nan
    return frame, rng


def test_conditions_and_missing_values():
    frame = pd.DataFrame({"age": [40.0, 60.0, np.nan], "sex": ["f", None, "m"]})
    above, below = (
        RuleCondition(column="age", kind="above", low=40),
        RuleCondition(column="age", kind="at_most", high=40),
    )
    assert above.holds(frame).tolist() == [False, True, False]
    assert below.holds(frame).tolist() == [True, False, False]
    assert RuleCondition(column="sex", kind="is_not", value="f").holds(frame).tolist() == [False, False, True]
    assert RuleCondition(column="age", kind="missing").holds(frame).tolist() == [False, False, True]
    rule = WordRule(conditions=(below, RuleCondition(column="sex", kind="is", value="f")), source="B")
    assert rule.words({"age": "years"}) == "age at most 40 years and sex is f"
    assert first_rule((rule, WordRule(conditions=(above,), source="B")), frame).tolist() == [0, 1, -1]
    assert WordRule.model_validate(rule.model_dump(mode="json")) == rule


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e3))
def test_a_short_number_lies_between(low, gap):
    high = low + gap
    if low < high:
        assert low <= short_between(low, high) < high


def test_the_search_agrees_with_trying_all_rules():
    # Every pair of half-lines over the values themselves, in plain Python, with the bound worked out from scratch.
    frame, rng = made_up(60)
    frame = frame[["lactate", "age"]].fillna(60.0)
    value = rng.normal(size=60) + (frame["lactate"] > 3.4) * 1.0
    columns = rule_columns(frame)
    least = 9
    pairs = column_pairs(columns, 2)
    found = best_rule(
        columns, tables_of(columns, pairs, value.to_numpy(), np.arange(60)), value.to_numpy(), np.ones(60, bool), least,
        RuleScore("bound"),
    )  # fmt: skip
    best = -np.inf
    a, b = frame["lactate"].to_numpy(), frame["age"].to_numpy()
    cuts = [[("all", 0.0), *((way, x) for x in np.unique(v) for way in ("above", "most"))] for v in (a, b)]
    for way, x in cuts[0]:
        for other, y in cuts[1]:
            rows = np.ones(60, bool)
            rows &= True if way == "all" else a > x if way == "above" else a <= x
            rows &= True if other == "all" else b > y if other == "above" else b <= y
            if rows.sum() >= least:
                inside = value[rows]
                best = max(best, inside.mean() - 1.6448536 * inside.std(ddof=1) / np.sqrt(len(inside)))
    # Intervals of one column are searched too, and the search moves from the best bins: it may differ a little.
    assert found.score >= best - 0.05


def test_sums_of_what_is_left_are_those_of_the_rest():
    frame, rng = made_up(300)
    columns, value = rule_columns(frame), rng.normal(size=300)
    pairs = column_pairs(columns, 2)
    whole, part = (tables_of(columns, pairs, value, rows) for rows in (np.arange(300), np.arange(100)))
    rest = tables_of(columns, pairs, value, np.arange(100, 300))
    np.testing.assert_allclose(taken_from(whole, part).tables, rest.tables, atol=1e-9)
    np.testing.assert_allclose(taken_from(whole, part).singles, rest.singles, atol=1e-9)


def test_lower_bound_by_hand():
    # 1, 2, 3: mean 2, sd 1, error 1 / sqrt(3): 2 - 1.64485 * 0.57735 = 1.05034; two rows are fewer than three.
    assert lower_bound(np.array(3), np.array(6.0), np.array(14.0), 2) == pytest.approx(1.05034, abs=1e-5)
    assert lower_bound(np.array(2), np.array(6.0), np.array(14.0), 3) == -np.inf


def test_constant_columns_and_rare_categories_make_no_rule():
    frame, _ = made_up(300)
    frame["ward"] = ["rare"] * 2 + ["usual"] * 298
    named = {(one.name, one.value) for one in rule_columns(frame).columns}
    assert named == {("lactate", None), ("age", None), ("sex", frame["sex"].mode()[0]), ("ward", "usual")}
    assert decision_list(rule_columns(frame[["constant"]]), np.ones((1, 300)), ["B"]) == ()


def test_a_gap_can_be_a_rule():
    frame, _ = made_up(400)
    gone = frame["age"].isna().to_numpy()
    value = np.where(gone, 1.0, -1.0) + np.random.default_rng(1).normal(0, 0.1, 400)
    (first, *_) = decision_list(rule_columns(frame, gaps=True), value[None], ["B"])
    assert first.rule.words() == "age not recorded"


def test_a_list_takes_each_patient_once_and_names_the_best_source():
    frame, rng = made_up(800)
    first, second = frame["lactate"] > 3.5, (frame["sex"] == "f") & (frame["lactate"] <= 3.5)
    value = rng.normal(0, 0.3, (2, 800)) - 0.5
    value[0, first] += 1.5
    value[1, second] += 1.2
    listed = decision_list(rule_columns(frame), value, ["B", "C"])
    assert [one.rule.source for one in listed[:2]] == ["B", "C"]
    assert sum(one.rows.astype(int) for one in listed).max() == 1
    assert all(one.rows.sum() >= 12 for one in listed)
    # What the words say is what was found.
    places = first_rule(tuple(one.rule for one in listed), frame)
    for place, one in enumerate(listed):
        np.testing.assert_array_equal(places == place, one.rows)


def test_where_a_list_is_cut():
    # The first rule changes 10 decisions for the better, the second 8 for the worse: cut after the first.
    frame, _ = made_up(400)
    value = np.where(frame["lactate"] > 3.5, 1.0, np.where(frame["sex"] == "f", 0.3, -1.0))
    listed = decision_list(rule_columns(frame), value[None] + np.random.default_rng(0).normal(0, 0.1, 400), ["B"])
    signs = np.zeros((1, 400))
    signs[0, np.flatnonzero(listed[0].rows)[:10]] = 1
    signs[0, np.flatnonzero(listed[1].rows)[:8]] = -1
    cut = cut_list(listed, signs, np.arange(400), np.random.default_rng(0))
    assert (cut.rules, cut.flips.right, cut.flips.wrong) == (1, 10, 0)
    assert cut.p_value == pytest.approx(0.5**10)
    assert cut_list((), signs, np.arange(400), np.random.default_rng(0)).rules == 0


def test_threshold_by_hand():
    # In order of competence the changed decisions are right, right, right, right, right, wrong, wrong: the smallest
    # p-value, 1/32, is after the fifth; all others are larger. The threshold lies halfway to the sixth.
    competence = np.array([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    signs = np.array([1, 1, 1, 1, 1, -1, -1])
    best = choose_competence_threshold(competence, signs, np.arange(7), np.random.default_rng(0))
    assert (best.value, best.p_value, best.flips.right, best.flips.wrong) == (2.5, 1 / 32, 5, 0)
    # By chance a p-value of 1/32 needs five right ones first, whatever the number of looks.
    assert best.corrected == pytest.approx(1 / 32, abs=0.02)
    everybody = choose_competence_threshold(competence, np.ones(7), np.arange(7), np.random.default_rng(0))
    assert everybody.value == -np.inf


def test_shuffles_move_whole_patients():
    who = np.array([0, 0, 1, 1, 2, 3, 3, 3])
    taken = shuffle_by_patient(who, np.random.default_rng(3))
    assert sorted(taken.tolist()) == list(range(8))
    for patient in range(4):
        assert len(set(who[taken[who == patient]])) == 1
    assert taken[[5, 6, 7]].tolist() == [5, 6, 7]  # the only patient with three rows


def test_pruning_keeps_a_planted_rule_and_drops_chance():
    frame, rng = made_up(500)
    columns = rule_columns(frame)
    losses = rng.exponential(0.5, (2, 500))

    def values_of(of):
        return of[:1] - of[1:]

    def kept(losses):
        listed = decision_list(columns, values_of(losses), ["B"])
        return prune(listed, columns, losses, values_of, np.arange(500), np.random.default_rng(0), shuffles=19).kept

    assert kept(losses) == 0
    planted = losses.copy()
    planted[0, frame["lactate"] > 3.2] += 0.6
    assert kept(planted) >= 1
    assert rule_score("clearest", np.array([0.0, 2.0])) == RuleScore("clearest", 1.0)
