"""The search for the one rule whose patients have the greatest lower bound on mean competence.

In the spirit of Moore and Schneider, "Real-valued all-dimensions search", UAI 2002: sums over bins answer every rule of
one or two columns at once. Counts, sums and squares of competence are added up in a table of bins for each pair of
columns; running sums over the table give all four corners (above or at most, twice) of every pair of thresholds. The
best corner is then moved to the best exact values. What is best is said in one of two ways. "bound": the greatest lower
bound on the mean, mean - z sd / sqrt(n), as in the thesis; it likes the few with the highest mean. "clearest": the mean
that is most clearly above 0, mean sqrt(n) / (sd + sd of all rows); it likes the whole of a region, in one rule. The
second deviation keeps patients out about whom both classifiers are sure and one is a little surer (as in Tusher,
Tibshirani and Chu, PNAS 2001).
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from wardround.selection.rule_columns import RuleColumns

Values = np.ndarray[Any, Any]
Z = 1.6448536269514722
"""95 %, one-sided."""
SWEEPS = 2


RuleBy = Literal["bound", "clearest"]


class RuleScore(NamedTuple):
    """What makes a rule the best; `spread` is the standard deviation of all rows, for "clearest"."""

    by: RuleBy = "bound"
    spread: float = 0.0


def rule_score(by: RuleBy, competence: Values) -> RuleScore:
    return RuleScore(by, float(np.std(competence)))


class RuleEnds(NamedTuple):
    """One or two columns by their place, each with what it must be above of and what at most."""

    columns: tuple[int, ...]
    ends: tuple[tuple[float | None, float | None], ...]


class FoundRule(NamedTuple):
    """The best rule: how good it is, and the rows it takes of those that were left."""

    ends: RuleEnds
    score: float
    mean: float
    rows: Values


class PairTables(NamedTuple):
    """Counts, sums and squares by the bins of each pair of columns (pairs, 3, width, width), and of each column."""

    pairs: Values
    tables: Values
    singles: Values


def column_pairs(columns: RuleColumns, features: int) -> Values:
    """Pairs of columns of different names; a rule about one name twice would be one condition."""
    first, second = np.triu_indices(len(columns.columns), 1)
    names = np.array([column.name for column in columns.columns], dtype=object)
    if features < 2 or not len(names):
        return np.zeros((0, 2), np.int64)
    other = names[first] != names[second]
    return np.stack([first[other], second[other]], axis=1)


def tables_of(columns: RuleColumns, pairs: Values, competence: Values, rows: Values) -> PairTables:
    """Sums over these rows only; those of other rows can be added to or taken from them."""
    width = columns.width
    bins = np.ascontiguousarray(columns.bins[:, rows]).astype(np.int32)
    weight = competence[rows]
    square = weight * weight
    cells = width * width
    tables = np.empty((len(pairs), 3, width, width))
    scaled = bins * width
    for place, (a, b) in enumerate(pairs):
        code = scaled[a] + bins[b]
        tables[place, 0] = np.bincount(code, minlength=cells).reshape(width, width)
        tables[place, 1] = np.bincount(code, weight, cells).reshape(width, width)
        tables[place, 2] = np.bincount(code, square, cells).reshape(width, width)
    singles = np.empty((len(bins), 3, width))
    for place, code in enumerate(bins):
        singles[place] = [np.bincount(code, w, width) for w in (None, weight, square)]
    return PairTables(pairs, tables, singles)


def taken_from(whole: PairTables, part: PairTables) -> PairTables:
    """The tables of the rows that are left."""
    return whole._replace(tables=whole.tables - part.tables, singles=whole.singles - part.singles)


def lower_bound(count: Values, total: Values, square: Values, least: int, z: float = Z) -> Values:
    """mean - z sd / sqrt(n) with the sample's deviation; minus infinity where fewer than `least` rows are."""
    enough = count >= max(2, least)
    n = np.where(enough, count, 2.0)
    mean = total / n
    variance = np.maximum(square - total * mean, 0.0) / (n - 1)
    return np.where(enough, mean - z * np.sqrt(variance / n), -np.inf)


def clearness(count: Values, total: Values, square: Values, least: int, spread: float) -> Values:
    """The mean in units of its error, to which `spread` is added; minus infinity where fewer than `least` rows are."""
    enough = count >= max(2, least)
    n = np.where(enough, count, 2.0)
    variance = np.maximum(square - total * total / n, 0.0) / (n - 1)
    return np.where(enough, total / (np.sqrt(n) * (np.sqrt(variance) + spread + 1e-12)), -np.inf)


def scored(count: Values, total: Values, square: Values, least: int, by: RuleScore) -> Values:
    if by.by == "bound":
        return lower_bound(count, total, square, least)
    return clearness(count, total, square, least, by.spread)


def best_rule(
    columns: RuleColumns, sums: PairTables, competence: Values, left: Values, least: int, by: RuleScore
) -> FoundRule | None:
    """The best rule for the rows that are `left` (True), which `sums` are of; none where no rule has enough rows."""
    candidates = [
        found for found in (_best_single(columns, sums, least, by), _best_pair(columns, sums, least, by)) if found
    ]
    refined = [_refine(columns, ends, competence, left, least, by) for _, ends in candidates]
    whole = [one for one in refined if one is not None]
    return max(whole, key=lambda one: (one.score, -len(one.ends.columns)), default=None)


def _best_single(columns: RuleColumns, sums: PairTables, least: int, by: RuleScore) -> tuple[float, RuleEnds] | None:
    """Over every interval of every column."""
    if not len(sums.singles):
        return None
    running = np.concatenate(
        [np.zeros((*sums.singles.shape[:2], 1)), np.cumsum(sums.singles[:, :, 1:], axis=2)], axis=2
    )
    # From after bin i to bin j: (columns, i, j).
    inside = running[:, :, None, :] - running[:, :, :, None]
    bounds = scored(inside[:, 0], inside[:, 1], inside[:, 2], least, by)
    # From the first to the last bin is every known value, which is no rule about a number.
    last = bounds.shape[2] - 1
    bounds[:, 0, last] = -np.inf
    place, low, high = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    if not np.isfinite(bounds[place, low, high]):
        return None
    edges = columns.edges[place]
    ends = (_edge(edges, int(low)), None if high == last else _edge(edges, int(high)))
    return float(bounds[place, low, high]), RuleEnds((int(place),), (ends,))


def _edge(edges: Values, bins: int) -> float | None:
    """The value up to which so many bins reach; none for no bin, and none beyond the last value."""
    if bins == 0:
        return None
    value = float(edges[bins - 1])
    return value if np.isfinite(value) else None


def _best_pair(columns: RuleColumns, sums: PairTables, least: int, by: RuleScore) -> tuple[float, RuleEnds] | None:
    if not len(sums.pairs):
        return None
    running = sums.tables[:, :, 1:, 1:].cumsum(axis=2).cumsum(axis=3)
    right, bottom, corner = running[:, :, -1:, :-1], running[:, :, :-1, -1:], running[:, :, -1:, -1:]
    both = running[:, :, :-1, :-1]
    best: tuple[float, RuleEnds] | None = None
    for above in ((False, False), (True, False), (False, True), (True, True)):
        if above == (False, False):
            inside = both
        elif above == (True, False):
            inside = right - both
        elif above == (False, True):
            inside = bottom - both
        else:
            inside = corner - right - bottom + both
        bounds = scored(inside[:, 0], inside[:, 1], inside[:, 2], least, by)
        at = int(np.argmax(bounds))
        pair, i, j = np.unravel_index(at, bounds.shape)
        value = float(bounds[pair, i, j])
        if not np.isfinite(value) or (best is not None and value <= best[0]):
            continue
        places = tuple(int(one) for one in sums.pairs[pair])
        ends = tuple(
            _half(columns.edges[place][cut], upper) for place, cut, upper in zip(places, (i, j), above, strict=True)
        )
        best = value, RuleEnds(places, ends)
    return best


def _half(edge: float, above: bool) -> tuple[float | None, float | None]:
    if not np.isfinite(edge):
        return (None, None)
    return (float(edge), None) if above else (None, float(edge))


def rows_within(columns: RuleColumns, ends: RuleEnds) -> Values:
    """For every row whether the rule takes it."""
    met = np.ones(columns.numbers.shape[1], bool)
    with np.errstate(invalid="ignore"):
        for place, (low, high) in zip(ends.columns, ends.ends, strict=True):
            values = columns.numbers[place]
            met &= ~np.isnan(values)
            if low is not None:
                met &= values > low
            if high is not None:
                met &= values <= high
    return met


def _refine(
    columns: RuleColumns, ends: RuleEnds, competence: Values, left: Values, least: int, by: RuleScore
) -> FoundRule | None:
    """Move each end in turn to the value with the best bound, the others held."""
    for _ in range(SWEEPS):
        before = ends
        for part, place in enumerate(ends.columns):
            for side in (0, 1):
                if ends.ends[part][side] is not None:
                    ends = _moved(columns, ends, part, side, place, competence, left, least, by)
        if ends == before:
            break
    rows = rows_within(columns, ends) & left
    values = competence[rows]
    if len(values) < max(2, least):
        return None
    score = scored(np.array(len(values)), values.sum(), np.square(values).sum(), least, by)
    return FoundRule(ends, float(score), float(values.mean()), rows)


def _moved(
    columns: RuleColumns,
    ends: RuleEnds,
    part: int,
    side: int,
    place: int,
    competence: Values,
    left: Values,
    least: int,
    by: RuleScore,
) -> RuleEnds:
    def with_end(value: float | None) -> RuleEnds:
        pair = list(ends.ends[part])
        pair[side] = value
        own = list(ends.ends)
        own[part] = (pair[0], pair[1])
        return ends._replace(ends=tuple(own))

    open_rows = np.flatnonzero(rows_within(columns, with_end(None)) & left)
    values = columns.numbers[place][open_rows]
    # In the order in which a moving end takes them in.
    order = np.argsort(values if side else -values, kind="stable")
    sums = np.cumsum(
        np.stack([np.ones(len(order)), competence[open_rows[order]], competence[open_rows[order]] ** 2]), 1
    )
    ranked = values[order]
    cuts = np.flatnonzero(ranked[1:] != ranked[:-1])
    if not len(cuts):
        return ends
    bounds = scored(sums[0, cuts], sums[1, cuts], sums[2, cuts], least, by)
    best = int(np.argmax(bounds))
    if not np.isfinite(bounds[best]):
        return ends
    cut = cuts[best]
    return with_end(float(ranked[cut] if side else ranked[cut + 1]))
