"""A site's place in the growth of a forest: each row's score so far, and its node in the tree that is being grown.

All of it follows from the message and the site's rows, so a site that lost it works it out again; kept, every exchange
costs one level of one tree.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.trees.forest import Forest, descend, unpack_bins
from wardround.statistics.trees.histograms import Builder, histogram_builder
from wardround.statistics.trees.objectives import Objective, Slopes

Numbers = np.ndarray[Any, Any]


class BinnedRows(NamedTuple):
    """Rows as trees see them: `codes` of the shape (columns, rows), C-contiguous uint8, and what is to be predicted."""

    codes: Numbers
    y: Numbers


@dataclass(frozen=True)
class RowCourse:
    """How far the rows are: after `forest`, and `levels` into the tree after it."""

    rows: BinnedRows
    forest: Forest
    scores: Numbers
    """(groups, rows) in single precision."""
    tree: Forest | None = None
    """The one that is being grown, whose first `levels` are known."""
    levels: int = 0
    at: tuple[Numbers, ...] = ()
    """For every group each row's node among those of the level."""
    slopes: Slopes | None = None
    channels: int = 2
    """Sums of a bin: of both slopes, and where nothing bounds these, of rows."""
    builders: tuple[Builder, ...] = field(default=(), repr=False)


def first_course(rows: BinnedRows, base: Numbers, none: Forest) -> RowCourse:
    return RowCourse(rows, none, np.repeat(np.asarray(base, np.float32)[:, None], rows.codes.shape[1], axis=1))


def follows(course: RowCourse, forest: Forest) -> bool:
    """Whether the forest is this course's, with or without more trees."""
    done = course.forest.trees
    if course.forest.value is forest.value:
        return True
    return done <= forest.trees and all(
        np.array_equal(old, new[:done]) for old, new in zip(course.forest, forest, strict=True)
    )


def after_forest(course: RowCourse, forest: Forest, width: int) -> RowCourse:
    """The scores after all trees of the forest, which begins with the course's."""
    done, scores = course.forest.trees, course.scores
    if done == forest.trees:
        return course
    scores = scores.copy()
    for number in range(done, forest.trees):
        # The rows are in this tree already, but for its last level, where it is the one that was being grown.
        tree = Forest(*(array[number : number + 1] for array in forest))
        course = after_levels(course, tree, forest.depth, width)
        for group, at in enumerate(course.at):
            scores[group] += tree.value[0, group][at]
    return RowCourse(course.rows, forest, scores)


def after_levels(course: RowCourse, tree: Forest, levels: int, width: int) -> RowCourse:
    """Each row's node after so many levels of the tree."""
    start, at = course.levels, course.at
    if course.tree is None or levels < start or not same_levels(course.tree, tree, start):
        start = 0
        at = tuple(np.zeros(course.rows.codes.shape[1], np.uint16) for _ in range(len(course.scores)))
    for level in range(start, levels):
        nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
        at = tuple(
            descend(
                own, course.rows.codes, tree.column[0, group, nodes], unpack_bins(tree.left[0, group, nodes], width)
            )
            for group, own in enumerate(at)
        )
    return replace(course, tree=tree, levels=levels, at=at)


def same_levels(one: Forest, other: Forest, levels: int) -> bool:
    if one is other:
        return True
    nodes = 2**levels - 1
    return np.array_equal(one.column[..., :nodes], other.column[..., :nodes]) and np.array_equal(
        one.left[..., :nodes, :], other.left[..., :nodes, :]
    )


def with_slopes(course: RowCourse, objective: Objective, learn: int, width: int, columns: Numbers) -> RowCourse:
    """The slopes at the scores so far, of the first `learn` rows, and what sums them over bins."""
    if course.slopes is not None:
        return course
    slopes = objective.slopes(course.scores[:, :learn], course.rows.y[:learn])
    return with_builders(replace(course, slopes=slopes), objective, learn, width, columns)


def with_builders(course: RowCourse, objective: Objective, learn: int, width: int, columns: Numbers) -> RowCourse:
    assert course.slopes is not None
    whole = len(columns) == len(course.rows.codes)
    codes = course.rows.codes[:, :learn] if whole else course.rows.codes[columns, :learn]
    builders = tuple(
        histogram_builder(codes, width, gradients, hessians, constant=objective.constant, counted=objective.counted)
        for gradients, hessians in zip(*course.slopes, strict=True)
    )
    return replace(course, builders=builders, channels=3 if objective.counted else 2)


def node_sums(course: RowCourse, asked: Numbers, learn: int, drawn: Numbers | None, used: Numbers) -> Numbers:
    """(2, groups, asked, bins), or 3 with counts: sums over drawn learning rows of the nodes asked for (-1: none).

    `used` says which bins of a column there are; these alone are told, one column's after the other's.
    """
    places = np.flatnonzero(used)
    found = np.zeros((course.channels, *asked.shape, len(places)))
    for group, wanted in enumerate(asked):
        at = course.at[group][:learn]
        order = np.arange(learn, dtype=np.uint32) if drawn is None else drawn
        ends = np.array([len(order)])
        if course.levels:
            inside = at if drawn is None else at[order]
            ends = np.cumsum(np.bincount(inside, minlength=2**course.levels))
            if len(wanted):
                sorted_rows = np.argsort(inside, kind="stable")
                order = sorted_rows.astype(np.uint32) if drawn is None else order[sorted_rows]
        for place, node in enumerate(wanted.tolist()):
            if node >= 0:
                first, last = (int(ends[node - 1]) if node else 0), int(ends[node])
                if last > first:
                    sums = course.builders[group](order[first:last])
                    found[:, group, place] = sums.reshape(len(sums), -1)[:, places]
    return found
