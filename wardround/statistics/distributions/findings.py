"""What a distribution over all sites tells: quantiles with their bounds, and histograms."""

from collections.abc import Sequence
from typing import Any

from wardround.core.analysis import Findings, FoundTable
from wardround.core.contracts import Report
from wardround.statistics.charts import histogram
from wardround.statistics.disclosure.grid import spread_counts
from wardround.statistics.sentences import answered_text, figure


def findings_of(state: Any, columns: Sequence[str], quantiles: Sequence[float], cell: int) -> Report:
    words, rows, charts = [], [], []
    numbers: dict[str, Any] = {}
    for place, column in enumerate(columns):
        bins, brackets = state["bins"][place], state["brackets"][place]
        counts = spread_counts(state["counts"][place], bins)[0]
        patients = round(float(counts.sum()))
        told = ", ".join(
            f"{name_of(q)} {figure(one.value, 4)}{bounds_of(one)}" for q, one in zip(quantiles, brackets, strict=True)
        )
        words.append(f"{column} of {patients} patients: {told}.")
        rows += [[column, q, one.value, one.low, one.high] for q, one in zip(quantiles, brackets, strict=True)]
        charts.append(histogram(column, f"Distribution of {column}", bins.edges, {column: counts}, column))
        numbers[column] = {
            "patients": patients,
            "sites": state["sites"][place],
            "quantiles": {str(q): one.value for q, one in zip(quantiles, brackets, strict=True)},
            "bounds": {str(q): [one.low, one.high] for q, one in zip(quantiles, brackets, strict=True)},
            "edges": bins.edges.tolist(),
            "counts": counts.tolist(),
        }
    fewest = min(state["sites"])
    words += [text for text in (answered_text(fewest, state["all"], cell),) if text]
    if cell > 1:
        words.append(
            f"Bins hold at least {cell} patients of each site, and the outermost {cell - 1} values of a site count as"
            " lying where the next one does; the bounds hold for values so counted."
        )
    table = FoundTable(
        "quantiles", "Quantiles, and between what they lie.", ["column", "share", "value", "low", "high"], rows
    )
    return Findings(words, [table], charts, numbers).report()


def name_of(share: float) -> str:
    """
    >>> name_of(0.5), name_of(0.25), name_of(0.9)
    ('median', 'lower quartile', '90 % quantile')
    """
    known = {0.5: "median", 0.25: "lower quartile", 0.75: "upper quartile"}
    return known.get(share, f"{100 * share:g} % quantile")


def bounds_of(bracket: Any) -> str:
    """Said where the guess and the bounds differ by what a reader would see."""
    if f"{bracket.low:.4g}" == f"{bracket.value:.4g}" == f"{bracket.high:.4g}":
        return ""
    return f" (between {figure(bracket.low, 4)} and {figure(bracket.high, 4)})"
