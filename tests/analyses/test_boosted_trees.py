"""Boosted trees through the seam: against pooled trees and another library, in every kind of outcome, and bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from tests.support.analyses.tree_sites import COLUMNS, WARDS, agreed, dealt, found, grown, patients
from wardround.analyses.boosted_trees import TERMS, boosted_trees
from wardround.analyses.forests.plan import TreePlan, outcome_of
from wardround.analyses.forests.rows import binned, read_rows
from wardround.core.components.terms import Extent
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.engine.analyse import exchange_in_process
from wardround.statistics.trees.forest import scores_of

TRAIN, TEST = patients(3000, 1), patients(3000, 2)
FIT = {"trees": 20, "depth": 3, "learning_rate": 0.3, "validation": 0.0, "test": 0.0, "effects": 0, "columns": COLUMNS}


def outcomes(state, target, table, **settings):
    """Predictions of the grown trees for a table."""
    plan = TreePlan(target, COLUMNS, validation=0.0, test=0.0, **settings)
    public = agreed("new")
    outcome = outcome_of(plan, public)
    rows = read_rows(plan, public, outcome, Site("new", table))
    width = state.shape.layout.width
    scores = scores_of(state.forest, state.common.base, binned(rows, state.common.features, width).codes, width)
    return outcome.objective.outcome(scores), rows.y


def test_five_sites_grow_the_trees_of_one():
    # The same patients, once in one place and once at five: the same bins, and the same sums but for rounding.
    alone = grown(boosted_trees(target="dies", fewest_sites=1, **FIT), [Site("all", TRAIN)])
    spread = grown(boosted_trees(target="dies", **FIT), dealt(TRAIN, 5))
    for one, other in zip(alone.common.features, spread.common.features, strict=True):
        np.testing.assert_array_equal(one.edges, other.edges)
    np.testing.assert_array_equal(alone.forest.column, spread.forest.column)
    np.testing.assert_array_equal(alone.forest.left, spread.forest.left)
    np.testing.assert_allclose(alone.forest.value, spread.forest.value, rtol=1 / 128)


def test_classes_are_told_apart_as_well_as_by_pooled_scikit_learn():
    state = grown(boosted_trees(target="dies", **FIT), dealt(TRAIN, 5))
    predicted, y = outcomes(state, "dies", TEST)
    oracle = HistGradientBoostingClassifier(
        max_iter=20, max_depth=3, learning_rate=0.3, l2_regularization=1.0, categorical_features=[2], max_bins=64,
        early_stopping=False,
    )  # fmt: skip
    codes = lambda table: table[list(COLUMNS)].assign(ward=pd.Categorical(table["ward"], WARDS).codes)  # noqa: E731
    with threadpool_limits(1):
        oracle.fit(codes(TRAIN), TRAIN["dies"] == "yes")
        theirs = roc_auc_score(TEST["dies"] == "yes", oracle.predict_proba(codes(TEST))[:, 1])
    assert abs(roc_auc_score(y, predicted[:, 1]) - theirs) < 0.005
    assert theirs > 0.8


def test_a_number_is_predicted_as_well_as_by_pooled_scikit_learn():
    state = grown(boosted_trees(target="stay", **FIT), dealt(TRAIN, 4))
    predicted, y = outcomes(state, "stay", TEST)
    oracle = HistGradientBoostingRegressor(
        max_iter=20, max_depth=3, learning_rate=0.3, l2_regularization=1.0, categorical_features=[2], max_bins=64,
        early_stopping=False,
    )  # fmt: skip
    codes = lambda table: table[list(COLUMNS)].assign(ward=pd.Categorical(table["ward"], WARDS).codes)  # noqa: E731
    with threadpool_limits(1):
        oracle.fit(codes(TRAIN), TRAIN["stay"])
        theirs = np.mean((oracle.predict(codes(TEST)) - TEST["stay"]) ** 2)
    assert np.mean((predicted - y) ** 2) < 1.03 * theirs


def test_three_classes_each_have_trees_of_their_own():
    state = grown(boosted_trees(target="course", **FIT), dealt(TRAIN, 4))
    predicted, y = outcomes(state, "course", TEST)
    np.testing.assert_allclose(predicted.sum(axis=1), 1, atol=1e-6)
    assert (predicted.argmax(axis=1) == y).mean() > 0.8
    assert state.forest.column.shape[1] == 3


def test_a_report_says_what_matters_and_how():
    report = found(boosted_trees(target="dies", columns=COLUMNS, trees=60, depth=3), dealt(TRAIN, 4))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    numbers = report["numbers"]
    assert 0.75 < numbers["auc_interval"][0] < numbers["auc"] < numbers["auc_interval"][1] < 0.95
    assert set(numbers["auc_by_site"]) == {"H0", "H1", "H2", "H3"}
    assert sum(numbers["gain"].values()) == pytest.approx(1)
    # All three columns matter, so the loss grows where any of them loses its order.
    assert min(numbers["permutation"].values()) > 0.005
    age = np.array([row[1] for row in numbers["effects"]["age"]])
    assert age[-1] > age[0] + 0.2, "the risk rises with age"
    wards = {row[0]: row[1] for row in numbers["effects"]["ward"]}
    assert min(wards["B"], wards["D"]) > max(wards["A"], wards["C"])
    text = " ".join(report["words"])
    assert "What matters most:" in text
    assert "all else as it is" in text
    assert "the risk of dies yes" in text


def test_validation_patients_end_the_growth_in_time():
    state = grown(boosted_trees(target="dies", columns=COLUMNS, trees=400, learning_rate=0.5), dealt(TRAIN, 4))
    best = int(np.argmin(state.losses))
    assert state.forest.trees == best < len(state.losses) - 1 == best + 10
    assert state.losses[best] < state.losses[0]


def test_a_monotone_column_only_raises_the_risk():
    analysis = boosted_trees(target="dies", increasing=("age",), **FIT | {"trees": 40, "depth": 4})
    state = grown(analysis, dealt(patients(1500, 3, noise=4.0), 3))
    base = TEST.head(50)
    ages = np.arange(18.0, 91.0)
    order = [outcomes(state, "dies", base.assign(age=age), seed=0)[0][:, 1] for age in ages]
    assert (np.diff(order, axis=0) >= 0).all()
    free = grown(
        boosted_trees(target="dies", **FIT | {"trees": 40, "depth": 4}), dealt(patients(1500, 3, noise=4.0), 3)
    )
    turns = [outcomes(free, "dies", base.assign(age=age), seed=0)[0][:, 1] for age in ages]
    assert (np.diff(turns, axis=0) < 0).any(), "without the constraint it would turn"


def test_drawn_rows_and_columns_follow_from_the_seed():
    drawn = {"rows_per_tree": 0.6, "columns_per_tree": 0.6}
    one, same, other = (
        grown(boosted_trees(target="dies", seed=seed, **drawn, **FIT), dealt(TRAIN, 3)).forest for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one.value, same.value)
    assert not np.array_equal(one.value, other.value)
    # Two of three columns a tree.
    assert all(len(np.unique(tree[tree >= 0])) <= 2 for tree in one.column)


def test_a_site_that_forgot_everything_answers_as_one_that_remembers():
    sites = dealt(TRAIN, 3)
    public = agreed("H0", "H1", "H2")
    analysis = boosted_trees(target="dies", **FIT | {"trees": 4})
    exchange, state = exchange_in_process(analysis, public, sites), analysis.begin(public)
    number = 0
    while (asked := analysis.message(state)) is not None:
        number += 1
        fresh = boosted_trees(target="dies", **FIT | {"trees": 4})
        again = Site("H0", sites[0].table.copy())
        remembered, forgotten = analysis.ask(public, asked, sites[0]), fresh.ask(public, asked, again)
        for name, array in remembered.arrays.items():
            np.testing.assert_array_equal(array, forgotten.arrays[name])
        state = analysis.step(state, exchange(number, asked))
    assert number == 3 + 4 * 3 + 1


def test_an_answer_has_the_same_shape_whoever_is_there_and_is_no_larger_than_its_terms_say():
    sites = dealt(TRAIN, 3)
    public = agreed("H0", "H1", "H2")
    settings = {"target": "course", "columns": COLUMNS, "trees": 3, "personal": 2}
    analysis = boosted_trees(**settings)
    exchange, state, number = exchange_in_process(analysis, public, sites), analysis.begin(public), 0
    most = TERMS.numbers(Extent(settings, sites=3, columns=len(analysis.columns)))
    while (asked := analysis.message(state)) is not None:
        number += 1
        some = analysis.ask(public, asked, sites[0]).arrays
        nobody = analysis.ask(public, asked, Site("H0", sites[0].table.head(0))).arrays
        assert {name: array.shape for name, array in some.items()} == {n: a.shape for n, a in nobody.items()}
        assert sum(array.size for array in some.values()) <= most
        assert all(np.isfinite(array).all() for array in (*some.values(), *nobody.values()))
        # A real site refuses requests with numbers that are not finite.
        assert all(np.isfinite(np.asarray(array)).all() for array in asked.arrays.values())
        state = analysis.step(state, exchange(number, asked))


def test_a_site_that_differs_gains_by_trees_of_its_own():
    # At the last site the risk falls with age: the common trees, learned elsewhere, are wrong about it there.
    sites = dealt(TRAIN, 4)
    odd = patients(700, 9)
    sites.append(Site("odd", odd.assign(age=108 - odd["age"])))
    report = found(boosted_trees(target="dies", columns=COLUMNS, trees=60, personal=60, depth=3), sites)
    common, own = (report["numbers"][key]["odd"] for key in ("auc_by_site", "personal_auc_by_site"))
    assert own > common + 0.03
    usual = [
        report["numbers"]["personal_auc_by_site"][f"H{n}"] - report["numbers"]["auc_by_site"][f"H{n}"] for n in range(4)
    ]
    assert min(usual) > -0.02, "where nothing differs, few trees are added and little is lost"


BAD = {
    "unknown column": ({"columns": ("age", "lactat")}, "There is no column 'lactat'.*lactate"),
    "target among the columns": ({"columns": ("age", "dies")}, "is also among the columns"),
    "no columns": ({"columns": ()}, "There are no columns"),
    "monotone category": ({"increasing": ("ward",)}, "column 'ward' is a category, whose levels have no order"),
    "unknown monotone column": ({"decreasing": ("agee",)}, "There is no column 'agee'"),
    "both ways": ({"increasing": ("age",), "decreasing": ("age",)}, "cannot both raise and lower"),
    "unknown class": ({"positive": "maybe"}, "no class 'maybe'"),
    "number for a category": ({"objective": "squared"}, "is a category, and 'squared' fits numbers"),
    "two sites": ({"fewest_sites": 6}, "5 sites take part, and trees ask for 6"),
    "too deep": ({"depth": 12}, "depth is 12"),
    "all rows held back": ({"validation": 0.5, "test": 0.5}, "No row or no column would be left"),
    "too few classes allowed": ({"target": "course", "most_classes": 2}, "has 3 classes, and 2 are allowed"),
    "two classes wanted": ({"target": "course", "objective": "logistic"}, "'logistic' is for two"),
    "noise for a number": ({"target": "stay", "epsilon": 1.0}, "noise is calibrated for classes"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "words"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused_before_anybody_is_asked(settings, words):
    with pytest.raises(Refusal, match=f"(?i){words}") as refusal:
        boosted_trees(**{"target": "dies", "columns": COLUMNS} | settings).begin(agreed("A", "B", "C", "D", "E"))
    assert "\n" not in str(refusal.value)


def test_two_sites_are_refused_since_each_could_subtract_itself():
    with pytest.raises(Refusal, match="2 sites take part, and trees ask for 3: from the sum of two"):
        boosted_trees(target="dies", columns=COLUMNS).begin(agreed("A", "B"))


def test_too_few_patients_for_two_leaves_are_refused_and_say_how_many():
    # Ten at each of four sites, of whom 2 are held back to tell when to stop and 2 for the test.
    with pytest.raises(Refusal, match="24 patients to learn from, and two leaves of 20 need 40"):
        found(boosted_trees(target="dies", columns=COLUMNS), dealt(TRAIN.head(40), 4))


def test_a_site_with_one_class_takes_part_and_all_of_one_class_is_refused():
    sites = dealt(TRAIN, 3)
    all_die = Site("H3", TRAIN[TRAIN["dies"] == "yes"].head(200).reset_index(drop=True))
    report = found(boosted_trees(target="dies", columns=COLUMNS, trees=10), [*sites, all_die])
    assert report["numbers"]["auc_by_site"]["H3"] is None
    nobody = [Site(site.name, site.table.assign(dies="no")) for site in sites]
    with pytest.raises(Refusal, match="All patients of all sites have the same value of 'dies'"):
        found(boosted_trees(target="dies", columns=COLUMNS, trees=10), nobody)


def test_a_column_without_values_is_never_asked_about():
    sites = [Site(site.name, site.table.assign(lactate=np.nan)) for site in dealt(TRAIN, 3)]
    report = found(boosted_trees(target="dies", columns=COLUMNS, trees=10), sites)
    assert report["numbers"]["gain"]["lactate"] == 0
    assert report["numbers"]["bins"]["lactate"] == 1


def test_columns_that_tell_nothing_are_refused_with_a_remedy():
    sites = [Site(site.name, site.table.assign(age=50.0)) for site in dealt(TRAIN, 3)]
    with pytest.raises(Refusal, match="No column divides the patients into leaves of 20 or more"):
        found(boosted_trees(target="dies", columns=("age",), trees=10), sites)


def test_words_where_numbers_were_agreed_are_refused_by_site_and_column():
    sites = dealt(TRAIN, 3)
    sites[1] = Site("H1", sites[1].table.assign(age="old"))
    with pytest.raises(Refusal, match=r"Column .age. holds text, and numbers were agreed on .site H1"):
        found(boosted_trees(target="dies", columns=COLUMNS), sites)
    sites[1] = Site("H1", sites[1].table.drop(columns="age"))
    with pytest.raises(Refusal, match=r"Column .age. is missing .site H1"):
        found(boosted_trees(target="dies", columns=COLUMNS), sites)


def test_a_target_of_0_and_1_may_be_a_class_and_other_numbers_may_not():
    sites = [Site(site.name, site.table.assign(stay=(site.table["dies"] == "yes") * 1.0)) for site in dealt(TRAIN, 3)]
    report = found(boosted_trees(target="stay", columns=COLUMNS, objective="logistic", trees=20), sites)
    assert report["numbers"]["auc"] > 0.75
    with pytest.raises(Refusal, match="holds numbers other than 0 and 1"):
        found(boosted_trees(target="stay", columns=COLUMNS, objective="logistic"), dealt(TRAIN, 3))
