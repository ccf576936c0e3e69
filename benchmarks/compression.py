"""How fast arrays are compressed and read again: `python -m benchmarks.compression`.

Prints one JSON object: for each method the megabytes of single-precision numbers that one core codes, and reads again,
in a second of processor time (the best of several repeats in one process, the methods in turn), how many times smaller
the code is, and the squared error as a part of the array's own square. `copy` is the same for adding 1 to every number:
what this machine's memory allows.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.chain import chain
from wardround.core.contracts import Key, Message, Transform
from wardround.transforms.compression import compression
from wardround.transforms.eden import eden
from wardround.transforms.hadamard import hadamard
from wardround.transforms.kashin import kashin
from wardround.transforms.quantize import quantize
from wardround.transforms.subsample import subsample
from wardround.transforms.top_k import top_k

ENTRIES = 1_000_000
REPEATS = 15
METHODS: dict[str, Transform] = {
    "quantize 4": quantize(bits=4),
    "hadamard + quantize 4": chain([hadamard(), quantize(bits=4)]),
    "kashin + quantize 4": chain([kashin(), quantize(bits=4)]),
    "kashin + quantize 5": chain([kashin(), quantize(bits=5)]),
    "kashin + subsample 0.5 + quantize 4": chain([kashin(), subsample(fraction=0.5), quantize(bits=4)]),
    "compression moderate": compression(),
    **{f"eden {bits}": eden(bits=bits) for bits in (1, 2, 3, 4)},
    "top_k 0.01": top_k(fraction=0.01, feedback=False),
}
Programs = tuple[Callable[[], Any], Callable[[], Any]]


def seconds_of(act: Callable[[], Any]) -> float:
    """Processor time of one call, the result included."""
    before = time.process_time()
    jax.block_until_ready(act())
    return time.process_time() - before


def prepare(transform: Transform, answer: Message, key: Key) -> tuple[dict[str, float], Programs]:
    """What the code costs and loses, and how it is made and read."""
    code = jax.jit(lambda sent: transform.up(Message({}), sent, key))
    read = jax.jit(transform.release)
    left, state = code(answer), transform.init(answer)
    update = np.asarray(answer.arrays["update"], np.float64)
    error = np.square(np.asarray(read(state, left).arrays["update"], np.float64) - update).sum() / update.dot(update)
    told = {"times_smaller": round(4 * ENTRIES / trees.nbytes(left), 2), "squared_error": float(error)}
    return told, (lambda: code(answer), lambda: read(state, left))


def measure() -> dict[str, dict[str, float]]:
    generator = np.random.default_rng(0)
    update = jnp.asarray(generator.standard_t(5, size=ENTRIES).astype(np.float32))
    key = jax.random.key(0)
    answer = Message({"update": update, "weight": jnp.float32(1)})
    add_one = jax.jit(lambda value: value + 1)
    programs: dict[str, Programs] = {"copy": (lambda: add_one(update),) * 2}
    found: dict[str, dict[str, float]] = {"copy": {}}
    for name, transform in METHODS.items():
        found[name], programs[name] = prepare(transform, answer, key)
    for name, (code, read) in programs.items():
        for word, act in (("coded_mb_a_second", code), ("read_mb_a_second", read)):
            jax.block_until_ready(act())
            best = min(seconds_of(act) for _ in range(REPEATS))
            found[name][word] = round(4 * ENTRIES / 1e6 / best, 1)
    return found


if __name__ == "__main__":
    print(json.dumps({"entries": ENTRIES, "methods": measure()}, indent=2))
