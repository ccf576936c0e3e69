"""The coordinator's half: from the sums of each exchange to the bins, the next level, the next tree, the end."""

from typing import NamedTuple

import numpy as np

from wardround.analyses.forests.plan import WHERE, TreePlan, columns_drawn, outcome_of, refuse_plan
from wardround.analyses.forests.question import (
    Common,
    edges_question,
    hazard_question,
    level_question,
    review_question,
)
from wardround.analyses.forests.shape import shape_of
from wardround.analyses.survival.survey import refuse_units
from wardround.core.analysis import Agreed, FoundModel
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.statistics.trees.bins import (
    PASSES,
    Feature,
    Layout,
    Numbers,
    finer_edges,
    first_edges,
    join_cells,
    layout_of,
)
from wardround.statistics.trees.forest import Forest, bare_forest
from wardround.statistics.trees.growth import Growth, TreeShape, grow_level, seed_tree
from wardround.statistics.trees.hazards import hazard_of
from wardround.statistics.trees.prediction import forest_params

GRID = 10
"""Places along a column at which its effect is worked out, at most."""


class TreesState(NamedTuple):
    """How far the study is: first bins, then trees level by level, then a look at them."""

    agreed: Agreed
    passes: int = 0
    edges: tuple[Numbers, ...] = ()
    common: Common | None = None
    shape: TreeShape | None = None
    forest: Forest | None = None
    """All trees so far; at the end those that are kept."""
    growth: Growth | None = None
    losses: tuple[float, ...] = ()
    """Of validation rows after 0, 1, ... trees."""
    gain: Numbers | None = None
    """(trees, columns)."""
    looked: Message | None = None
    hazard: Numbers | None = None
    """Of the forest so far, where trees are fitted to one."""


def begin(plan: TreePlan, agreed: Agreed) -> TreesState:
    refuse_plan(plan, agreed)
    numbers = [name for name in plan.columns if agreed.columns[name].kind == "number"]
    # Checked here, before anybody is asked: the objective, and what must be monotone.
    shape_of(plan, agreed, outcome_of(plan, agreed), Layout(2, np.ones((len(plan.columns), 2), bool)))
    return TreesState(agreed, edges=tuple(first_edges() for _ in [*numbers, *([plan.time] if plan.time else [])]))


def next_question(plan: TreePlan, state: TreesState) -> Message | None:
    if state.common is None or state.forest is None:
        return edges_question(state.edges)
    if plan.time and state.hazard is None:
        return hazard_question(state.common, state.forest)
    if state.growth is not None:
        return level_question(state.common, state.forest, state.growth, state.forest.trees, state.hazard)
    if state.looked is None:
        return review_question(state.common, state.forest, state.hazard, *effect_grid(plan, state))
    return None


def after_answers(plan: TreePlan, state: TreesState, told: Message) -> TreesState:
    if state.common is None:
        return after_counts(plan, state, told)
    if plan.time and state.hazard is None:
        return state._replace(hazard=hazard_of(np.asarray(told.arrays["risk"])))
    if state.growth is not None:
        return after_level(plan, state, told)
    return state._replace(looked=told)


def after_counts(plan: TreePlan, state: TreesState, told: Message) -> TreesState:
    """Finer cells, or after the last pass the bins."""
    cells, passes = np.asarray(told.arrays["cells"]), state.passes + 1
    if plan.check_units and plan.time:
        refuse_units(np.asarray(told.arrays["medians"]))
    if passes < PASSES and state.edges:
        many = [plan.bins] * (len(state.edges) - bool(plan.time)) + [plan.time_bins] * bool(plan.time)
        finer = (
            finer_edges(own, unpadded(counts, len(own)), bins)
            for own, counts, bins in zip(state.edges, cells, many, strict=True)
        )
        return state._replace(passes=passes, edges=tuple(finer))
    agreed, cuts = state.agreed, iter(zip(state.edges, cells, strict=True))
    features = []
    for name in plan.columns:
        column = agreed.columns[name]
        if column.kind == "category":
            features.append(Feature(name, np.empty(0), column.levels, True))
            continue
        edges, counts = next(cuts)
        joined = join_cells(edges, unpadded(counts, len(edges)), plan.bins, plan.smallest_leaf)
        features.append(Feature(name, joined.astype(np.float32).astype(np.float64)))
    time = None
    if plan.time:
        edges, counts = next(cuts)
        joined = join_cells(edges, unpadded(counts, len(edges)), plan.time_bins, plan.smallest_leaf)
        time = Feature(plan.time, joined.astype(np.float32).astype(np.float64))
    outcome = outcome_of(plan, agreed)
    first = np.asarray(told.arrays["first"])
    if not plan.private:
        refuse_first(plan, outcome.classes, first)
    layout = layout_of(features)
    shape = shape_of(plan, agreed, outcome, layout)
    none = bare_forest(0, outcome.objective.groups, plan.depth, layout.width)
    base = outcome.objective.first_score(first).astype(np.float32).astype(np.float64)
    common = Common(tuple(features), base, time)
    return state._replace(
        passes=passes, common=common, shape=shape, forest=none, gain=np.zeros((0, len(features))),
        growth=seed_tree(shape, columns_drawn(plan, 0)),
    )  # fmt: skip


def unpadded(counts: Numbers, edges: int) -> Numbers:
    """Of cells between edges that were filled up with the last one: those of the edges themselves."""
    return np.append(counts[:edges], counts[-1])


def refuse_first(plan: TreePlan, classes: tuple[str, ...], first: Numbers) -> None:
    """Nobody to learn from, or all of one class."""
    rows = first.sum() if classes else first[0]
    if rows < 2 * plan.smallest_leaf:
        raise Refusal(
            f"all sites together have {rows:.0f} patients to learn from, and two leaves of {plan.smallest_leaf} need "
            f"{2 * plan.smallest_leaf}",
            where=WHERE,
            remedy="let more patients in, or lower smallest_leaf, which lets leaves tell of fewer patients",
        )
    if plan.time and not first[1]:
        raise Refusal(
            f"all of {rows:.0f} patients are censored: nobody had the event {plan.target!r}",
            where=WHERE,
            remedy="look at the event column: 1 is the event, unless positive says another value",
        )
    if classes and np.count_nonzero(first > 0) < 2:
        raise Refusal(
            f"all patients of all sites have the same value of {plan.target!r}, so there is nothing to predict",
            where=WHERE,
            remedy="choose another target, or more patients",
        )


def after_level(plan: TreePlan, state: TreesState, told: Message) -> TreesState:
    """The splits of the level; with the first level the validation loss, which may end it all."""
    assert state.growth is not None
    assert state.shape is not None
    assert state.forest is not None
    assert state.gain is not None
    growth, shape, forest = state.growth, state.shape, state.forest
    if plan.watched and growth.level == 0:
        loss, rows = told.arrays["loss"]
        state = state._replace(losses=(*state.losses, float(loss / max(rows, 1))))
        if len(state.losses) - 1 - best_of(state.losses) >= plan.patience:
            return finish(plan, state)
    growth = grow_level(growth, shape, np.asarray(told.arrays["sums"], np.float64))
    if not growth.done:
        return state._replace(growth=growth)
    if not (growth.tree.column >= 0).any():  # nothing is left to be learned
        return finish(plan, state)
    forest, gain = forest.plus(growth.tree), np.concatenate([state.gain, growth.gain[None]])
    state = state._replace(forest=forest, gain=gain, hazard=None)
    if forest.trees == plan.trees:
        return finish(plan, state)
    return state._replace(growth=seed_tree(shape, columns_drawn(plan, forest.trees)))


def best_of(losses: tuple[float, ...]) -> int:
    """After how many trees the loss was smallest."""
    return int(np.argmin(losses))


def finish(plan: TreePlan, state: TreesState) -> TreesState:
    """Of the trees that were watched those up to the smallest loss; the last few may be unwatched and are dropped."""
    assert state.forest is not None
    assert state.gain is not None
    keep = best_of(state.losses) if plan.watched and state.losses else state.forest.trees
    if not state.forest.trees:
        raise Refusal(
            f"no column divides the patients into leaves of {plan.smallest_leaf} or more that differ",
            where=WHERE,
            remedy="lower smallest_leaf or least_weight, let more patients in, or choose other columns",
        )
    keep = max(keep, 1)
    return state._replace(forest=state.forest.first(keep), gain=state.gain[:keep], growth=None, hazard=None)


def model_of(plan: TreePlan, state: TreesState) -> FoundModel:
    """The trees as a model to be used; for two classes the probabilities have the order of the agreed words."""
    assert state.common is not None
    assert state.forest is not None
    assert state.shape is not None
    outcome = outcome_of(plan, state.agreed)
    forest, base = state.forest, state.common.base
    if outcome.objective.groups == 1 and outcome.classes and outcome.positive == 0:
        # Scores are those of the positive class, and a file's those of the second.
        forest, base = forest._replace(value=-forest.value), -base
    columns = {name: state.agreed.columns[name] for name in plan.columns}
    params = forest_params(state.common.features, base, forest, len(outcome.classes), state.shape.layout.width)
    target = f"log hazard of {plan.target}" if plan.time else plan.target
    return FoundModel(params, target, columns, outcome.classes, outcome.positive)


def effect_grid(plan: TreePlan, state: TreesState) -> tuple[Numbers, Numbers]:
    """Which columns' effects are asked for, by their gain, and at which bins; -1 fills up."""
    assert state.common is not None
    assert state.gain is not None
    total = state.gain.sum(axis=0)
    many = 0 if plan.private else plan.effects
    shown = np.array([column for column in np.argsort(-total, kind="stable")[:many] if total[column] > 0], np.int64)
    grid = np.full((len(shown), GRID), -1, np.int64)
    for place, column in enumerate(shown):
        size = state.common.features[column].size
        bins = np.unique(np.linspace(0, size - 1, min(size, GRID)).round().astype(int))
        grid[place, : len(bins)] = bins
    return shown, grid
