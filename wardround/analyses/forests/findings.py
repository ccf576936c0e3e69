"""What the trees found, in words first: how well they do, what matters most, how the outcome changes with it."""

import math
from typing import Any

import numpy as np

from wardround.analyses.forests.plan import TreeOutcome, TreePlan, outcome_of
from wardround.analyses.forests.state import TreesState, best_of, effect_grid
from wardround.core.analysis import Findings, FoundChart, FoundTable
from wardround.core.contracts import Report
from wardround.statistics.trees.bins import Feature, Numbers
from wardround.statistics.trees.quality import Area, area_of_counts

NOT_TOLD = "too few test patients to be told"


def report_of(plan: TreePlan, state: TreesState) -> Report:
    assert state.looked is not None
    assert state.forest is not None
    assert state.gain is not None
    outcome = outcome_of(plan, state.agreed)
    told = {name: np.asarray(array) for name, array in state.looked.arrays.items()}
    quality_words, numbers = quality(plan, outcome, state, told)
    share = state.gain.sum(axis=0) / max(state.gain.sum(), 1e-300)
    order = np.argsort(-share, kind="stable")
    names = [plan.columns[place] for place in order]
    numbers |= {
        "trees": state.forest.trees,
        "exchanges": exchanges_of(state),
        "gain": {plan.columns[place]: float(share[place]) for place in order},
        "validation_loss": list(state.losses),
        "bins": {feature.name: feature.size for feature in state.common.features} if state.common else {},
    }
    rows: list[list[Any]] = [[plan.columns[place], float(share[place])] for place in order]
    headings = ["column", "share of the gain"]
    if "permuted" in told:
        patients = max(float(told["loss"][1]), 1.0)
        worse = {name: float(pair[1] - pair[0]) for name, pair in zip(plan.columns, told["permuted"], strict=True)}
        numbers["permutation"] = {name: worse[name] / patients for name in names}
        rows = [[*row, worse[row[0]] / patients] for row in rows]
        headings.append("loss without its order")
    tables = [
        FoundTable("importance", "What matters: each column's share of what the splits gained.", headings, rows),
        *site_table(outcome, state, numbers),
    ]
    charts = [
        FoundChart(
            "importance",
            "What matters most",
            "bars",
            [
                {
                    "name": "share",
                    "x": [row[0] for row in rows if row[1] > 0],
                    "y": [row[1] for row in rows if row[1] > 0],
                }
            ],
            "column",
            "share of the gain",
        )
    ]
    effect_words, effect_charts = effects(plan, outcome, state, told, numbers)
    words = [*quality_words, matters(names, share[order]), *effect_words]
    if plan.private:
        words.append(
            f"All sums were noised at the sites: for a training patient epsilon is {plan.epsilon:g} at a delta of "
            f"{plan.delta:g}, and so it is for a test patient."
        )
        numbers |= {"epsilon": plan.epsilon, "delta": plan.delta}
    return Findings(words, tables, charts + effect_charts, numbers).report()


def exchanges_of(state: TreesState) -> int:
    """Not counting trees that were dropped."""
    assert state.forest is not None
    hazards = state.forest.trees + 1 if state.hazard is not None else 0
    return state.passes + state.forest.trees * state.forest.depth + hazards + 1


def quality(
    plan: TreePlan, outcome: TreeOutcome, state: TreesState, told: dict[str, Numbers]
) -> tuple[list[str], dict[str, Any]]:
    assert state.forest is not None
    cells, trees = told["cells"], state.forest.trees
    words = [f"{trees} trees were grown from the sums of {len(state.agreed.sites)} sites"]
    if plan.watched:
        stopped = best_of(state.losses) < len(state.losses) - 1
        words[0] += ", and more would not have helped the validation patients" if stopped else ""
    if outcome.is_hazard:
        return order_quality(plan, state, cells[0, 0], words[0])
    if not outcome.classes:
        rows, total, squares, errors = (float(number) for number in cells[0, 0])
        if rows < 2:
            return [words[0] + "."], {}
        root, spread = math.sqrt(errors / rows), squares / rows - (total / rows) ** 2
        explained = 1 - errors / rows / spread if spread > 0 else math.nan
        words.append(
            f"On {rows:.0f} test patients {plan.target} is missed by {root:.3g} (root mean squared error), and "
            f"{explained:.0%} of its variance is explained"
        )
        return [f"{one}." for one in reversed(words)], {"rmse": root, "r2": explained, "test_patients": rows}
    areas = [area_of_counts(cases, controls) for cases, controls in cells]
    value = float(np.mean([area.value for area in areas]))
    numbers: dict[str, Any] = {"auc": value, "test_patients": float(cells[0].sum())}
    if math.isnan(value):
        return [f"{words[0]}.", "There are no test patients of both classes to judge them by."], {}
    if len(areas) == 1:
        low, high = areas[0].interval
        numbers["auc_interval"] = [low, high]
        words.append(
            f"Of two test patients, one with {looked_for(plan, outcome)} and one without, they "
            f"rank the right one higher in {value:.1%} of cases (AUC {value:.3f}, 95 % interval {low:.3f} to "
            f"{high:.3f})"
        )
    else:
        numbers["auc_by_class"] = {name: area.value for name, area in zip(outcome.classes, areas, strict=True)}
        words.append(f"The classes are told apart with a mean AUC of {value:.3f}, each against the others")
    return [f"{one}." for one in reversed(words)], numbers


def order_quality(plan: TreePlan, state: TreesState, sums: Numbers, grown: str) -> tuple[list[str], dict[str, Any]]:
    """How often the right one of two test patients of a site is said to have the event first; what intervals cost."""
    assert state.common is not None
    assert state.common.time is not None
    patients, events, comparable, right, tied, together = (float(number) for number in sums)
    intervals = state.common.time.size
    numbers: dict[str, Any] = {"test_patients": patients, "test_events": events, "intervals": intervals}
    if comparable <= 0:
        return [f"{grown}.", "There are no two test patients whose order is known to judge them by."], numbers
    c_index, lost = (right + tied / 2) / comparable, together / comparable
    numbers |= {"c_index": c_index, "pairs_in_one_interval": lost}
    return [
        f"Of two test patients of a site, the one with {plan.target} first has the higher predicted hazard in "
        f"{c_index:.1%} of cases (C-index {c_index:.3f}, {patients:.0f} patients, {events:.0f} events).",
        f"{grown}.",
        f"Patients of all sites were compared by {intervals} intervals of {plan.time}: the order of {lost:.1%} of all "
        "pairs was not used, since both lie in one of them.",
    ], numbers


def site_table(outcome: TreeOutcome, state: TreesState, numbers: dict[str, Any]) -> list[FoundTable]:
    assert state.looked is not None
    own = state.looked.arrays.get("sites")
    if own is None:
        return []
    rows: list[list[Any]] = []
    is_share = outcome.is_hazard or bool(outcome.classes)
    measured = "C-index" if outcome.is_hazard else "AUC" if outcome.classes else "root mean squared error"
    personal = bool(np.any(np.asarray(own)[:, 3]))
    for name, (value, error, known, further, trees) in zip(state.agreed.sites, np.asarray(own), strict=True):
        low, high = Area(value, error).interval if is_share else (value - 1.96 * error, value + 1.96 * error)
        found = [float(value), float(low), float(high)] if known else [None, None, None]
        rows.append([name, *found, *([float(further) if known else None, int(trees)] if personal else [])])
    key = "c_index_by_site" if outcome.is_hazard else "auc_by_site" if outcome.classes else "rmse_by_site"
    numbers[key] = {row[0]: row[1] for row in rows}
    headings = ["site", measured, "from", "to"]
    if personal:
        numbers[f"personal_{key}"] = {row[0]: row[4] for row in rows}
        headings += [f"{measured} with own trees", "own trees"]
    caption = f"On each site's own test patients, with 95 % intervals; empty: {NOT_TOLD}."
    return [FoundTable("sites", caption, headings, rows)]


def matters(names: list[str], share: Numbers) -> str:
    leading = [f"{name} ({part:.0%} of the gain)" for name, part in zip(names, share, strict=True) if part > 0][:3]
    return f"What matters most: {', then '.join(leading)}."


def effects(
    plan: TreePlan, outcome: TreeOutcome, state: TreesState, told: dict[str, Numbers], numbers: dict[str, Any]
) -> tuple[list[str], list[FoundChart]]:
    """How the mean prediction changes along the columns that matter most, all else as it is."""
    if "effects" not in told or state.common is None:
        return [], []
    shown, grid = effect_grid(plan, state)
    mean = told["effects"] / max(float(told["sampled"][0]), 1.0)
    words, charts, found = [], [], {}
    for place, column in enumerate(shown):
        feature = state.common.features[column]
        bins = grid[place][grid[place] >= 0]
        values = mean[place, : len(bins)]
        labels = [bin_label(feature, int(code)) for code in bins]
        found[feature.name] = [[label, *map(float, own)] for label, own in zip(labels, values, strict=True)]
        if values.shape[1] == 1 and len(labels) > 1:
            words.append(effect_words(plan, outcome, feature, labels, values[:, 0]))
        named = outcome.classes if values.shape[1] > 1 else (plan.target,)
        series = [
            {"name": name, "x": labels, "y": [float(one) for one in values[:, at]]} for at, name in enumerate(named)
        ]
        what = "risk" if outcome.classes else measured_by(plan, outcome)
        caption = f"Mean {what} by {feature.name}, all else as it is"
        charts.append(
            FoundChart(f"effect_{feature.name}", caption, "bars" if feature.is_category else "lines", series,
                       feature.name, what)
        )  # fmt: skip
    numbers["effects"] = found
    return words[:3], charts


def bin_label(feature: Feature, code: int) -> Any:
    """A level's name, or a number in the middle of the bin (at its edge where it is open)."""
    if feature.is_category:
        return feature.levels[code]
    edges = feature.edges
    if not len(edges):
        return 0.0
    ends = edges[max(code - 1, 0)], edges[min(code, len(edges) - 1)]
    return float((ends[0] + ends[1]) / 2)


def looked_for(plan: TreePlan, outcome: TreeOutcome) -> str:
    """The outcome in words: "dies yes", but of a disease that is its own column's name, just that."""
    name = outcome.classes[outcome.positive]
    return name if name.lower() == plan.target.lower() else f"{plan.target} {name}"


def plainly(value: float) -> str:
    """
    >>> plainly(32768.0), plainly(7.25), plainly(0.01234)
    ('32,768', '7.25', '0.0123')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def measured_by(plan: TreePlan, outcome: TreeOutcome) -> str:
    return f"hazard of {plan.target}" if outcome.is_hazard else plan.target


def effect_words(plan: TreePlan, outcome: TreeOutcome, feature: Feature, labels: list[Any], values: Numbers) -> str:
    what = f"the risk of {looked_for(plan, outcome)}" if outcome.classes else measured_by(plan, outcome)
    what = f"the relative {what}" if outcome.is_hazard else what
    low, high, last = int(np.argmin(values)), int(np.argmax(values)), len(values) - 1

    def show(at: int) -> str:
        return f"{values[at]:.0%}" if outcome.classes else f"{values[at]:.3g}"

    if feature.is_category:
        return (
            f"By {feature.name}, all else as it is, {what} lies between {show(low)} ({labels[low]}) and {show(high)} "
            f"({labels[high]})."
        )
    said = (
        f"Along {feature.name}, all else as it is, {what} {'rises' if values[last] > values[0] else 'falls'} from "
        f"{show(0)} at about {plainly(labels[0])} to {show(last)} at about {plainly(labels[last])}"
    )
    inner = {
        high: values[high] - max(values[0], values[last]),
        low: min(values[0], values[last]) - values[low],
    }
    turn = max(inner, key=lambda at: inner[at])
    # A turn is said where it is more than a tenth of the whole way.
    if inner[turn] > 0.1 * (values[high] - values[low]):
        said += f", by way of {show(turn)} at about {plainly(labels[turn])}"
    return said + "."
