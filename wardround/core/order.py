"""The order in which a site visits its rows: a function of (seed, round, pass, site, row) and of nothing else.

One hash for all rows of a cohort and a sort of sites side by side, on the host: far cheaper than a permutation a site
inside the compiled round, and a real site computes the same order for itself alone.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array

U64 = np.uint64
GOLDEN = U64(0x9E3779B97F4A7C15)
LAST = U64(2**64 - 1)
Numbers = np.ndarray[Any, Any]
LARGE = 1024
"""Rows from which on a site is sorted on its own. Smaller ones are sorted side by side, as the lines of a table: a sort
of few numbers runs in registers, and is ten times quicker than one of all sites' rows together."""
FEW = 2048
"""Rows below which sites of different sizes are sorted together: tables would cost more than they save."""


def mix(values: Numbers) -> Numbers:
    """The finalizer of splitmix64 (Steele et al. 2014): every input bit changes half of the output bits."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> U64(27))) * U64(0x94D049BB133111EB)
        return values ^ (values >> U64(31))


def mix_bits(values: Array) -> Array:
    """The finalizer of MurmurHash3 on 32 bits, for compiled code: every input bit changes half of the output bits."""
    values = (values ^ (values >> 16)) * jnp.uint32(0x85EBCA6B)
    values = (values ^ (values >> 13)) * jnp.uint32(0xC2B2AE35)
    return values ^ (values >> 16)


class Visits:
    """The rows of some sites, ready to be shuffled for one round after the other."""

    def __init__(self, sites: Numbers, rows: Numbers) -> None:
        self.sites, self.rows = sites, rows
        self.begin = np.cumsum(rows) - rows
        total = int(rows.sum())
        self.slot_bits = max(1, int(len(rows) - 1).bit_length())
        self.row_bits = max(1, int(rows.max(initial=1) - 1).bit_length())
        assert self.slot_bits + self.row_bits <= 48, "more rows than 2**48 in one round"
        self.local = (np.arange(total) - np.repeat(self.begin, rows)).astype(U64)
        slots = np.repeat(np.arange(len(rows), dtype=U64), rows)
        self.place = (slots << U64(64 - self.slot_bits)) | self.local
        self.tables = [*self._tables()]
        with np.errstate(over="ignore"):
            self.spread = self.local * GOLDEN

    def _tables(self) -> Iterator[tuple[Numbers | slice, Numbers | slice, tuple[int, int]]]:
        """Rows that are sorted together: which they are, where they stand in a table, and its shape, a line a site."""
        if len(self.rows) and (self.rows == self.rows[0]).all():
            yield slice(None), slice(None), (len(self.rows), int(self.rows[0]))
            return
        if len(self.local) < FEW:
            yield slice(None), slice(None), (1, len(self.local))
            return
        small = (self.rows > 1) & (self.rows < LARGE)
        width = 2 ** np.ceil(np.log2(np.maximum(1, self.rows))).astype(np.int64)
        for wide in np.unique(width[small]):
            sites = np.flatnonzero(small & (width == wide))
            many = self.rows[sites]
            within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
            line = np.repeat(np.arange(len(sites)), many)
            yield np.repeat(self.begin[sites], many) + within, line * wide + within, (len(sites), int(wide))
        for site in np.flatnonzero(self.rows >= LARGE):
            begin, end = int(self.begin[site]), int(self.begin[site] + self.rows[site])
            yield slice(begin, end), slice(None), (1, end - begin)

    def order(self, seed: int, round_number: int, passes: int) -> Numbers:
        """Shape (passes, rows.sum()): for each pass, site after site, its local row numbers in random order."""
        row_bits = U64(self.row_bits)
        rest = U64(self.slot_bits + self.row_bits)
        result = np.empty((passes, len(self.local)), np.int32)
        with np.errstate(over="ignore"):
            site_hash = mix(self.sites.astype(U64) * GOLDEN + U64(seed & (2**64 - 1)))
            for visit in range(passes):
                start = mix(site_hash + U64(round_number * 1_000_003 + visit))
                noise = np.repeat(start, self.rows)
                noise += self.spread
                noise = mix(noise)
                # Site in the high bits, noise in the middle, row in the low bits: a plain sort shuffles every site.
                packed = noise >> rest
                packed <<= row_bits
                packed |= self.place
                self._sort(packed)
                self._settle_ties(packed, noise)
                packed &= U64(2**self.row_bits - 1)
                result[visit] = packed
        return result

    def _sort(self, packed: Numbers) -> None:
        """Sort the numbers of every site."""
        for rows, places, shape in self.tables:
            if isinstance(rows, slice):
                packed[rows].reshape(shape).sort(axis=1)
                continue
            table = np.full(shape, LAST)
            flat = table.reshape(-1)
            flat[places] = packed[rows]
            table.sort(axis=1)
            packed[rows] = flat[places]

    def _settle_ties(self, packed: Numbers, noise: Numbers) -> None:
        """The room left for noise depends on the cohort, so rows that tie in it go in the order of all 64 bits."""
        kept = packed >> U64(self.row_bits)
        tied = np.flatnonzero(kept[1:] == kept[:-1])
        if len(tied):
            places = np.union1d(tied, tied + 1)
            again = packed[places]
            within = (again & U64(2**self.row_bits - 1)).astype(np.int64)
            whole = noise[self.begin[again >> U64(64 - self.slot_bits)] + within]
            packed[places] = again[np.lexsort((whole, kept[places]))]


def visiting_order(seed: int, round_number: int, sites: Numbers, rows: Numbers, passes: int) -> Numbers:
    """The order of one round, as in `Visits`."""
    return Visits(sites, rows).order(seed, round_number, passes)
