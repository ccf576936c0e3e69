"""What a model sees at the edge of a structure, told apart from what it sees beside it.

After the boundary-oriented objective of Liu et al., CVPR 2021. For every image the mean of the model's features over
the band at the edge, and over the background just outside of it; means of all images, as they are and with other
amplitudes, are compared by cosine: those of one kind should be alike and unlike those of the other. The loss is the
mean over all pairs m, p of one kind of -log exp(m p / t) / (sum over all q but m of exp(m q / t)).
"""

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array

FAR = -1e9
"""The logarithm of what does not count: minus infinity would make a slope that is no number."""


def widened(mask: Array, pixels: int) -> Array:
    """The mask with all pixels that are at most so many steps away (in any of eight directions)."""
    for _ in range(pixels):
        padded = jnp.pad(mask, ((0, 0), (1, 1), (1, 1)))
        tall = jnp.maximum(jnp.maximum(padded[:, :-2], padded[:, 1:-1]), padded[:, 2:])
        mask = jnp.maximum(jnp.maximum(tall[:, :, :-2], tall[:, :, 1:-1]), tall[:, :, 2:])
    return mask


def bands_of(masks: Array, pixels: int) -> tuple[Array, Array]:
    """(rows, height, width): the band at the edge, so many pixels to both sides, and the background next to it."""
    drawn = (jnp.asarray(masks) > 0).astype(jnp.float32)
    outer = widened(drawn, pixels)
    inner = 1 - widened(1 - drawn, pixels)
    return outer - inner, widened(drawn, 3 * pixels) - outer


def mean_features(features: Array, band: Array) -> tuple[Array, Array]:
    """(rows, features) of length 1, and whether a row has any pixel in the band."""
    size = jnp.sum(band, axis=(1, 2))
    mean = jnp.einsum("rhwf,rhw->rf", features, band) / jnp.maximum(size, 1.0)[:, None]
    length = jnp.sqrt(jnp.sum(jnp.square(mean), axis=1, keepdims=True) + 1e-12)
    return mean / length, size > 0


def boundary_loss(features: tuple[Array, ...], masks: Array, counts: Array, pixels: int, temperature: float) -> Array:
    """Over several views of the same images; rows whose count is 0, or without an edge, are left out. 0 where few."""
    edge, beside = bands_of(masks, pixels)
    means, there, kinds = [], [], []
    for kind, band in enumerate((edge, beside)):
        for one in features:
            mean, any_pixel = mean_features(one, band)
            means.append(mean)
            there.append(any_pixel & (counts > 0))
            kinds.append(jnp.full(len(mean), kind))
    all_means, valid, kind_of = (jnp.concatenate(one) for one in (means, there, kinds))
    alike = all_means @ all_means.T / temperature
    other = valid[:, None] & valid[None, :] & ~jnp.eye(len(all_means), dtype=bool)
    logs = alike - jax.nn.logsumexp(jnp.where(other, alike, FAR), axis=1, keepdims=True)
    pairs = other & (kind_of[:, None] == kind_of[None, :])
    number = jnp.sum(pairs)
    return -jnp.sum(jnp.where(pairs, logs, 0.0)) / jnp.maximum(number, 1)
