"""Fairness of one method's predictions as plain values, ready for `result.json`: by group, between groups, over all.

Groups stand in for sites, so every figure of a group has the formula, the reasons and the bootstrap interval that a
site's has. Patients are drawn again within each group. Small groups are withheld: nothing is told of them, and the gaps
between groups leave them out. A rate among fewer patients than that (of a group with three ill, the share found) is not
told either, and counts in no gap.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from wardround.core.bounds import Count, CountOrAll, Share
from wardround.core.contracts import Report, Scores, Task
from wardround.evaluate import fairness
from wardround.evaluate.intervals import bootstrap_intervals, interval
from wardround.evaluate.metrics import Metric, SiteMeasures, compute_metric, metrics_for
from wardround.evaluate.rows import Numbers, Rows, rows_of

SMALLEST = 10
"""Patients below which nothing is told of a group, unless a study asks for more."""
BETWEEN = " and "
"""Joins the names of columns, and of their values, where groups are cut by several columns at once."""
FIGURES = ("accuracy", "precision", "recall", "f1", "roc_auc")
DRAWS = 0xFA14


def _selection(rows: Rows, weights: Numbers | None) -> Numbers:
    decided = rows.sums(weights, rows.predicted_classes[:, [rows.positive]])[:, :, 0]
    with np.errstate(invalid="ignore"):
        return np.asarray(decided / rows.counts)


def _false_alarms(rows: Rows, weights: Numbers | None) -> Numbers:
    well = 1.0 - rows.truth[:, rows.positive]
    sums = rows.sums(weights, np.stack([well * rows.predicted_classes[:, rows.positive], well], axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[:, :, 0] / sums[:, :, 1])


def _only_positive(rows: Rows, group: int) -> str:
    return f"nobody without {rows.task.classes[rows.positive]!r} among {rows.patients(group)}"


FEW_FIGURES = {"regression": ("rmse", "mae"), "survival": None, "segmentation": ("dice", "iou")}
"""What is told of a group where there are no classes; all figures where none are named."""


def group_metrics(task: Task, main: str | None = None) -> dict[str, Metric]:
    """What is told of a group: the usual figures, the study's own, and of two classes how often each is decided."""
    further = metrics_for(task, [main] if main else [])
    if task.kind in FEW_FIGURES:
        return metrics_for(task, FEW_FIGURES[task.kind]) | further
    if not task.binary:
        return metrics_for(task, ("accuracy", "f1", "roc_auc")) | further
    return (
        metrics_for(task, FIGURES)
        | further
        | {
            "selection_rate": Metric(_selection, lambda rows, group: "", "share of patients with an alarm"),
            "false_positive_rate": Metric(
                _false_alarms, _only_positive, "share of the well with a false alarm", higher_is_better=False
            ),
        }
    )


def add_crossings(columns: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The columns, and where there are several also the groups that all of them together cut."""
    found = {name: np.asarray(values).astype(str) for name, values in columns.items()}
    if len(found) > 1:
        rows = zip(*found.values(), strict=True)
        found[BETWEEN.join(columns)] = np.array([BETWEEN.join(row) for row in rows], dtype=str)
    return found


def small_groups(values: Numbers, smallest: int) -> set[str]:
    """Groups with fewer patients than may be told of."""
    names, sizes = np.unique(values, return_counts=True)
    return {str(name) for name, size in zip(names, sizes, strict=True) if size < smallest}


def fairness_block(
    scores: Scores,
    task: Task,
    columns: Mapping[str, Numbers],
    *,
    positive: int = 1,
    smallest: Count = SMALLEST,
    withheld: Mapping[str, Collection[str]] | None = None,
    main: str | None = None,
    resamples: CountOrAll = 1000,
    level: Share = 0.95,
    seed: int = 0,
    part: str = "test",
) -> Report:
    """Every measure for every column (one value a patient, in the order of the scores) and for their crossings.

    `withheld` names further groups by column, such as those that are small in another repeat; `main` is the study's
    own metric, told beside the usual ones.
    """
    rows = rows_of(scores, task, positive=positive, part=part)
    block: Report = {"smallest": smallest, "columns": {}}
    if task.binary:
        block["generalized_entropy_index"] = _index(rows, resamples, level, seed)
    for column, values in add_crossings(columns).items():
        if len(values) != len(rows.actual):
            raise ValueError(f"{len(values)} values of {column} for {len(rows.actual)} patients")
        small = small_groups(values, smallest) | set((withheld or {}).get(column, ()))
        metrics = group_metrics(task, main)
        block["columns"][column] = _column(rows, values, metrics, small, smallest, resamples, level, seed)
    return block


def _column(
    rows: Rows,
    values: Numbers,
    metrics: Mapping[str, Metric],
    small: set[str],
    smallest: int,
    resamples: int,
    level: float,
    seed: int,
) -> Report:
    names = [str(name) for name in np.unique(values) if str(name) not in small]
    place = {name: index for index, name in enumerate(names)}
    code = np.array([place.get(str(value), -1) for value in values], np.int64)
    order = np.argsort(code, kind="stable")[int((code < 0).sum()) :]
    first = np.concatenate([[0], np.cumsum(np.bincount(code[code >= 0], minlength=len(names)))])
    times = None if rows.times is None else rows.times[order]
    grouped = Rows(rows.predicted[order], rows.actual[order], first, rows.task, rows.positive, rows.part, times=times)
    measured = SiteMeasures(grouped, metrics, {name: compute_metric(grouped, one)[0] for name, one in metrics.items()})
    reach = bootstrap_intervals(measured, resamples=resamples, level=level, seed=seed) if resamples and names else None
    few = _too_few(grouped, smallest)
    groups: Report = {}
    for name, index in place.items():
        groups[name] = {"rows": int(grouped.counts[index])}
        for metric in metrics:
            if why := few.get((metric, index), ""):
                groups[name][metric] = _to_json(None, why, None)
            else:
                ends = reach.sites[metric][index] if reach else None
                groups[name][metric] = _to_json(*measured.measure(metric, index), ends)
    block: Report = {"groups": groups, "withheld": sorted(small)}
    return block if not rows.task.classification else block | _between(grouped, names, smallest, resamples, level, seed)


def _too_few(rows: Rows, smallest: int) -> dict[tuple[str, int], str]:
    """Figures that rest on fewer patients than may be told of, though the group has enough; with the reason."""
    if rows.task.survival:
        return _few_events(rows, smallest)
    if not rows.task.binary:
        return {}
    truth, decided, label = (
        rows.truth[:, rows.positive],
        rows.predicted_classes[:, rows.positive],
        rows.task.classes[rows.positive],
    )
    ill, alarms = np.moveaxis(rows.sums(None, np.stack([truth, decided], axis=1))[0], 1, 0)
    rest = (
        (ill, f"with {label!r}", ("recall", "f1", "roc_auc", "pr_auc", "balanced_accuracy")),
        (rows.counts - ill, f"without {label!r}", ("false_positive_rate", "roc_auc", "pr_auc", "balanced_accuracy")),
        (alarms, f"predicted {label!r}", ("precision",)),
    )
    return {
        (metric, int(group)): f"fewer than {smallest} {words} among {rows.patients(int(group))}"
        for amounts, words, metrics in rest
        # Of none at all the metric itself says so.
        for group in np.flatnonzero((amounts > 0) & (amounts < smallest))
        for metric in metrics
    }


def _few_events(rows: Rows, smallest: int) -> dict[tuple[str, int], str]:
    """The same of survival: all but the loss rest on those who had the event."""
    events = rows.sums(None, rows.follow_up[1][:, None])[0, :, 0]
    return {
        (metric, int(group)): f"fewer than {smallest} events among {rows.patients(int(group))}"
        for group in np.flatnonzero(events < smallest)
        for metric in ("c_index", "integrated_brier", "horizon_gap")
    }


def _between(rows: Rows, names: Sequence[str], smallest: int, resamples: int, level: float, seed: int) -> Report:
    """The measures that compare groups, each with its interval, and who is left out of it."""
    classes = len(rows.task.classes)
    counts = fairness.count_decisions(
        rows.site, rows.actual, rows.predicted_classes.argmax(axis=1), groups=len(names), classes=classes
    )
    drawn = _resample_counts(counts, resamples, seed) if resamples and len(names) else None
    broken = int(rows.nonfinite_counts.sum())

    def estimate(compute: Any, why: str, left_out: Sequence[str] = ()) -> Report:
        if broken:
            return {"value": None, "undefined": f"the predictions for {broken} patients are not numbers"}
        value = float(compute(counts))
        ends = None
        if drawn is not None and np.isfinite(value):
            draws = compute(drawn)
            ends = interval(np.where(np.isfinite(draws), draws, np.nan), value, level)
        words = {"left_out": list(left_out)} if left_out else {}
        return _to_json(value if np.isfinite(value) else None, "" if np.isfinite(value) else why, ends) | words

    alone = "fewer than two groups are large enough" if len(names) < 2 else "fewer than two groups have such a rate"
    never = "infinite: a decision that one group gets is never made for another"
    found = {
        "differential_fairness": estimate(fairness.differential_fairness, alone),
        "differential_fairness_unsmoothed": estimate(
            lambda cells: fairness.differential_fairness(cells, smoothing=0.0), alone if len(names) < 2 else never
        ),
    }
    if classes != 2:
        return found
    label = rows.positive
    ill, size = counts[:, label].sum(axis=-1), counts.sum(axis=(-2, -1))
    few_ill, few_well = ill < smallest, size - ill < smallest

    def rate_gap(rates: Any, few: Numbers) -> Any:
        return lambda cells: fairness.gap(np.where(few, np.nan, rates(cells, label)))

    found_gap = rate_gap(fairness.true_positive_rates, few_ill)
    alarm_gap = rate_gap(fairness.false_positive_rates, few_well)
    listed = [[name for name, out in zip(names, few, strict=True) if out] for few in (few_ill, few_ill | few_well)]
    return found | {
        "equal_opportunity_gap": estimate(found_gap, alone, listed[0]),
        "equal_odds_gap": estimate(lambda cells: np.maximum(found_gap(cells), alarm_gap(cells)), alone, listed[1]),
        "selection_gap": estimate(lambda cells: fairness.gap(fairness.selection_rates(cells, label)), alone),
    }


def _resample_counts(counts: Numbers, resamples: int, seed: int) -> Numbers:
    """Counts of resamples: drawing patients of a group again is drawing its cells from a multinomial."""
    rng = np.random.default_rng([seed % 2**64, DRAWS])
    cells = counts.reshape(len(counts), -1)
    sizes = cells.sum(axis=1)
    drawn = [rng.multinomial(size, own / max(1, size), resamples) for own, size in zip(cells, sizes, strict=True)]
    return np.stack(drawn, axis=1).reshape(-1, *counts.shape)


def _index(rows: Rows, resamples: int, level: float, seed: int) -> Report:
    """The generalized entropy index of all patients, whatever their group."""
    if broken := int(rows.nonfinite_counts.sum()):
        return {"value": None, "undefined": f"the predictions for {broken} patients are not numbers"}
    everyone = np.zeros(len(rows.actual), np.int64)
    counts = fairness.count_decisions(everyone, rows.actual, rows.predicted_classes.argmax(axis=1), groups=1)
    value = float(fairness.generalized_entropy_index(counts, positive=rows.positive))
    if not np.isfinite(value):
        return {"value": None, "undefined": "nobody benefits" if len(rows.actual) else "no patients"}
    if not resamples:
        return _to_json(value, "", None)
    drawn = fairness.generalized_entropy_index(_resample_counts(counts, resamples, seed), positive=rows.positive)
    return _to_json(value, "", interval(drawn, value, level))


def _to_json(value: float | None, reason: str, reach: Any) -> Report:
    block: Report = {"value": value}
    if reach is not None:
        block |= {"low": reach.low, "high": reach.high}
        if reach.reason and value is not None:
            block["no_interval"] = reach.reason
    if value is None:
        block["undefined"] = reason
    return block
