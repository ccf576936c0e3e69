"""All evidence: the score test against plain NumPy, the hierarchical model against closed forms, and known truths."""

import json

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
from wardround.partners.choices.evidence import (
    Posterior,
    evidence,
    likeness,
    natural_cut,
    posterior,
    second_moments,
    uncertainty,
    whiten_gradients,
)
from wardround.partners.similarity.histograms import Histograms, ask_histograms
from wardround.queries.cells_of import ColumnCells

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


def test_whitened_gradients_scatter_by_one_over_the_rows() -> None:
    """Sites from one distribution: in the new units n times the squared distance has the mean of a chi-square."""
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(6, 6))
    found = []
    for _ in range(60):
        each = [generator.normal(size=(rows, 6)) @ mixing for rows in (50, 200)]
        state = {
            "slope": np.array([x.mean(axis=0) for x in each]),
            "square": np.array([x.T @ x / len(x) for x in each]),
            "rows": np.array([50.0, 200.0]),
        }
        gradient, noise = whiten_gradients(state, np.arange(2))
        assert gradient.shape == (2, 6)
        found.append(np.sum((gradient[0] - gradient[1]) ** 2) / noise.sum())
    # A chi-square of 6 has the standard deviation 3.46, its mean over 60 draws 0.45.
    assert abs(np.mean(found) - 6) < 4 * 0.45


def test_columns_that_say_the_same_count_once() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(300, 2))
    doubled = np.concatenate([x, -x, x], axis=1)
    state = {
        "slope": doubled.mean(axis=0)[None],
        "square": (doubled.T @ doubled / 300)[None],
        "rows": np.array([300.0]),
    }
    assert whiten_gradients(state, np.arange(1))[0].shape == (1, 2)


def test_the_posterior_is_the_closed_form_of_two_sites() -> None:
    """Two sites: their difference is d + noise; in each setting it shrinks by t / (t + 1), t the variances' ratio."""
    generator = np.random.default_rng(3)
    gradient, noise = generator.normal(size=(2, 5)), np.array([0.5, 0.5])
    known = posterior(gradient, noise, np.zeros((2, 2)))
    observed = gradient[0] - gradient[1]
    ratios = [0.0, *2.0 ** np.arange(-4, 11)]
    # Both sites vary by tau * 0.5 around their mean, so the difference varies by tau, and its noise by 1.
    logs = np.array([-0.5 * (5 * np.log(t + 1) + observed @ observed / (t + 1)) for t in ratios])
    weight = np.exp(logs - logs.max())
    np.testing.assert_allclose(known.weight, weight / weight.sum(), rtol=1e-8)
    for setting, t in enumerate(ratios):
        np.testing.assert_allclose(known.mean[setting, 0] - known.mean[setting, 1], observed * t / (t + 1), atol=1e-9)
        covariance = known.covariance[setting]
        spread = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        assert spread == pytest.approx(t / (t + 1), abs=1e-9)


def test_like_patients_lend_strength_only_where_gradients_follow_them() -> None:
    generator = np.random.default_rng(4)
    group = np.array([1.0, 1, 1, -1, -1, -1])
    kernel = np.outer(group, group) * 5 / 6
    noise = np.full(6, 1.0)
    direction = generator.normal(size=20)
    following = posterior(np.outer(group, direction) + generator.normal(size=(6, 20)), noise, kernel)
    other = np.array([1.0, -1, 1, -1, 1, -1])
    against = posterior(np.outer(other, direction) * 1.5 + generator.normal(size=(6, 20)), noise, kernel)
    assert following.rho > 0.7
    assert against.rho < 0.3
    gram = second_moments(following)
    squared = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
    assert squared[0, 1] < squared[0, 3] / 4


def test_likeness_leaves_out_what_chance_makes() -> None:
    generator = np.random.default_rng(5)
    columns = tuple(ColumnCells(f"c{i}", names=("a", "b")) for i in range(12))

    def drawn(share: float) -> np.ndarray:
        first = generator.binomial(200, share)
        return np.array([first, 200 - first, 0.0, 0.0])

    alike = Histograms(tuple("pqrstu"), columns, tuple(np.array([drawn(0.4) for _ in range(6)]) for _ in columns))
    assert np.abs(likeness(alike, np.arange(6))).max() == pytest.approx(0, abs=1e-12)
    groups = tuple(np.array([drawn(0.3 + 0.3 * (i % 2)) for i in range(6)]) for _ in columns)
    kernel = likeness(Histograms(tuple("pqrstu"), columns, groups), np.arange(6))
    assert np.trace(kernel) == pytest.approx(5)
    assert kernel[0, 2] > 0.5
    assert kernel[0, 1] < -0.5


def test_the_error_and_the_chance_that_it_helps_are_those_of_draws() -> None:
    """Against 200,000 draws of the two sites' gradients from a mixture of two settings."""
    generator = np.random.default_rng(6)
    mean = generator.normal(size=(2, 2, 4)) * 0.5
    covariance = np.array([np.eye(2) * 0.2, [[0.3, 0.1], [0.1, 0.4]]])
    known = Posterior(np.array([0.3, 0.7]), mean, covariance, 0.0)
    bearable = np.array([2.0, 2.0])
    error, helps = uncertainty(known, 0, bearable)
    draws = []
    for setting, count in ((0, 60_000), (1, 140_000)):
        root = np.linalg.cholesky(covariance[setting])
        both = mean[setting] + root @ generator.normal(size=(count, 2, 4))
        draws.append(np.sum((both[:, 0] - both[:, 1]) ** 2, axis=1))
    squared = np.concatenate(draws)
    assert error[1] == pytest.approx(squared.std(), rel=0.02)
    assert helps[1] == pytest.approx((squared < 2.0).mean(), abs=0.01)
    assert (error[0], helps[0]) == (0.0, 1.0)


def test_the_cut_takes_whoever_lowers_the_expected_loss() -> None:
    """Three sites of 100, variance 1 each (noise is summed over directions); the gram matrix is that of known points.

    Alone the asking site loses 1; with a twin half of it; a third site at distance² d adds (1/3)² d and brings the
    variance to 1/3, so it is taken as long as d / 9 + 1/3 < 1/2, that is d < 1.5.
    """
    for squared, inside in ((1.4, True), (1.6, False)):
        points = np.array([[0.0], [0.0], [np.sqrt(squared)]])
        cut = natural_cut(points @ points.T, np.ones(3), np.full(3, 100.0), 0, np.array([1, 2]))
        assert (-squared / 2 > cut) is inside
        assert cut < 0


@pytest.mark.parametrize("user", [0, 1])
def test_right_partners_are_ranked_first_and_let_in(hospitals: LoadedData, user: int) -> None:
    question = question_of(hospitals, user)
    said = evidence().assess(question)
    right = [i for i in range(8) if i % 2 == user % 2 and i != user]
    wrong = [i for i in range(8) if i % 2 != user % 2]
    assert area(said, right, wrong) >= 0.95
    assert set(right) <= taken(said, question)
    assert (said.error[right + wrong] > 0).all()
    assert np.isnan(said.score[user])


def test_where_only_the_meaning_differs_it_is_seen() -> None:
    loaded = load(POOL, seed=0, partition=shift_labels(column="contact", sites=8, degree=1.0))
    said = evidence().assess(question_of(loaded, 0))
    assert area(said, [2, 4, 6], [1, 3, 5, 7]) >= 0.9


def test_where_only_the_patients_differ_all_are_let_in() -> None:
    loaded = load(POOL, seed=0, partition=by_feature(column="malaria_test", sites=8, degree=1.0))
    question = question_of(loaded, 0)
    assert ask_histograms(question.engine).columns
    assert len(taken(evidence().assess(question), question)) >= 6


def test_hospitals_alike_are_all_let_in() -> None:
    question = question_of(load(POOL, seed=0, partition=iid(sites=8)), 0)
    assert len(taken(evidence().assess(question), question)) == 7


def test_the_details_are_plain(hospitals: LoadedData) -> None:
    question = question_of(hospitals, 0)
    details = json.loads(json.dumps(evidence().assess(question).details, allow_nan=False))
    assert set(details["sites"]) == set(question.engine.sites[1:])
    one = details["sites"][question.engine.sites[1]]
    assert 0 <= one["helps_as_only_partner"] <= 1
    assert one["columns"]["malaria_test"]["p"] < 0.05
    assert set(details["map"]["positions"]) == set(question.engine.sites)


def test_without_tables_the_gradients_decide(hospitals: LoadedData) -> None:
    said = evidence().assess(question_of(hospitals, 0, told=False))
    assert np.isfinite(said.score[1:]).all()
    assert said.details is not None
    assert said.details["patients_count_for"] == 0.0


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
