"""A made-up population of up to a million clients, to see what scale costs; never all of it in memory.

With a `folder`, the rows are written there in chunks, to files named after the settings, which are memory-mapped and
found again the next time. In memory are then one chunk and about 130 bytes a client, but never all rows. Without a
folder they are made in memory. Either way the rows are the same for the same settings. Costs 4 · (features + 1) bytes a
row, and some fifteen seconds for ten million rows of 32 features.

Client k has `rows` rows, or with `spread` > 0 max(1, round(rows · exp(spread · Normal(0, 1) - spread² / 2))) of them,
of which the share `test`, rounded down, comes last and is for testing. Its features are Normal(degree · m_k, 1) with
m_k Normal(0, 1) for each feature. Its classes are drawn from softmax(x · W + degree · b_k) with W common to all, of
variance 2 / features, and b_k Normal(0, 1) for each class. Degree 0 is IID.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np

from wardround.core.bounds import Bound, Count, NotNegative, Share
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, NumberedSites

CHUNK_ROWS = 200_000
Numbers = np.ndarray[Any, Any]


def synthetic_population(
    *,
    clients: Annotated[int, Bound(low=1, high=1_000_000)] = 1_000,
    rows: Count = 10,
    spread: NotNegative = 0.0,
    features: Count = 32,
    classes: Annotated[int, Bound(low=2)] = 2,
    degree: Share = 0.5,
    test: Share = 0.2,
    folder: str = "",
    seed: int = 0,
) -> Federation:
    """A made-up population of up to a million clients, on disk if a folder is given, for tests of scale."""
    rng = np.random.default_rng([seed, 0])
    weights = rng.normal(0, np.sqrt(2 / features), (features, classes)).astype(np.float32)
    sizes = _sizes(clients, rows, spread, rng)
    first = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    tested = np.floor(sizes * test + 1e-9).astype(np.int64)

    def chunks() -> Iterator[tuple[slice, Numbers, Numbers]]:
        for number, (low, high) in enumerate(_chunks(sizes)):
            own = np.random.default_rng([seed, 1, number])
            rows_of = slice(int(first[low]), int(first[high - 1] + sizes[high - 1]))
            yield rows_of, *_draw(sizes[low:high], weights, degree, own)

    if folder:
        settings = [clients, rows, spread, features, classes, degree, seed]
        x, y = _on_disk(Path(folder), settings, total, features, chunks())
    else:
        x, y = np.empty((total, features), np.float32), np.empty(total, np.int32)
        for rows_of, x_part, y_part in chunks():
            x[rows_of], y[rows_of] = x_part, y_part
    return Federation(
        sites=NumberedSites("client", clients),
        x=x,
        y=y,
        first=first,
        counts=np.stack([sizes - tested, np.zeros_like(sizes), tested], axis=1),
        task=Task((features,), tuple(str(label) for label in range(classes)), "label"),
        features=tuple(f"feature_{j}" for j in range(features)),
    )


def _sizes(clients: int, rows: int, spread: float, rng: np.random.Generator) -> Numbers:
    if spread == 0:
        return np.full(clients, rows, np.int64)
    drawn = rows * np.exp(spread * rng.standard_normal(clients) - spread**2 / 2)
    return np.maximum(1, np.round(drawn)).astype(np.int64)


def _chunks(sizes: Numbers) -> Iterator[tuple[int, int]]:
    """Ranges of clients with about CHUNK_ROWS rows together; one client is never cut in two."""
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + CHUNK_ROWS, side="right")))
        yield low, high
        low = high


def _draw(sizes: Numbers, weights: Numbers, degree: float, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    features, classes = weights.shape
    centre = rng.standard_normal((len(sizes), features), np.float32)
    favour = rng.standard_normal((len(sizes), classes), np.float32)
    client = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.standard_normal((len(client), features), np.float32)
    x += np.float32(degree) * centre[client]
    logits = x @ weights + np.float32(degree) * favour[client]
    # The largest of logit + Gumbel noise is a draw from the softmax.
    # (An exponential draw can be exactly 0 in single precision, hence the floor.)
    noise = np.maximum(rng.standard_exponential(logits.shape, np.float32), np.finfo(np.float32).tiny)
    logits -= np.log(noise)
    return x, logits.argmax(axis=1).astype(np.int32)


def _on_disk(
    folder: Path, settings: list[Any], total: int, features: int, chunks: Iterator[tuple[slice, Numbers, Numbers]]
) -> tuple[Numbers, Numbers]:
    if not folder.is_dir():
        raise Refusal(
            f"there is no folder {folder}",
            where="data set synthetic_population, folder",
            remedy="make the folder first, on a disk with room, or leave folder out",
        )
    mark = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
    paths = [folder / f"population-{mark}-{part}.npy" for part in ("x", "y")]
    if not all(path.exists() for path in paths):
        # Written under another name first, so that an interrupted run never leaves a file that looks whole.
        unfinished = [path.with_name(f"{path.stem}-{os.getpid()}.unfinished") for path in paths]
        with unfinished[0].open("wb") as x_file, unfinished[1].open("wb") as y_file:
            # Appended, not written through a memory map, whose pages would all count as this process's memory.
            _begin(x_file, np.dtype(np.float32), (total, features))
            _begin(y_file, np.dtype(np.int32), (total,))
            for _, x_part, y_part in chunks:
                x_part.tofile(x_file)
                y_part.tofile(y_file)
        for temporary, path in zip(unfinished, paths, strict=True):
            temporary.replace(path)
    x_read, y_read = (np.load(path, mmap_mode="r") for path in paths)
    return x_read, y_read


def _begin(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
