"""A cross-table under [privacy]: noised counts, shares and odds with intervals that include the noise, a test by trial.

A patient is in one cell, so that one more or less moves the counts by 1. Nothing is kept back: which cells are small
would tell without noise. Pearson's statistic has no chi-squared distribution under noise; its own is drawn, from tables
without an association that have the same margins and the same noise (Gaboardi et al., ICML 2016).
"""

import math
from typing import Any

import numpy as np
from scipy import stats

from wardround.core.analysis import NOISE, Agreed, Analysis, Findings, FoundTable
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import bars
from wardround.statistics.selection.columns import check_levels
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows
from wardround.statistics.sentences import evidence, figure, interval_text, p_text, percent

Table = np.ndarray[Any, Any]
TRIALS = 2000
CLEAR = 4.0
"""Deviations of the noise that a group must hold before a share of it is told."""


def noised_table(*, rows: str, columns: str, only: str, most_levels: int) -> Analysis:
    """Counts of two categories together, in one exchange that [privacy] noises."""
    conditions = read_conditions(only)

    def begin(agreed: Agreed) -> Tree:
        if rows == columns:
            raise Refusal("rows and columns are the same column", where="[analysis]", remedy="name two columns")
        check_conditions(conditions, agreed)
        return {"levels": [check_levels(agreed, name, most_levels, where="[analysis]") for name in (rows, columns)]}

    def message(state: Tree) -> Message | None:
        return None if "counts" in state else Message({"table": np.zeros([len(one) for one in state["levels"]])})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        known = complete_rows(agreed, site, categories=(rows, columns), only=only)
        counts = np.zeros([len(agreed.columns[name].levels) for name in (rows, columns)])
        np.add.at(counts, (known.codes[rows], known.codes[columns]), 1.0)
        return Message({"counts": counts})

    def step(state: Tree, told: Message) -> Tree:
        return {**state, "counts": np.asarray(told.arrays["counts"]), "noise": float(told.arrays.get(NOISE, 0.0))}

    def report(state: Tree) -> Report:
        return told_of(state["counts"], state["noise"], state["levels"], rows, columns).report()

    wanted = tuple(dict.fromkeys((rows, columns, *(one.column for one in conditions))))
    return Analysis(wanted, begin, message, ask, step, report, most=1, sensitivity=lambda agreed: 1.0)


def told_of(counts: Table, noise: float, levels: Any, rows: str, columns: str) -> Findings:
    above, beside = levels
    total = float(counts.sum())
    if total <= CLEAR * noise * math.sqrt(counts.size) or min(counts.shape) < 2:
        raise Refusal(
            "the noise is larger than what the patients tell: fewer of them are counted than it hides",
            where="[privacy]",
            remedy="allow a larger epsilon, merge categories, or let more sites take part",
        )
    chi2, p = trial(counts, noise)
    words = [
        f"{rows} and {columns} of about {total:,.0f} patients: "
        f"{evidence(p).replace('a difference', 'an association')} ({p_text(p)}, by {TRIALS:,} draws of tables without "
        "one under the same noise)."
    ]
    numbers: dict[str, Any] = {"rows": list(above), "columns": list(beside), "counts": counts.tolist(), "noise": noise}
    numbers |= {"chi2": chi2, "p": p}
    if counts.shape == (2, 2) and counts.min() > CLEAR * noise:
        odds, low, high = odds_ratio(counts, noise)
        numbers |= {"odds_ratio": odds, "low": low, "high": high}
        words.append(
            f"The odds of {columns} = {beside[1]} are {figure(odds)} times as high with {rows} = {above[1]} as with "
            f"{above[0]} (95 % interval {interval_text(low, high)})."
        )
    share, error = shares(counts, noise)
    far = 1.959964 * error
    numbers |= {"shares": share.tolist(), "share_errors": error.tolist()}
    spread = 1.959964 * noise
    words.append(
        f"Every count is right to about {figure(spread, 2)} (95 % interval): that is the noise that protects patients. "
        "Counts may lie below 0; all intervals and the test include the noise."
    )
    told = [
        [level, *(f"{percent(one, 1)} ({100 * max(one - e, 0):.1f} to {100 * min(one + e, 1):.1f})" for one, e in line)]
        for level, line in zip(above, (zip(*pair, strict=True) for pair in zip(share, far, strict=True)), strict=True)
    ]
    tables = [
        FoundTable(
            "counts",
            f"Patients by {rows} and {columns}, with noise.",
            [rows, *beside],
            [[level, *(round(float(one), 1) for one in line)] for level, line in zip(above, counts, strict=True)],
        ),
        FoundTable(
            "shares", f"Of each {rows}, how many have which {columns}, with 95 % intervals.", [rows, *beside], told
        ),
    ]
    shown = {level: (above, np.clip(share[:, place], 0, 1)) for place, level in enumerate(beside)}
    return Findings(words, tables, [bars("shares", f"{columns} by {rows}", shown, rows, "share")], numbers)


def shares(counts: Table, noise: float) -> tuple[Table, Table]:
    """Of each row, and their standard errors; 0 with an error of 1 where a row is lost in the noise.

    A share is n / m with noise in n and, from all cells, in m: chance p (1 - p) / m, and noise / m times the root of
    (1 - p)^2 + (cells - 1) p^2.
    """
    many = counts.shape[1]
    whole = counts.sum(axis=1, keepdims=True)
    clear = whole > CLEAR * noise * math.sqrt(many)
    safe = np.where(clear, whole, 1.0)
    share = np.where(clear, counts / safe, 0.0)
    chance = np.maximum(share * (1 - share), 0.0) / safe
    shaken = (noise / safe) ** 2 * ((1 - share) ** 2 + (many - 1) * share**2)
    return share, np.where(clear, np.sqrt(chance + shaken), 1.0)


def odds_ratio(counts: Table, noise: float) -> tuple[float, float, float]:
    """With its 95 % interval: log odds have the variance of 1/n for chance and (noise / n)^2 for the noise, a cell."""
    (a, b), (c, d) = counts
    middle = math.log(a * d / (b * c))
    far = 1.959964 * math.sqrt(sum(1 / one + (noise / one) ** 2 for one in (a, b, c, d)))
    return math.exp(middle), math.exp(middle - far), math.exp(middle + far)


def statistic(tables: Table) -> Table:
    """Pearson's, of tables (..., rows, columns) whose margins may be noised."""
    above = np.maximum(tables.sum(axis=-1, keepdims=True), 1.0)
    beside = np.maximum(tables.sum(axis=-2, keepdims=True), 1.0)
    expected = np.maximum(above * beside / above.sum(axis=-2, keepdims=True), 0.5)
    return np.asarray(((tables - expected) ** 2 / expected).sum(axis=(-2, -1)))


def trial(counts: Table, noise: float) -> tuple[float, float]:
    """Pearson's statistic, and how often a table without an association has one as large."""
    found = float(statistic(counts))
    if noise == 0:
        degrees = (counts.shape[0] - 1) * (counts.shape[1] - 1)
        return found, float(stats.chi2.sf(found, degrees))
    draw = np.random.default_rng(0)
    above, beside = (np.maximum(counts.sum(axis=axis), 0.5) for axis in (1, 0))
    chances = np.outer(above / above.sum(), beside / beside.sum())
    drawn = draw.multinomial(max(round(float(counts.sum())), 1), chances.ravel() / chances.sum(), TRIALS)
    noised = drawn.reshape(TRIALS, *counts.shape) + draw.normal(0.0, noise, (TRIALS, *counts.shape))
    return found, float((1 + (statistic(noised) >= found).sum()) / (1 + TRIALS))
