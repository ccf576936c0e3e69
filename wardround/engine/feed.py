"""How rows reach the compiled round: all of them once (resident), or a cohort's at a time, fetched ahead (streamed)."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from wardround.core.federation import Federation
from wardround.engine.devices import sharding
from wardround.engine.layout import Seating, Shape, power_of_two, seat
from wardround.engine.program import Data

RESIDENT_BYTES = 1 << 29
"""Data up to this size are put on every device whole; larger ones, and files mapped from disk, are streamed."""


def place(tree: Any, devices: int, *, split: bool) -> Any:
    """Arrays onto the devices, split along their first axis or whole; also over several hosts."""
    where = sharding(devices, split=split)
    if jax.process_count() == 1:
        return jax.device_put(tree, where)

    def put(array: Any) -> Any:
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, where, lambda index: array[index])

    return jax.tree.map(put, tree)


class Feed:
    """Seats cohorts and brings their rows, one round ahead of the devices."""

    def __init__(self, federation: Federation, shape: Shape, *, seed: int, passes: int, part: str = "train") -> None:
        self.federation = federation
        self.shape = shape
        self.seed = seed
        self.passes = passes
        self.first, self.rows = federation.part(part)
        on_disk = isinstance(federation.x, np.memmap)
        self.resident = not on_disk and federation.x.nbytes * shape.devices <= RESIDENT_BYTES
        self.capacity = 1
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="wardround-feed")
        self._data: Data | None = None

    def close(self) -> None:
        self._ahead.shutdown(wait=True)

    def resident_data(self) -> Data:
        """All rows, at a power-of-two capacity so that data sets of like size share a program."""
        if self._data is None:
            x, y = self.federation.x, self.federation.y
            missing = power_of_two(len(x)) - len(x)
            data = Data(
                np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]),
                np.concatenate([y, np.zeros((missing, *y.shape[1:]), y.dtype)]),
            )
            if self.shape.devices == 1:
                self._data = jax.device_put(data, jax.local_devices()[0])
            else:
                self._data = place(data, self.shape.devices, split=False)
        return self._data

    def prepare(self, number: int, cohort: np.ndarray[Any, Any]) -> tuple[Seating, Data | None]:
        """Seating of one round and, unless resident, the rows it needs (first axis: devices)."""
        rows = self.rows[cohort]
        self.capacity = max(self.capacity, self._capacity(rows))
        seating, in_order = seat(
            self.shape,
            cohort,
            rows,
            self.first[cohort] if self.resident else None,
            population=len(self.first),
            seed=self.seed,
            round_number=number,
            passes=self.passes,
            capacity=self.capacity,
        )
        if self.resident:
            return seating, None
        return seating, self._gather(cohort[in_order], seating)

    def ahead(self, rounds: list[tuple[int, np.ndarray[Any, Any]]]) -> Any:
        """Prepared rounds, the next always in the making while the present one is computed."""
        coming = self._ahead.submit(self.prepare, *rounds[0])
        for index in range(len(rounds)):
            now = coming.result()
            if index + 1 < len(rounds):
                coming = self._ahead.submit(self.prepare, *rounds[index + 1])
            yield now

    def _capacity(self, rows: np.ndarray[Any, Any]) -> int:
        # Sites are dealt by size, so no device gets more than its share and one longest site.
        share = int(rows.sum()) // self.shape.devices + (int(rows.max(initial=0)) if self.shape.devices > 1 else 0)
        return power_of_two(max(1, share))

    def _gather(self, cohort: np.ndarray[Any, Any], seating: Seating) -> Data:
        rows = self.rows[cohort]
        offset = np.cumsum(rows) - rows
        index = np.repeat(self.first[cohort] - offset, rows) + np.arange(int(rows.sum()))
        x, y = self.federation.x, self.federation.y
        shape = (self.shape.devices, self.capacity)
        here_x = np.zeros((*shape, *x.shape[1:]), x.dtype)
        here_y = np.zeros((*shape, *y.shape[1:]), y.dtype)
        begin = 0
        for device, count in enumerate(seating.rows.sum(axis=(1, 2))):
            wanted = index[begin : begin + count]
            np.take(x, wanted, axis=0, out=here_x[device, :count], mode="clip")
            np.take(y, wanted, axis=0, out=here_y[device, :count], mode="clip")
            begin += int(count)
        return Data(here_x, here_y)
