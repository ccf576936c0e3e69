"""How a forest grows, a level an exchange: from sums over all rows to the splits, the leaves, the next question.

Of two children the sums of one are asked for; the other's are what remains of the parent's. Where sums are noised both
are asked for, since noise does not remain in one place.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.trees.bins import Layout
from wardround.statistics.trees.forest import NOTHING, Forest, bare_forest, pack_bins
from wardround.statistics.trees.splits import Nodes, Rules, best_splits, weight_of

Numbers = np.ndarray[Any, Any]


class TreeShape(NamedTuple):
    """What does not change while a forest grows."""

    groups: int
    depth: int
    layout: Layout
    is_category: Numbers
    direction: Numbers
    rules: Rules
    rate: float
    """By which a leaf's value is shortened: the learning rate."""
    both: bool = False
    """Ask for both children."""


class Growth(NamedTuple):
    """One tree a group, grown so far."""

    tree: Forest
    level: int
    columns: Numbers
    """Those that this tree may ask about."""
    nodes: Nodes
    """Of the level, (groups, nodes)."""
    alive: Numbers
    """(groups, nodes): nodes that may be split."""
    value: Numbers
    """(groups, nodes): what a node would be worth as a leaf."""
    asked: Numbers
    """(groups, asked): which nodes' sums are asked for; -1 fills up."""
    parents: Numbers | None
    """(2 or 3, groups, nodes of the level before, columns, width)."""
    gain: Numbers
    """Of each column, over the splits of this tree."""
    done: bool = False


def seed_tree(shape: TreeShape, columns: Numbers) -> Growth:
    """A root of each group, of which nothing is known."""
    one = np.zeros((shape.groups, 1))
    everything = Nodes(one, one, np.full_like(one, -np.inf), np.full_like(one, np.inf), one)
    return Growth(
        bare_forest(1, shape.groups, shape.depth, shape.layout.width), 0, columns, everything,
        np.ones((shape.groups, 1), bool), one, np.zeros((shape.groups, 1), np.int64), None,
        np.zeros(len(shape.is_category)),
    )  # fmt: skip


def grow_level(growth: Growth, shape: TreeShape, told: Numbers) -> Growth:
    """After the answer, (2 or 3, groups, asked, bins), the splits of the level are known."""
    sums = level_sums(growth, shape, side_by_side(told, shape.layout.used[growth.columns]))
    nodes, alive = growth.nodes, growth.alive
    if growth.level == 0:
        # Every column holds every row once, so each gives the root's sums; under noise their mean is the best guess.
        root = sums.sum(axis=-1).mean(axis=-1)
        nodes = nodes._replace(gradient=root[0], hessian=root[1], rows=root[2] if len(root) > 2 else nodes.rows)
        value = weight_of(root[0], np.maximum(root[1], 0.0), shape.rules.l2)
        growth = growth._replace(value=value)
    which = np.nonzero(alive)
    picked = Nodes(*(part[which] for part in nodes))
    columns = growth.columns
    split = best_splits(
        sums[:, which[0], which[1]], picked, shape.is_category[columns], shape.layout.used[columns], shape.rules,
        shape.direction[columns],
    )  # fmt: skip
    tree, gain = Forest(*(part.copy() for part in growth.tree)), growth.gain.copy()
    worth = split.column >= 0
    at = 2**growth.level - 1 + which[1]
    tree.column[0, which[0][worth], at[worth]] = columns[split.column[worth]]
    tree.left[0, which[0], at] = pack_bins(split.left)
    np.add.at(gain, columns[split.column[worth]], split.gain[worth])
    return next_level(growth._replace(tree=tree, gain=gain), shape, which, worth, split.children, sums)


def side_by_side(told: Numbers, used: Numbers) -> Numbers:
    """Bins as they travel, to (..., columns, width); places that are no bin hold 0."""
    sums = np.zeros((*told.shape[:-1], used.size))
    sums[..., np.flatnonzero(used)] = told
    return sums.reshape(*told.shape[:-1], *used.shape)


def level_sums(growth: Growth, shape: TreeShape, told: Numbers) -> Numbers:
    """(2 or 3, groups, nodes, columns, width): as told, or what the sibling leaves of the parent."""
    sums = np.zeros((len(told), *growth.alive.shape, *told.shape[-2:]))
    group, place = np.nonzero(growth.asked >= 0)
    node = growth.asked[group, place]
    sums[:, group, node] = told[:, group, place]
    if growth.parents is not None and not shape.both:
        sums[:, group, node ^ 1] = growth.parents[:, group, node // 2] - told[:, group, place]
    return sums


def next_level(
    growth: Growth, shape: TreeShape, which: tuple[Numbers, ...], worth: Numbers, children: Nodes, sums: Numbers
) -> Growth:
    """The children become the nodes of the next level; at the end they are leaves."""
    groups, many = growth.alive.shape
    alive = np.zeros((groups, many, 2), bool)
    # A node that is not split goes on as its own left child, and keeps its value.
    value = np.repeat(growth.value[:, :, None], 2, axis=2)
    group, node = which[0][worth], which[1][worth]
    parts = [np.zeros((groups, many, 2)) for _ in Nodes._fields]
    for part, own in zip(parts, children, strict=True):
        part[group, node] = own[worth]
    nodes = Nodes(*parts)
    fresh = weight_of(nodes.gradient, np.maximum(nodes.hessian, 0.0), shape.rules.l2)
    value[group, node] = np.clip(fresh, nodes.low, nodes.high)[group, node]
    # What is too light to be split again is a leaf: nobody is asked about it.
    enough = (nodes.hessian >= 2 * shape.rules.least) & (nodes.rows >= 2 * shape.rules.fewest)
    alive[group, node] = enough[group, node]
    flat = (groups, 2 * many)
    level = growth.level + 1
    growth = growth._replace(
        level=level, nodes=Nodes(*(part.reshape(flat) for part in nodes)), alive=alive.reshape(flat),
        value=value.reshape(flat), parents=None if shape.both else sums,
    )  # fmt: skip
    if level == shape.depth or not alive.any():
        return finish_tree(growth, shape)
    if shape.both:
        wanted = [np.flatnonzero(own) for own in growth.alive]
    else:
        # The lighter child, as long as it is not a leaf, since its rows are the fewer ones.
        weight = np.where(alive[group, node], nodes.hessian[group, node], np.inf)
        chosen, some = 2 * node + weight.argmin(axis=-1), alive[group, node].any(axis=-1)
        wanted = [chosen[some & (group == one)] for one in range(groups)]
    asked = np.full((groups, max(len(own) for own in wanted)), NOTHING, np.int64)
    for one, own in enumerate(wanted):
        asked[one, : len(own)] = own
    return growth._replace(asked=asked)


def finish_tree(growth: Growth, shape: TreeShape) -> Growth:
    """Values into the leaves; where a branch ended early, into all that lie below it."""
    value = np.repeat(growth.value, 2 ** (shape.depth - growth.level), axis=1)
    tree = growth.tree._replace(value=coarse(shape.rate * value)[None])
    return growth._replace(tree=tree, done=True)


def coarse(value: Numbers) -> Numbers:
    """With 8 binary digits: from more of them one could work out how many patients a leaf holds, and of which class."""
    fraction, exponent = np.frexp(value)
    return np.asarray(np.ldexp(np.round(fraction * 256) / 256, exponent), np.float32)
