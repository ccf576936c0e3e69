"""Likeness of patients: right partners on made-up hospitals, all alike let in, and answers that JSON can hold."""

import json

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Site
from wardround.data.datasets.triage import triage
from wardround.data.load import load
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.partners.choice import Question, Rule, select_partners
from wardround.partners.choices.distribution_distance import distribution_distance
from wardround.partners.similarity.histograms import ask_histograms, differences


def question_of(
    user: int = 0, candidates: tuple[int, ...] | None = None, *, tables: bool = True, **settings
) -> Question:
    loaded = load(triage(**settings), seed=0)
    federation = loaded.federation
    sites = [
        Site(name, rows.iloc[order[:count]])
        for (name, rows), order, count in zip(
            loaded.table.sites.items(), loaded.order, federation.counts[:, 0], strict=True
        )
    ]
    model = logistic(federation.task)
    others = tuple(i for i in range(len(sites)) if i != user) if candidates is None else candidates
    engine = Simulation(federation, tables=sites if tables else ())
    return Question(engine, model, fed_avg(model, weighted_mean()), model.init(jax.random.key(0)), 5, user, others)


@pytest.fixture(scope="module")
def eight() -> Question:
    return question_of(hospitals=8, clusters=2, seed=3)


def test_like_patients_are_ranked_first(eight: Question) -> None:
    said = distribution_distance().assess(eight)
    best = select_partners(said, Rule(top=3), eight.engine.sites, eight.candidates)
    assert set(best) == {2, 4, 6}
    assert np.isnan(said.score[0])
    assert (said.error[1:] > 0).all()


def test_the_score_is_minus_the_mean_distance_and_the_cut_what_chance_makes(eight: Question) -> None:
    said = distribution_distance().assess(eight)
    found = differences(ask_histograms(eight.engine))
    np.testing.assert_allclose(said.score[1:], -found.distance[:, 0, 1:].mean(axis=0))
    assert said.cut == pytest.approx(-found.chance[:, 0, 1:].mean())


def test_hospitals_alike_are_all_let_in() -> None:
    taken = 0
    for seed in range(2):
        question = question_of(hospitals=5, clusters=1, degree=0.0, seed=seed)
        said = distribution_distance().assess(question)
        taken += len(select_partners(said, Rule(), question.engine.sites, question.candidates))
    assert taken == 8


def test_only_candidates_are_judged(eight: Question) -> None:
    few = question_of(1, (3, 4), hospitals=8, clusters=2, seed=3)
    said = distribution_distance().assess(few)
    assert np.flatnonzero(np.isfinite(said.score)).tolist() == [3, 4]
    assert said.details is not None
    assert set(said.details["sites"]) == {few.engine.sites[3], few.engine.sites[4]}
    assert set(said.details["map"]["positions"]) == {few.engine.sites[i] for i in (1, 3, 4)}


def test_the_details_are_plain_and_say_why(eight: Question) -> None:
    said = distribution_distance().assess(eight)
    details = json.loads(json.dumps(said.details, allow_nan=False))
    columns = details["sites"][eight.engine.sites[1]]["columns"]
    assert columns["malaria_test"]["p"] < 0.05
    assert max(columns, key=lambda name: columns[name]["distance"]) == "malaria_test"


def test_without_tables_nothing_is_known() -> None:
    said = distribution_distance().assess(question_of(tables=False))
    assert np.isnan(said.score).all()


def test_noise_blurs_the_ranking(eight: Question) -> None:
    """With next to no budget the distances carry almost nothing: far fewer columns can be told apart."""
    clear = distribution_distance().assess(eight).details
    noisy = distribution_distance(epsilon=0.5).assess(eight).details
    assert clear is not None
    assert noisy is not None

    def certain(details: dict) -> int:
        return sum(one["p"] < 0.05 for site in details["sites"].values() for one in site["columns"].values())

    assert certain(clear) > 10
    assert certain(noisy) < certain(clear) / 2
