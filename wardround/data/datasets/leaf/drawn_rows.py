"""Rows of a population of which most clients are never drawn: read from their files when somebody asks for them.

`DrawnRows` stands where a federation has an array: rows are taken out of it by their numbers, and nothing else is
known of them. What was read lately is remembered, since features and labels of a cohort are asked for one after the
other. Taken as a whole (`np.asarray`) it is the array that it stands for, at the price of reading everything.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.datasets.leaf.clients import rows_in_parts
from wardround.data.datasets.leaf.user_index import UNSPLIT, PackedNames, UserIndex
from wardround.data.row_split import sizes

Numbers = np.ndarray[Any, Any]
Read = Callable[[bytes, int, Path, str], tuple[Numbers, Numbers]]
"""(bytes of a user's data, rows that there should be, file, user) to its x and y."""
REMEMBERED = 1 << 28
"""Bytes of rows that were read lately and are not read again."""


class ClientStore:
    """Clients by their numbers, read from files."""

    def __init__(self, index: UserIndex, users: Numbers, read: Read, shares: Sequence[float], seed: int) -> None:
        self.index = index
        self.users = users
        self.read = read
        self.shares = shares
        self.seed = seed
        self._lately: OrderedDict[int, tuple[Numbers, Numbers]] = OrderedDict()
        self._bytes = 0

    def client(self, number: int) -> tuple[Numbers, Numbers]:
        """Its x and y: train before validation before test."""
        if number in self._lately:
            self._lately.move_to_end(number)
            return self._lately[number]
        found = self._client(number)
        self._lately[number] = found
        self._bytes += found[0].nbytes + found[1].nbytes
        while self._bytes > REMEMBERED and len(self._lately) > 1:
            x, y = self._lately.popitem(last=False)[1]
            self._bytes -= x.nbytes + y.nbytes
        return found

    def _client(self, number: int) -> tuple[Numbers, Numbers]:
        index, user = self.index, int(self.users[number])
        name = index.names[user]
        pieces: list[tuple[Numbers, Numbers]] = []
        stretches: list[tuple[int | None, int, int]] = []
        total = 0
        for place in range(int(index.first[user]), int(index.first[user + 1])):
            file, rows, part = index.files[int(index.file[place])], int(index.rows[place]), int(index.part[place])
            pieces.append(self.read(stretch(file, int(index.begin[place]), int(index.end[place])), rows, file, name))
            stretches.append((None if part == UNSPLIT else part, total, rows))
            total += rows
        order, _ = rows_in_parts(name, stretches, self.shares, self.seed)
        x, y = (np.concatenate([piece[which] for piece in pieces])[order] for which in range(2))
        return x, y


class DrawnRows:
    """Features (`which` 0) or labels (1) of all clients of a store, by row numbers."""

    def __init__(self, store: ClientStore, which: int, first: Numbers, total: int) -> None:
        self.store = store
        self.which = which
        self.first = first
        row = store.client(0)[which]
        self.shape = (total, *row.shape[1:])
        self.dtype = row.dtype
        self.ndim = row.ndim
        self.nbytes = int(np.prod(self.shape)) * row.itemsize
        self.size = int(np.prod(self.shape))

    @property
    def mark(self) -> str:
        """Another one for other files, users or rows."""
        index, digest = self.store.index, sha256(str(self.store.seed).encode())
        for column in (self.store.users, index.file, index.begin, index.end, index.rows, index.part):
            digest.update(np.ascontiguousarray(column).tobytes())
        digest.update(index.names.letters)
        return digest.hexdigest()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Numbers:
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        numbers = np.asarray(index)
        return self.take(np.flatnonzero(numbers) if numbers.dtype == bool else numbers)

    def take(self, indices: Any, axis: int | None = 0, out: Numbers | None = None, mode: str = "raise") -> Numbers:
        """As NumPy's arrays have it, along the first axis."""
        assert axis == 0
        rows = np.asarray(indices, np.int64)
        flat = np.where(rows < 0, rows + len(self), rows).ravel()
        if mode == "clip":
            flat = np.clip(flat, 0, len(self) - 1)
        elif flat.size and not 0 <= flat.min() <= flat.max() < len(self):
            raise IndexError(f"there are {len(self)} rows, and row {int(flat.max())} was asked for")
        found = (
            np.empty((len(flat), *self.shape[1:]), self.dtype) if out is None else out.reshape((-1, *self.shape[1:]))
        )
        client = np.searchsorted(self.first, flat, side="right") - 1
        order = np.argsort(client, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(client[order])) + 1) if len(order) else []:
            number = int(client[some[0]])
            found[some] = self.store.client(number)[self.which][flat[some] - self.first[number]]
        return found.reshape((*rows.shape, *self.shape[1:]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Numbers:
        return np.asarray(self[:], dtype)


def stretch(file: Path, begin: int, end: int) -> bytes:
    with file.open("rb") as opened:
        return os.pread(opened.fileno(), end - begin, begin)


def federation_by_index(
    index: UserIndex, read: Read, task: Task, *, shares: Sequence[float], fewest: int, seed: int, where: str
) -> Federation:
    """A federation of the users with at least `fewest` rows, none of which is read yet (but the first's)."""
    counts = part_counts(index, shares)
    users = np.flatnonzero(counts.sum(axis=1) >= max(1, fewest))
    if not len(users):
        raise Refusal(
            f"no client has {max(1, fewest)} rows or more",
            where=where,
            remedy="ask for fewer rows a client, or check the files",
        )
    counts = counts[users]
    totals = counts.sum(axis=1)
    first = np.cumsum(totals) - totals
    store = ClientStore(index, users, read, shares, seed)
    x, y = (cast(Numbers, DrawnRows(store, which, first, int(totals.sum()))) for which in range(2))
    names = index.names if len(users) == len(index.names) else PackedNames.of([index.names[int(one)] for one in users])
    return Federation(sites=names, x=x, y=y, first=first, counts=counts, task=task)


def part_counts(index: UserIndex, shares: Sequence[float]) -> Numbers:
    """Rows of every user to train, validate and test: numbers of rows occur often, and are split once each."""
    owner = np.repeat(np.arange(len(index.names)), np.diff(index.first))
    found, many = np.unique(index.rows, return_inverse=True)
    split = np.array([sizes(int(rows), shares) for rows in found]).reshape(-1, 3)
    whole = np.eye(3, dtype=np.int64)[np.maximum(index.part, 0)] * index.rows[:, None]
    each = np.where(index.part[:, None] == UNSPLIT, split[many], whole)
    return np.stack([np.bincount(owner, each[:, part], len(index.names)) for part in range(3)], axis=1).astype(np.int64)
