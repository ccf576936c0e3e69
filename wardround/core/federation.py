"""The prepared data of all sites as the simulation holds them: flat, ragged, each row once in memory or on disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from tempfile import TemporaryFile
from typing import Any, overload

import numpy as np

from wardround.core.contracts import Task

PARTS = ("train", "validation", "test")
LARGE = 1 << 28
"""Bytes of images from which they lie in a file instead of in memory."""


class NumberedSites(Sequence[str]):
    """Names made when asked for, so that a million clients need no million strings.

    >>> NumberedSites("client", 1_000_000)[41]
    'client-41'
    """

    def __init__(self, word: str, length: int) -> None:
        self.word = word
        self.length = length

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [f"{self.word}-{i}" for i in range(*index.indices(self.length))]
        if not -self.length <= index < self.length:
            raise IndexError(index)
        return f"{self.word}-{index % self.length}"


@dataclass(frozen=True)
class Federation:
    """Rows of all sites, one site after the other, and within a site train, then validation, then test.

    Site i has `counts[i]` = (train, validation, test) rows, from row `first[i]` on. `x` may be memory-mapped; where x
    and y are read from files when rows are drawn, they are no arrays and can only be indexed by rows.
    `groups` holds columns for fairness (one value a row) that need not be among the features.
    """

    sites: Sequence[str]
    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    first: np.ndarray[Any, Any]
    counts: np.ndarray[Any, Any]
    task: Task
    features: tuple[str, ...] = ()
    groups: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    times: np.ndarray[Any, Any] | None = None
    """Of survival: how long each row's patient was followed up; no model sees it."""

    def part(self, part: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(first row, number of rows) of every site in one part."""
        column = PARTS.index(part)
        return self.first + self.counts[:, :column].sum(axis=1), self.counts[:, column]

    def rows_of(self, part: str) -> np.ndarray[Any, Any]:
        """Indices of all rows of one part, site after site."""
        first, count = self.part(part)
        ends = np.cumsum(count)
        return np.repeat(first - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)

    def select_part(self, part: str) -> "Federation":
        """The same sites with no rows but those of one part, which become their training rows; nothing is copied."""
        first, count = self.part(part)
        zero = np.zeros_like(count)
        return replace(self, first=first, counts=np.stack([count, zero, zero], axis=1))

    def pool(self) -> "Federation":
        """All rows at one place, for the centralized baseline; parts stay what they were."""
        rows = np.concatenate([self.rows_of(part) for part in PARTS])
        return Federation(
            sites=("all",),
            x=self.x[rows],
            y=self.y[rows],
            first=np.zeros(1, np.int64),
            counts=self.counts.sum(axis=0, keepdims=True),
            task=self.task,
            features=self.features,
            groups={name: column[rows] for name, column in self.groups.items()},
            times=None if self.times is None else self.times[rows],
        )


def is_in_memory(rows: Any) -> bool:
    """Whether rows are an array here, and neither mapped from a file nor read when they are asked for."""
    return isinstance(rows, np.ndarray) and not isinstance(rows, np.memmap)


def mapped_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Zeros: in memory, or if they are large in a file without a name that vanishes with the process."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < LARGE:
        return np.zeros(shape, dtype)
    with TemporaryFile(prefix="wardround-") as file:
        file.truncate(size)
        return np.memmap(file, dtype, "r+", shape=shape)


def assemble(
    parts: Sequence[tuple[str, Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]]],
    task: Task,
    features: tuple[str, ...] = (),
) -> Federation:
    """A federation from, for every site, its name and its (x, y) of train, validation and test."""
    counts = np.array([[len(y) for _, y in three] for _, three in parts], np.int64).reshape(-1, len(PARTS))
    totals = counts.sum(axis=1)
    pieces = [x for _, three in parts for x, _ in three]
    if any(isinstance(piece, np.memmap) for piece in pieces):
        x = mapped_zeros((int(totals.sum()), *task.shape), pieces[0].dtype)
        np.concatenate(pieces, out=x)
    else:
        x = np.concatenate(pieces)
    y = np.concatenate([y for _, three in parts for _, y in three])
    return Federation(
        sites=tuple(name for name, _ in parts),
        x=x if x.dtype == np.uint8 else np.ascontiguousarray(x, np.float32),
        y=np.ascontiguousarray(y, task.label_type),
        first=np.cumsum(totals) - totals,
        counts=counts,
        task=task,
        features=features,
    )


def task_of(
    kind: str, shape: tuple[int, ...], classes: tuple[str, ...], target: str, horizons: tuple[float, ...] = ()
) -> Task:
    """The task of the kind that the sites agreed on."""
    return Task(shape, classes, target, horizons, kind == "segmentation")
