"""Personal trees: a site goes on from the common forest with its own rows alone, and stops when they no longer help."""

import numpy as np

from wardround.analyses.forests.plan import TreeOutcome, TreePlan
from wardround.analyses.forests.shape import shape_of
from wardround.core.analysis import Agreed
from wardround.statistics.trees.bins import Layout
from wardround.statistics.trees.course import RowCourse, after_forest, after_levels, node_sums, with_slopes
from wardround.statistics.trees.forest import Forest
from wardround.statistics.trees.growth import grow_level, seed_tree


def continue_forest(
    plan: TreePlan, agreed: Agreed, outcome: TreeOutcome, layout: Layout, course: RowCourse, learn: int
) -> Forest:
    """The common forest and the site's own trees after it: as many as made its validation loss smaller.

    Without validation rows there is nothing to stop by, and none is added.
    """
    objective = outcome.objective
    shape = shape_of(plan, agreed, outcome, layout)
    columns = np.arange(len(plan.columns))

    def loss(now: RowCourse) -> float:
        rows = objective.loss(now.scores[:, learn:], now.rows.y[learn:])
        return float(rows.mean()) if len(rows) else np.inf

    best, smallest, waited = course.forest, loss(course), 0
    for _ in range(plan.personal if np.isfinite(smallest) else 0):
        growth = seed_tree(shape, columns)
        course = with_slopes(course, objective, learn, layout.width, columns)
        while not growth.done:
            course = after_levels(course, growth.tree, growth.level, layout.width)
            sums = node_sums(course, growth.asked, learn, None, layout.used)
            growth = grow_level(growth, shape, sums)
        course = after_forest(course, course.forest.plus(growth.tree), layout.width)
        now, waited = loss(course), waited + 1
        if now < smallest:
            best, smallest, waited = course.forest, now, 0
        if waited >= max(plan.patience, 1):
            break
    return best
