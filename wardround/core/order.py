"""The order in which a site visits its rows: a function of (seed, round, pass, site, row) and of nothing else.

One hash and one sort for all rows of a cohort, on the host: five to ten times cheaper than a permutation a site inside
the compiled round, and a real site computes the same order for itself alone.
"""

from typing import Any

import numpy as np

U64 = np.uint64


def mix(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The finalizer of splitmix64 (Steele et al. 2014): every input bit changes half of the output bits."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> U64(27))) * U64(0x94D049BB133111EB)
        return values ^ (values >> U64(31))


def visiting_order(
    seed: int,
    round_number: int,
    sites: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any],
    passes: int,
) -> np.ndarray[Any, Any]:
    """Shape (passes, rows.sum()): for each pass, site after site, its local row numbers in random order."""
    total = int(rows.sum())
    slots = np.repeat(np.arange(len(rows), dtype=U64), rows)
    ends = np.cumsum(rows)
    local = (np.arange(total) - np.repeat(ends - rows, rows)).astype(U64)
    slot_bits = max(1, int(len(rows) - 1).bit_length())
    row_bits = max(1, int(rows.max() - 1).bit_length()) if total else 1
    hash_bits = 64 - slot_bits - row_bits
    result = np.empty((passes, total), np.int32)
    with np.errstate(over="ignore"):
        site_hash = mix(sites.astype(U64) * U64(0x9E3779B97F4A7C15) + U64(seed & (2**64 - 1)))
        for visit in range(passes):
            start = mix(site_hash + U64(round_number * 1_000_003 + visit))
            noise = mix(np.repeat(start, rows) + local * U64(0x9E3779B97F4A7C15))
            # Site in the high bits, noise in the middle, row in the low bits: one plain sort shuffles every site.
            packed = (noise >> U64(slot_bits + row_bits)) << U64(row_bits)
            packed |= local
            packed |= slots << U64(64 - slot_bits)
            packed.sort()
            # The room left for noise depends on the cohort, so rows that tie in it are put in the order of all 64 bits.
            kept = packed >> U64(row_bits)
            tied = np.flatnonzero(kept[1:] == kept[:-1])
            if len(tied):
                places = np.union1d(tied, tied + 1)
                again = packed[places]
                within = (again & U64(2**row_bits - 1)).astype(np.int64)
                whole = noise[(ends - rows)[again >> U64(64 - slot_bits)] + within]
                packed[places] = again[np.lexsort((whole, kept[places]))]
            result[visit] = packed & U64(2**row_bits - 1)
    assert hash_bits >= 16, "more rows than 2**48 in one round"
    return result
