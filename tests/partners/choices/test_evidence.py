"""All evidence: sets and their gains by hand, and known truths."""

import json
from dataclasses import fields
from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Model, Site, Task
from wardround.core.federation import Federation, assemble
from wardround.data.datasets.triage import triage
from wardround.data.load import LoadedData, load
from wardround.data.partitions.by_feature import by_feature
from wardround.data.partitions.iid import iid
from wardround.data.partitions.shift_labels import shift_labels
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.partners.choice import Evidence, Question, Rule, select_partners
from wardround.partners.choices.evidence import best_sets, evidence, gain_between, plausibility
from wardround.partners.knowledge import Knowledge, is_possible, pooled, pull_of
from wardround.partners.similarity.site_groups import Directions, SiteGroups

POOL = triage(hospitals=1, clusters=1, patients=1600, degree=0.0, seed=0)
MODELS: dict[Task, tuple[Model, object]] = {}


def question_of(
    loaded: LoadedData, user: int, *, told: bool = True, candidates: tuple[int, ...] | None = None
) -> Question:
    federation = loaded.federation
    tables = [
        Site(name, rows.iloc[order[:count]])
        for (name, rows), order, count in zip(
            loaded.table.sites.items(), loaded.order, federation.counts[:, 0], strict=True
        )
    ]
    # One model for all tests, so that compiled programs are found again.
    if federation.task not in MODELS:
        model = logistic(federation.task)
        MODELS[federation.task] = (model, fed_avg(model, weighted_mean()))
    model, algorithm = MODELS[federation.task]
    others = tuple(i for i in range(len(tables)) if i != user) if candidates is None else candidates
    engine = Simulation(federation, tables=tables if told else ())
    return Question(engine, model, algorithm, model.init(jax.random.key(0)), 30, user, others)


def bare_question(federation: Federation, model: Model, user: int = 0) -> Question:
    others = tuple(i for i in range(len(federation.sites)) if i != user)
    algorithm = fed_avg(model, weighted_mean())
    return Question(Simulation(federation), model, algorithm, model.init(jax.random.key(0)), 20, user, others)


def area(said: Evidence, right: list[int], wrong: list[int]) -> float:
    return float(np.mean(said.score[right][:, None] > said.score[wrong][None]))


def taken(said: Evidence, question: Question) -> set[int]:
    return set(select_partners(said, Rule(), question.engine.sites, question.candidates))


@pytest.fixture(scope="module")
def hospitals() -> LoadedData:
    return load(triage(hospitals=8, clusters=2, seed=1), seed=1)


@pytest.fixture(scope="module")
def assessed(hospitals: LoadedData) -> tuple[Question, Evidence]:
    """What the first hospital is told, worked out once for several tests."""
    question = question_of(hospitals, 0)
    return question, evidence().assess(question)


def known_of(place: np.ndarray, together: np.ndarray, rows: float = 100.0) -> Knowledge:
    """Sites of equal size in one direction, whose information is 1 in all: each site's own estimate is at its place."""
    count = len(place)
    share = np.full((count, 1, 1), 1 / count)
    told = Directions(np.ones((1, 1)), np.ones((1, 1)), place[:, None] / count, share)
    groups = SiteGroups(together, place[:, None] * 0.0, np.ones((1, count, count)))
    return Knowledge(np.arange(count), np.full(count, rows), told, groups, {}, 0.0, np.zeros(1))


def test_the_set_is_the_one_whose_model_is_nearest() -> None:
    """Places 3, -3, 9 and -9 around the best guess 0: with equal shares {0, 1} and all four have their mean there.

    Of the two, the one whose sites are likelier to mean the same is taken.
    """
    together = np.eye(4) + 0.0
    together[0, 1:] = (0.9, 0.01, 0.01)
    known = known_of(np.array([3.0, -3.0, 9.0, -9.0]), together)
    found = best_sets(known, 0, [1, 2, 3])
    assert found[1][0] == found[2][1] == found[3][1] == (0, 1)
    # Alone: (3 - 0)^2 times the information of a patient, 1 / 4 / 100, halved; with its partner 0.
    gain, error = gain_between(known, 0, (0,), (0, 1))
    assert gain == pytest.approx(9 / 400 / 2, rel=1e-3)
    # The difference is linear in the truth: 3 times the information, and the truth's deviation is 1.
    assert error == pytest.approx(3 / 400, rel=1e-3)


def test_a_sure_stranger_needs_a_gain_and_a_sure_twin_does_not() -> None:
    """PLAUSIBLE / 5 a unit of log odds, four at most: 0.008 for or against a site."""
    together = np.eye(2)
    for chance, expected in ((1.0, 0.008), (0.5, 0.0), (0.0, -0.008)):
        together[0, 1] = chance
        known = known_of(np.array([0.0, 0.0]), together)
        assert plausibility(known, 0, [1], (0, 1)) == pytest.approx(expected)


def test_a_model_is_foretold_as_training_holds_it_back() -> None:
    """One coefficient, places 4 and 2, asked at the model 1, training begun at 0, information 1/2 a site, 100 patients.

    Both sites' score at the model 1 is 1/2 (4 + 2) = 3 for a change c, with information 1: held back by a penalty p a
    patient the change solves (1 + 200 p) c = 3 - 200 p. With p = 1/200 it is 1, so the model 2 instead of the 4 of
    nothing held back. At that model, a way of 2 from the start, the score left is 3 - 1 = 2 = 200 p 2: p is found.
    """
    known = known_of(np.array([4.0, 2.0]), np.ones((2, 2)))._replace(pull=1 / 200, gone=np.ones(1))
    assert pooled(known, (0, 1)) == pytest.approx([1.0], rel=1e-5)
    assert pooled(known._replace(pull=0.0), (0, 1)) == pytest.approx([3.0], rel=1e-5)
    assert pull_of(np.array([2.0]), np.array([2.0]), 200.0) == pytest.approx(1 / 200)
    # Training that went beyond its aim, or has not begun, holds nothing back.
    assert pull_of(np.array([-2.0]), np.array([2.0]), 200.0) == pull_of(np.ones(1), np.zeros(1), 200.0) == 0.0


@pytest.mark.slow
def test_whoever_is_left_is_judged_anew_when_another_withdraws(assessed: tuple[Question, Evidence]) -> None:
    question, said = assessed
    left = tuple(site for site in question.candidates if site != 2)
    chosen = select_partners(said, Rule(), question.engine.sites, left)
    # As if the site had never been a candidate: the same sets are held against each other.
    assert said.among is not None
    again = said.among(left)
    assert np.isnan(again.score[2])
    assert (again.score[list(left)] != said.score[list(left)]).any()
    assert set(chosen) == {site for site in left if again.score[site] > 0}
    assert said.with_candidates(question.candidates) is said


@pytest.mark.parametrize("user", [0, 1])
def test_right_partners_are_ranked_first_and_let_in(
    hospitals: LoadedData, assessed: tuple[Question, Evidence], user: int
) -> None:
    question = question_of(hospitals, user)
    said = evidence().assess(question) if user else assessed[1]
    right = [i for i in range(8) if i % 2 == user % 2 and i != user]
    wrong = [i for i in range(8) if i % 2 != user % 2]
    assert area(said, right, wrong) >= 0.95
    assert set(right) <= taken(said, question)
    assert (said.error[right + wrong] > 0).all()
    assert said.cut == 0
    assert np.isnan(said.score[user])


def test_where_only_the_meaning_differs_it_is_seen() -> None:
    loaded = load(POOL, seed=0, partition=shift_labels(column="contact", sites=8, degree=1.0))
    said = evidence().assess(question_of(loaded, 0))
    assert area(said, [2, 4, 6], [1, 3, 5, 7]) >= 0.9


def test_where_only_the_patients_differ_all_are_let_in() -> None:
    loaded = load(POOL, seed=0, partition=by_feature(column="malaria_test", sites=8, degree=1.0))
    question = question_of(loaded, 0)
    assert len(taken(evidence().assess(question), question)) >= 6


def test_hospitals_alike_are_all_let_in() -> None:
    question = question_of(load(POOL, seed=0, partition=iid(sites=8)), 0)
    assert len(taken(evidence().assess(question), question)) == 7


def test_the_details_are_plain(assessed: tuple[Question, Evidence]) -> None:
    question, said = assessed
    details = json.loads(json.dumps(said.details, allow_nan=False))
    assert set(details["sites"]) == set(question.engine.sites[1:])
    one = details["sites"][question.engine.sites[1]]
    assert 0 <= one["means_the_same"] <= 1
    assert one["error"] > 0
    assert set(details["map"]["positions"]) == set(question.engine.sites)


def test_sites_are_asked_twice_and_no_more(hospitals: LoadedData) -> None:
    question = question_of(hospitals, 0, told=False)
    asked = evidence().asks.probes
    evidence().assess(question)
    assert [one.recipe.name for one in asked] == ["information"]
    # One training of 30 rounds, and the two answers that the choice announces.
    assert len(question.records) == 30 + asked[0].most(8)


def test_sites_that_cannot_answer_have_no_score(ragged: Federation, model: Model) -> None:
    said = evidence().assess(bare_question(ragged, model))
    # Site 2 is empty, site 4 has a single row: no scatter, no score.
    assert np.flatnonzero(np.isnan(said.score)).tolist() == [0, 2, 4]
    nothing = evidence().assess(bare_question(ragged, model, user=2))
    assert np.isnan(nothing.score).all()


@pytest.mark.parametrize("kind", ["regression", "network"])
def test_other_models_and_targets(kind: str) -> None:
    """Four sites, of which every second has the opposite truth."""
    generator = np.random.default_rng(7)
    parts = []
    for i in range(4):
        x = generator.normal(size=(150, 3)).astype(np.float32)
        value = x @ np.array([1.0, -1.0, 0.5]) * (-1) ** i + generator.normal(size=150)
        y = value.astype(np.float32) if kind == "regression" else (value > 0).astype(np.int32)
        parts.append((f"site-{i}", [(x, y), (x[:0], y[:0]), (x[:0], y[:0])]))
    task = Task((3,), () if kind == "regression" else ("no", "yes"))
    model = linear(task) if kind == "regression" else mlp(task, hidden=(8,))
    said = evidence().assess(bare_question(assemble(parts, task), model))
    assert said.score[2] > max(said.score[1], said.score[3])


# ---- sites that lie ----


def answers_of(sites: int = 5, width: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Honest ones: a quarter of the unit matrix a patient, scores of about its root over ten."""
    bend = np.broadcast_to(np.eye(width) / 4, (sites, width, width)).copy()
    return np.full((sites, width), 0.05), bend, np.ones(sites)


@pytest.mark.parametrize("lie", ["nan", "infinite", "huge", "negative", "false curvature", "far", "spread"])
def test_an_answer_that_no_patients_could_give_is_not_used(lie: str) -> None:
    slope, bend, spread = answers_of()
    match lie:
        case "nan":
            slope[3, 0] = np.nan
        case "infinite":
            bend[3] = np.inf
        case "huge":
            bend[3] *= 1e6
            slope[3] *= 1e6
        case "negative":
            bend[3] *= -1
        case "false curvature":
            bend[3, 0, 1] = bend[3, 1, 0] = 2.0  # a covariance of 2 where both variances are 1/4
        case "far":
            slope[3] = 1e3
        case "spread":
            spread[3] = -1.0
    assert is_possible(slope, bend, spread).tolist() == [True, True, True, False, True]


def test_rare_outcomes_and_flipped_labels_are_not_lies() -> None:
    slope, bend, spread = answers_of()
    bend[1] *= 0.04  # 1 % of the patients have the outcome: p (1 - p) is 0.01 instead of 0.25
    slope[2] = 1.0  # every patient has the outcome that the model gives a chance of about 0
    assert is_possible(slope, bend, spread).all()


def test_a_lying_site_is_named_and_the_others_are_judged(hospitals: LoadedData) -> None:
    """One site tells a hundred thousand times its information: it gets no score, and the right partners are found."""
    question = question_of(hospitals, 0)

    class Lying(Question):
        def probe(self, *given: Any, **more: Any) -> Any:
            state = Question.probe(self, *given, **more)
            if "bend" in state:
                factor = np.where(np.arange(8) == 5, 1e5, 1.0)
                state = {
                    **state,
                    "bend": np.asarray(state["bend"]) * factor[:, None, None],
                    "slope": np.asarray(state["slope"]) * factor[:, None],
                }
            return state

    said = evidence().assess(Lying(**{one.name: getattr(question, one.name) for one in fields(question)}))
    assert np.isnan(said.score[5])
    assert said.details is not None
    assert said.details["impossible"] == [question.engine.sites[5]]
    assert area(said, [2, 4, 6], [1, 3, 7]) >= 0.9
