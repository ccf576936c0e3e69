"""Where the sites of a cohort lie in the compiled round: lanes in blocks on devices.

Sites are sorted by size and dealt into blocks of a few lanes; a block runs as long as its longest site, so like sizes
belong together. All shapes depend on the study alone, never on the round: the round compiles once.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.order import visiting_order

CACHE_BYTES = 128 * 1024
"""Parameters of all lanes of a block should stay in a core's cache; measured best at about this size."""
MOST_LANES = 16
WORTH_A_DEVICE = 2_000_000
"""Rows times parameters a round below which a second device costs more than it saves."""


class Shape(NamedTuple):
    """The static shape of a round: devices x blocks x lanes."""

    devices: int
    blocks: int
    lanes: int

    @property
    def slots(self) -> int:
        return self.devices * self.blocks * self.lanes


class Seating(NamedTuple):
    """Arrays that tell the compiled round who sits where; first axes (devices, blocks, lanes)."""

    first: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    site: np.ndarray[Any, Any]
    longest: np.ndarray[Any, Any]
    order: np.ndarray[Any, Any]
    """(devices, passes, capacity): row numbers into the data of this round."""


def shape_for(cohort: int, rows: int, parameters: int, devices: int) -> Shape:
    """Lanes that fit the cache, and as many devices as the work is worth."""
    if rows * parameters < WORTH_A_DEVICE:
        devices = 1
    devices = max(1, min(devices, cohort))
    lanes = min(MOST_LANES, max(1, CACHE_BYTES // max(1, 4 * parameters)), -(-cohort // devices))
    blocks = -(-cohort // (devices * lanes))
    # Spread evenly: with 17 sites in lanes of 16, two blocks of 9 beat one of 16 and one of 1.
    return Shape(devices, blocks, -(-cohort // (devices * blocks)))


def power_of_two(number: int) -> int:
    """The capacity that holds `number` rows; growing in powers of two keeps programs few."""
    return 1 << max(0, int(number - 1).bit_length())


def seats(rows: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    """For every member of the cohort its slot: longest first, blocks dealt to and fro over the devices."""
    by_size = np.argsort(-rows, kind="stable")
    rank = np.arange(len(rows))
    block, lane = rank // shape.lanes, rank % shape.lanes
    turn, device = block // shape.devices, block % shape.devices
    device = np.where(turn % 2 == 0, device, shape.devices - 1 - device)
    slot = np.empty(len(rows), np.int64)
    slot[by_size] = (device * shape.blocks + turn) * shape.lanes + lane
    return slot


def seat(
    shape: Shape,
    cohort: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any] | None,
    *,
    population: int,
    seed: int,
    round_number: int,
    passes: int,
    capacity: int,
) -> tuple[Seating, np.ndarray[Any, Any]]:
    """Seat a cohort. `starts` are the sites' first rows in resident data; None means data are laid out in seat order.

    Also gives the cohort's members in seat order (device by device), as a gather of their rows needs them.
    """
    slot = seats(rows, shape)
    in_order = np.argsort(slot, kind="stable")
    cohort, rows, slot = cohort[in_order], rows[in_order], slot[in_order]
    device = slot // (shape.blocks * shape.lanes)
    per_device = np.bincount(device, weights=rows, minlength=shape.devices).astype(np.int64)
    offset = np.cumsum(rows) - rows
    begin = np.cumsum(per_device) - per_device
    within = offset - begin[device]
    local = visiting_order(seed, round_number, cohort, rows, passes)
    local += np.repeat(within if starts is None else starts[in_order], rows).astype(np.int32)
    order = np.zeros((shape.devices, passes, capacity), np.int32)
    for number in range(shape.devices):
        end = begin[number] + per_device[number]
        order[number, :, : per_device[number]] = local[:, begin[number] : end]
    grid = (shape.devices, shape.blocks, shape.lanes)

    def spread(values: np.ndarray[Any, Any], empty: int) -> np.ndarray[Any, Any]:
        table = np.full(shape.slots, empty, np.int32)
        table[slot] = values
        return table.reshape(grid)

    seated_rows = spread(rows, 0)
    seating = Seating(
        first=spread(within, 0),
        rows=seated_rows,
        site=spread(cohort, population),
        longest=seated_rows.max(axis=2),
        order=order,
    )
    return seating, in_order
