"""What a study of boosted trees says, and what is wrong with it before anybody is asked."""

import math
from typing import Literal, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.errors import Refusal
from wardround.queries.columns import suggest_name
from wardround.statistics.trees.bins import MOST_BINS, PASSES, Numbers
from wardround.statistics.trees.hazards import COX, cox
from wardround.statistics.trees.objectives import Objective, logistic, softmax, squared

ObjectiveName = Literal["auto", "logistic", "softmax", "squared", "cox"]
WHERE = "[analysis] boosted_trees"
MOST_DEPTH = 10


class TreePlan(NamedTuple):
    """The settings of the component, by their names."""

    target: str
    columns: tuple[str, ...]
    objective: ObjectiveName = "auto"
    positive: str = ""
    trees: int = 100
    depth: int = 4
    learning_rate: float = 0.2
    bins: int = 64
    l2: float = 1.0
    least_weight: float = 1.0
    least_gain: float = 0.0
    smallest_leaf: int = 20
    rows_per_tree: float = 1.0
    columns_per_tree: float = 1.0
    increasing: tuple[str, ...] = ()
    decreasing: tuple[str, ...] = ()
    validation: float = 0.15
    test: float = 0.2
    patience: int = 10
    personal: int = 0
    effects: int = 6
    fewest_sites: int = 3
    most_classes: int = 10
    smallest_cell: int = 1
    epsilon: float = 0.0
    delta: float = 1e-5
    noise_seed: int | None = None
    seed: int = 0
    time: str = ""
    time_bins: int = 100
    check_units: bool = True

    @property
    def private(self) -> bool:
        return self.epsilon > 0

    @property
    def watched(self) -> bool:
        """Whether validation rows decide when to stop."""
        return self.patience > 0 and self.validation > 0 and not self.private

    @property
    def exchanges(self) -> int:
        """At most: counts for bins, a level each (and a hazard a tree), and a look at the finished trees."""
        return PASSES + self.trees * self.depth + 2 + self.hazards

    @property
    def hazards(self) -> int:
        """Exchanges about who is at risk: before every tree, and before the look at all of them."""
        return self.trees + 1 if self.time else 0

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that a site's table must have."""
        return (*self.columns, self.target, *([self.time] if self.time else []))

    @property
    def private_sums(self) -> int:
        """Noised sums over a training patient."""
        return PASSES + self.trees * self.depth


class TreeOutcome(NamedTuple):
    """What is predicted: by which objective, and the classes in their order (none for a number)."""

    objective: Objective
    classes: tuple[str, ...] = ()
    positive: int = 0
    """Of two classes the place of the one looked for."""

    @property
    def is_hazard(self) -> bool:
        return self.objective.name == COX


def outcome_of(plan: TreePlan, agreed: Agreed) -> TreeOutcome:
    """What is predicted; a site asks, too, so that whoever asks it gets no sum that noise does not cover."""
    found = outcome_in(plan, agreed)
    if plan.private and found.objective.reach is None:
        raise unbounded()
    return found


def unbounded() -> Refusal:
    return Refusal(
        "noise is calibrated for classes, where each patient's slope is bounded; this target is not a class",
        where=f"{WHERE}, epsilon",
        remedy="leave epsilon out, or cut the target into classes",
    )


def outcome_in(plan: TreePlan, agreed: Agreed) -> TreeOutcome:
    """Two classes, several, a number, or a hazard where there is a time; of two classes the positive one is label 1."""
    if plan.time:
        return TreeOutcome(cox())
    column = agreed.columns[plan.target]
    levels = column.levels if column.kind == "category" else ()
    wanted = plan.objective
    if wanted == "squared" and levels:
        raise Refusal(
            f"the target {plan.target!r} is a category, and 'squared' fits numbers",
            where=WHERE,
            remedy="leave the objective out, or choose another target",
        )
    if wanted == "squared" or (not levels and wanted == "auto"):
        return TreeOutcome(squared())
    classes = levels or ("0", "1")
    if len(classes) < 2:
        raise Refusal(
            f"the target {plan.target!r} has {len(classes)} class at all sites, so there is nothing to predict",
            where=WHERE,
            remedy="choose another target, or more patients",
        )
    if len(classes) > plan.most_classes:
        raise Refusal(
            f"the target {plan.target!r} has {len(classes)} classes, and {plan.most_classes} are allowed",
            where=WHERE,
            remedy="raise most_classes; every class takes trees and sums of its own",
        )
    if wanted == "softmax" or len(classes) > 2:
        if wanted == "logistic":
            raise Refusal(
                f"the target {plan.target!r} has {len(classes)} classes, and 'logistic' is for two",
                where=WHERE,
                remedy="leave the objective out",
            )
        return TreeOutcome(softmax(len(classes)), classes)
    if plan.positive and plan.positive not in classes:
        raise Refusal(
            f"the target {plan.target!r} has no class {plan.positive!r}",
            where=f"{WHERE}, positive",
            remedy=suggest_name(plan.positive, classes),
        )
    return TreeOutcome(logistic(), classes, classes.index(plan.positive) if plan.positive else 1)


def directions(plan: TreePlan, agreed: Agreed) -> Numbers:
    """1 where a column may only raise the score, -1 where it may only lower it."""
    both = set(plan.increasing) & set(plan.decreasing)
    if both:
        raise Refusal(f"column {sorted(both)[0]!r} cannot both raise and lower the outcome", where=WHERE)
    for name in (*plan.increasing, *plan.decreasing):
        if name not in plan.columns:
            raise unknown_column(name, plan.columns, "increasing and decreasing")
        if agreed.columns[name].kind == "category":
            raise Refusal(
                f"column {name!r} is a category, whose levels have no order, so it cannot be monotone",
                where=f"{WHERE}, increasing and decreasing",
                remedy="take it off the list, or give the column as numbers",
            )
    found = {**dict.fromkeys(plan.increasing, 1), **dict.fromkeys(plan.decreasing, -1)}
    return np.array([found.get(name, 0) for name in plan.columns])


def unknown_column(name: str, known: tuple[str, ...], key: str) -> Refusal:
    return Refusal(f"there is no column {name!r}", where=f"{WHERE}, {key}", remedy=suggest_name(name, known))


def refuse_plan(plan: TreePlan, agreed: Agreed) -> None:
    """Whatever cannot be computed, or would tell too much."""
    for name in plan.read:
        if name not in agreed.columns:
            raise unknown_column(name, tuple(agreed.columns), "columns")
    both = [name for name in plan.read[len(plan.columns) :] if name in plan.columns]
    if not plan.columns or both:
        raise Refusal(
            f"the target {both[0]!r} is also among the columns" if plan.columns else "there are no columns",
            where=f"{WHERE}, columns",
            remedy="list the columns to predict from, without the target and its time",
        )
    refuse_time(plan, agreed)
    if len(agreed.sites) < plan.fewest_sites:
        raise Refusal(
            f"{len(agreed.sites)} {'site takes' if len(agreed.sites) == 1 else 'sites take'} part, and trees ask for "
            f"{plan.fewest_sites}: from the sum of two, each could work out what the other holds",
            where=WHERE,
            remedy="let more sites take part; set fewest_sites lower only where the sites may see each other's sums",
        )
    if plan.depth > MOST_DEPTH or not 2 <= plan.bins <= MOST_BINS:
        raise Refusal(
            f"depth is {plan.depth} and bins is {plan.bins}",
            where=WHERE,
            remedy=f"choose a depth from 1 to {MOST_DEPTH} and from 2 to {MOST_BINS} bins",
        )
    if plan.validation + plan.test >= 1 or not 0 < plan.rows_per_tree <= 1 or not 0 < plan.columns_per_tree <= 1:
        raise Refusal(
            "no row or no column would be left to learn from",
            where=WHERE,
            remedy="let validation and test be less than 1 together, and rows_per_tree and columns_per_tree above 0",
        )
    for name in plan.columns:
        if len(agreed.columns[name].levels) > MOST_BINS:
            raise Refusal(
                f"column {name!r} has {len(agreed.columns[name].levels)} categories, and a tree can hold {MOST_BINS}",
                where=f"{WHERE}, columns",
                remedy="join rare ones, or leave the column out",
            )
    outcome_of(plan, agreed)


def refuse_time(plan: TreePlan, agreed: Agreed) -> None:
    """Hazards need a time, and a time is for hazards."""
    if bool(plan.time) != (plan.objective == COX) and (plan.objective != "auto" or not plan.time):
        raise Refusal(
            f"the objective is {plan.objective!r}, and "
            + (f"the time is {plan.time!r}" if plan.time else "no time is said"),
            where=WHERE,
            remedy='for the hazard of an event say both: objective = "cox" and time = "COLUMN"; else leave both out',
        )
    if plan.time and (plan.time == plan.target or agreed.columns[plan.time].kind != "number"):
        raise Refusal(
            f"the time {plan.time!r} "
            + ("is the target itself" if plan.time == plan.target else "does not hold numbers"),
            where=f"{WHERE}, time",
            remedy="name the column that says how long each patient was followed, in numbers",
        )
    if plan.time and not 2 <= plan.time_bins <= MOST_BINS:
        raise Refusal(f"time_bins is {plan.time_bins}", where=WHERE, remedy=f"choose from 2 to {MOST_BINS} intervals")


def columns_drawn(plan: TreePlan, tree: int) -> Numbers:
    """The columns that a tree may ask about, by the study's seed: public, and the same everywhere."""
    many = len(plan.columns)
    wanted = max(1, math.ceil(plan.columns_per_tree * many - 1e-9))
    if wanted >= many:
        return np.arange(many)
    return np.sort(np.random.default_rng((plan.seed, tree, 1)).choice(many, wanted, replace=False))
