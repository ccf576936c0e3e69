"""Where the sites of a cohort lie in the compiled round: lanes in blocks, blocks in pieces, pieces on devices.

Sites are sorted by size and dealt into blocks of a few lanes; a block runs as long as its longest site, so like sizes
belong together. A table tells the round which row lies in which place: the rows of a block's lanes interleaved, in the
order of their visit, so that one large gather at the start of the round makes every later batch one contiguous piece of
memory (a small gather a batch, inside the loop, costs as much as the training itself). A large cohort is cut into
pieces that follow each other, so that memory does not grow with it. All shapes depend on the study alone, never on the
round: the round compiles once.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.order import Visits

CACHE_BYTES = 128 * 1024
"""Parameters of all lanes of a block should stay in a core's cache; measured best at about this size."""
MOST_LANES = 16
WORTH_A_DEVICE = 2_000_000
"""Rows times parameters a round below which a second device costs more than it saves."""
PIECE_BYTES = 1 << 25
"""Rows of a cohort held at a time, about; the next piece is fetched while this one is computed."""

Numbers = np.ndarray[Any, Any]


class Shape(NamedTuple):
    """The static shape of a round: pieces one after the other, each devices x blocks x lanes."""

    devices: int
    pieces: int
    blocks: int
    lanes: int

    @property
    def slots(self) -> int:
        return self.devices * self.pieces * self.blocks * self.lanes


class Seating(NamedTuple):
    """Arrays that tell the compiled round who sits where in one piece; first axis devices, then blocks, then lanes."""

    first: Any
    """The first place of each block."""
    longest: Any
    rows: Any
    site: Any
    table: Any
    """(devices, places, lanes): the number of the row that lies in each place."""


def shape_for(cohort: int, rows: int, row_bytes: int, parameters: int, devices: int) -> Shape:
    """Lanes that fit the cache, as many devices as the work is worth, pieces that fit the memory set aside.

    `rows` are all rows visited in a round, repeated passes included.
    """
    if rows * parameters < WORTH_A_DEVICE:
        devices = 1
    devices = max(1, min(devices, cohort))
    best = min(MOST_LANES, max(1, CACHE_BYTES // max(1, 4 * parameters)), -(-cohort // devices))
    # Of the numbers of lanes near the best, the one that leaves fewest seats empty.
    near = range(-(-best // 2), min(MOST_LANES, best * 3 // 2) + 1)
    _, _, lanes, blocks = min(
        (blocks * lanes, abs(lanes - best), lanes, blocks)
        for lanes in near
        for blocks in [-(-cohort // (devices * lanes))]
    )
    pieces = min(blocks, max(1, round(rows * row_bytes / PIECE_BYTES)))
    return Shape(devices, pieces, -(-blocks // pieces), lanes)


def capacity_for(number: int) -> int:
    """Room for at least `number` rows, in steps of an eighth of a power of two: little waste and few programs."""
    step = max(1, (1 << max(0, int(number - 1).bit_length())) // 8)
    return -(-number // step) * step


def power_of_two(number: int) -> int:
    return 1 << max(0, int(number - 1).bit_length())


def assign_seats(rows: Numbers, shape: Shape) -> tuple[Numbers, Numbers]:
    """For every member of the cohort its piece and its slot there: longest first, dealt to and fro over the devices."""
    by_size = np.argsort(-rows, kind="stable")
    rank = np.arange(len(rows))
    block, lane = rank // shape.lanes, rank % shape.lanes
    turn, device = block // shape.devices, block % shape.devices
    device = np.where(turn % 2 == 0, device, shape.devices - 1 - device)
    piece, slot = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    piece[by_size] = turn // shape.blocks
    slot[by_size] = (device * shape.blocks + turn % shape.blocks) * shape.lanes + lane
    return piece, slot


class DeviceRows(NamedTuple):
    """A device's share of a piece, row by row in the order of the slots."""

    taken: slice
    """Which of the piece's rows."""
    start: Numbers
    """The first row of its site."""
    at: Numbers
    """Its place in the table on the first pass, were the rows not shuffled."""
    stride: Numbers
    """Places between two passes."""


class Template(NamedTuple):
    """A piece of a cohort, seated: all about its rows but the order of their visit, which every round changes."""

    seating: Seating
    """With an empty table."""
    visits: Visits
    """Of the piece's sites, in the order of their slots."""
    members: Numbers
    shares: tuple[DeviceRows, ...]
    places: int
    """Places that are taken, on the device that has most."""

    def seat(self, order: Numbers, capacity: int) -> Seating:
        """The seating with its table for this order of visits; places that are not taken point to row 0."""
        lanes = self.seating.rows.shape[2]
        table = np.zeros((len(self.shares), capacity * lanes), np.int32)
        for own, (taken, start, at, stride) in zip(table, self.shares, strict=True):
            for visit, local in enumerate(order[:, taken]):
                own[at + visit * stride if visit else at] = start + local
        return self.seating._replace(table=table.reshape(len(self.shares), capacity, lanes))


def templates(
    shape: Shape, cohort: Numbers, rows: Numbers, starts: Numbers | None, *, population: int, passes: int
) -> list[Template]:
    """Seat a cohort, piece by piece. `starts` None: a device is given its own sites' rows, one site after another."""
    piece, slot = assign_seats(rows, shape)
    made = []
    for number in range(shape.pieces):
        here = np.flatnonzero(piece == number)
        here = here[np.argsort(slot[here], kind="stable")]
        own = None if starts is None else starts[here]
        made.append(template(shape, slot[here], cohort[here], rows[here], own, population, passes))
    return made


def template(
    shape: Shape, slot: Numbers, cohort: Numbers, rows: Numbers, starts: Numbers | None, population: int, passes: int
) -> Template:
    """Seat the members of one piece, given in the order of their slots."""

    def spread(values: Numbers, empty: int) -> Numbers:
        table = np.full(shape.devices * shape.blocks * shape.lanes, empty, np.int32)
        table[slot] = values
        return table.reshape(shape.devices, shape.blocks, shape.lanes)

    seated = spread(rows, 0)
    longest = seated.max(axis=2)
    used = np.cumsum(passes * longest, axis=1)
    first = (used - passes * longest).astype(np.int32)
    block, lane = slot // shape.lanes, slot % shape.lanes
    begin = np.searchsorted(block // shape.blocks, np.arange(shape.devices + 1))
    ends = np.concatenate([[0], np.cumsum(rows)])
    shares = []
    for number in range(shape.devices):
        mine = slice(int(begin[number]), int(begin[number + 1]))
        taken = slice(int(ends[mine.start]), int(ends[mine.stop]))
        count = rows[mine]
        before = ends[mine] - taken.start
        within = np.arange(taken.stop - taken.start) - np.repeat(before, count)
        at = (np.repeat(first.ravel()[block[mine]], count) + within) * shape.lanes + np.repeat(lane[mine], count)
        stride = np.repeat(longest.ravel()[block[mine]] * shape.lanes, count)
        start = np.repeat(before if starts is None else starts[mine], count).astype(np.int32)
        shares.append(DeviceRows(taken, start, at, stride))
    seating = Seating(first, longest, seated, spread(cohort, population), np.zeros((shape.devices, 0, shape.lanes)))
    return Template(seating, Visits(cohort, rows), cohort, tuple(shares), int(used[:, -1].max(initial=0)))


def pad_places(array: np.ndarray[Any, Any], places: int) -> np.ndarray[Any, Any]:
    """A table of (devices, places, lanes) with more padding behind."""
    missing = places - array.shape[1]
    return np.pad(array, [(0, 0), (0, missing), (0, 0)]) if missing else array
