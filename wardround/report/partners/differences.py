"""What differs between the patients of two sites, in sentences that a clinician reads.

Only differences that chance does not explain are told: chi-square for every column, corrected for their number (Holm,
"A simple sequentially rejective multiple test procedure", 1979). Numbers are read off the histograms that the sites
told, so they are rounded and carry the word "about". Needs nothing further from the sites.
"""

import math
from typing import Any

import numpy as np

from wardround.partners.similarity.histograms import Differences, Histograms
from wardround.partners.similarity.multiple_tests import holm
from wardround.queries.cells_of import ColumnCells

Numbers = np.ndarray[Any, Any]

NOTHING = "No difference is larger than chance would explain."
UNKNOWN = "This site has not reported on its patients."
YES, NO = {"yes", "true", "1", "positive", "present"}, {"no", "false", "0", "negative", "absent"}


def sentences(
    histograms: Histograms, found: Differences, here: int, there: int, *, most: int = 5, level: float = 0.05
) -> list[str]:
    """How the patients `there` differ from those `here`, the largest difference first; at most `most` sentences."""
    if not np.isfinite(found.distance[:, here, there]).any():
        return [UNKNOWN]
    certain = holm(np.nan_to_num(found.p[:, here, there], nan=1.0)) < level
    order = [int(i) for i in np.argsort(-np.nan_to_num(found.distance[:, here, there])) if certain[i]]
    return [sentence(histograms, index, here, there) for index in order[:most]] or [NOTHING]


def sentence(histograms: Histograms, index: int, here: int, there: int) -> str:
    """The one difference in a column that says most."""
    column, site = histograms.columns[index], histograms.sites[there]
    ours, theirs = histograms.shares(index)[here], histograms.shares(index)[there]
    name, all_rows = plain_name(column.name), (histograms.rows(index)[there], histograms.rows(index)[here])
    # Up to four recorded patients may hide among the missing, so "never" is told as nine in ten.
    never = max(ours[-1], theirs[-1]) > 0.9
    if never and min(ours[-1], theirs[-1]) < 0.5:
        where = "there but not here" if theirs[-1] < ours[-1] else "here but not there"
        return f"{name} is recorded {where}."
    apart = np.abs(theirs - ours)
    if never or apart[-1] > apart[:-1].sum() / 2:
        return f"{name} is missing for {both_shares(histograms, theirs[-1], ours[-1], all_rows)}."
    # Among those of whom it is known, so that gaps do not pass for rarity.
    rows = (all_rows[0] * (1 - theirs[-1]), all_rows[1] * (1 - ours[-1]))
    ours, theirs = ours[:-1] / ours[:-1].sum(), theirs[:-1] / theirs[:-1].sum()
    if column.number and len(column.edges) > 1:
        return number_sentence(histograms, column, site, (theirs, ours), rows)
    labels = [*column.names, "something else"]
    if column.number:
        labels = (
            ["recorded"] if not column.edges else [f"{word} {column.edges[0]:.3g}" for word in ("below", "at least")]
        )
    at = clearest_category(labels, np.abs(theirs - ours))
    shares = both_shares(histograms, theirs[at], ours[at], rows)
    if labels[at].lower() in ("yes", "true"):
        return f"{name}: yes for {shares}."
    return f"{name} is {labels[at]} for {shares}."


def clearest_category(labels: list[str], apart: Numbers) -> int:
    """The category that moved most; of two that mirror each other, the one that says yes."""
    at = int(np.argmax(apart))
    if labels[at].lower() in NO:
        mirrors = [i for i, label in enumerate(labels) if label.lower() in YES and apart[i] > 0.9 * apart[at]]
        return mirrors[0] if mirrors else at
    return at


def number_sentence(
    histograms: Histograms, column: ColumnCells, site: str, shares: tuple[Numbers, Numbers], rows: tuple[float, float]
) -> str:
    """Which way the middle moved, or where patients lie if it did not; `shares` and `rows` are theirs, then ours."""
    theirs, ours = (median(column, share) for share in shares)
    step = 10.0 ** math.floor(math.log10(max(column.high - column.low, 1e-12) / 20))
    shown = [f"{round(value / step) * step:.{max(0, -round(math.log10(step)))}f}" for value in (theirs, ours)]
    name = plain_name(column.name)
    if shown[0] == shown[1]:
        at = int(np.argmax(np.abs(shares[0] - shares[1])))
        bounds = [column.low, *column.edges, column.high]
        place = f"between {bounds[at]:.3g} and {bounds[at + 1]:.3g}"
        return (
            f"{name} is spread differently: {place} for {both_shares(histograms, shares[0][at], shares[1][at], rows)}."
        )
    medians = f"(median about {shown[0]}, yours {shown[1]})"
    if column.name.lower() == "age":
        return f"{site}'s patients are {'younger' if theirs < ours else 'older'} {medians}."
    return f"{name} is {'lower' if theirs < ours else 'higher'} there {medians}."


def median(column: ColumnCells, shares: Numbers) -> float:
    """Where half of the known values lie below, in a straight line within the cell."""
    bounds = [column.low, *column.edges, column.high]
    upto = np.cumsum(shares)
    cell = int(np.argmax(upto >= 0.5))
    before = float(upto[cell] - shares[cell])
    part = (0.5 - before) / float(shares[cell]) if shares[cell] > 0 else 0.5
    return float(bounds[cell] + part * (bounds[cell + 1] - bounds[cell]))


def plain_name(name: str) -> str:
    """
    >>> plain_name("malaria_test")
    'Malaria test'
    """
    spaced = name.replace("_", " ").strip()
    return spaced[:1].upper() + spaced[1:]


def both_shares(histograms: Histograms, theirs: float, ours: float, rows: tuple[float, float]) -> str:
    return (
        f"{percent(theirs, rows[0], histograms.smallest)} there and {percent(ours, rows[1], histograms.smallest)} here"
    )


def percent(share: float, rows: float, smallest: int) -> str:
    """A share of so many patients; where the site withheld it as too few, the most it can have been.

    Where it withheld all others as too few, the least that it can have been: of 20 patients at least 16, or all.

    >>> percent(0.538, 100, 5), percent(0.021, 100, 5), percent(0.83, 20, 5), percent(0.0, 100, 1), percent(1.0, 9, 1)
    ('54 %', 'at most 4 %', 'at least 80 %', '0 %', '100 %')
    """
    if share * rows < smallest - 0.5:
        most = (smallest - 1) / max(rows, 1.0)
        return f"at most {math.ceil(100 * most)} %" if smallest > 1 else "0 %"
    if smallest > 1 and (1 - share) * rows < smallest - 0.5:
        return f"at least {math.floor(100 * max(0.0, 1 - (smallest - 1) / rows))} %"
    return f"{100 * share:.0f} %"
