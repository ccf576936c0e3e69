"""The finished trees as a model of their own: arrays in, prepared rows in, probabilities or values out.

All arrays are open: the `edges` of bins, `column`, `left` and `value` of the forest, the `base` to begin with. What
kind of outcome there is shows in the length of `classes`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array, Params
from wardround.statistics.trees.bins import Feature
from wardround.statistics.trees.forest import Forest

FAR = np.float32(np.inf)


def forest_params(features: tuple[Feature, ...], base: Any, forest: Forest, classes: int, width: int) -> Params:
    """What a file keeps; no counts, no sums."""
    longest = max((len(feature.edges) for feature in features), default=0)
    edges = np.full((len(features), max(longest, 1)), FAR, np.float32)
    for place, feature in enumerate(features):
        edges[place, : len(feature.edges)] = feature.edges
    return {
        "edges": edges,
        "levels": np.array([len(feature.levels) for feature in features], np.int32),
        "width": np.array([width], np.int32),
        "base": np.asarray(base, np.float32),
        "classes": np.zeros(classes, np.uint8),
        **forest._asdict(),
    }


def predict_forest(params: Params, x: Array) -> Array:
    """Probabilities (rows, classes), or values (rows,)."""
    scores = forest_scores(params, jnp.asarray(x))
    classes = params["classes"].shape[0]
    if not classes:
        return scores[:, 0]
    if classes == 2 and scores.shape[1] == 1:
        risk = jax.nn.sigmoid(scores[:, 0])
        return jnp.stack([1 - risk, risk], axis=1)
    return jax.nn.softmax(scores, axis=1)


def forest_scores(params: Params, x: Array) -> Array:
    """(rows, groups): the base and every tree's leaf."""
    codes = row_codes(params, x)
    depth = int(params["value"].shape[-1]).bit_length() - 1
    rows = jnp.arange(x.shape[0])

    def add(scores: Any, tree: Any) -> tuple[Any, None]:
        column, left, value = tree

        def one(column: Array, left: Array, value: Array) -> Array:
            node = jnp.zeros(x.shape[0], jnp.int32)
            for _ in range(depth):
                code = codes[rows, jnp.maximum(column[node], 0)]
                goes_left = (left[node, code >> 3] >> (7 - (code & 7)).astype(jnp.uint8)) & 1
                node = 2 * node + 2 - goes_left.astype(jnp.int32)
            return value[node - (2**depth - 1)]

        return scores + jax.vmap(one)(column, left, value).T, None

    start: Any = jnp.broadcast_to(params["base"], (x.shape[0], params["base"].shape[0]))
    scores, _ = jax.lax.scan(add, start, (params["column"], params["left"], params["value"]))
    return scores


def row_codes(params: Params, x: Array) -> Array:
    """The bin of every column, from prepared rows; the last one where nothing is known."""
    levels = params["levels"]
    wide = jnp.where(levels > 0, levels + 1, 2)
    place = jnp.cumsum(wide) - wide
    number = jnp.sum(x[:, place][:, :, None] >= params["edges"][None], axis=2)
    known = x[:, place + 1] < 0.5
    most = params["left"].shape[-1] * 8
    inside = jnp.arange(most)[None] < levels[:, None]
    marks = jnp.where(inside[None], x[:, jnp.minimum(place[:, None] + jnp.arange(most), x.shape[1] - 1)], 0.0)
    level, some = jnp.argmax(marks, axis=2), jnp.max(marks, axis=2) > 0.5
    is_category = levels > 0
    code, there = jnp.where(is_category, level, number), jnp.where(is_category, some, known)
    return jnp.where(there, code, params["width"][0] - 1)
