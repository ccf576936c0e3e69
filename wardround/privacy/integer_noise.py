"""Noise that an answer owes, added to its whole numbers in the very step in which they are made: before any mask.

Whoever makes an answer private in the sum (`site_level`) writes into it which noise it must get; the secure sum, which
turns it into whole numbers, cuts it to the promised length once more, adds discrete Gaussian noise to every number and
takes the note out. No engine lets an answer pass that still carries one. How much noise, and what it costs, is in
`distributed_noise`.

A real site draws with its exact sampler from the operating system's random bits. A simulation, which protects nobody,
draws quickly inside the compiled round: Gaussian numbers rounded to whole ones, whose probabilities differ from the
discrete Gaussian's by less than 0.3 % at the least deviation of 4 units and by 1e-7 from 1000 units on.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from wardround.core import trees
from wardround.core.chain import drop_array
from wardround.core.contracts import OWED, Array, Message, Tree
from wardround.privacy.distributed_noise import discrete_gaussian
from wardround.privacy.noise import gaussian, stream
from wardround.privacy.secure_sum.fixed_point import FIXED, LIMBS, OUTSIDE, digits_of, encode_answer, limbs_of
from wardround.privacy.secure_sum.masks import derive_key

TOGETHER = "together"
"""All arrays of an answer that have no promise of their own, but for its weight."""
LEAST = 4.0
"""Deviation of a site's noise, in units, at least: from there on sums of such noise are like one, to any float."""
MOST = 2.0**46
"""In units, at most: so that the sum of thousands of sites fits into the ring."""
SLACK = 2.0**-16
"""By which answers are cut shorter than promised: more than sums of floats are off by."""
SAFELY = 1 + 1e-6
"""So that a deviation in single precision is not below what was promised."""
Draw = Callable[[Array, Array, tuple[int, ...]], Array]
"""(secret words, deviation of every group, numbers in every group) to the digits of the noise, group after group."""


def noise_promise(length: Array | float, share: Array | float) -> dict[str, Array]:
    """A promise: numbers of this length at most together, and noise of so many times the sensitivity from this site."""
    return {"length": jnp.float32(length), "share": jnp.float32(share)}


def add_owed_noise(answer: Message, fraction_bits: int, bound: float, draw: Draw) -> Message:
    """The answer as digits, with the noise that it owes; without a promise just the digits."""
    owed = answer.arrays.get(OWED)
    answer = drop_array(answer, OWED)
    if owed is None:
        return encode_answer(answer, fraction_bits, bound)
    # A length that comes from elsewhere is no longer than what can be encoded: that a number lies outside would show.
    owed = {name: limit_length(one, bound) if isinstance(one, Mapping) else one for name, one in owed.items()}
    groups = group_arrays(answer.arrays, owed)
    cut = {
        name: tree for group, own in groups.items() for name, tree in clip_to_length(own, owed[group]["length"]).items()
    }
    made = encode_answer(Message({**cut, "weight": answer.arrays["weight"]}, answer.meta), fraction_bits, bound)
    sizes = tuple(sum(int(np.prod(jnp.shape(leaf))) for leaf in jax.tree.leaves(own)) for own in groups.values())
    deviations = jnp.stack(
        [deviation(owed[group], size, fraction_bits) for group, size in zip(groups, sizes, strict=True)]
    )
    digits = add_digits(made.arrays[FIXED], groups, draw(owed["words"], deviations, sizes))
    outside = jnp.where(jnp.all(deviations <= MOST), made.arrays[OUTSIDE], jnp.nan)
    return Message({FIXED: digits, OUTSIDE: outside}, answer.meta)


def limit_length(promise: Mapping[str, Array], bound: float) -> dict[str, Array]:
    length = jnp.abs(promise["length"])
    return {**promise, "length": jnp.where(length < bound, length, jnp.float32(bound))}


def group_arrays(arrays: Mapping[str, Tree], owed: Mapping[str, Any]) -> dict[str, dict[str, Tree]]:
    """Which arrays each promise is about; everything but the weight is in one of them."""
    alone = {name: {name: arrays[name]} for name in sorted(owed) if name in arrays}
    rest = {name: arrays[name] for name in sorted(arrays) if name not in alone and name != "weight"}
    return {TOGETHER: rest, **alone}


def clip_to_length(own: dict[str, Tree], length: Array) -> dict[str, Tree]:
    """Cut to the promised length, whatever was done to it since it was cut before; NaN stays, and is noticed later."""
    most = jnp.abs(length) * (1 - SLACK)
    found = jnp.sqrt(trees.squared_norm(own))
    shorter: dict[str, Tree] = trees.scale(own, most / jnp.maximum(found, most))
    return shorter


def deviation(promise: Mapping[str, Array], entries: int, fraction_bits: int) -> Array:
    """Of a site's noise, in units: its share times how far one answer moves the sum, the rounding included."""
    sensitivity = jnp.abs(promise["length"]) * 2.0**fraction_bits + np.sqrt(entries) / 2
    return jnp.maximum(promise["share"] * sensitivity * SAFELY, LEAST)


def add_digits(digits: dict[str, Tree], groups: dict[str, dict[str, Tree]], noise: Array) -> dict[str, Tree]:
    """The digits of the answer and of the noise, place by place; carrying over is left to who reads them."""
    result, begin = dict(digits), 0
    for own in groups.values():
        leaves, structure = jax.tree.flatten({name: digits[name] for name in own})
        noisy = []
        for leaf in leaves:
            size = int(np.prod(leaf.shape[1:]))
            noisy.append(leaf + noise[:, begin : begin + size].reshape(leaf.shape))
            begin += size
        result |= jax.tree.unflatten(structure, noisy)
    return result


def draw_simulated(words: Array, deviations: Array, sizes: tuple[int, ...]) -> Array:
    """Rounded Gaussian numbers, drawn inside the compiled round."""
    total = sum(sizes)
    numbers = gaussian(stream(words, jnp.zeros(3, jnp.uint32), 0, total + total % 2))[:total]
    each = jnp.repeat(deviations, np.array(sizes), total_repeat_length=total)
    return digits_of(numbers * each, 0)


def draw_exact(words: Array, deviations: Array, sizes: tuple[int, ...]) -> Array:
    """Exact discrete Gaussians, drawn outside of the compiled round, where there are 64-bit numbers."""

    def fill(context: Any, out: Any, words: Any, deviations: Any) -> None:
        secret, scales = np.asarray(words).tobytes(), np.asarray(deviations).astype(np.float64)
        np.copyto(np.asarray(out), limbs_of(site_noise(secret, scales, sizes).view(np.uint64)))

    shape = jax.ShapeDtypeStruct((LIMBS, sum(sizes)), jnp.int32)
    drawn: Array = buffer_callback(fill, shape, has_side_effect=True, vmap_method="sequential")(words, deviations)
    return drawn


def site_noise(secret: bytes, deviations: np.ndarray[Any, Any], sizes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The noise of a site for which these 256 bits were drawn; every group has a key of its own."""
    parts = [
        discrete_gaussian(float(scale), size, derive_key(secret, b"", b"whole noise", str(place).encode()))
        for place, (scale, size) in enumerate(zip(deviations, sizes, strict=True))
    ]
    return np.concatenate(parts)
