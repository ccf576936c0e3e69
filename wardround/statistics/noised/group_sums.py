"""Means of groups under [privacy]: counts, sums and squares of a clipped column, noised once; intervals include it.

The column is clipped to its declared range and scaled to -1 .. 1. A patient is in one group and changes its count, sum
and sum of squares by at most 1 each, so all of them together by the root of 3.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from wardround.core.analysis import NOISE, Agreed, Analysis, Findings, FoundTable
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import forest
from wardround.statistics.regression.private_fit import ranges_of
from wardround.statistics.selection.columns import check_columns, check_levels
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows
from wardround.statistics.sentences import evidence, figure, interval_text, listed, p_text

Numbers = np.ndarray[Any, Any]
CLEAR = 4.0
"""Deviations of the noise that a group must hold before its mean is told."""


class NoisedMeans(NamedTuple):
    """Of the groups that stand clear of the noise, in the column's own unit."""

    patients: Numbers
    mean: Numbers
    deviation: Numbers
    error: Numbers
    plain: Numbers
    """The standard error without the noise."""


def noised_means(*, column: str, group: str, ranges: tuple[str, ...], only: str, most_levels: int) -> Analysis:
    """Means of a number in groups, in one exchange that [privacy] noises."""
    conditions, known = read_conditions(only), ranges_of(ranges)
    if column not in known:
        raise Refusal(
            f"column {column!r} has no declared range, and noise must cover all that a patient can be",
            where="[analysis] ranges",
            remedy=f'add ranges = ["{column} = LOW to HIGH"], from what is known without looking at patients',
        )
    low, high = known[column]

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, (column,), kind="number", where="[analysis] column")
        check_conditions(conditions, agreed)
        return {"levels": check_levels(agreed, group, most_levels, where="[analysis] group")}

    def message(state: Tree) -> Message | None:
        return None if "sums" in state else Message({"groups": np.zeros(len(state["levels"]))})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = complete_rows(agreed, site, numbers=(column,), categories=(group,), only=only)
        z = np.clip((rows.numbers[:, 0] - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
        many = len(agreed.columns[group].levels)
        return Message({"sums": np.stack([np.bincount(rows.codes[group], z**power, many) for power in (0, 1, 2)])})

    def step(state: Tree, told: Message) -> Tree:
        return {**state, "sums": np.asarray(told.arrays["sums"]), "noise": float(told.arrays.get(NOISE, 0.0))}

    def report(state: Tree) -> Report:
        return told_of(state["sums"], state["noise"], state["levels"], (low, high), column, group).report()

    wanted = tuple(dict.fromkeys((column, group, *(one.column for one in conditions))))
    return Analysis(wanted, begin, message, ask, step, report, most=1, sensitivity=lambda agreed: math.sqrt(3))


def means_of(sums: Numbers, noise: float, ends: tuple[float, float]) -> NoisedMeans:
    """A mean is s / n with noise in both: chance v / n, and noise / n times the root of 1 + mean^2."""
    count, total, squares = sums
    mean = total / count
    spread = np.maximum(squares / count - mean**2, 1e-6)
    plain = np.sqrt(spread / count)
    error = np.sqrt(plain**2 + (noise / count) ** 2 * (1 + mean**2))
    half, middle = (ends[1] - ends[0]) / 2, (ends[0] + ends[1]) / 2
    return NoisedMeans(count, middle + half * mean, half * np.sqrt(spread), half * error, half * plain)


def told_of(
    sums: Numbers, noise: float, levels: tuple[str, ...], ends: tuple[float, float], column: str, group: str
) -> Findings:
    used = sums[0] > max(CLEAR * noise, 1.0)
    if used.sum() < 2:
        raise Refusal(
            f"the noise is larger than what the patients tell: fewer than two groups of {group} stand clear of it",
            where="[privacy]",
            remedy="allow a larger epsilon, merge groups, or let more sites take part",
        )
    names = [level for level, ok in zip(levels, used, strict=True) if ok]
    found = means_of(sums[:, used], noise, ends)
    numbers: dict[str, Any] = {"groups": names, "noise": noise}
    numbers |= {key: value.tolist() for key, value in found._asdict().items()}
    if len(names) == 2:
        difference, error = float(found.mean[1] - found.mean[0]), float(np.hypot(*found.error))
        low, high = difference - 1.959964 * error, difference + 1.959964 * error
        p = float(2 * stats.norm.sf(abs(difference) / error))
        numbers |= {"difference": difference, "low": low, "high": high, "p": p}
        words = [
            f"{column} is on average {figure(abs(difference))} {'higher' if difference > 0 else 'lower'} with {group} ="
            f" {names[1]} than with {names[0]} (95 % interval of the difference {interval_text(low, high)}; "
            f"{p_text(p)}): {evidence(p)}."
        ]
    else:
        weight = 1 / found.error**2
        around = (weight * found.mean).sum() / weight.sum()
        p = float(stats.chi2.sf((weight * (found.mean - around) ** 2).sum(), len(names) - 1))
        numbers |= {"p": p}
        words = [
            f"The means of {column} in {len(names)} groups of {group} lie between {figure(found.mean.min())} and "
            f"{figure(found.mean.max())}: {evidence(p)} (Wald's test {p_text(p)})."
        ]
    gone = [level for level, ok in zip(levels, used, strict=True) if not ok]
    if gone:
        words.append(f"Nothing could be told of {group} = {listed(gone)} under the noise.")
    part = float(np.mean(1 - (found.plain / found.error) ** 2))
    words.append(
        f"{column} was clipped to {figure(ends[0])} to {figure(ends[1])}; {100 * part:.0f} % of the uncertainty is the "
        "noise that protects patients, and the intervals include it."
    )
    lines: list[list[Any]] = [
        [name, round(float(n)), float(m), float(m - 1.959964 * e), float(m + 1.959964 * e), float(s)]
        for name, n, m, e, s in zip(names, found.patients, found.mean, found.error, found.deviation, strict=True)
    ]
    table = FoundTable(
        "groups", f"{column} by {group}, with noise.", [group, "patients", "mean", "95 % low", "high", "SD"], lines
    )
    rows = [{"name": line[0], "value": line[2], "low": line[3], "high": line[4]} for line in lines]
    return Findings(
        words, [table], [forest("means", f"Mean of {column} with 95 % interval", rows, column, null=None)], numbers
    )
