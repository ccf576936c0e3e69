"""Convolutions of images, in one place for all models: three maps, each of which is the others' derivative.

A convolution is linear in its images and in its kernel, so its slopes are convolutions too: that of the images is one
of what comes back with the kernel turned around, that of the kernel is one whose kernel is as large as an image. Left
to automatic differentiation both are written in a form (turned, or with axes exchanged) for which the compiler has no
routine inside a loop but the plainest, thirty times slower. Here every one is written as the plain convolution that it
is, which the compiler hands to its library. Decision record 0064 has the times of this and of other ways.

The three are primitives of JAX, each bilinear, so that they can be differentiated as often as wanted, both ways. Sites
side by side that share a kernel are one longer batch; with kernels of their own they convolve one after the other, or
multiply patches, for which one routine does all, where channels or features are few.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from wardround.core.contracts import Array

Margins = tuple[tuple[int, int], tuple[int, int]]


class Geometry(NamedTuple):
    """What goes where: the same for a convolution and for both of its slopes."""

    images: tuple[int, ...]
    """Rows, height, width, channels."""
    kernel: tuple[int, ...]
    """Height, width, channels, features."""
    stride: int
    margins: Margins
    """Zeros above and below, left and right."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Rows, height, width, features."""
        sizes = zip(self.images[1:3], self.kernel[:2], self.margins, strict=True)
        high, wide = ((size + sum(margin) - kernel) // self.stride + 1 for size, kernel, margin in sizes)
        return self.images[0], high, wide, self.kernel[3]

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        rows, high, wide, features = self.outputs
        return 2 * rows * high * wide * features * self.kernel[0] * self.kernel[1] * self.kernel[2]

    def patches(self, x: Array) -> Array:
        """What the kernel sees at every place, (rows, height, width, kernel height * kernel width * channels)."""
        (tall, wide), stride = self.kernel[:2], self.stride
        across, down = (stride * (size - 1) + 1 for size in (self.outputs[2], self.outputs[1]))
        x = jnp.pad(x, ((0, 0), *self.margins, (0, 0)))
        # Neighbours along the width become channels, then those along the height: tall + wide copies, not tall * wide.
        x = jnp.concatenate([x[:, :, at : at + across : stride] for at in range(wide)], axis=-1)
        return jnp.concatenate([x[:, at : at + down : stride] for at in range(tall)], axis=-1)


def convolve(x: Array, kernel: Array, stride: int, margins: Margins) -> Array:
    """Images (rows, height, width, channels) with a kernel (height, width, channels, features), zeros around them."""
    found: Array = to_outputs.bind(x, kernel, geometry=Geometry(x.shape, kernel.shape, stride, margins))
    return found


# ---- the three maps, as the library takes them ----

NARROW = 16
"""Channels and features up to which the library refuses a convolution, and the compiler takes a slower routine."""


def neighbours_together(width: int, channels: int, features: int) -> int:
    """How many places side by side are computed as one place with more features, so that the library takes them."""
    if max(channels, features) > NARROW:
        return 1
    enough = [count for count in range(1, width + 1) if width % count == 0 and count * features >= 2 * NARROW]
    return enough[0] if enough else 1


def _library(x: Any, kernel: Any, margins: Any, stride: tuple[int, int], apart: tuple[int, int] = (1, 1)) -> jax.Array:
    """The convolution, with margins as the library is quick with: some, but not more places than pixels."""
    reach = [step * (size - 1) for size, step in zip(kernel.shape[:2], apart, strict=True)]
    places = [
        (size + sum(margin) - own - 1) // step + 1
        for size, margin, own, step in zip(x.shape[1:3], margins, reach, stride, strict=True)
    ]
    larger = kernel.shape[0] * kernel.shape[1] > x.shape[1] * x.shape[2]
    if larger or any(min(margin) < 0 or sum(margin) > own for margin, own in zip(margins, reach, strict=True)):
        # The images get their margins beforehand, but for a last line that is left to the library.
        left = tuple((0, int(after > 0)) for _, after in margins)
        written = [(before, after - last, 0) for (before, after), (_, last) in zip(margins, left, strict=True)]
        x = _written(jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), *written, (0, 0, 0))))
        margins = left
    if not any(map(sum, margins)):
        # Without any margin the library copies nothing beforehand, and takes three times as long.
        down = int(reach[0] > 0)
        margins = ((0, down), (0, int(reach[1] > 0 and not down)))
    found = jax.lax.conv_general_dilated(
        x, kernel, stride, margins, rhs_dilation=apart, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return found[:, : places[0], : places[1]]


def _written(x: Any) -> Any:
    """An array that the compiler must lay out as it is said, not fold into the convolution that takes it."""
    return jax.lax.optimization_barrier(x)


def _outputs(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    rows, height, width, features = geometry.outputs
    stride, count = geometry.stride, neighbours_together(width, *kernel.shape[2:])
    if count == 1:
        return _library(x, kernel, geometry.margins, (stride, stride))
    # Each of the neighbours has its own features, and sees its own part of a wider window.
    wider = [jnp.pad(kernel, ((0, 0), (stride * at, stride * (count - 1 - at)), (0, 0), (0, 0))) for at in range(count)]
    joined = _written(jnp.concatenate(wider, axis=3))
    return _library(x, joined, geometry.margins, (stride, stride * count)).reshape(rows, height, width, features)


def _images(slope: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """Every pixel from the places that saw it: one convolution for each place that a pixel has in a stride."""
    stride, (rows, height, width, channels) = geometry.stride, geometry.images
    cells = [-(-size // stride) for size in (height, width)]

    def part(*residues: int) -> jax.Array:
        own, margins = kernel, []
        for axis, residue in enumerate(residues):
            skipped, first = divmod(residue + geometry.margins[axis][0], stride)
            own = jax.lax.slice_in_dim(own, first, max(first, kernel.shape[axis]), stride, axis)
            before = own.shape[axis] - 1 - skipped
            margins.append((before, cells[axis] + skipped - slope.shape[1 + axis]))
        if 0 in own.shape:  # a stride longer than the kernel passes over these pixels
            return jnp.zeros((rows, *cells, channels), slope.dtype)
        turned = _written(jnp.swapaxes(own[::-1, ::-1], 2, 3))
        return _outputs(slope, turned, Geometry(slope.shape, turned.shape, 1, (margins[0], margins[1])))

    if stride == 1:
        return part(0, 0)
    lines = [jnp.stack([part(down, right) for right in range(stride)], axis=3) for down in range(stride)]
    whole = jnp.stack(lines, axis=2).reshape(rows, stride * cells[0], stride * cells[1], channels)
    return whole[:, :height, :width]


def _kernel(x: jax.Array, slope: jax.Array, geometry: Geometry) -> jax.Array:
    """Rows take the place of channels; the larger of channels and features becomes the features of this convolution."""
    (tall, wide, channels, features), stride = geometry.kernel, geometry.stride
    if stride > 1 or channels <= features:
        return jnp.transpose(_products_over_images(x, slope, geometry.margins, geometry), (1, 2, 0, 3))
    sides = zip((tall, wide), geometry.margins, strict=True)
    around = [(size - 1 - before, size - 1 - after) for size, (before, after) in sides]
    found = _products_over_images(slope, x, (around[0], around[1]), geometry)
    return jnp.transpose(found, (1, 2, 3, 0))[::-1, ::-1]


def _products_over_images(x: jax.Array, other: jax.Array, margins: Margins, geometry: Geometry) -> jax.Array:
    """Sums over rows and places of x, moved by each offset of a kernel, times the other: (of x, high, wide, of it)."""
    (tall, wide), stride = geometry.kernel[:2], geometry.stride
    rows, height, width, features = other.shape
    count = neighbours_together(width, rows, features)
    joined = jnp.transpose(other.reshape(rows, height, width // count, count * features), (1, 2, 0, 3))
    # Where the stride leaves a rest, no window reaches the last lines.
    ends = [
        stride * (places - 1) + own - before
        for places, own, (before, _) in zip((height, width), (tall, wide), margins, strict=True)
    ]
    x = x[:, : ends[0], : ends[1]]
    left = [(before, end - size) for (before, _), end, size in zip(margins, ends, x.shape[1:3], strict=True)]
    if not any(map(sum, left)) and height >= tall:
        # The library wants a margin: a line of zeros below both costs less than a place more for each offset.
        joined, left = jnp.pad(joined, ((0, 1), (0, 0), (0, 0), (0, 0))), [(0, stride), (0, 0)]
    found = _library(_written(jnp.transpose(x, (3, 1, 2, 0))), _written(joined), left, (1, 1), (stride, stride * count))
    # Of every neighbour its own offsets.
    parts = [found[:, :, stride * at : stride * at + wide, features * at : features * (at + 1)] for at in range(count)]
    return sum(parts[1:], parts[0])


# ---- as primitives ----


def _primitive(name: str, compute: Callable[..., jax.Array], shape: Callable[[Geometry], tuple[int, ...]]) -> Primitive:
    made = Primitive(name)
    made.def_impl(jax.jit(compute, static_argnames="geometry"))
    made.def_abstract_eval(lambda a, b, geometry: ShapedArray(shape(geometry), a.dtype))
    mlir.register_lowering(made, mlir.lower_fun(compute, multiple_results=False))
    return made


to_outputs = _primitive("convolve", _outputs, lambda geometry: geometry.outputs)
to_images = _primitive("convolution_to_images", _images, lambda geometry: geometry.images)
to_kernel = _primitive("convolution_to_kernel", _kernel, lambda geometry: geometry.kernel)


def _bilinear(made: Primitive, first: Callable[..., Any], second: Callable[..., Any]) -> None:
    """Its slopes: `first(slope, b)` and `second(a, slope)`."""
    ad.defbilinear(
        made,
        lambda slope, a, b, geometry: first(slope, b, geometry=geometry),
        lambda slope, a, b, geometry: second(a, slope, geometry=geometry),
    )


_bilinear(to_outputs, to_images.bind, to_kernel.bind)
_bilinear(to_images, to_outputs.bind, lambda slope, back, geometry: to_kernel.bind(back, slope, geometry=geometry))
_bilinear(to_kernel, lambda kernel, slope, geometry: to_images.bind(slope, kernel, geometry=geometry), to_outputs.bind)


# ---- side by side ----


FEW = 4
"""Channels or features below which patches are quicker for sites side by side."""


def _by_patches(made: Primitive, a: Any, b: Any, geometry: Geometry) -> Any:
    """The same map as a product of patches, which the compiler does for many sites at once."""
    inputs, features = geometry.operations // 2 // prod(geometry.outputs), geometry.kernel[3]

    def rows_of(x: Any) -> Any:
        return geometry.patches(x).reshape(-1, inputs)

    if made is to_kernel:
        return (rows_of(a).T @ b.reshape(-1, features)).reshape(geometry.kernel)
    if made is to_outputs:
        return (rows_of(a) @ b.reshape(inputs, features)).reshape(geometry.outputs)
    back = jax.linear_transpose(rows_of, jax.ShapeDtypeStruct(geometry.images, a.dtype))
    return back(a.reshape(-1, features) @ b.reshape(inputs, features).T)[0]


def _side_by_side(made: Primitive, given: Any, axes: Any, *, geometry: Geometry) -> tuple[Any, int]:
    (a, b), (first, second) = given, axes
    if second is None and made is not to_kernel:
        joined = jnp.moveaxis(a, first, 0)
        sites = len(joined)
        longer = geometry._replace(images=(sites * geometry.images[0], *geometry.images[1:]))
        found = made.bind(joined.reshape(-1, *joined.shape[2:]), b, geometry=longer)
        return found.reshape(sites, -1, *found.shape[1:]), 0
    if min(geometry.kernel[2:]) < FEW:
        return jax.vmap(partial(_by_patches, made, geometry=geometry), axes)(a, b), 0
    own = tuple(jnp.moveaxis(one, axis, 0) for one, axis in zip(given, axes, strict=True) if axis is not None)

    def at_site(mine: tuple[Any, ...]) -> Any:
        both = mine if len(mine) == 2 else (*mine, b) if second is None else (a, *mine)
        return made.bind(*both, geometry=geometry)

    return jax.lax.map(at_site, own), 0


for _made in (to_outputs, to_images, to_kernel):
    batching.primitive_batchers[_made] = partial(_side_by_side, _made)
