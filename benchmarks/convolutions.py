"""One training step of every convolutional model here, by each way to convolve, beside PyTorch.

`python -m benchmarks.convolutions` prints a table and one JSON object. A step is the gradient of the mean loss of a
batch and its subtraction from the parameters. Processor time, one core for all (the process is bound to it, so neither
library has a second thread to gain by), ways and PyTorch in turn, the median over the turns. Shapes: the LEAF network
on 28 x 28 (batch 10), both pain networks on 215 x 215 (batch 16), the U-Net on 64 x 64 with three channels (batch 4).
Ways: what the models do (`models/convolutions.py`); patches times a matrix; XLA's own convolution as automatic
differentiation leaves it, with channels last and with channels first.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from wardround.core.contracts import Array, Batch, Model, Task
from wardround.models import convolutions
from wardround.models.cnn import cnn
from wardround.models.convolutions import Geometry, Margins, convolve
from wardround.models.images.u_net import u_net
from wardround.models.pain_cnn import pain_cnn

RATE, LOOP = 1e-3, 2
LABEL = (np.int32, np.uint8)
"""Of classes and of masks."""
Step = Callable[[], None]


# ---- the ways ----


def by_patches(x: Array, kernel: Array, stride: int, margins: Margins) -> Array:
    """What the kernel sees at every place times the kernel as a matrix, left to automatic differentiation."""
    geometry, features = Geometry(x.shape, kernel.shape, stride, margins), kernel.shape[3]
    seen = geometry.patches(x)
    return (seen.reshape(-1, seen.shape[-1]) @ kernel.reshape(-1, features)).reshape(geometry.outputs)


def by_compiler(layout: str, x: Array, kernel: Array, stride: int, margins: Margins) -> Array:
    """XLA's convolution, in the layout "NHWC" or "NCHW"."""
    turned = jnp.transpose(x, (0, 3, 1, 2)) if layout == "NCHW" else jnp.asarray(x)
    found = jax.lax.conv_general_dilated(
        turned, jnp.asarray(kernel), (stride, stride), margins, dimension_numbers=(layout, "HWIO", layout)
    )
    return jnp.transpose(found, (0, 2, 3, 1)) if layout == "NCHW" else found


WAYS: dict[str, Callable[..., Array]] = {
    "ours": convolve,
    "patches": by_patches,
    "XLA, channels last": partial(by_compiler, "NHWC"),
    "XLA, channels first": partial(by_compiler, "NCHW"),
}


# ---- the networks of PyTorch ----


def leaf_network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def pain_network(revised: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for before, own in ((1, 32), (32, 64), (64, 128)):
        layers.append(nn.Conv2d(before, own, 5, stride=2, padding=2 if revised else 0))
        layers += [nn.BatchNorm2d(own), nn.ReLU()] if revised else [nn.ReLU()]
    side = 13 if revised else 12
    pixels = side * side * 128
    layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(pixels, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 1)]
    return nn.Sequential(*layers)


class UNetOfTorch(nn.Module):  # type: ignore[misc]
    """The same levels, group norm, pooling, doubling and last layer as `u_net` with its settings."""

    def __init__(self, channels: int, filters: int, depth: int) -> None:
        super().__init__()
        widths = [filters << step for step in range(depth + 1)]
        self.down = nn.ModuleList(level(before, own) for before, own in zip([channels, *widths], widths, strict=False))
        self.up = nn.ModuleList(level(3 * own, own) for own in widths[:-1])
        self.mark = nn.Conv2d(filters, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed = []
        for step in self.down[:-1]:
            x = step(x)
            passed.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for step, seen in zip(reversed(self.up), reversed(passed), strict=True):
            x = step(torch.cat([seen, nn.functional.interpolate(x, scale_factor=2)], dim=1))
        marked: torch.Tensor = self.mark(x)[:, 0]
        return marked


def level(before: int, own: int) -> nn.Module:
    parts = [(nn.Conv2d(of, own, 3, padding=1), nn.GroupNorm(8, own), nn.ReLU()) for of in (before, own)]
    return nn.Sequential(*parts[0], *parts[1])


# ---- the cases ----


class Case(NamedTuple):
    """A model here and in PyTorch, with the batch that both learn from."""

    model: Model
    torch: nn.Module
    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    floating: bool
    """Whether PyTorch's loss is that of one output and wants labels as numbers."""


def cases() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(0)

    def images(*shape: int) -> np.ndarray[Any, Any]:
        return random.random(shape, np.float32)

    torch.manual_seed(0)
    ten, two = tuple("0123456789"), ("no", "yes")
    yield "cnn", Case(cnn(Task((28, 28), ten)), leaf_network(), images(10, 28, 28), random.integers(0, 10, 10), False)
    for architecture in ("initial", "revised"):
        made = pain_cnn(Task((215, 215, 1), two), architecture=architecture)
        x, y = images(16, 215, 215, 1), random.integers(0, 2, 16)
        yield f"pain, {architecture}", Case(made, pain_network(architecture == "revised"), x, y, True)
    masks = random.integers(0, 2, (4, 64, 64)).astype(np.uint8)
    made = u_net(Task((64, 64, 3), segmentation=True), loss="cross_entropy")
    yield "U-Net", Case(made, UNetOfTorch(3, 16, 3), images(4, 64, 64, 3), masks, True)


def our_step(case: Case, way: Callable[..., Array]) -> Step:
    """Steps in a compiled loop, as a round has them: outside of one XLA convolves by another, faster routine."""
    # Arguments, and another batch in every step: of constants the compiler would gather the patches beforehand.
    x, y = (jnp.stack([jnp.asarray(one)] * LOOP) for one in (case.x, case.y.astype(LABEL[case.y.ndim > 1])))
    key, mask = jax.random.key(0), jnp.ones(len(case.x))

    def steps(params: Any, x: jax.Array, y: jax.Array) -> Any:
        def step(index: jax.Array, params: Any) -> Any:
            slopes = case.model.gradient(params, Batch(x[index], y[index], mask), key)
            return jax.tree.map(lambda own, slope: own - RATE * slope, params, slopes)

        return jax.lax.fori_loop(0, LOOP, step, params)

    params = [case.model.init(key)]
    with patch.object(convolutions, "convolve", way):
        compiled = jax.jit(steps, donate_argnums=0).lower(params[0], x, y).compile()

    def run() -> None:
        params[0] = jax.block_until_ready(compiled(params[0], x, y))

    run()
    return run


def torch_step(case: Case) -> Step:
    x = torch.from_numpy(case.x[:, None] if case.x.ndim == 3 else np.moveaxis(case.x, -1, 1).copy())
    y = torch.from_numpy(case.y.astype(np.float32 if case.floating else np.int64))
    optimizer = torch.optim.SGD(case.torch.parameters(), RATE)

    def run() -> None:
        optimizer.zero_grad()
        outputs = case.torch(x)
        if case.floating:
            loss = nn.functional.binary_cross_entropy_with_logits(outputs.reshape(y.shape), y)
        else:
            loss = nn.functional.cross_entropy(outputs, y)
        loss.backward()
        optimizer.step()

    def steps() -> None:
        for _ in range(LOOP):
            run()

    steps()
    return steps


def seconds(step: Step, times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - started) / times / LOOP


def measured(case: Case, ways: list[str], turns: int) -> dict[str, float]:
    """Milliseconds of a step by each way, the median over turns in which all have theirs."""
    steps = {"PyTorch": torch_step(case), **{name: our_step(case, WAYS[name]) for name in ways}}
    times = {name: max(1, min(50, int(0.1 / max(seconds(step, 1), 1e-5)))) for name, step in steps.items()}
    turns_of = [{name: seconds(step, times[name]) for name, step in steps.items()} for _ in range(turns)]
    return {name: round(1000 * median(turn[name] for turn in turns_of), 2) for name in steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    said = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before the first array makes XLA's threads
    torch.set_num_threads(1)
    found = {}
    titles = [f"{way}, times" for way in said.ways]
    print("| model | PyTorch, ms | " + " | ".join(titles) + " |\n|---|" + "---|" * (1 + len(titles)), flush=True)
    for name, case in cases():
        if said.cases and name not in said.cases:
            continue
        found[name] = measured(case, said.ways, said.turns)
        theirs = found[name]["PyTorch"]
        figures = [f"{found[name][way] / theirs:.2f}" for way in said.ways]
        print(f"| {name} | {theirs:.1f} | " + " | ".join(figures) + " |", flush=True)
    print(json.dumps({"milliseconds": found, "torch": torch.__version__, "jax": jax.__version__}))


if __name__ == "__main__":
    main()
