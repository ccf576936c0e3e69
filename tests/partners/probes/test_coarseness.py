"""Inside a compiled program means are as coarse as those of the site's disclosure."""

import jax
import numpy as np
import pytest

from wardround.core.contracts import Scores, Task
from wardround.deploy.site.release.disclosure import coarse_mean_loss
from wardround.partners.probes.coarseness import coarse_means, step_above
from wardround.queries.cells import step_above as step_by_hand

CELL = 10


def told(losses: np.ndarray, places: int) -> float:
    values = np.full(places, 1e6, np.float32)  # what stands behind the site's own rows must not matter
    values[: len(losses)] = losses
    mask = np.arange(places) < len(losses)
    return float(jax.jit(coarse_means, static_argnums=3)(values[None], mask, np.int32(len(losses)), CELL)[0])


@pytest.mark.parametrize("rows", [10, 13, 24, 57, 200])
def test_means_are_those_of_the_disclosure(rows: int) -> None:
    random = np.random.default_rng(rows)
    for out in (0, 1, CELL - 1, CELL):
        predicted = random.exponential(1.0, rows)
        predicted[:out] = random.choice([0.0, 50.0, np.inf], out)
        scores = Scores(predicted, np.zeros(rows), np.array([0, rows]))
        by_hand = coarse_mean_loss(scores, Task((1,)), CELL)
        with np.errstate(over="ignore"):
            assert told(np.square(predicted), 256) == pytest.approx(by_hand, rel=1e-6)


def test_a_value_that_fewer_than_a_cell_have_is_not_told() -> None:
    usual = np.full(40, 0.7)
    for out in (0.0, 16.0, np.inf):
        assert told(np.where(np.arange(40) < CELL - 1, out, usual), 64) == told(usual, 64)
    assert told(np.where(np.arange(40) < CELL, np.inf, usual), 64) == np.inf
    assert told(np.zeros(40), 64) == 0.0


def test_steps_are_powers_of_two() -> None:
    for least in (0.0, 1.0, 0.5, 0.3, 1e-9, 7.0, 1e9):
        assert float(step_above(np.float32(least))) == step_by_hand(float(np.float32(least)))
