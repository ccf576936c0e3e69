"""Images as frequencies: the amplitudes of the lowest ones, and an image with those of another site.

The low amplitudes of an image hold its colours, brightness and coarse shading, the phases what is where. With F the
Fourier transform of an image, an interpolation by l in 0 to 1 turns the amplitude A of every frequency up to `reach`
cycles along both sides into (1 - l) A + l B, B that of the other site, and leaves phases and all other frequencies
alone: l = 0 and B = A give the image itself. Amplitudes are divided by the number of pixels, so that the first of them
is the mean intensity.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array
from wardround.core.errors import Refusal


def low_places(shape: tuple[int, ...], reach: int) -> tuple[Any, Any]:
    """Where the transform of an image holds the frequencies 0, 1, ..., reach, -reach, ..., -1 along both sides."""
    if 2 * reach + 1 > min(shape[:2]):
        raise Refusal(
            f"images of {shape[0]} x {shape[1]} have no frequencies up to {reach} in both directions",
            where="[algorithm] low_frequencies",
            remedy=f"choose at most {(min(shape[:2]) - 1) // 2}",
        )
    down, right = (np.concatenate([np.arange(reach + 1), np.arange(side - reach, side)]) for side in shape[:2])
    return down[:, None], right[None, :]


def low_amplitudes(x: Array, reach: int) -> Array:
    """(rows, height, width, channels) to (rows, 2 reach + 1, 2 reach + 1, channels)."""
    down, right = low_places(x.shape[1:], reach)
    return jnp.abs(jnp.fft.fft2(x, axes=(1, 2))[:, down, right]) / (x.shape[1] * x.shape[2])


def interpolated(x: Array, others: Array, shares: Array, reach: int) -> Array:
    """Every image with low amplitudes moved by its own share (rows,) towards `others`; cut to 0 to 1."""
    down, right = low_places(x.shape[1:], reach)
    spectrum = jnp.fft.fft2(x, axes=(1, 2))
    low = spectrum[:, down, right]
    own = jnp.abs(low)
    towards = shares.reshape(-1, 1, 1, 1)
    wanted = (1 - towards) * own + towards * others * (x.shape[1] * x.shape[2])
    # A frequency that the image does not have has no phase either: it gets that of a cosine.
    there = own > 1e-6
    phase = jnp.where(there, low / jnp.where(there, own, 1.0), 1.0)
    moved = spectrum.at[:, down, right].set(phase * wanted)
    return jnp.clip(jnp.real(jnp.fft.ifft2(moved, axes=(1, 2))), 0.0, 1.0)
