"""Statistics of an image and its mask that tell what a simulator of images must be like: one row of numbers an image.

Of the mask: whether anything is there, how much, the length of edges, and how much longer they are in one direction
than in the one across it (which round shapes of any size do not show, long ones do); the Euler number (components less
holes, counted from pixels, pairs and quads); the radius of the mean component; what is left after 1, 2, 3 and 5
erosions (sizes). Of the image, where there is anything of the kind: logarithms of the mean brightness far outside, well
inside and in the three rings around an edge (focus), and of the contrast; the relative spread well inside (structures
of different brightness); differences of neighbours far outside (noise).

What varies between images (`BUMPS`) is told as a soft histogram: how near to each of several values it is, by bumps
that overlap, so that a mean over images tells its distribution and not its mean alone. Every statistic lies between 0
and 1, so that it is known how much one image can move a mean. Everything is a sum over pixels or a function of such
sums, so it compiles.
"""

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array

BUMPS = {"root of covered": 6, "components": 6, "component radius": 9, "outside": 10, "inside": 10, "contrast": 8}
"""What is told as a histogram, and of how many places between 0 and 1."""
PLAIN = (
    *("any", "edges", "upright less level", "falling less rising"),
    *("left after 1", "left after 2", "left after 3", "left after 5"),
    *("noise", "inside spread", "inner ring", "outer ring", "second ring"),
)
OF_MASKS = PLAIN[:8], ("root of covered", "components", "component radius")
"""Those that need no image: plain ones, and histograms."""
STATISTICS = (*PLAIN, *(f"{name}, {place}" for name, places in BUMPS.items() for place in range(places)))
DARKEST = 0.01
"""Added to brightness before the logarithm."""
FAR = 3
"""Pixels that outside must be away from any structure: beyond the rings."""
MOST_COMPONENTS, LARGEST_RADIUS = 31, 32
"""Where the logarithms of these are 1."""


def describe_images(images: Array, masks: Array) -> Array:
    """(rows, statistics) of grey images (rows, height, width) from 0 to 1 and masks (rows, height, width)."""
    x, inside = jnp.asarray(images), (jnp.asarray(masks) > 0).astype(jnp.float32)
    return in_columns({**of_masks(inside), **of_images(x, inside)}, PLAIN, tuple(BUMPS))


def describe_masks(masks: Array) -> Array:
    """(rows, 29) of masks alone."""
    return in_columns(of_masks((jnp.asarray(masks) > 0).astype(jnp.float32)), *OF_MASKS)


def in_columns(told: dict[str, tuple[Array, Array]], plain: tuple[str, ...], spread_out: tuple[str, ...]) -> Array:
    columns = jnp.stack([told[name][0] * told[name][1] for name in plain], axis=1)
    histograms = [bumps(*told[name], BUMPS[name]) for name in spread_out]
    return jnp.clip(jnp.concatenate([columns, *histograms], axis=1), 0.0, 1.0)


def bumps(value: Array, seen: Array, places: int) -> Array:
    """How near a value is to each place: 1 there, e^-1/2 at the next; 0 where there is no value."""
    spacing = 1 / (places - 1)
    away = (value[:, None] - jnp.linspace(0.0, 1.0, places)) / spacing
    return seen[:, None] * jnp.exp(-jnp.square(away) / 2)


def of_masks(inside: Array) -> dict[str, tuple[Array, Array]]:
    """Values, and whether there is one."""
    pixels, side = inside.shape[1] * inside.shape[2], (inside.shape[1] + inside.shape[2]) / 2
    covered = _mean(inside)
    always, there = jnp.ones_like(covered), (covered > 0).astype(jnp.float32)
    down, right = (_total(jnp.abs(jnp.diff(inside, axis=axis))) for axis in (1, 2))
    falling = _total(jnp.abs(inside[:, 1:, 1:] - inside[:, :-1, :-1]))
    rising = _total(jnp.abs(inside[:, 1:, :-1] - inside[:, :-1, 1:]))
    euler = euler_number(inside)
    radius = jnp.sqrt(covered * pixels / jnp.maximum(1.0, euler) / jnp.pi)
    left, found = inside, {}
    for times in range(1, 6):
        left = eroded(left)
        found[f"left after {times}"] = _mean(left), always
    return {
        **found,
        "any": (there, always),
        "edges": ((down + right) / pixels * 2, always),
        "upright less level": (jnp.abs(down - right) / side, always),
        "falling less rising": (jnp.abs(falling - rising) / side, always),
        "root of covered": (jnp.sqrt(covered), there),
        "components": (jnp.log1p(jnp.maximum(0.0, euler)) / jnp.log1p(MOST_COMPONENTS), there),
        "component radius": (jnp.log(jnp.maximum(1.0, radius)) / jnp.log(LARGEST_RADIUS), there),
    }


def of_images(x: Array, inside: Array) -> dict[str, tuple[Array, Array]]:
    """Values, and whether there is one."""
    grown = [inside]
    for _ in range(FAR):
        grown.append(1 - eroded(1 - grown[-1]))
    outside, core = 1 - grown[FAR], eroded(inside)
    rings = {"inner ring": inside - core, "outer ring": grown[1] - inside, "second ring": grown[2] - grown[1]}
    dark, bright = (_logarithm(_mean_in(x, where)) for where in (outside, core))
    noise = _mean_in(jnp.abs(jnp.diff(x, axis=2)), outside[:, :, 1:] * outside[:, :, :-1])
    middle = _mean_in(x, core)
    spread = jnp.sqrt(_mean_in(jnp.square(x - middle[:, None, None]), core) + 1e-12)
    return {
        "outside": (dark, _seen(outside)),
        "noise": (jnp.log(noise + 1e-3) / 7 + 1, _seen(outside)),
        "inside": (bright, _seen(core)),
        "inside spread": (spread / (middle + DARKEST), _seen(core)),
        "contrast": ((1 + bright - dark) / 2, _seen(core) * _seen(outside)),
        **{name: (_logarithm(_mean_in(x, where)), _seen(where)) for name, where in rings.items()},
    }


def euler_number(inside: Array) -> Array:
    """Components, joined along sides, less holes, joined along sides and corners: pixels less pairs and plus quads."""
    upright, level = inside[:, 1:] * inside[:, :-1], inside[:, :, 1:] * inside[:, :, :-1]
    quads = upright[:, :, 1:] * upright[:, :, :-1]
    return _total(inside) - _total(upright) - _total(level) + _total(quads)


def eroded(inside: Array) -> Array:
    """Pixels all of whose eight neighbours belong, too; beyond the border it goes on as at the edge."""
    found = inside
    for axis in (1, 2):
        size = found.shape[axis]
        padded = jnp.pad(found, [(0, 0), *((1, 1) if at == axis else (0, 0) for at in (1, 2))], mode="edge")
        around = [jax.lax.slice_in_dim(padded, at, at + size, axis=axis) for at in (0, 2)]
        found = jnp.minimum(found, jnp.minimum(*around))
    return found


def _seen(where: Array) -> Array:
    return (_total(where) > 0).astype(jnp.float32)


def _total(found: Array) -> Array:
    return jnp.sum(found, axis=(1, 2))


def _mean(found: Array) -> Array:
    return jnp.mean(found, axis=(1, 2))


def _mean_in(x: Array, where: Array) -> Array:
    """The mean over pixels that count, 0 where there are none."""
    return _total(x * where) / jnp.maximum(1.0, _total(where))


def _logarithm(brightness: Array) -> Array:
    """0 for black, 1 for white."""
    return jnp.log(brightness / DARKEST + 1) / jnp.log(1 / DARKEST + 1)
