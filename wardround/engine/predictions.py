"""Predictions on every site's held-out rows, by the model that the site would use itself."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Array, Message, Progress, Scores, Shard, Tree, intensities
from wardround.core.federation import Federation
from wardround.core.quality import Quality, row_figures
from wardround.engine.layout import Seating, Shape, assign_seats, capacity_for, power_of_two, templates
from wardround.engine.program import Data, map_lanes, round_key
from wardround.engine.shared_programs import representative

CHUNK = 256
"""Rows predicted at a time: keeps the patches of a convolution small."""
SITES_AT_ONCE = 512
LANES = 8
PERSONAL_ROUND = 2**30
"""Stands for the round number when sites fit their personal models, so that these draw their own random numbers."""


def row_numbers(first: np.ndarray[Any, Any], count: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Row numbers of ragged pieces, one after the other."""
    ends = np.cumsum(count)
    return np.repeat(first - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)


def pad_rows(array: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def predict_in_chunks(predict: Callable[[Any, Array], Array], params: Tree, x: Array) -> Array:
    """Predictions for rows whose number is a multiple of the chunk (or less than one chunk)."""
    if x.shape[0] <= CHUNK:
        return predict(params, intensities(x))
    pieces = x.reshape(-1, CHUNK, *x.shape[1:])
    result = jax.lax.map(lambda piece: predict(params, intensities(piece)), pieces)
    return result.reshape(-1, *result.shape[2:])


@lru_cache(maxsize=64)
def common_program(algorithm: Algorithm) -> Callable[[Tree, Array], Array]:
    return jax.jit(lambda server, x: predict_in_chunks(algorithm.predict, algorithm.params(server), x))


@lru_cache(maxsize=64)
def personal_program(algorithm: Algorithm) -> Callable[..., Array]:
    """Every site fits its own model on its training rows and predicts its held-out ones."""
    personal = algorithm.personal
    assert personal is not None

    @jax.jit
    def program(message: Message, key: Array, data: Data, seating: Seating, kept: Tree, held_out: Array) -> Array:
        def block(inputs: tuple[Any, ...]) -> Array:
            first, longest, rows, site, kept, held_out = inputs

            def one(own: Data, rows: Array, site: Array, kept: Tree, held_out: Array) -> Array:
                shard = Shard(own.x, own.y, first, rows, longest, site, algorithm.largest_batch)
                params = personal.fit(message, kept, shard, jax.random.fold_in(key, site))
                return predict_in_chunks(algorithm.predict, params, held_out)

            return map_lanes(one, rows.shape[0])(data, rows, site, kept, held_out)

        return jax.lax.map(block, (seating.first, seating.longest, seating.rows, seating.site, kept, held_out))

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
    algorithm = representative(algorithm)
    first, count = federation.part(part)
    first, count = first[sites], count[sites]
    rows = row_numbers(first, count)
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


def quality(scores: Scores, names: Sequence[str]) -> Quality:
    """What the sites would tell of these predictions; losses are compiled, and added up in double precision."""
    rows = np.diff(scores.first)
    site = np.repeat(np.arange(len(rows)), rows)
    loss, right = row_figures(scores.predicted, scores.actual)
    sums, hits = (np.bincount(site, weights=one, minlength=len(rows)) for one in (loss, right))
    there = np.flatnonzero(rows)
    regression = scores.predicted.ndim == 1
    return Quality(
        tuple(names[int(index)] for index in there),
        sums[there],
        rows[there].astype(np.int64),
        None if regression else hits[there].astype(np.int64),
    )


def _common(
    algorithm: Algorithm, progress: Progress, federation: Federation, rows: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    program = common_program(algorithm)
    most = 1 << 16
    results = []
    for begin in range(0, len(rows), most):
        here = rows[begin : begin + most]
        x = pad_rows(np.asarray(federation.x[here]), power_of_two(len(here)))
        results.append(np.asarray(program(progress.server, x))[: len(here)])
    return np.concatenate(results)


def _personal(
    algorithm: Algorithm, progress: Progress, federation: Federation, part: str, sites: np.ndarray[Any, Any], seed: int
) -> np.ndarray[Any, Any]:
    personal = algorithm.personal
    assert personal is not None
    first, rows = (column[sites] for column in federation.part("train"))
    test_first, test_rows = (column[sites] for column in federation.part(part))
    lanes = min(LANES, len(sites))
    shape = Shape(1, 1, -(-len(sites) // lanes), lanes)
    one = templates(shape, sites, rows, first, population=len(federation.sites), passes=personal.passes)[0]
    places = capacity_for(max(1, one.places)) + algorithm.largest_batch
    seating = one.seat(one.visits.order(seed, PERSONAL_ROUND, personal.passes), places)
    seating = jax.tree.map(lambda a: a[0], seating)
    data = Data(np.asarray(federation.x[seating.table]), np.asarray(federation.y[seating.table]))
    kept = jax.tree.map(lambda table: table.at[seating.site].get(mode="clip"), progress.clients)
    # Held-out rows, seat by seat, each padded to the longest.
    _, slot = assign_seats(rows, shape)
    capacity = power_of_two(int(test_rows.max()))
    wanted = np.minimum(np.arange(capacity), np.maximum(0, test_rows[:, None] - 1)) + test_first[:, None]
    table = np.zeros((shape.slots, capacity), np.int64)
    table[slot] = np.minimum(wanted, len(federation.x) - 1)
    held_out = np.asarray(federation.x[table]).reshape(shape.blocks, lanes, capacity, *federation.x.shape[1:])
    message = algorithm.broadcast(progress.server)
    program = personal_program(algorithm)
    result = np.asarray(program(message, round_key(seed, PERSONAL_ROUND), data, seating, kept, held_out))
    result = result.reshape(shape.slots, capacity, *result.shape[3:])[slot]
    return result[np.arange(capacity)[None, :] < test_rows[:, None]]
