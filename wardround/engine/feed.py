"""How rows reach the compiled round: all of them once, or a cohort's at a time while the devices are at work."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from wardround.core.federation import Federation, is_in_memory
from wardround.engine.layout import Seating, Shape, Template, capacity_for, templates
from wardround.engine.machine.devices import sharding
from wardround.engine.program import Data, pack_seating

Cohort = np.ndarray[Any, Any]
ALIGNMENT = 64
RESIDENT_BYTES = 1 << 31
"""Data up to this size are put where the devices read them once and for all; others are fetched piece by piece."""
PIECES_UNDER_WAY = 1
"""Pieces still computed while the next is handed over; more would only take memory."""
MEMORIES = PIECES_UNDER_WAY + 2
"""Devices read rows where the feed wrote them: a place is written again only when nobody can be reading it."""


def replicate(tree: Any, devices: int) -> Any:
    """Arrays of this host's first device (or of NumPy), whole on every device; aligned ones are not copied."""
    if devices == 1:
        return jax.device_put(tree, jax.local_devices()[0])
    where = sharding(devices, split=False)
    own = [device for device in where.mesh.devices.flat if device.process_index == jax.process_index()]

    def put(array: Any) -> jax.Array:
        return jax.make_array_from_single_device_arrays(
            np.shape(array), where, [jax.device_put(array, device) for device in own]
        )

    return jax.tree.map(put, tree)


def shard_over_devices(tree: Any, devices: int) -> Any:
    """Arrays with a first axis of devices, each part on its own device."""
    where = sharding(devices, split=True)

    def put(array: Any) -> jax.Array:
        own = [
            jax.device_put(array[number : number + 1], device)
            for number, device in enumerate(where.mesh.devices.flat)
            if device.process_index == jax.process_index()
        ]
        return jax.make_array_from_single_device_arrays(np.shape(array), where, own)

    return jax.tree.map(put, tree)


def split_by_device(tree: Any) -> list[Any]:
    """Arrays spread out over the devices, device by device, all on the first device of every host."""
    first = jax.local_devices()[0]
    if jax.process_count() > 1:
        tree = multihost_utils.process_allgather(tree, tiled=True)
    leaves, structure = jax.tree.flatten(tree)
    if jax.process_count() > 1:
        parts = [[jax.device_put(part[None], first) for part in leaf] for leaf in leaves]
    else:
        parts = [[jax.device_put(part.data, first) for part in leaf.addressable_shards] for leaf in leaves]
    return [jax.tree.unflatten(structure, own) for own in zip(*parts, strict=True)]


def to_host(array: jax.Array) -> np.ndarray[Any, Any]:
    """An array spread out over devices, and hosts, as NumPy has it."""
    return np.asarray(array if jax.process_count() == 1 else multihost_utils.process_allgather(array, tiled=True))


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Zeros at an address that a CPU device can take over without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


class Feed:
    """Seats cohorts and brings their rows.

    Everything happens in the caller's thread: devices compute what they were handed meanwhile, and a thread of its own
    was measured to cost more than it saves.
    """

    def __init__(self, federation: Federation, shape: Shape, *, seed: int, passes: int, padding: int) -> None:
        self.federation = federation
        self.shape = shape
        self.seed = seed
        self.passes = passes
        self.padding = padding
        self.first, self.rows = federation.part("train")
        self.resident = is_in_memory(federation.x) and federation.x.nbytes <= RESIDENT_BYTES
        self._capacity = 1
        self._room = 1
        self._templates: tuple[Cohort, list[Template]] | None = None
        self._memory: list[Data | None] = [None] * MEMORIES
        self._source: Data | None = None

    def templates(self, cohort: Cohort) -> list[Template]:
        """How this cohort is seated, piece by piece; remembered, since hospitals mostly meet in the same round."""
        if self._templates is None or not np.array_equal(self._templates[0], cohort):
            made = templates(
                self.shape,
                cohort,
                self.rows[cohort],
                self.first[cohort] if self.resident else None,
                population=len(self.first),
                passes=self.passes,
            )
            self._templates = (cohort, made)
        return self._templates[1]

    def places_of(self, cohort: Cohort) -> int:
        """Places in the tables of one round, about."""
        return (int(self.rows[cohort].sum()) + self.padding * self.shape.lanes * self.shape.devices) * self.passes

    def seat(self, number: int, one: Template) -> Seating:
        """The seating of a piece in one round."""
        # The capacity never shrinks: a round with fewer rows runs in the program that is there already.
        self._capacity = max(self._capacity, capacity_for(one.places))
        return one.seat(one.visits.order(self.seed, number, self.passes), self._capacity + self.padding)

    def source(self) -> Data:
        """All rows, where every device can read them."""
        if self._source is None:
            federation, devices = self.federation, self.shape.devices
            x, y = (aligned_zeros(a.shape, a.dtype) for a in (federation.x, federation.y))
            x[...], y[...] = federation.x, federation.y
            self._source = replicate(Data(x, y), devices)
        return self._source

    def pieces(self, rounds: Sequence[tuple[int, Cohort]]) -> Iterator[tuple[int, int, Seating, Any]]:
        """(round, piece, seating, rows and seats on the devices), piece after piece."""
        turn = 0
        for number, cohort in rounds:
            for piece, one in enumerate(self.templates(cohort)):
                seating = self.seat(number, one)
                rows = self.source() if self.resident else self._fetch(one, turn)
                turn = (turn + 1) % MEMORIES
                seats = shard_over_devices(pack_seating(seating), self.shape.devices)
                yield number, piece, seating, (rows, seats)

    def _fetch(self, one: Template, turn: int) -> Data:
        """The rows of one piece's sites, for every device those of its own, read in the order in which they lie."""
        federation = self.federation
        count = self.rows[one.members]
        ends = np.cumsum(count)
        numbers = np.repeat(self.first[one.members] - (ends - count), count) + np.arange(int(count.sum()))
        self._room = max(self._room, capacity_for(max(own.taken.stop - own.taken.start for own in one.shares)))
        memory = self._memory[turn]
        if memory is None or memory.x.shape[1] != self._room:
            x, y = federation.x, federation.y
            shape = (self.shape.devices, self._room)
            memory = Data(
                aligned_zeros((*shape, *x.shape[1:]), x.dtype), aligned_zeros((*shape, *y.shape[1:]), y.dtype)
            )
            self._memory[turn] = memory
        for device, own in enumerate(one.shares):
            wanted = numbers[own.taken]
            np.take(federation.x, wanted, axis=0, out=np.asarray(memory.x)[device, : len(wanted)], mode="clip")
            np.take(federation.y, wanted, axis=0, out=np.asarray(memory.y)[device, : len(wanted)], mode="clip")
        fetched: Data = shard_over_devices(memory, self.shape.devices)
        return fetched


def pieces_in_turn(
    shares: list[list[tuple[Feed, int, Cohort]]],
) -> Iterator[tuple[int, Feed, tuple[bool, bool], Seating, Any]]:
    """(round, feed, whether it is the round's first and last piece, seating, rows and seats), piece after piece.

    Each feed is read in one go over all rounds: it knows which of its memories is still being read.
    """
    own: dict[Feed, list[tuple[int, Cohort]]] = {}
    for round_shares in shares:
        for feed, number, cohort in round_shares:
            own.setdefault(feed, []).append((number, cohort))
    readers = {feed: feed.pieces(rounds) for feed, rounds in own.items()}
    for round_shares in shares:
        places = [(feed, piece) for feed, _, _ in round_shares for piece in range(feed.shape.pieces)]
        for place, (feed, _) in enumerate(places):
            number, _, seating, given = next(readers[feed])
            yield number, feed, (place == 0, place == len(places) - 1), seating, given
