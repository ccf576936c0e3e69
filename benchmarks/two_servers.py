"""What two servers cost: `python -m benchmarks.two_servers` prints one JSON object.

20 sites with a million parameters each, all parties in one process and one after the other: sharing, dealing, the Gram
matrix, Multi-Krum's choice, the opened mean. `bytes_between` is every byte between the two servers, `distance_error`
the largest relative error of a distance against plain double precision, both also as shares of their bars; seconds are
processor seconds of the whole, and `times_plain` compares them with the same choice on plain updates.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

import numpy as np

from wardround.privacy.two_servers.gram import Gram, drop_implausible, multi_krum_weights, squared_distances
from wardround.privacy.two_servers.in_process import run_protocol
from wardround.privacy.two_servers.protocol import Meeting

MOST_BYTES, MOST_ERROR = 0.35e9, 1e-5
"""The bars: bytes between the servers, and the relative error of a distance."""


def updates_of(sites: int, parameters: int) -> dict[str, np.ndarray[Any, Any]]:
    """Updates around a common one, of which the first three point the other way."""
    generator = np.random.default_rng(0)
    common = generator.normal(size=parameters)
    rows = {}
    for place in range(sites):
        row = (-common if place < 3 else common) + generator.normal(size=parameters)
        rows[f"site-{place:02d}"] = row / np.linalg.norm(row)
    return rows


def plain_distances(updates: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    rows = list(updates.values())
    return np.array([[float(np.linalg.norm(one - other)) for other in rows] for one in rows])


def measured(sites: int, parameters: int, side: int) -> dict[str, Any]:
    updates = updates_of(sites, parameters)
    meeting = Meeting("benchmark", 1, "", tuple(updates), parameters, 1.0, side)
    started = time.process_time()
    expected = plain_distances(updates)
    plain = time.process_time() - started

    def choose(gram: Gram) -> dict[str, int]:
        kept, left_out = drop_implausible(gram)
        assert not left_out
        return multi_krum_weights(kept, 3)

    started = time.process_time()
    done = run_protocol(meeting, updates, choose, os.urandom)
    seconds = time.process_time() - started
    found = np.sqrt(squared_distances(done.gram))
    apart = expected > 0
    error = float(np.max(np.abs(found[apart] / expected[apart] - 1)))
    good = np.mean([updates[name] for name in done.weights], axis=0)
    return {
        "sites": sites,
        "parameters": parameters,
        "dealers": side * side,
        "bad_chosen": sum(name in done.weights for name in list(updates)[:3]),
        "bytes_between": done.between,
        "bytes_of_bar": round(done.between / MOST_BYTES, 4),
        "distance_error": error,
        "error_of_bar": round(error / MOST_ERROR, 6),
        "mean_error": float(np.max(np.abs(done.mean - good))),
        "seconds": round(seconds, 2),
        "times_plain": round(seconds / plain, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What a robust sum by two servers costs.")
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--side", type=int, default=1)
    chosen = parser.parse_args()
    print(json.dumps(measured(chosen.sites, chosen.parameters, chosen.side)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
