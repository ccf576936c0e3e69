"""Rows of many natural clients as a federation: clients that come one by one, never all rows in memory where many."""

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.row_split import generator, sizes

Numbers = np.ndarray[Any, Any]
IN_MEMORY = 1 << 30
"""Bytes of rows up to which they are held in memory; more lie in a temporary file that is mapped."""
AT_ONCE = 1 << 14
"""Rows moved at a time."""


class ClientRows(NamedTuple):
    """Some rows of one client: what a file holds of it. A client may come several times, for each part apart."""

    name: str
    x: Numbers
    y: Numbers
    part: int | None = None
    """0 to train, 2 to test; none where the rows are still to be split."""
    group: str = ""
    """Where the client stands in a hierarchy, such as the play of a role."""


class _Stretch(NamedTuple):
    part: int | None
    first: int
    rows: int


def federation_of(
    clients: Iterator[ClientRows],
    task: Task,
    *,
    shares: Sequence[float],
    fewest: int,
    seed: int,
    hierarchy: str = "",
    where: str = "",
) -> Federation:
    """A federation of the clients with at least `fewest` rows; rows of no part are split by `shares` within a client.

    Rows are written to a temporary file as they come, so that one client's (or one file's) are in memory at a time.
    """
    stretches: dict[str, list[_Stretch]] = {}
    groups: dict[str, str] = {}
    labels: list[Numbers] = []
    total, shape, dtype = 0, (0,), np.dtype(np.float32)
    with tempfile.TemporaryFile() as file:
        for one in clients:
            if len(one.y):
                np.ascontiguousarray(one.x).tofile(file)
                labels.append(np.asarray(one.y, np.int32))
                shape, dtype = one.x.shape[1:], one.x.dtype
            stretches.setdefault(one.name, []).append(_Stretch(one.part, total, len(one.y)))
            groups[one.name] = one.group
            total += len(one.y)
        kept = {name: own for name, own in stretches.items() if sum(one.rows for one in own) >= max(1, fewest)}
        if not kept:
            raise Refusal(
                f"no client has {max(1, fewest)} rows or more",
                where=where,
                remedy="ask for fewer rows a client, or check the files",
            )
        file.flush()
        rows = np.memmap(file, dtype, "r", shape=(total, *shape))
        order, counts = _order(kept, shares, seed)
        x = _reordered(rows, order)
    owners = np.repeat(np.arange(len(kept)), counts.sum(axis=1))
    named = np.array([groups[name] for name in kept])
    totals = counts.sum(axis=1)
    return Federation(
        sites=tuple(kept),
        x=x,
        y=np.concatenate(labels)[order],
        first=np.cumsum(totals) - totals,
        counts=counts,
        task=task,
        groups={hierarchy: named[owners]} if hierarchy and any(groups.values()) else {},
    )


def _order(kept: dict[str, list[_Stretch]], shares: Sequence[float], seed: int) -> tuple[Numbers, Numbers]:
    """The rows client after client, train before validation before test; and how many each client has of each."""
    order, counts = [], np.zeros((len(kept), 3), np.int64)
    for number, (name, own) in enumerate(kept.items()):
        rows, counts[number] = rows_in_parts(name, own, shares, seed)
        order.append(rows)
    return np.concatenate(order), counts


def rows_in_parts(
    name: str, stretches: Sequence[tuple[int | None, int, int]], shares: Sequence[float], seed: int
) -> tuple[Numbers, list[int]]:
    """A client's rows, train before validation before test, and how many are in each; from (part, first, rows)."""
    parts: list[list[Numbers]] = [[], [], []]
    for part, first, count in stretches:
        rows = np.arange(first, first + count)
        if part is not None:
            parts[part].append(rows)
            continue
        mixed = generator(seed, "leaf", name).permutation(rows)
        ends = np.cumsum(sizes(count, shares))[:-1]
        for place, piece in enumerate(np.split(mixed, ends)):
            parts[place].append(np.sort(piece))
    return np.concatenate([rows for pieces in parts for rows in pieces]), [sum(map(len, pieces)) for pieces in parts]


def _reordered(rows: Numbers, order: Numbers) -> Numbers:
    """The rows in this order, in memory or, where they are many, in a mapped file without a name."""
    if rows[:1].nbytes * len(order) <= IN_MEMORY:
        return np.asarray(rows[order])
    with tempfile.TemporaryFile() as file:
        for begin in range(0, len(order), AT_ONCE):
            np.asarray(rows[order[begin : begin + AT_ONCE]]).tofile(file)
        file.flush()
        return np.memmap(file, rows.dtype, "r", shape=(len(order), *rows.shape[1:]))
