"""The best split of every node, from sums of slopes over its bins.

Gains and leaf values are those of Chen and Guestrin, "XGBoost", KDD 2016. Missing values go where they help more. The
levels of a category are put in the order of their mean slopes and cut once (after Fisher, "On grouping for maximum
homogeneity", 1958), but for rare ones. Under monotone constraints children are bounded by the middle
between them, as in XGBoost.
"""

from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]


class Rules(NamedTuple):
    """What a split must keep to."""

    l2: float = 1.0
    least: float = 1.0
    """The smallest sum of second derivatives in a child."""
    least_gain: float = 0.0
    fewest: float = 0.0
    """The smallest number of rows in a child, where rows are counted."""


class Nodes(NamedTuple):
    """Nodes to be split: sums over their rows, and between what their leaf values must lie."""

    gradient: Numbers
    hessian: Numbers
    low: Numbers
    high: Numbers
    rows: Numbers
    """0 where rows are not counted."""

    def total(self, channels: int) -> Numbers:
        """(channels, nodes, ...), as sums over bins come."""
        return np.stack([self.gradient, self.hessian, self.rows][:channels])


class NodeSplits(NamedTuple):
    """For every node: which column (-1: none is worth it), what goes left, the gain, and the two children."""

    column: Numbers
    left: Numbers
    """(nodes, width) of bool."""
    gain: Numbers
    children: Nodes
    """Arrays of the shape (nodes, 2)."""


def weight_of(gradient: Numbers, hessian: Numbers, l2: float) -> Numbers:
    """The value of a leaf, before it is shortened by the learning rate."""
    return np.asarray(-gradient / np.maximum(hessian + l2, 1e-12))


def best_splits(
    sums: Numbers, nodes: Nodes, is_category: Numbers, used: Numbers, rules: Rules, direction: Numbers
) -> NodeSplits:
    """`sums` has the shape (2 or 3, nodes, columns, width), `direction` is 1, -1 or 0 for every column."""
    count, columns, width = sums.shape[1:]
    numbers, categories = np.flatnonzero(~is_category), np.flatnonzero(is_category)
    found_gain = np.full((count, columns), -np.inf)
    place = np.zeros((count, columns), np.int64)
    to_left = np.zeros((count, columns), bool)
    order = None
    if len(numbers):
        gain = number_gains(sums[:, :, numbers], nodes, rules, direction[numbers])  # (nodes, columns, 2, cuts)
        flat = gain.reshape(count, len(numbers), -1)
        best = flat.argmax(axis=-1)
        found_gain[:, numbers] = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
        to_left[:, numbers], place[:, numbers] = best // (width - 1), best % (width - 1) + 1
    if len(categories):
        gain, order = category_gains(sums[:, :, categories], nodes, used[categories], rules)
        best = gain.argmax(axis=-1)
        found_gain[:, categories] = np.take_along_axis(gain, best[..., None], axis=-1)[..., 0]
        place[:, categories] = best + 1
    column = found_gain.argmax(axis=1)
    rows = np.arange(count)
    gain = found_gain[rows, column]
    left = np.arange(width) < place[rows, column][:, None]
    left[:, -1] = to_left[rows, column]
    if order is not None:
        inside = np.full(columns, -1)
        inside[categories] = np.arange(len(categories))
        for row in np.flatnonzero(is_category[column]):
            left[row] = False
            left[row, order[row, inside[column[row]], : place[row, column[row]]]] = True
    worth = gain > rules.least_gain
    own = sums[:, rows, column]
    lefts = np.where(left, own, 0.0).sum(axis=-1)
    parent = nodes.total(len(sums))
    child = np.stack([lefts, parent - lefts], axis=-1)
    return NodeSplits(
        np.where(worth, column, -1),
        left | ~worth[:, None],
        np.where(worth, gain, 0.0),
        bounded_children(child, nodes, np.where(worth, direction[column], 0), rules.l2),
    )


def gain_of(lefts: Numbers, rights: Numbers, nodes: Nodes, rules: Rules, direction: Numbers | None) -> Numbers:
    """Of every candidate, -inf where it is not allowed; (2 or 3, nodes, ...) to (nodes, ...)."""
    shape = (-1, *(1,) * (lefts.ndim - 2))
    allowed = (lefts[1] >= rules.least) & (rights[1] >= rules.least)
    if len(lefts) > 2:
        allowed &= (lefts[2] >= rules.fewest) & (rights[2] >= rules.fewest)
    heavy, other = np.maximum(lefts[1], 0.0) + rules.l2 + 1e-12, np.maximum(rights[1], 0.0) + rules.l2 + 1e-12
    if direction is None:
        parent = nodes.gradient**2 / (np.maximum(nodes.hessian, 0.0) + rules.l2 + 1e-12)
        gain = (lefts[0] ** 2 / heavy + rights[0] ** 2 / other - parent.reshape(shape)) / 2
        return np.where(allowed, gain, -np.inf)
    low, high = nodes.low.reshape(shape), nodes.high.reshape(shape)

    def value(gradient: Numbers, hessian: Numbers) -> tuple[Numbers, Numbers]:
        weight = np.clip(-gradient / hessian, low, high)
        return weight, -(gradient * weight + hessian * weight**2 / 2)

    (lower, one), (upper, two) = value(lefts[0], heavy), value(rights[0], other)
    _, whole = value(nodes.gradient.reshape(shape), np.maximum(nodes.hessian.reshape(shape), 0.0) + rules.l2 + 1e-12)
    allowed = allowed & (direction * (upper - lower) >= 0)
    return np.where(allowed, one + two - whole, -np.inf)


def number_gains(sums: Numbers, nodes: Nodes, rules: Rules, direction: Numbers) -> Numbers:
    """(nodes, columns, missing right or left, cuts): bins below the cut go left."""
    below = np.cumsum(sums[..., :-1], axis=-1)
    missing = sums[..., -1:]
    # The last cut leaves nothing but missing values to the right, or nothing at all, which is not allowed.
    lefts = np.stack([below, below + missing], axis=-2)
    total = nodes.total(len(sums)).reshape(len(sums), -1, 1, 1, 1)
    bound = direction.any() or np.isfinite(nodes.low).any() or np.isfinite(nodes.high).any()
    return gain_of(lefts, total - lefts, nodes, rules, direction.reshape(1, -1, 1, 1) if bound else None)


def category_gains(sums: Numbers, nodes: Nodes, used: Numbers, rules: Rules) -> tuple[Numbers, Numbers]:
    """(nodes, columns, cuts), and the bins in the order in which they are cut.

    Levels that weigh less than a leaf must come last and stay together: their means are chance, and few patients'.
    """
    mean = sums[0] / (np.maximum(sums[1], 0.0) + rules.l2 + 1e-12)
    rare = ~used[None] | (sums[1] < rules.least)
    if len(sums) > 2:
        rare |= sums[2] < rules.fewest
    order = np.argsort(np.where(rare, np.inf, mean), axis=-1, kind="stable")
    sorted_sums = np.take_along_axis(sums, order[None], axis=-1)
    lefts = np.cumsum(sorted_sums, axis=-1)[..., :-1]
    total = nodes.total(len(sums)).reshape(len(sums), -1, 1, 1)
    bound = np.isfinite(nodes.low).any() or np.isfinite(nodes.high).any()
    direction = np.zeros((1, 1, 1)) if bound else None
    return gain_of(lefts, total - lefts, nodes, rules, direction), order


def bounded_children(sums: Numbers, nodes: Nodes, direction: Numbers, l2: float) -> Nodes:
    """Two nodes of each; where the split's column is constrained the middle of their values bounds them."""
    low, high = (np.repeat(bound[:, None], 2, axis=1) for bound in (nodes.low, nodes.high))
    if direction.any():
        value = np.clip(weight_of(sums[0], np.maximum(sums[1], 0.0), l2), low, high)
        middle = value.mean(axis=1)
        up, down = direction > 0, direction < 0
        high[up, 0], low[up, 1] = middle[up], middle[up]
        low[down, 0], high[down, 1] = middle[down], middle[down]
    return Nodes(sums[0], sums[1], low, high, sums[2] if len(sums) > 2 else np.zeros_like(sums[0]))
