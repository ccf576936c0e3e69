"""The site's half: counts for the bins, sums of slopes over nodes, and a look at the finished trees."""

import math
from typing import Any

import numpy as np

from wardround.analyses.forests.memory import Kept, SiteMemory
from wardround.analyses.forests.plan import TreeOutcome, TreePlan, columns_drawn, outcome_of
from wardround.analyses.forests.question import (
    EDGES,
    HAZARD,
    LEVEL,
    Common,
    phase_of,
    read_asked,
    read_common,
    read_forest,
    read_tree,
)
from wardround.analyses.forests.review import review_answer
from wardround.analyses.forests.rows import binned, draw, read_rows
from wardround.analyses.survival.survey import median_mark
from wardround.core.analysis import Agreed
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.privacy.accountant import Step
from wardround.privacy.calibration import noise_for
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.queries.cells import coarse_ends, in_cells
from wardround.statistics.trees.bins import Numbers, count_cells, layout_of
from wardround.statistics.trees.course import (
    BinnedRows,
    RowCourse,
    after_forest,
    after_levels,
    first_course,
    follows,
    node_sums,
    with_slopes,
)
from wardround.statistics.trees.forest import Forest
from wardround.statistics.trees.hazards import cox, is_hazard, risk_sums
from wardround.statistics.trees.objectives import Objective


def answer(plan: TreePlan, agreed: Agreed, memory: SiteMemory, message: Message, site: Site) -> Message:
    """Whatever is asked, of this site's rows."""
    kept = memory.find(site.name, site.table, agreed)
    if kept is None:
        outcome = outcome_of(plan, agreed)
        kept = memory.keep(site.name, site.table, agreed, outcome, read_rows(plan, agreed, outcome, site))
    outcome = kept.outcome
    phase = phase_of(message)
    if phase == EDGES:
        return edges_answer(plan, agreed, outcome, kept, message, site)
    common = settle_bins(kept, message, agreed, plan.columns)
    forest = read_forest(message)
    course = course_after(kept, common, forest)
    if phase == HAZARD:
        return hazard_answer(kept, common, course)
    if common.time is not None:
        outcome = outcome._replace(objective=objective_at(message, common.time.size))
    if phase == LEVEL:
        return level_answer(plan, outcome, kept, course, message, site)
    return review_answer(plan, agreed, outcome, kept, common, course, message, site)


def noise_multiplier(plan: TreePlan) -> float:
    """Of every sum that a training patient is in, so that all of them together keep the promised epsilon."""
    return noise_for([(Step(1.0, 0.0, plan.private_sums),)], plan.epsilon, plan.delta) if plan.private else 0.0


def edges_answer(
    plan: TreePlan, agreed: Agreed, outcome: TreeOutcome, kept: Kept, message: Message, site: Site
) -> Message:
    """How many learning rows lie between the edges, in whole cells, and what the first score follows from."""
    rows, edges = kept.rows, np.asarray(message.arrays["edges"])
    numbers = [place for place, name in enumerate(plan.columns) if agreed.columns[name].kind == "number"]
    counted = [rows.values[place] for place in numbers] + ([np.abs(rows.y)] if outcome.is_hazard else [])
    cells = np.zeros((len(counted), edges.shape[1] + 1))
    for own, values in enumerate(counted):
        # Noise is reckoned for exact counts: a patient more or less moves one of them by 1, not by a cell.
        cell = 1 if plan.private else plan.smallest_cell
        cells[own] = cell_counts(values[: rows.learn], edges[own], cell)
    first = outcome.objective.summarise(rows.y[: rows.learn])
    if plan.private:
        # A patient is in one cell of every column and in one class.
        deviation = noise_multiplier(plan) * math.sqrt(len(numbers) + 1)
        words = (site.name, str(edges.shape[1]))
        cells = with_gaussian_noise(cells, deviation, noise_key(plan.noise_seed, "cells", *words))
        first = with_gaussian_noise(first, deviation, noise_key(plan.noise_seed, "classes", *words))
    told = {"cells": cells, "first": in_cells(first, plan.smallest_cell) if outcome.classes else first}
    if outcome.is_hazard:
        told["medians"] = median_mark(np.abs(rows.y) if len(rows.y) >= plan.smallest_cell else rows.y[:0])
    return Message(told)


def cell_counts(values: Numbers, edges: Numbers, smallest_cell: int) -> Numbers:
    """Exact, or from numbers of patients below each edge that are whole cells, with edges on the site's own grid.

    So none of them closes in on a patient, as in the query `histogram`.
    """
    if smallest_cell == 1:
        return count_cells(values, edges)
    known = np.sort(values[np.isfinite(values)])
    ends = coarse_ends(known, smallest_cell)
    if ends is None:
        return np.zeros(len(edges) + 1)
    asked = np.round(edges / ends.step) * ends.step if ends.step else edges
    asked = np.clip(asked, ends.low, np.nextafter(ends.high, np.inf))
    below = in_cells(np.searchsorted(known, asked, side="left"), smallest_cell)
    return np.diff(np.concatenate([[0], below, [in_cells(len(known), smallest_cell)]])).astype(np.float64)


def settle_bins(kept: Kept, message: Message, agreed: Agreed, columns: tuple[str, ...]) -> Common:
    """The rows in the agreed bins; done once for the same edges."""
    edges = np.concatenate([np.asarray(message.arrays.get(name, ())) for name in ("edges", "intervals")])
    if kept.common is None or kept.edges is None or not np.array_equal(kept.edges, edges):
        kept.edges, kept.common, kept.course = edges, read_common(message, agreed, columns), None
        kept.layout = layout_of(kept.common.features)
        kept.binned = binned(kept.rows, kept.common.features, kept.layout.width, kept.common.time)
    return kept.common


def course_after(kept: Kept, common: Common, forest: Forest) -> RowCourse:
    """How far learning and validation rows are after the forest."""
    assert kept.binned is not None
    assert kept.layout is not None
    course = kept.course
    if course is None or not follows(course, forest):
        before = kept.rows.test
        rows = BinnedRows(np.ascontiguousarray(kept.binned.codes[:, :before]), kept.binned.y[:before])
        course = first_course(rows, common.base, forest.first(0))
    kept.course = after_forest(course, forest, kept.layout.width)
    return kept.course


def hazard_answer(kept: Kept, common: Common, course: RowCourse) -> Message:
    """Of every interval the learning rows at risk, weighted with their hazards, and those who had the event."""
    assert common.time is not None
    learn = kept.rows.learn
    return Message({"risk": risk_sums(course.scores[0, :learn], course.rows.y[:learn], common.time.size)})


def objective_at(message: Message, intervals: int) -> Objective:
    """Cox's, at the hazard that all sites together gave."""
    hazard = np.asarray(message.arrays.get("hazard", ()), np.float64)
    if not is_hazard(hazard, intervals):
        raise Refusal("what is asked has no hazard of these intervals", remedy="ask for what was approved")
    return cox(hazard)


def level_answer(
    plan: TreePlan, outcome: TreeOutcome, kept: Kept, course: RowCourse, message: Message, site: Site
) -> Message:
    """Sums of slopes over the nodes asked for; with the first level of a tree, the loss of validation rows so far."""
    assert kept.layout is not None
    layout, learn, objective = kept.layout, kept.rows.learn, outcome.objective
    number = course.forest.trees
    columns = columns_drawn(plan, number)
    asked = read_asked(message, course.forest, columns, objective.groups)
    tree, levels = read_tree(message, course.forest)
    course = with_slopes(course, objective, learn, layout.width, columns)
    course = kept.course = after_levels(course, tree, levels, layout.width)
    drawn = None
    if plan.rows_per_tree < 1:
        chance = draw(plan.seed, site.name, "tree", str(number)).random(kept.rows.dealt)[kept.rows.places[:learn]]
        drawn = np.flatnonzero(chance < plan.rows_per_tree).astype(np.uint32)
    sums = node_sums(course, asked, learn, drawn, layout.used[columns])
    if plan.private:
        assert objective.reach is not None
        assert objective.steepest is not None
        deviation = noise_multiplier(plan) * math.sqrt(objective.reach * len(columns))
        key = noise_key(plan.noise_seed, "sums", site.name, str(number), str(levels))
        scale = np.array([1.0, objective.steepest]).reshape(2, 1, 1, 1)
        sums = scale * with_gaussian_noise(sums / scale, deviation, key)
    told: dict[str, Any] = {"sums": sums.astype(np.float32)}
    if plan.watched and levels == 0:
        loss = objective.loss(course.scores[:, learn:], course.rows.y[learn:])
        told["loss"] = np.array([loss.sum(), len(loss)])
    return Message(told)
