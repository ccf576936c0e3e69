"""Weights of Weight Erosion rank the partners by prevalence where that is all they differ in."""

from itertools import permutations

import jax
import numpy as np
import pytest

from wardround.algorithms.weight_erosion import weight_erosion
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.privacy.attacks.alphas import infer_prevalence


def test_by_hand():
    # Differences to the asking site's 0.1: 0.1, 0.2, 0.3, 0.4, in the order of the distances: one of 24 orders does.
    found = infer_prevalence([0, 1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4, 0.5], user=0)
    assert found == (pytest.approx(1.0), pytest.approx(1 / 24), 4)
    # The other way round every order does as well.
    assert infer_prevalence([0, 4, 3, 2, 1], [0.1, 0.2, 0.3, 0.4, 0.5], user=0).p_value == 1.0
    # Equal numbers tell nothing.
    assert infer_prevalence([0, 1, 1, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5], user=0).correlation == 0.0
    with pytest.raises(Refusal, match="3 partners"):
        infer_prevalence([0, 1, 2, 3], [0, 1, 2, 3], user=0)


def test_chance_is_right_so_often_with_drawn_orders_too():
    prevalence = np.arange(9) / 10
    numbers = np.array([0, 2, 1, 4, 3, 6, 5, 8, 7])
    found = infer_prevalence(numbers, prevalence, user=0)
    # All 8! = 40320 orders, counted.
    ranks = np.arange(8) - 3.5
    real = np.array([1, 0, 3, 2, 5, 4, 7, 6]) - 3.5
    exact = np.mean([ranks[list(order)] @ ranks >= real @ ranks - 1e-9 for order in permutations(range(8))])
    assert found.p_value == pytest.approx(exact, abs=0.005)


def test_the_attack_succeeds_on_sites_that_differ_in_prevalence_only():
    prevalence = np.array([0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8])
    generator = np.random.default_rng(0)

    def rows(share: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        y = (np.arange(count) < share * count).astype(np.int32)
        return (generator.normal(size=(count, 2)) + y[:, None]).astype(np.float32), y

    task = Task((2,), ("no", "yes"))
    sites = [(f"site-{i}", [rows(share, 400), rows(share, 2), rows(share, 2)]) for i, share in enumerate(prevalence)]
    federation = assemble(sites, task)
    model = logistic(task)
    algorithm = weight_erosion(model, user=0, batch_size=0)
    with Simulation(federation, seed=0) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(number, np.arange(7)) for number in (1, 2, 3)])
    told = algorithm.tells(progress.server)
    found = infer_prevalence(told["distance"], prevalence, user=0)
    assert found.correlation > 0.9
    assert found.p_value < 0.01
    assert infer_prevalence(-np.asarray(told["alpha"]), prevalence, user=0).correlation > 0.9
