"""Stochastic rounding to q bits: large arrays are sent as whole numbers from 0 to 2^q - 1, packed without gaps.

Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017; Alistarh et al., "QSGD", NeurIPS
2017. The 2^q levels lie evenly from the smallest to the largest entry, both included; an entry goes to one of its two
neighbours with the probability that makes the mean right. The ends are those of every run of `run` entries (0: of the
whole array), 8 bytes a run. Costs q/8 bytes an entry instead of 4. Best behind hadamard or kashin.
"""

from typing import Annotated

import jax.numpy as jnp

from wardround.core.bounds import Bound
from wardround.core.contracts import Array, Transform
from wardround.transforms.codec import SMALLEST, Codec, Direction, Smallest, coded, lengths
from wardround.transforms.random_bits import pack_bits, random_shares, unpack_bits

Bits = Annotated[int, Bound(low=1, high=16)]
Run = Annotated[int, Bound(low=0)]
RUN = 4096


def quantize(
    *, bits: Bits = 8, run: Run = RUN, direction: Direction = "both", smallest: Smallest = SMALLEST
) -> Transform:
    """Rounds the numbers of large arrays to a few bits each, at random so that the mean stays right."""
    most = 2**bits - 1

    def encode(vector: Array, words: Array) -> dict[str, Array]:
        rows = cut_into_runs(vector, run)
        low, high = jnp.min(rows, axis=1), jnp.max(rows, axis=1)
        step = (high - low) / most
        steps = (rows - low[:, None]) / jnp.where(step > 0, step, 1.0)[:, None]
        draws = random_shares(words, rows.size).reshape(rows.shape)
        codes = jnp.clip(jnp.floor(steps + draws), 0, most).astype(jnp.uint32)
        return {"codes": pack_bits(codes.reshape(-1)[: vector.shape[0]], bits), "low": low, "step": step}

    def decode(parts: dict[str, Array], words: Array, entries: int) -> Array:
        codes = cut_into_runs(unpack_bits(parts["codes"], bits, entries), run)
        values = parts["low"][:, None] + parts["step"][:, None] * codes.astype(jnp.float32)
        return values.reshape(-1)[:entries]

    levels = f"to {2**bits:,} levels ({bits} bit{'' if bits == 1 else 's'} a number)"
    told = {
        "both": f"The model and the answers travel rounded {levels}, arrays below {smallest:,} numbers exactly.",
        "down": f"The model travels to the sites rounded {levels}, arrays below {smallest:,} numbers exactly.",
        "up": f"Answers leave rounded {levels}, arrays below {smallest:,} numbers exactly.",
    }
    return coded("quantize", Codec(encode, decode), smallest=smallest, direction=direction, words=told[direction])


def cut_into_runs(vector: Array, run: int) -> Array:
    """The vector in rows of at most so many entries; its last entry once more where the last row is not full."""
    rows, length = lengths(vector.shape[0], run or max(1, vector.shape[0]))
    return jnp.pad(vector, (0, rows * length - vector.shape[0]), mode="edge").reshape(rows, length)
