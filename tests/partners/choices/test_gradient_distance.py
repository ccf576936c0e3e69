"""Gradient distance: the source's examples, lines whose gradients are known, and standard errors by resampling."""

import json

import jax
import numpy as np
import pytest

from tests.support.by_hand.lines import LINE, sites_on_lines
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_sgd import fed_sgd
from wardround.core.errors import Refusal
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.partners.choice import Question, Rule, select_partners
from wardround.partners.choices.gradient_distance import distance_matrix, gradient_distance

SLOPES = (1.0, 1.2, -1.0, 2.0, 1.0, 1.0)
SIZES = (80, 50, 120, 30, 1, 0)


@pytest.fixture(scope="module")
def lines():
    return sites_on_lines(SIZES, SLOPES)


@pytest.fixture(scope="module")
def ask(lines):
    model = linear(LINE)
    engine = Simulation(lines, seed=1, device_count=1)
    algorithm = fed_sgd(model, weighted_mean(), learning_rate=0.2)

    def question(user, candidates, start=(0.0, 0.0)):
        params = {
            "dense_0/kernel": np.full((1, 1), start[0], np.float32),
            "dense_0/bias": np.full(1, start[1], np.float32),
        }
        return Question(engine, model, algorithm, jax.tree.map(jax.numpy.asarray, params), 3, user, candidates)

    return question


def rows_of(federation, site):
    first, count = federation.part("train")
    rows = slice(first[site], first[site] + count[site])
    return federation.x[rows, 0].astype(np.float64), federation.y[rows].astype(np.float64)


def gradient(x, y, w, b):
    """Of mean((w x + b - y)^2), by (w, b)."""
    wrong = w * x + b - y
    return np.array([2 * np.mean(wrong * x), 2 * np.mean(wrong)])


def distance(i, own):
    return np.linalg.norm(i - own) / np.linalg.norm(own)


OTHERS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def evidence(ask):
    return gradient_distance().assess(ask(0, OTHERS))


def test_distances_before_training_by_the_formula(evidence, lines):
    slopes = [gradient(*rows_of(lines, site), 0.0, 0.0) for site in range(5)]
    for site in (1, 2, 3, 4):
        assert evidence.score[site] == pytest.approx(-distance(slopes[site], slopes[0]), rel=1e-4)
    assert np.isnan(evidence.score[[0, 5]]).all()
    assert evidence.cut == -1
    assert np.nanargmin(evidence.score[:4]) == 2  # the slope of the opposite sign
    assert 2 not in select_partners(evidence, Rule(), lines.sites, OTHERS)
    assert select_partners(evidence, Rule(), lines.sites, OTHERS)[0] == np.nanargmax(evidence.score)


def row_gradients(x, y):
    """At w = b = 0, one a row: the derivative of (w x + b - y)^2 by (w, b)."""
    return np.stack([-2 * y * x, -2 * y], axis=1)


def test_standard_errors_to_first_order(evidence, lines):
    """From the rows' own gradients, which never leave a site.

    The derivative of |a - b| / |b| by a is u / |b| with u the direction of a - b; by b it is
    -u / |b| - |a - b| b / |b|^3. Each is turned on the covariance of the mean of its site's row gradients.
    """
    of_asking = row_gradients(*rows_of(lines, 0))
    own = of_asking.mean(axis=0)
    length = np.linalg.norm(own)
    for site in (1, 2, 3):
        of_partner = row_gradients(*rows_of(lines, site))
        apart = of_partner.mean(axis=0) - own
        by_a = apart / np.linalg.norm(apart) / length
        by_b = -by_a - np.linalg.norm(apart) * own / length**3
        variance = by_a @ np.cov(of_partner.T) @ by_a / len(of_partner) + by_b @ np.cov(of_asking.T) @ by_b / len(
            of_asking
        )
        assert evidence.error[site] == pytest.approx(np.sqrt(variance), rel=5e-3)
    assert np.isnan(evidence.error[[0, 4, 5]]).all()  # a single row says nothing about its spread


def test_standard_errors_are_those_of_resampled_patients(evidence, lines):
    """The spread over 4,000 resamples of both sites' rows, for distances that are large beside it.

    Site 1 is left out: at twice its standard error from 0 a distance, which cannot be negative, spreads less.
    """
    generator = np.random.default_rng(0)
    x0, y0 = rows_of(lines, 0)
    for site in (2, 3):
        x, y = rows_of(lines, site)
        found = []
        for _ in range(4000):
            a, b = generator.integers(0, len(x), len(x)), generator.integers(0, len(x0), len(x0))
            found.append(distance(gradient(x[a], y[a], 0, 0), gradient(x0[b], y0[b], 0, 0)))
        assert evidence.error[site] == pytest.approx(np.std(found), rel=0.12)


def test_at_the_common_model_of_two_sites(ask, lines):
    """Example 2 of the source: n_0 g_0 + n_i g_i = 0 there, so g_i = -n_0/n_i g_0 and d = 1 + n_0/n_i."""
    x, y = (np.concatenate(parts) for parts in zip(rows_of(lines, 0), rows_of(lines, 3), strict=True))
    w, b = np.polyfit(x, y, 1)
    choice = gradient_distance(errors=False)
    assert choice.assess(ask(0, (3,), (w, b))).score[3] == pytest.approx(-(1 + 80 / 30), rel=1e-3)
    assert choice.assess(ask(3, (0,), (w, b))).score[0] == pytest.approx(-(1 + 30 / 80), rel=1e-3)


def test_after_some_rounds_together(ask, lines):
    """Two rounds of one full step each: w moves by -0.2 times the gradient of all rows pooled."""
    pooled = [np.concatenate(parts) for parts in zip(*(rows_of(lines, site) for site in (0, 1, 2)), strict=True)]
    at = np.zeros(2)
    for _ in range(2):
        at = at - 0.2 * gradient(*pooled, *at)
    slopes = [gradient(*rows_of(lines, site), *at) for site in (0, 1, 2)]
    question = ask(0, (1, 2))
    found = gradient_distance(rounds=2, errors=False).assess(question)
    for site in (1, 2):
        assert found.score[site] == pytest.approx(-distance(slopes[site], slopes[0]), rel=1e-3)
    assert np.isnan(found.score[[3, 4]]).all()
    assert np.isnan(found.error).all()
    assert len(question.records) == 3  # two rounds of training and one of gradients


def test_details_are_plain(evidence):
    told = json.loads(json.dumps(evidence.details, allow_nan=False))
    assert told["asking"] == "site-0"
    assert told["unanswered"] == ["site-5"]
    assert told["ranking"] == sorted(told["distances"], key=told["distances"].get)
    assert set(told["distances"]) == {"site-1", "site-2", "site-3", "site-4"}


def test_an_asking_site_without_rows_is_refused(ask):
    with pytest.raises(Refusal, match="site-5"):
        gradient_distance().assess(ask(5, (0, 1)))


def test_a_vanished_gradient_is_refused(ask, lines):
    """The single row of site 4 is met exactly by the line through it: with w = 0, b = y its gradient is 0."""
    _, y = rows_of(lines, 4)
    with pytest.raises(Refusal, match="infinitely far"):
        gradient_distance().assess(ask(4, (0, 1), (0.0, float(y[0]))))


def test_nobody_to_judge(ask):
    alone = gradient_distance().assess(ask(0, ()))
    assert np.isnan(alone.score).all()
    assert alone.details["ranking"] == []


def test_the_matrix_by_hand():
    """g_0 = (3, 4) of length 5, g_1 = 0, g_2 = (-3, -4) / 2; site 3 did not answer.

    |g_1 - g_0| / 5 = 1, |g_2 - g_0| / 5 = 7.5 / 5; seen from site 2, of length 2.5: 7.5 / 2.5 and 2.5 / 2.5. From site
    1, which pulls nowhere, everybody is infinitely far.
    """
    state = {
        "slopes": {"a": np.array([[3.0], [0.0], [-1.5], [9.0]]), "b": np.array([[4.0], [0.0], [-2.0], [9.0]])},
        "rows": np.array([10.0, 5.0, 8.0, 0.0]),
    }
    nan, inf = np.nan, np.inf
    expected = [[0, 1, 1.5, nan], [inf, 0, inf, nan], [3, 1, 0, nan], [nan] * 4]
    np.testing.assert_allclose(distance_matrix(state), expected)


def test_many_partners_that_balance_one_another():
    """Example 3: N = 11 sites, the others at -g_0/(N - 1) each: distance 1 + 1/10, just above the cut."""
    own = np.array([2.0, -1.0, 0.5])
    state = {"slopes": {"a": np.stack([own, *[-own / 10] * 10])}, "rows": np.full(11, 20.0)}
    np.testing.assert_allclose(distance_matrix(state)[0, 1:], 1.1)
