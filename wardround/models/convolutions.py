"""Convolutions as patches times one matrix, in one place for all models.

Equal to `lax.conv_general_dilated` up to rounding. What each way costs is measured by `benchmarks.convolutions`; why
this one was chosen is in decision record 0064.
"""

import jax.numpy as jnp

from wardround.core.contracts import Array

Margins = tuple[tuple[int, int], tuple[int, int]]


def convolve(x: Array, kernel: Array, stride: int, margins: Margins) -> Array:
    """Images (rows, height, width, channels) with a kernel (height, width, channels, features), zeros around them."""
    tall, wide, _, features = kernel.shape
    x = jnp.pad(x, ((0, 0), *margins, (0, 0)))
    height, width = (x.shape[1] - tall) // stride + 1, (x.shape[2] - wide) // stride + 1
    across, down = (stride * (size - 1) + 1 for size in (width, height))
    # Neighbours along the width become channels, then those along the height: tall + wide copies, not tall * wide.
    x = jnp.concatenate([x[:, :, at : at + across : stride] for at in range(wide)], axis=-1)
    x = jnp.concatenate([x[:, at : at + down : stride] for at in range(tall)], axis=-1)
    products = x.reshape(-1, x.shape[-1]) @ kernel.reshape(-1, features)
    return products.reshape(-1, height, width, features)
