"""Whom to take once partners have been judged, and what a question may do over the engine."""

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.errors import Refusal
from wardround.engine.simulate import Simulation
from wardround.partners.choice import Evidence, Question, Rule, select_partners

SITES = ("asking", "near", "far", "silent", "nearest", "withdrawn")
CANDIDATES = (1, 2, 3, 4)
SCORES = np.array([np.nan, 0.5, -2.0, np.nan, 0.7, 9.0])
EVIDENCE = Evidence(SCORES, np.full(6, 0.1), cut=0.0)


def chosen(rule: Rule, evidence: Evidence = EVIDENCE) -> tuple[int, ...]:
    return select_partners(evidence, rule, SITES, CANDIDATES)


def test_without_a_rule_those_above_the_cut_are_taken_best_first():
    assert chosen(Rule()) == (4, 1)


def test_the_cut_itself_is_not_above_it():
    assert chosen(Rule(), EVIDENCE._replace(cut=0.5)) == (4,)
    assert chosen(Rule(threshold=0.7)) == ()


def test_a_threshold_replaces_the_cut():
    assert chosen(Rule(threshold=-5.0)) == (4, 1, 2)
    assert chosen(Rule(threshold=0.6)) == (4,)


def test_the_best_few_whatever_the_cut():
    assert chosen(Rule(top=1)) == (4,)
    assert chosen(Rule(top=3)) == (4, 1, 2)
    assert chosen(Rule(top=0)) == ()


def test_who_did_not_answer_or_is_no_candidate_is_never_ranked():
    """Site 3 has no score, and site 5 the highest of all but has withdrawn."""
    assert set(chosen(Rule(top=99))) == {1, 2, 4}
    assert set(chosen(Rule(threshold=-99.0))) == {1, 2, 4}
    nobody = EVIDENCE._replace(score=np.full(6, np.nan))
    assert chosen(Rule(top=3), nobody) == ()
    assert chosen(Rule(), nobody) == ()


def test_an_infinite_score_is_no_score():
    assert chosen(Rule(top=9), EVIDENCE._replace(score=np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 2.0]))) == (4, 3)


def test_equal_scores_keep_the_order_of_the_sites():
    assert chosen(Rule(), EVIDENCE._replace(score=np.ones(6))) == (1, 2, 3, 4)


def test_by_hand_in_the_order_named_even_without_an_answer():
    assert chosen(Rule(by_hand=("silent", "far"))) == (3, 2)
    assert chosen(Rule(by_hand=())) == ()


@pytest.mark.parametrize("name", ["asking", "withdrawn", "nobody"])
def test_by_hand_only_possible_partners(name):
    with pytest.raises(Refusal) as told:
        chosen(Rule(by_hand=("near", name)))
    assert f"'{name}'" in str(told.value)
    assert "near, far, silent, nearest" in str(told.value)


@pytest.mark.parametrize("rule", [Rule(top=1, threshold=0.0), Rule(top=1, by_hand=("near",)), Rule(0, 0.0, ())])
def test_two_rules_at_once_are_refused(rule):
    with pytest.raises(Refusal, match="two ways"):
        chosen(rule)


def test_training_with_some_is_training_of_these_and_is_written_down(even, model):
    algorithm, params = fed_avg(model, weighted_mean()), model.init(jax.random.key(0))
    engine = Simulation(even, seed=1, device_count=1)
    question = Question(engine, model, algorithm, params, rounds=2, user=5, candidates=(1, 3, 6))
    assert question.everyone == (1, 3, 5, 6)

    progress = engine.begin(algorithm, params)
    cohort = np.array([3, 5])
    progress, _ = engine.train(algorithm, progress, [(1, cohort), (2, cohort)])
    expected = jax.device_get(progress.server)
    found = question.train((5, 3))  # in any order
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    assert [(record.round, record.sites) for record in question.records] == [
        (1, ("site-3", "site-5")),
        (2, ("site-3", "site-5")),
    ]
    # Always from the same start: what was trained in between leaves no trace.
    question.train(question.everyone)
    for name, value in question.train((3, 5)).items():
        np.testing.assert_array_equal(value, expected[name])
    assert question.records[2].count == 4
    assert sum(record.bytes_up for record in question.records) > 0
