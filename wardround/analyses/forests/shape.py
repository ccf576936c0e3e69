"""The shape in which a forest grows, from the study's settings and the agreed bins."""

import numpy as np

from wardround.analyses.forests.plan import TreeOutcome, TreePlan, directions
from wardround.core.analysis import Agreed
from wardround.statistics.trees.bins import Layout
from wardround.statistics.trees.growth import TreeShape
from wardround.statistics.trees.splits import Rules


def shape_of(plan: TreePlan, agreed: Agreed, outcome: TreeOutcome, layout: Layout) -> TreeShape:
    """A leaf holds at least `smallest_leaf` rows: the second derivative of a row is bounded, so a sum tells how many.

    No count of rows is asked for but where nothing bounds it (hazards). Where a prediction is already sure, rows weigh
    less and a leaf holds more of them.
    """
    steepest = outcome.objective.steepest
    least = plan.least_weight if steepest is None else max(plan.least_weight, steepest * plan.smallest_leaf)
    is_category = np.array([agreed.columns[name].kind == "category" for name in plan.columns])
    fewest = plan.smallest_leaf if outcome.objective.counted else 0.0
    rules = Rules(plan.l2, least, plan.least_gain, fewest)
    return TreeShape(
        outcome.objective.groups, plan.depth, layout, is_category, directions(plan, agreed), rules,
        plan.learning_rate, plan.private,
    )  # fmt: skip
