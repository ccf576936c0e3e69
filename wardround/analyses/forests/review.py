"""A site's look at the finished trees: how they do on its test rows, what they would lose without a column, how the
outcome changes along one. All are sums, or figures of the site in a place of its own that are published with its name.
"""

from typing import Any

import numpy as np

from wardround.analyses.forests.memory import Kept
from wardround.analyses.forests.personal import continue_forest
from wardround.analyses.forests.plan import TreeOutcome, TreePlan
from wardround.analyses.forests.question import Common
from wardround.analyses.forests.rows import draw
from wardround.core.analysis import Agreed
from wardround.core.contracts import Message, Site
from wardround.privacy.calibration import gaussian_noise
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.statistics.survival.concordance import comparable_pairs
from wardround.statistics.trees.bins import Numbers
from wardround.statistics.trees.course import RowCourse
from wardround.statistics.trees.forest import Forest, scores_of
from wardround.statistics.trees.hazards import order_sums
from wardround.statistics.trees.objectives import Objective
from wardround.statistics.trees.quality import CELLS, area_of_scores, score_cells

FEWEST = 5
"""Test patients of either class, or of a number, below which a site's own figure is not told."""
TENTHS = 10
"""Parts that are left out in turn to see how far a site's C-index varies."""
SAMPLE = 500
"""Rows along which the effect of a column is worked out, and 4 times as many to try columns without their order."""


def review_answer(
    plan: TreePlan,
    agreed: Agreed,
    outcome: TreeOutcome,
    kept: Kept,
    common: Common,
    course: RowCourse,
    message: Message,
    site: Site,
) -> Message:
    assert kept.binned is not None
    assert kept.layout is not None
    width, objective, forest = kept.layout.width, outcome.objective, course.forest
    codes, y = kept.binned.codes[:, kept.rows.test :], kept.binned.y[kept.rows.test :]
    # A hazard is judged by exact times, so that what their intervals cost shows.
    truth = kept.rows.y[kept.rows.test :] if outcome.is_hazard else y
    scores = scores_of(forest, common.base, codes, width)
    if outcome.is_hazard:
        told: dict[str, Any] = {"cells": order_sums(truth, np.abs(y), scores[0])[None, None]}
    else:
        told = {"cells": roc_cells(outcome, objective.outcome(scores), y)}
    if plan.private:
        # Test patients are others than those who were learned from: this is the one sum that they are in.
        deviation = gaussian_noise(1, plan.epsilon, plan.delta) * np.sqrt(max(1, len(told["cells"])))
        key = noise_key(plan.noise_seed, "test", site.name)
        return Message({"cells": with_gaussian_noise(told["cells"], deviation, key)})
    loss = objective.loss(scores, y)
    told["loss"] = np.array([loss.sum(), len(loss)])
    own = np.zeros((len(agreed.sites), 5))
    # A table without patients, by which shapes are known beforehand, may be nobody's.
    place = agreed.sites.index(site.name) if site.name in agreed.sites else 0
    own[place, :3] = own_figure(outcome, objective.outcome(scores), truth)
    if plan.personal:
        further = continue_forest(plan, agreed, outcome, kept.layout, course, kept.rows.learn)
        more = scores_of(further, common.base, codes, width)
        figure = own_figure(outcome, objective.outcome(more), truth)
        own[place, 3:] = figure[0], further.trees - forest.trees
    told["sites"] = own
    told["permuted"] = permuted_losses(plan, objective, forest, common, codes, y, width, site.name)
    told |= effects(plan, objective, forest, common, kept.binned.codes[:, : kept.rows.learn], width, message, site.name)
    return Message(told)


def roc_cells(outcome: TreeOutcome, predicted: Numbers, y: Numbers) -> Numbers:
    """(classes looked for, cases and controls, cells of the score): what an ROC curve follows from."""
    if not outcome.classes:
        return np.array([[[len(y), y.sum(), (y.astype(np.float64) ** 2).sum(), ((predicted - y) ** 2).sum()]]])
    looked_for = [1] if outcome.objective.groups == 1 else range(len(outcome.classes))
    found = np.zeros((len(looked_for), 2, CELLS))
    for place, label in enumerate(looked_for):
        cells = score_cells(predicted[:, label])
        for side, chosen in enumerate((y == label, y != label)):
            found[place, side] = np.bincount(cells[chosen], minlength=CELLS)
    return found


def own_figure(outcome: TreeOutcome, predicted: Numbers, y: Numbers) -> Numbers:
    """The site's area under the curve (or root mean squared error), its standard error, and 1 where it may be told."""
    nothing = np.zeros(3)
    if outcome.is_hazard:
        return own_order(predicted, y)
    if not outcome.classes:
        if len(y) < FEWEST:
            return nothing
        squares = (predicted - y.astype(np.float64)) ** 2
        root = float(np.sqrt(squares.mean()))
        return np.array([root, squares.std() / np.sqrt(len(y)) / max(2 * root, 1e-12), 1.0])
    looked_for = [1] if outcome.objective.groups == 1 else range(len(outcome.classes))
    areas = []
    for label in looked_for:
        cases = int((y == label).sum())
        if min(cases, len(y) - cases) < FEWEST:
            return nothing
        areas.append(area_of_scores(predicted[:, label], y == label))
    # The mean of several areas; they lean on the same patients, so their mean error is on the safe side.
    return np.array([np.mean([area.value for area in areas]), np.mean([area.error for area in areas]), 1.0])


def own_order(risk: Numbers, signed: Numbers) -> Numbers:
    """The site's C-index, and its standard error by leaving out a tenth of the patients in turn (the jackknife)."""
    time, event = np.abs(signed), ~np.signbit(signed)
    whole = comparable_pairs(time, event, risk).c_index
    if whole is None or min(event.sum(), len(event) - event.sum()) < FEWEST:
        return np.zeros(3)
    parts = [np.arange(len(time)) % TENTHS != part for part in range(TENTHS)]
    left = [comparable_pairs(time[kept], event[kept], risk[kept]).c_index for kept in parts]
    known = np.array([whole if one is None else one for one in left])
    return np.array([whole, np.sqrt((TENTHS - 1) / TENTHS * ((known - known.mean()) ** 2).sum()), 1.0])


def permuted_losses(
    plan: TreePlan, objective: Objective, forest: Forest, common: Common, codes: Numbers, y: Numbers, width: int,
    name: str,
) -> Numbers:  # fmt: skip
    """(columns, 2): the loss, and that with the column's values dealt out anew among the site's test rows."""
    found = np.zeros((len(codes), 2))
    used = set(np.unique(forest.column).tolist()) if len(y) else set()
    rows = slice(0, 4 * SAMPLE)
    codes, y = codes[:, rows], y[rows]
    plain = objective.loss(scores_of(forest, common.base, codes, width), y).sum()
    for column in range(len(codes)):
        found[column] = plain
        if column in used:
            other = codes.copy()
            other[column] = draw(plan.seed, name, "permuted", str(column)).permutation(other[column])
            found[column, 1] = objective.loss(scores_of(forest, common.base, other, width), y).sum()
    return found


def effects(
    plan: TreePlan, objective: Objective, forest: Forest, common: Common, codes: Numbers, width: int, message: Message,
    name: str,
) -> dict[str, Any]:  # fmt: skip
    """Summed outcomes of a sample of rows, were a column at each of some bins for all of them (Friedman 2001)."""
    shown, grid = (np.asarray(message.arrays[key]) for key in ("shown", "grid"))
    many = min(SAMPLE, codes.shape[1])
    sample = codes[:, draw(plan.seed, name, "effects").permutation(codes.shape[1])[:many]]
    outputs = objective.groups if objective.groups > 1 else 1
    found = np.zeros((*grid.shape, outputs))
    for place, column in enumerate(shown):
        for step, code in enumerate(grid[place]):
            if code >= 0:
                moved = sample.copy()
                moved[column] = code
                result = objective.outcome(scores_of(forest, common.base, moved, width))
                found[place, step] = (
                    result.sum(axis=0) if outputs > 1 else (result[:, 1] if result.ndim > 1 else result).sum()
                )
    return {"effects": found, "sampled": np.array([float(many)])}
