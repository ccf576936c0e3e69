from itertools import permutations

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Task
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.partners.choice import Question
from wardround.partners.choices.shapley import shapley

TASK = Task((2,), (), "days")
SLOPES = ((1.0, -1.0), (1.0, -0.8), (1.0, -0.8), (-1.0, 2.0), (0.0, 0.0), (0.9, -1.1))
"""Sites 1 and 2 have the very same training rows, 3 is another world, 4 has none."""
SIZES = (12, 30, 30, 25, 0, 20)
# The Hessian is about 2: a step of 0.3 shrinks the distance to the optimum by about 0.4 a round.
ROUNDS = 40
MODEL = linear(TASK)
ALGORITHM = fed_avg(MODEL, weighted_mean(), batch_size=0, learning_rate=0.3)
"""Made once, as is the number of rounds, so that one compiled program serves all tests."""


def regression():
    generator = np.random.default_rng(4)

    def rows(site, size):
        x = generator.normal(0, 1, (size, 2)).astype(np.float32)
        return x, (x @ np.array(SLOPES[site]) + generator.normal(0, 0.5, size)).astype(np.float32)

    parts = [[rows(i, n), rows(i, 20), rows(i, 20)] for i, n in enumerate(SIZES)]
    parts[2][0] = parts[1][0]
    return assemble([(f"site-{i}", three) for i, three in enumerate(parts)], TASK)


def part_of(federation, part, site):
    first, count = federation.part(part)
    rows = slice(int(first[site]), int(first[site] + count[site]))
    x = np.hstack([federation.x[rows], np.ones((int(count[site]), 1))]).astype(np.float64)
    return x, federation.y[rows].astype(np.float64)


def losses_after(federation, sites, user, part="validation"):
    """The asking site's loss, patient by patient, by the least squares of these sites' rows."""
    x, y = (np.concatenate(parts) for parts in zip(*[part_of(federation, "train", s) for s in sites], strict=True))
    weights = np.linalg.lstsq(x, y, rcond=None)[0]
    x, y = part_of(federation, part, user)
    return np.square(x @ weights - y)


def ask(federation, user=0, candidates=(1, 2, 3, 4, 5), seed=0):
    params = MODEL.init(jax.random.key(0))
    return Question(Simulation(federation), MODEL, ALGORITHM, params, ROUNDS, user, candidates, seed)


def test_exact_values_are_the_mean_over_all_orders():
    federation = regression()
    candidates = (1, 3, 5)
    evidence = shapley(part="test").assess(ask(federation, candidates=candidates))
    worth = {site: [] for site in candidates}
    for order in permutations(candidates):
        for place, site in enumerate(order):
            before = losses_after(federation, (0, *order[:place]), 0, "test")
            worth[site].append(before - losses_after(federation, (0, *order[: place + 1]), 0, "test"))
    for site in candidates:
        by_patient = np.mean(worth[site], axis=0)
        assert evidence.score[site] == pytest.approx(by_patient.mean(), rel=1e-3, abs=1e-5)
        assert evidence.error[site] == pytest.approx(by_patient.std(ddof=1) / np.sqrt(20), rel=1e-3)
    assert np.isnan(evidence.score[[0, 2, 4]]).all()
    assert evidence.details["exact"]
    assert evidence.details["trainings"] == 8


def test_values_add_up_twins_are_equal_and_an_empty_site_is_worth_nothing():
    federation = regression()
    question = ask(federation)
    evidence = shapley().assess(question)
    together = losses_after(federation, (0,), 0).mean() - losses_after(federation, range(6), 0).mean()
    assert np.nansum(evidence.score) == pytest.approx(together, rel=1e-3)
    assert np.nansum(evidence.score) == pytest.approx(evidence.details["together"], abs=1e-12)
    assert evidence.score[1] == pytest.approx(evidence.score[2], rel=1e-4)
    assert evidence.score[4] == pytest.approx(0, abs=1e-6)
    assert evidence.error[4] == pytest.approx(0, abs=1e-6)
    # Each set of the five is trained once.
    assert len(question.records) == 2**5 * question.rounds + 1


def test_drawn_orders_come_near_the_exact_values_and_add_up_exactly():
    federation = regression()
    exact = shapley(permutations=32).assess(ask(federation))
    question = ask(federation, seed=7)
    some = shapley(permutations=31, tolerance=0.0).assess(question)
    assert exact.details["exact"]
    assert not some.details["exact"]
    # Every order telescopes from the asking site alone to everyone.
    assert np.nansum(some.score) == pytest.approx(some.details["together"], abs=1e-9)
    assert np.nansum(some.score) == pytest.approx(np.nansum(exact.score), rel=1e-4)
    assert np.all(np.abs(some.score - exact.score)[1:] <= 4 * some.error[1:] + 1e-5)
    assert some.error[3] > 0
    assert some.details["trainings"] <= 32
    again = shapley(permutations=31, tolerance=0.0).assess(ask(federation, seed=7))
    np.testing.assert_array_equal(again.score, some.score)
    other = shapley(permutations=31, tolerance=0.0).assess(ask(federation, seed=8))
    assert not np.array_equal(other.score, some.score)


def test_orders_end_where_the_rest_cannot_matter():
    question = ask(regression())
    evidence = shapley(permutations=4, tolerance=1e9).assess(question)
    assert not evidence.score[1:].any()
    assert evidence.details["trainings"] == 2


def test_a_single_order_leaves_the_error_open():
    evidence = shapley(permutations=1, tolerance=0.0).assess(ask(regression()))
    assert np.isnan(evidence.error).all()
    assert np.isfinite(evidence.score[1:]).all()


def test_an_asking_site_without_training_rows_begins_with_the_untrained_model():
    federation = regression()
    evidence = shapley().assess(ask(federation, user=4, candidates=(0,)))
    y = part_of(federation, "validation", 4)[1]
    # The untrained model says 0 for everybody, so its loss is the mean of y squared.
    expected = np.square(y).mean() - losses_after(federation, (0,), 4).mean()
    assert evidence.score[0] == pytest.approx(expected, rel=1e-3)
