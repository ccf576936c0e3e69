"""Boosted trees, grown from sums: all sites together fit what one table of all rows would give on the same bins.

Histogram gradient boosting as in XGBoost and LightGBM (Chen and Guestrin, KDD 2016; Ke et al., NeurIPS 2017). First the
sites count their values between edges, three times ever finer, so that all share the same bins. Then every level of
every tree is one exchange: the coordinator sends the trees so far, each site sums the slopes of its patients' losses
over the bins of the nodes asked for, and the sum of all sites gives the best splits. Costs `trees` x `depth` exchanges.

What leaves: sums of slopes for every bin of every column, from which labels can be read where a site's answer is seen
by itself, so trees belong under the secure sum, with three sites or more. What is published: splits and leaf values,
each of at least `smallest_leaf` patients of all sites; no counts and no sums. With `epsilon`, all sums are noised at
the sites, so that they protect even where they are seen.
"""

from collections.abc import Callable

from wardround.analyses.forests.answer import answer, noise_multiplier
from wardround.analyses.forests.findings import report_of
from wardround.analyses.forests.memory import SiteMemory
from wardround.analyses.forests.plan import ObjectiveName, TreePlan, unbounded
from wardround.analyses.forests.question import EDGES, HAZARD, LEVEL, PHASE, REVIEW
from wardround.analyses.forests.state import after_answers, begin, model_of, next_question
from wardround.core.analysis import Analysis, ExchangeKind, OwnNoise, kind_by_word
from wardround.core.bounds import Count, CountOrAll, NotNegative, Positive, Share
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message
from wardround.statistics.survival.time_axis import SLOTS
from wardround.statistics.trees.bins import FINEST, MOST_BINS, PASSES
from wardround.statistics.trees.prediction import predict_forest
from wardround.statistics.trees.quality import CELLS

LABEL = "Boosted trees"


def words(settings: Settings) -> str:
    noise = f", noised for an epsilon of {settings['epsilon']:g}" if settings.get("epsilon") else ""
    risk = "who is at risk and who had the event by intervals of time, " if settings.get("time") else ""
    return (
        f"counts of patients between edges, {risk}sums of the slopes of their losses over the bins of every column in "
        f"nodes of trees{noise}, and how the finished trees do on held-out patients; seen by itself and without noise, "
        "such a sum can tell the outcome of single patients, so keep it under the secure sum"
    )


def numbers(of: Extent) -> int:
    """The largest of the three kinds of answers: of counts, of sums, of a look at the finished trees."""
    classes = of.settings.get("most_classes", 10) if of.settings.get("objective", "auto") in ("auto", "softmax") else 1
    nodes = 2 ** max(of.settings.get("depth", 4) - 1, 0)
    channels = 3 if of.settings.get("time") else 2
    sums = channels * classes * nodes * of.columns * (MOST_BINS + 1) + 2
    return max(
        sums, of.columns * (FINEST + 1) + classes + SLOTS, classes * (2 * CELLS + 10 * of.columns) + 5 * of.sites
    )


TERMS = Terms(words, numbers, rows="training")


def kind_of_exchange(plan: TreePlan) -> Callable[[Message], ExchangeKind]:
    """As often as the noise is reckoned for, and in bins that were agreed on once."""
    counts = kind_by_word(PHASE, {EDGES: PASSES})
    limits = {HAZARD: plan.hazards, LEVEL: plan.trees * plan.depth, REVIEW: 1}
    later = kind_by_word(PHASE, limits, fixed=("edges", "lengths", "base", "intervals"))
    return lambda message: counts(message) if dict(message.meta).get(PHASE) == EDGES else later(message)


@recorded("analysis", TERMS)
def boosted_trees(
    *,
    target: str,
    columns: tuple[str, ...],
    objective: ObjectiveName = "auto",
    positive: str = "",
    trees: Count = 100,
    depth: Count = 4,
    learning_rate: Positive = 0.2,
    bins: Count = 64,
    l2: NotNegative = 1.0,
    least_weight: Positive = 1.0,
    least_gain: NotNegative = 0.0,
    smallest_leaf: Count = 20,
    rows_per_tree: Share = 1.0,
    columns_per_tree: Share = 1.0,
    increasing: tuple[str, ...] = (),
    decreasing: tuple[str, ...] = (),
    validation: Share = 0.15,
    test: Share = 0.2,
    patience: CountOrAll = 10,
    personal: CountOrAll = 0,
    effects: CountOrAll = 6,
    fewest_sites: Count = 3,
    most_classes: Count = 10,
    smallest_cell: Count = 1,
    epsilon: NotNegative = 0.0,
    delta: Positive = 1e-5,
    noise_seed: int | None = None,
    seed: int = 0,
    time: str = "",
    time_bins: Count = 100,
    check_units: bool = True,
) -> Analysis:
    """Gradient boosted trees over shared bins: classes, a number or a hazard, from sums of all sites."""
    plan = TreePlan(
        target, tuple(columns), objective, positive, trees, depth, learning_rate, bins, l2, least_weight, least_gain,
        smallest_leaf, rows_per_tree, columns_per_tree, tuple(increasing), tuple(decreasing), validation, test,
        patience, personal, effects, fewest_sites, most_classes, smallest_cell, epsilon, delta, noise_seed, seed,
        time, time_bins, check_units,
    )  # fmt: skip
    if plan.private and (plan.time or objective in ("squared", "cox")):
        raise unbounded()  # at once, so that nobody approves it
    memory = SiteMemory()
    return Analysis(
        columns=plan.read,
        begin=lambda agreed: begin(plan, agreed),
        message=lambda state: next_question(plan, state),
        ask=lambda agreed, message, site: answer(plan, agreed, memory, message, site),
        step=lambda state, told: after_answers(plan, state, told),
        report=lambda state: report_of(plan, state),
        most=plan.exchanges,
        covers=lambda agreed, site: [site.table[list(plan.read[len(plan.columns) :])].notna().all(axis=1).to_numpy()],
        kind=kind_of_exchange(plan),
        alone=plan.private,
        own_noise=(lambda: OwnNoise(noise_multiplier(plan), plan.private_sums)) if plan.private else None,
        model=lambda state: model_of(plan, state),
        predict=predict_forest,
    )
