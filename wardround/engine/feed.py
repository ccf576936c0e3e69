"""How rows reach the compiled round: dealt out in the order of their visit, one piece ahead of the devices."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.devices import sharding
from wardround.engine.layout import Seating, Shape, Template, capacity_for, templates
from wardround.engine.program import Data, put_together

Cohort = np.ndarray[Any, Any]


def place(tree: Any, devices: int, *, split: bool) -> Any:
    """Arrays onto the devices, split along their first axis or whole; also over several hosts."""
    where = sharding(devices, split=split)
    if jax.process_count() == 1:
        return jax.device_put(tree, where)

    def put(array: Any) -> Any:
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, where, lambda index: array[index])

    return jax.tree.map(put, tree)


def dealt_rows(federation: Federation, index: Sequence[np.ndarray[Any, Any]], capacity: int) -> Data:
    """The rows with these numbers, for every device (places, lanes, ...), with padding up to the capacity."""
    x, y = federation.x, federation.y
    shape = (len(index), capacity, index[0].shape[1])
    here_x, here_y = np.zeros((*shape, *x.shape[1:]), x.dtype), np.zeros((*shape, *y.shape[1:]), y.dtype)
    for device, table in enumerate(index):
        np.take(x, table, axis=0, out=here_x[device, : len(table)], mode="clip")
        np.take(y, table, axis=0, out=here_y[device, : len(table)], mode="clip")
    return Data(here_x, here_y)


class Feed:
    """Seats cohorts and deals out their rows."""

    def __init__(self, federation: Federation, shape: Shape, *, seed: int, passes: int, padding: int) -> None:
        self.federation = federation
        self.shape = shape
        self.seed = seed
        self.passes = passes
        self.padding = padding
        self.first, self.rows = federation.part("train")
        self._capacity = 1
        self._seated: tuple[Cohort, list[Template]] | None = None
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="wardround-feed")

    def close(self) -> None:
        self._ahead.shutdown(wait=True, cancel_futures=True)

    def pieces(self, number: int, cohort: Cohort) -> Iterator[tuple[Seating, Data]]:
        """One round, piece by piece."""
        for one in self._templates(cohort):
            index = one.row_numbers(visiting_order(self.seed, number, one.members, one.rows, self.passes))
            # The capacity never shrinks: a round with fewer rows runs in the program that is there already.
            self._capacity = max(self._capacity, capacity_for(int(one.places.max())))
            yield one.seating, dealt_rows(self.federation, index, self._capacity + self.padding)

    def _templates(self, cohort: Cohort) -> list[Template]:
        """How this cohort is seated; remembered, since between hospitals it is mostly the same round after round."""
        if self._seated is None or not np.array_equal(self._seated[0], cohort):
            made = templates(
                self.shape,
                cohort,
                self.rows[cohort],
                self.first[cohort],
                population=len(self.first),
                passes=self.passes,
            )
            self._seated = (cohort, made)
        return self._seated[1]

    def ahead(self, rounds: Sequence[tuple[int, Cohort]]) -> Iterator[tuple[int, int, Seating, Any]]:
        """(round, piece, seating, rows and seats on the devices), the next in the making while this one is computed."""

        def every() -> Iterator[tuple[int, int, Seating, Any]]:
            for number, cohort in rounds:
                for piece, (seating, data) in enumerate(self.pieces(number, cohort)):
                    placed = place((data, put_together(seating)), self.shape.devices, split=True)
                    yield number, piece, seating, placed

        source = every()
        coming = self._ahead.submit(next, source, None)
        while (now := coming.result()) is not None:
            coming = self._ahead.submit(next, source, None)
            yield now
