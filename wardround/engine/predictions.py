"""Predictions on every site's held-out rows, by the model that the site would use itself."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Algorithm, Array, Message, Progress, Scores, Shard, Tree, intensities
from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.layout import power_of_two
from wardround.engine.program import over_lanes, round_key

CHUNK = 256
"""Rows predicted at a time: keeps the patches of a convolution small."""
SITES_AT_ONCE = 512
LANES = 8
PERSONAL_ROUND = 2**30
"""Stands for the round number when sites fit their personal models, so that these draw their own random numbers."""


def span(first: np.ndarray[Any, Any], count: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Row numbers of ragged pieces, one after the other."""
    ends = np.cumsum(count)
    return np.repeat(first - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)


def padded(array: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def in_chunks(predict: Callable[[Any, Array], Array], params: Tree, x: Array) -> Array:
    """Predictions for rows whose number is a multiple of the chunk (or less than one chunk)."""
    if x.shape[0] <= CHUNK:
        return predict(params, intensities(x))
    pieces = x.reshape(-1, CHUNK, *x.shape[1:])
    result = jax.lax.map(lambda piece: predict(params, intensities(piece)), pieces)
    return result.reshape(-1, *result.shape[2:])


@lru_cache(maxsize=64)
def common_program(algorithm: Algorithm) -> Callable[[Tree, Array], Array]:
    return jax.jit(lambda server, x: in_chunks(algorithm.predict, algorithm.params(server), x))


@lru_cache(maxsize=64)
def personal_program(algorithm: Algorithm) -> Callable[..., Array]:
    """Every site fits its own model on its training rows and predicts its held-out ones."""
    personal = algorithm.personal
    assert personal is not None

    @partial(jax.jit, static_argnames="capacity")
    def program(
        message: Message,
        key: Array,
        data: tuple[Array, Array, Array],
        seats: tuple[Array, ...],
        kept: Tree,
        capacity: int,
    ) -> Array:
        x, y, order = data

        def block(inputs: tuple[Any, ...]) -> Array:
            first, rows, site, held_out, longest, kept = inputs

            def one(first: Array, rows: Array, site: Array, held_out: Array, kept: Tree) -> Array:
                shard = Shard(x, y, order, first, rows, longest, site)
                params = personal.fit(message, kept, shard, jax.random.fold_in(key, site))
                mine = jnp.asarray(x).at[held_out + jnp.arange(capacity)].get(mode="clip")
                return in_chunks(algorithm.predict, params, mine)

            return over_lanes(one, first.shape[0])(first, rows, site, held_out, kept)

        return jax.lax.map(block, (*seats, kept))

    return program


def scores(
    algorithm: Algorithm,
    progress: Progress,
    federation: Federation,
    part: str,
    sites: np.ndarray[Any, Any],
    *,
    seed: int,
) -> Scores:
    """Predictions for the given sites' rows of one part, in the order of the sites."""
    first, count = federation.part(part)
    first, count = first[sites], count[sites]
    rows = span(first, count)
    edges = np.concatenate([[0], np.cumsum(count)])
    if len(rows) == 0:
        return Scores(
            np.zeros((0, *(() if federation.task.regression else (len(federation.task.classes),)))),
            federation.y[:0],
            edges,
        )
    if algorithm.personal is None:
        predicted = _common(algorithm, progress, federation, rows)
    else:
        pieces = range(0, len(sites), SITES_AT_ONCE)
        predicted = np.concatenate(
            [_personal(algorithm, progress, federation, part, sites[at : at + SITES_AT_ONCE], seed) for at in pieces]
        )
    return Scores(predicted, np.asarray(federation.y[rows]), edges)


def _common(
    algorithm: Algorithm, progress: Progress, federation: Federation, rows: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    program = common_program(algorithm)
    most = 1 << 16
    results = []
    for begin in range(0, len(rows), most):
        here = rows[begin : begin + most]
        x = padded(np.asarray(federation.x[here]), power_of_two(len(here)))
        results.append(np.asarray(program(progress.server, x))[: len(here)])
    return np.concatenate(results)


def _personal(
    algorithm: Algorithm, progress: Progress, federation: Federation, part: str, sites: np.ndarray[Any, Any], seed: int
) -> np.ndarray[Any, Any]:
    personal = algorithm.personal
    assert personal is not None
    train_first, train_rows = (column[sites] for column in federation.part("train"))
    test_first, test_rows = (column[sites] for column in federation.part(part))
    lanes = min(LANES, len(sites))
    slots = -(-len(sites) // lanes) * lanes
    # Rows of these sites only: all training rows, then all held-out rows.
    index = np.concatenate([span(train_first, train_rows), span(test_first, test_rows)])
    x = padded(np.asarray(federation.x[index]), power_of_two(len(index)))
    y = padded(np.asarray(federation.y[index]), power_of_two(len(index)))
    offset = np.cumsum(train_rows) - train_rows
    order = visiting_order(seed, PERSONAL_ROUND, sites, train_rows, personal.passes)
    order += np.repeat(offset, train_rows).astype(np.int32)
    order = np.pad(order, ((0, 0), (0, power_of_two(max(1, order.shape[1])) - order.shape[1])))
    held_out = train_rows.sum() + np.cumsum(test_rows) - test_rows

    def seat(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return padded(values.astype(np.int32), slots).reshape(-1, lanes)

    seated = seat(train_rows)
    seats = (seat(offset), seated, seat(sites), seat(held_out), seated.max(axis=1))
    kept = jax.tree.map(lambda table: table[seats[2]], progress.clients)
    capacity = power_of_two(int(test_rows.max()))
    message = algorithm.broadcast(progress.server)
    key = round_key(seed, PERSONAL_ROUND)
    program = personal_program(algorithm)
    result = np.asarray(program(message, key, (x, y, order), seats, kept, capacity=capacity))
    result = result.reshape(slots, capacity, *result.shape[3:])[: len(sites)]
    taken = np.arange(capacity)[None, :] < test_rows[:, None]
    return result[taken]
