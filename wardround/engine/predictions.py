"""Predictions on every site's held-out rows, by the model that the site would use itself."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core import trees
from wardround.core.contracts import Algorithm, Array, Message, Params, Progress, Scores, Shard, Task, Tree, intensities
from wardround.core.federation import Federation
from wardround.core.overlap import overlap_of, truth_of
from wardround.core.quality import Quality, has_classes, row_figures
from wardround.engine.layout import Seating, Shape, assign_seats, capacity_for, power_of_two, templates
from wardround.engine.program import Data, map_lanes, round_key
from wardround.engine.shared_programs import representative

CHUNK = 256
"""Rows of a table predicted at a time,"""
IMAGES = 32
"""and rows of more dimensions: keeps the patches of a convolution small."""
ROWS_AT_ONCE = 1 << 16
NUMBERS_AT_ONCE = 1 << 28
"""Pixels of the images that are predicted in one go, so that a folder of large ones does not fill the memory."""
SITES_AT_ONCE = 512
LANES = 8
MODEL_BYTES = 256_000_000
"""Personal models held at a time."""
KEPT_BYTES = 1_000_000_000
"""Personal models of a run that are kept; where they would take more, none is."""
PERSONAL_ROUND = 2**30
"""Stands for the round number when sites fit their personal models, so that these draw their own random numbers."""


class SiteModels(NamedTuple):
    """The models that sites use themselves, along a first axis; one alone is everybody's."""

    params: Tree
    which: np.ndarray[Any, Any]
    """For each of the sites asked about, the place of its model."""


def row_numbers(first: np.ndarray[Any, Any], count: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Row numbers of ragged pieces, one after the other."""
    ends = np.cumsum(count)
    return np.repeat(first - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)


@lru_cache(maxsize=64)
def prediction_program(predict: Callable[[Any, Array], Array]) -> Callable[..., Array]:
    """Predicts block by block, each block by the model at its place.

    All blocks have one size: so a row's prediction has the same bits whoever its neighbours are, in the run that
    evaluates a model and long after it.
    """

    @jax.jit
    def program(params: Tree, which: Array, blocks: Array) -> Array:
        def one(block: tuple[Array, Array]) -> Array:
            place, x = block
            return predict(jax.tree.map(lambda table: table[place], params), intensities(x))

        return jax.lax.map(one, (which, blocks))

    return program


@lru_cache(maxsize=64)
def overlap_program(predict: Callable[[Any, Array], Array]) -> Callable[..., Array]:
    """The same for images and their masks, of which nothing but counts is kept (see `core.overlap`)."""

    @jax.jit
    def program(params: Tree, which: Array, blocks: Array, masks: Array) -> Array:
        def one(block: tuple[Array, Array, Array]) -> Array:
            place, x, drawn = block
            found: Array = overlap_of(predict(jax.tree.map(lambda table: table[place], params), intensities(x)), drawn)
            return found

        return jax.lax.map(one, (which, blocks, masks))

    return program


def score_rows(
    algorithm: Algorithm,
    params: Params,
    x: Any,
    y: np.ndarray[Any, Any],
    task: Task,
    times: np.ndarray[Any, Any] | None = None,
) -> Scores:
    """One model's predictions for the rows of one site, as they are judged; of survival with times of follow-up."""
    first = np.array([0, len(y)])
    if not task.segmentation:
        return Scores(predict_rows(algorithm, params, x), y, first, times)
    alone = jax.tree.map(lambda array: np.asarray(array)[None], params)
    models = SiteModels(alone, np.zeros(1, np.int32))
    found = predict_pieces(algorithm.predict, models, x, np.zeros(1, np.int64), np.array([len(x)]), masks=y)
    return Scores(found, truth_of(y), first)


def predict_rows(algorithm: Algorithm, params: Params, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Predictions of one model for rows."""
    alone = jax.tree.map(lambda array: np.asarray(array)[None], params)
    models = SiteModels(alone, np.zeros(1, np.int32))
    return predict_pieces(algorithm.predict, models, x, np.zeros(1, np.int64), np.array([len(x)]))


def predict_pieces(
    predict: Callable[[Any, Array], Array],
    models: SiteModels,
    x: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    count: np.ndarray[Any, Any],
    masks: np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, Any]:
    """Predictions for pieces of the rows, a site's each and by its model; `x` may be on disk.

    With `masks`, one for every row of `x`, how the predictions overlap with them, and no picture.
    """
    if not count.sum():  # of nobody, in the shape of what is predicted of anybody
        anybody, one = np.zeros((1, *x.shape[1:]), x.dtype), np.eye(1, len(count), dtype=np.int64)[0]
        blank = None if masks is None else np.zeros((1, *masks.shape[1:]), masks.dtype)
        return predict_pieces(predict, models, anybody, np.zeros_like(one), one, blank)[:0]
    size = CHUNK if x.ndim == 2 else IMAGES
    blocks = -(-count // size)
    which = np.repeat(np.asarray(models.which, np.int32), blocks)
    # A site begins at a block of its own; what is left of its last block is filled with any row.
    place = row_numbers((np.cumsum(blocks) - blocks) * size, count)
    row = np.zeros(int(blocks.sum()) * size, np.int64)
    row[place] = row_numbers(first, count)
    program = prediction_program(predict) if masks is None else overlap_program(predict)
    results, most = [], max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // int(np.prod(x.shape[1:]))) // size)
    for begin in range(0, len(which), most):
        some = slice(begin, min(begin + most, len(which)))
        here, wanted = which[some], row[some.start * size : some.stop * size]
        many = power_of_two(len(here))
        taken = np.resize(wanted, many * size)
        given = [np.asarray(one[taken]).reshape(many, size, *one.shape[1:]) for one in (x, masks) if one is not None]
        found = np.asarray(program(models.params, np.resize(here, many), *given))
        results.append(found[: len(here)].reshape(-1, *found.shape[2:]))
    return np.concatenate(results)[place]


@lru_cache(maxsize=64)
def common_program(algorithm: Algorithm) -> Callable[[Tree], Params]:
    return jax.jit(lambda server: jax.tree.map(lambda array: array[None], algorithm.params(server)))


@lru_cache(maxsize=64)
def personal_program(algorithm: Algorithm) -> Callable[..., Params]:
    """Every site fits its own model on its training rows."""
    personal = algorithm.personal
    assert personal is not None

    @jax.jit
    def program(message: Message, key: Array, data: Data, seating: Seating, kept: Tree) -> Params:
        def block(inputs: tuple[Any, ...]) -> Params:
            first, longest, rows, site, kept = inputs

            def one(own: Data, rows: Array, site: Array, kept: Tree) -> Params:
                shard = Shard(own.x, own.y, first, rows, longest, site, algorithm.largest_batch)
                return personal.fit(message, kept, shard, jax.random.fold_in(key, site))

            return map_lanes(one, rows.shape[0])(data, rows, site, kept)

        return jax.lax.map(block, (seating.first, seating.longest, seating.rows, seating.site, kept))

    return program


def scores(
    algorithm: Algorithm,
    progress: Progress,
    federation: Federation,
    part: str,
    sites: np.ndarray[Any, Any],
    *,
    seed: int,
    personal: Params | None = None,
) -> Scores:
    """Predictions for the given sites' rows of one part, in the order of the sites.

    `personal` are the sites' own models, where they were fitted before.
    """
    algorithm = representative(algorithm)
    first, count = federation.part(part)
    first, count = first[sites], count[sites]
    rows = row_numbers(first, count)
    edges = np.concatenate([[0], np.cumsum(count)])
    task = federation.task
    if len(rows) == 0:
        columns = {"regression": (), "segmentation": (3,)}.get(task.kind, (len(task.classes),))
        truth = truth_of(federation.y[:0]) if task.segmentation else federation.y[:0]
        return Scores(np.zeros((0, *columns)), truth, edges, None if federation.times is None else federation.times[:0])
    fitted = site_models(algorithm, progress, federation, sites, seed=seed)
    if personal is not None:
        fitted = iter([(slice(None), SiteModels(personal, np.arange(len(sites))))])
    masks = federation.y if task.segmentation else None
    predicted = [
        predict_pieces(algorithm.predict, models, federation.x, first[here], count[here], masks)
        for here, models in fitted
    ]
    actual = np.asarray(federation.y[rows])
    times = None if federation.times is None else federation.times[rows]
    return Scores(np.concatenate(predicted), truth_of(actual) if task.segmentation else actual, edges, times)


def quality(scores: Scores, names: Sequence[str]) -> Quality:
    """What the sites would tell of these predictions; losses are compiled, and added up in double precision."""
    rows = np.diff(scores.first)
    site = np.repeat(np.arange(len(rows)), rows)
    loss, right = row_figures(scores.predicted, scores.actual)
    sums, hits = (np.bincount(site, weights=one, minlength=len(rows)) for one in (loss, right))
    there = np.flatnonzero(rows)
    has_right = has_classes(scores.predicted, scores.actual) and scores.times is None
    return Quality(
        tuple(names[int(index)] for index in there),
        sums[there],
        rows[there].astype(np.int64),
        hits[there].astype(np.int64) if has_right else None,
    )


def site_models(
    algorithm: Algorithm, progress: Progress, federation: Federation, sites: np.ndarray[Any, Any], *, seed: int
) -> Iterator[tuple[slice, SiteModels]]:
    """The models that these sites would use, some sites at a time."""
    algorithm = representative(algorithm)
    if algorithm.personal is None:
        yield slice(None), SiteModels(common_program(algorithm)(progress.server), np.zeros(len(sites), np.int32))
        return
    bytes_each = trees.nbytes(algorithm.params(progress.server))
    many = max(LANES, min(SITES_AT_ONCE, MODEL_BYTES // max(1, bytes_each)))
    for at in range(0, len(sites), many):
        some = sites[at : at + many]
        yield slice(at, at + len(some)), _personal(algorithm, progress, federation, some, seed)


def personal_models(
    algorithm: Algorithm, progress: Progress, federation: Federation, sites: np.ndarray[Any, Any], *, seed: int
) -> Params | None:
    """The sites' own models along a first axis, in their order; none without any, or where they would be too large."""
    if algorithm.personal is None or not len(sites):
        return None
    pieces = []
    for _, models in site_models(algorithm, progress, federation, sites, seed=seed):
        found = jax.tree.map(lambda array, which=models.which: np.asarray(array)[which], models.params)
        pieces.append(found)
        if trees.nbytes(found) / len(models.which) * len(sites) > KEPT_BYTES:
            return None
    together: Params = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    return together


def _personal(
    algorithm: Algorithm, progress: Progress, federation: Federation, sites: np.ndarray[Any, Any], seed: int
) -> SiteModels:
    personal = algorithm.personal
    assert personal is not None
    first, rows = (column[sites] for column in federation.part("train"))
    lanes = min(LANES, len(sites))
    shape = Shape(1, 1, -(-len(sites) // lanes), lanes)
    one = templates(shape, sites, rows, first, population=len(federation.sites), passes=personal.passes)[0]
    places = capacity_for(max(1, one.places)) + algorithm.largest_batch
    seating = one.seat(one.visits.order(seed, PERSONAL_ROUND, personal.passes), places)
    seating = jax.tree.map(lambda a: a[0], seating)
    data = Data(np.asarray(federation.x[seating.table]), np.asarray(federation.y[seating.table]))
    kept = jax.tree.map(lambda table: table.at[seating.site].get(mode="clip"), progress.clients)
    message = algorithm.broadcast(progress.server)
    params = personal_program(algorithm)(message, round_key(seed, PERSONAL_ROUND), data, seating, kept)
    _, slot = assign_seats(rows, shape)
    return SiteModels(jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), params), slot)
