"""The floor under a round of the case tabular: the same arithmetic as one matrix product, compiled by JAX.

Run in the project's own environment: `python -m benchmarks.floor --rounds 30`. No round can be faster than its
arithmetic, so the distance to the floor is what batching, shuffling and small matrices cost.
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp

# A product of (m, k) and (k, n) takes 2mkn operations. For each of the 100 x 100 = 10,000 rows of a round:
#   layer 64-64: forward 2*64*64 = 8,192; gradient of the weights 8,192; gradient of the input 8,192
#   layer 64-2:  forward 2*64*2  =   256; gradient of the weights   256; gradient of the input   256
# together 3 * (8,192 + 256) = 25,344 a row, 253.44 million a round: the usual count, three products a layer.
# The first layer's input is the data, whose gradient nobody needs, and XLA leaves it out: 25,344 - 8,192 = 17,152 a
# row, 171.52 million a round. That is the stricter floor, so both are measured.
# Left out: biases, relu, softmax and the step itself, a few per cent.
USUAL = (495, 512, 500)  # 2 * 495 * 512 * 500 = 253,440,000
STRICT = (400, 536, 400)  # 2 * 400 * 536 * 400 = 171,520,000


def operations(shape: tuple[int, int, int]) -> int:
    """How many additions and multiplications a product of (m, k) and (k, n) takes."""
    m, k, n = shape
    return 2 * m * k * n


def milliseconds(shape: tuple[int, int, int], rounds: int) -> list[float]:
    """How long each of `rounds` products takes, after an untimed one that compiles."""
    m, k, n = shape
    left_key, right_key = jax.random.split(jax.random.key(278))
    left, right = jax.random.normal(left_key, (m, k)), jax.random.normal(right_key, (k, n))
    product = jax.jit(jnp.matmul)
    product(left, right).block_until_ready()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        product(left, right).block_until_ready()
        taken.append(round(1e3 * (time.perf_counter() - begun), 4))
    return taken


def measure_floor(rounds: int = 30) -> dict[str, object]:
    """The floor in the form of a peer's answer, with the stricter one beside it."""
    begun = time.perf_counter()
    usual = milliseconds(USUAL, rounds)
    startup = time.perf_counter() - begun - sum(usual) / 1e3
    return {
        "peer": "floor",
        "case": "tabular",
        "version": jax.__version__,
        "ms_per_round": usual,
        "startup_seconds": round(startup, 3),
        "mflop": operations(USUAL) / 1e6,
        "strict_ms_per_round": milliseconds(STRICT, rounds),
        "strict_mflop": operations(STRICT) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the arithmetic of a round as one matrix product.")
    parser.add_argument("--rounds", type=int, default=30)
    print(json.dumps(measure_floor(parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
