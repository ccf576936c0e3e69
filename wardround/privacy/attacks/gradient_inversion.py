"""Gradient inversion: patients' rows rebuilt from what a site sends.

Analytic, for a first layer that is dense with a bias: every unit's gradient with respect to its weights is the input
times that with respect to its bias, so that their quotient IS the input, if one row made it, and else a mixture of the
rows that moved this unit (Phong et al., "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption", 2018;
Boenisch et al., "When the Curious Abandon Honesty", 2023, on batches).

By optimisation, for any other model: rows whose gradient points where the observed one does (Geiping et al., "Inverting
Gradients: How easy is it to break privacy in federated learning?", NeurIPS 2020), by Adam with the cosine distance.
Needs the labels (`label_leak` finds them) and as many gradients as it takes steps.

`closeness` says how well it went, against what a guess would have given without any update.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from wardround.core import trees
from wardround.core.contracts import Array, Batch, Model, Params
from wardround.privacy.attacks.label_leak import natural_order

Rows = np.ndarray[Any, Any]
SMALLEST = 1e-9
"""A unit whose bias moved by less than this part of the largest tells nothing."""
REBUILT = 0.05
"""A row is rebuilt when what is missing is at most so long, relative to the row."""


def first_dense(params: Params) -> str | None:
    """The name of the first layer if it is dense with a bias."""
    layers = sorted({name.rsplit("/", 1)[0] for name in params}, key=natural_order)
    convolves = any(params[name].ndim > 2 for name in params if name.endswith("/kernel"))
    if not layers or convolves:
        return None
    first = layers[0]
    return first if {f"{first}/kernel", f"{first}/bias"} <= set(params) else None


def invert_analytically(update: Params, layer: str) -> Rows:
    """Candidates, one for every unit of the layer that moved; any multiple of the gradient serves."""
    kernel = np.asarray(update[f"{layer}/kernel"], np.float64)
    bias = np.asarray(update[f"{layer}/bias"], np.float64)
    moved = np.abs(bias) > SMALLEST * max(float(np.abs(bias).max()), 1e-300)
    return (kernel[:, moved] / bias[moved]).T


def invert_by_matching(
    model: Model,
    params: Params,
    gradient: Params,
    labels: Any,
    shape: tuple[int, ...],
    *,
    seed: int = 0,
    steps: int = 500,
    starts: int = 8,
    learning_rate: float = 0.1,
) -> Rows:
    """Rows, one a label, whose gradient points in the observed direction: the best of several starts."""
    y = jnp.asarray(labels)
    mask = jnp.ones(len(y))
    key = jax.random.key(seed)
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    length = jnp.sqrt(trees.squared_norm(gradient))

    def distance(x: Array) -> Array:
        own = model.gradient(params, Batch(x, y, mask), key)
        product = sum((jnp.sum(own[name] * gradient[name]) for name in own), jnp.zeros(()))
        return 1 - product / jnp.maximum(jnp.sqrt(trees.squared_norm(own)) * length, 1e-30)

    def search(x: Array) -> tuple[Array, Array]:
        def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], None]:
            x, memory = carry
            updates, memory = optimizer.update(jax.grad(distance)(x), memory)
            return (optax.apply_updates(x, updates), memory), None

        found = jax.lax.scan(step, (x, optimizer.init(x)), None, length=steps)[0][0]
        return found, distance(found)

    found, left = jax.jit(jax.vmap(search))(jax.random.normal(jax.random.fold_in(key, 1), (starts, len(y), *shape)))
    return np.asarray(found[jnp.argmin(left)])


class Closeness(NamedTuple):
    """How close the nearest candidate came to each row, relative to how far the row is from the middle of all."""

    rows: int
    rebuilt: int
    """Rows of which at most 5 % is missing."""
    nearest: float
    """The best: 0 is the row itself, 1 as good as guessing the middle of all patients."""
    typical: float
    """The median over the rows."""


def closeness(candidates: Rows, rows: Rows, middle: Rows) -> Closeness:
    """Compare candidates with the real rows; `middle` is what one would guess without any update."""
    true = rows.reshape(len(rows), -1).astype(np.float64)
    found = candidates.reshape(len(candidates), true.shape[1])
    guess = np.maximum(np.linalg.norm(true - middle.reshape(1, -1), axis=1), 1e-12)
    if not len(found):
        return Closeness(len(true), 0, 1.0, 1.0)
    missing = np.linalg.norm(true[:, None] - found[None], axis=2).min(axis=1) / guess
    return Closeness(len(true), int((missing <= REBUILT).sum()), float(missing.min()), float(np.median(missing)))
