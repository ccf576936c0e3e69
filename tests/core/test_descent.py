"""Steps of one site by hand, on the loss (w - x)^2 / 2 of one number: the gradient is w minus the mean of x."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from wardround.core.contracts import Batch, Key, Params, Shard
from wardround.core.descent import CHUNK, batches, descend, full_gradient, local_optimizer, steps


def shard_of(values: list[float], *, order: list[list[int]], longest: int | None = None, first: int = 0) -> Shard:
    """One site whose rows are these numbers, visited in this order; NaN lies around it and must never be felt."""
    places = longest or len(values)
    passes = [[values[row] for row in visit] + [np.nan] * (places - len(values)) for visit in order]
    x = np.array([np.nan] * first + [value for visit in passes for value in visit] + [np.nan] * CHUNK, np.float32)
    begin, rows, most, site = (jnp.int32(number) for number in (first, len(values), places, 0))
    return Shard(jnp.asarray(x), jnp.zeros(len(x)), begin, rows, most, site, CHUNK)


def pull(params: Params, batch: Batch, key: Key) -> Params:
    rows = jnp.sum(batch.mask)
    real = jnp.where(batch.mask > 0, batch.x, 0.0)
    # No rows give 0 / 0: a step that should not have been taken shows as NaN.
    return {"w": params["w"] - jnp.sum(real) / rows}


def draw(params: Params, batch: Batch, key: Key) -> Params:
    return {"w": jax.random.normal(key)}


ZERO: Params = {"w": jnp.float32(0)}
KEY = jax.random.key(5)


@pytest.mark.parametrize(("rows", "size", "wanted"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (8, 4, 2)])
def test_batches_count_the_partial_one(rows: int, size: int, wanted: int) -> None:
    assert batches(rows, size) == wanted


def test_steps_are_the_sites_own() -> None:
    seven = shard_of([1.0] * 7, order=[list(range(7))], longest=64)
    nobody = shard_of([], order=[[]], longest=64)
    # Seven rows in batches of 3 are 3 steps a pass, whatever the longest site of the block does.
    assert int(steps(seven, 3, 2)) == 6
    assert int(steps(seven, None, 4)) == 4
    assert int(steps(nobody, 3, 2)) == int(steps(nobody, None, 4)) == 0


@pytest.mark.parametrize("longest", [3, 9])
@pytest.mark.parametrize("first", [0, 5])
def test_momentum_over_two_passes_by_hand(longest: int, first: int) -> None:
    """Rows 1, 2, 6 in batches of two, rate 1/2, momentum 1/2; a longer neighbour adds idle steps in every pass.

    pass 1, order 6 1 | 2:  g = 0 - 3.5 = -3.5,     m = -3.5,                 w = 1.75
                            g = 1.75 - 2 = -0.25,   m = -1.75 - 0.25 = -2,    w = 2.75
    pass 2, order 2 6 | 1:  g = 2.75 - 4 = -1.25,   m = -1 - 1.25 = -2.25,    w = 3.875
                            g = 3.875 - 1 = 2.875,  m = -1.125 + 2.875 = 1.75, w = 3
    An idle step that let the momentum coast would end elsewhere.
    """
    shard = shard_of([1.0, 2.0, 6.0], order=[[2, 0, 1], [1, 2, 0]], longest=longest, first=first)
    after = descend(pull, local_optimizer(0.5, 0.5), ZERO, shard, KEY, batch_size=2, passes=2)
    assert float(after["w"]) == 3.0


def test_running_statistics_have_no_momentum() -> None:
    """Six rows of 0, one a step, rate 1/2, momentum 1/2: a running variance halves with each step, 1 to 1/64.

    A weight has momentum and swings past: 1, 1/2, 0, -1/4, -1/4, -1/8, 0.
    """

    def toward_zero(params: Params, batch: Batch, key: Key) -> Params:
        return dict(params)

    start: Params = {name: jnp.float32(1) for name in ("norm_0/mean", "norm_0/var", "norm_0/scale", "other/mean")}
    shard = shard_of([0.0] * 6, order=[list(range(6))])
    after = descend(toward_zero, local_optimizer(0.5, 0.5), start, shard, KEY, batch_size=1, passes=1)
    assert {name: float(value) for name, value in after.items()} == {
        "norm_0/mean": 1 / 64,
        "norm_0/var": 1 / 64,
        "norm_0/scale": 0.0,
        "other/mean": 0.0,
    }


def test_adaptive_memory_of_idle_steps_is_left_alone() -> None:
    """Adam counts its steps; three idle ones a pass must not age it."""
    optimizer = optax.adam(0.1)
    order = [[0, 1, 2], [2, 1, 0]]
    short, long = (
        descend(pull, optimizer, ZERO, shard_of([1.0, -2.0, 6.0], order=order, longest=n), KEY, batch_size=1, passes=2)
        for n in (3, 6)
    )
    assert float(short["w"]) == float(long["w"]) != 0.0


def test_all_rows_at_once_is_the_full_gradient() -> None:
    # 150 rows are three chunks, the last one partial. w <- w - (w - mean) / 4, four times: mean (1 - 0.75^4).
    values = np.random.default_rng(1).normal(2, 3, 150).astype(np.float32)
    shard = shard_of(values.tolist(), order=[list(range(150))] * 4, longest=400)
    mean = values.astype(np.float64).mean()
    after = descend(whole, local_optimizer(0.25, 0), ZERO, shard, KEY, batch_size=None, passes=4)
    assert float(after["w"]) == pytest.approx(mean * (1 - 0.75**4), rel=1e-6)
    assert float(full_gradient(whole, ZERO, shard, KEY)["w"]) == pytest.approx(-mean, rel=1e-6)


def whole(params: Params, batch: Batch, key: Key) -> Params:
    """As `pull`, but 0 where there are no rows, which the contract of a model's gradient asks for."""
    slope = pull(params, batch, key)["w"]
    return {"w": jnp.where(jnp.sum(batch.mask) > 0, slope, 0.0)}


@pytest.mark.parametrize("size", [2, None])
def test_a_site_without_rows_stays_where_it_is(size: int | None) -> None:
    shard = shard_of([], order=[[], []], longest=5)
    start: Params = {"w": jnp.float32(1.5)}
    after = descend(pull, local_optimizer(0.5, 0.9), start, shard, KEY, batch_size=size, passes=2)
    assert float(after["w"]) == 1.5


@pytest.mark.parametrize("longest", [5, 11])
def test_draws_are_new_each_step_and_do_not_depend_on_longer_neighbours(longest: int) -> None:
    """Five rows in batches of two are three steps a pass: draws 0 to 5, also where the block runs to six steps."""
    shard = shard_of([0.0] * 5, order=[list(range(5))] * 2, longest=longest)
    after = descend(draw, local_optimizer(1.0, 0), ZERO, shard, KEY, batch_size=2, passes=2)
    draws = [float(jax.random.normal(jax.random.fold_in(KEY, step))) for step in range(6)]
    assert len(set(draws)) == 6
    assert float(after["w"]) == pytest.approx(-sum(draws), abs=1e-6)
