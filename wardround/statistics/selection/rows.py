"""The rows of a site that a question is about: those that meet its condition and have every value it needs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.statistics.disclosure.subsets import check_condition
from wardround.statistics.selection.columns import codes_of, flags_of, values_of
from wardround.statistics.selection.conditions import meets, read_conditions

Matrix = np.ndarray[Any, Any]


class CompleteRows(NamedTuple):
    """Of the complete rows: numbers (rows, columns), places among levels and flags, by name."""

    numbers: Matrix
    codes: Mapping[str, Matrix]
    flags: Mapping[str, Matrix]

    @property
    def patients(self) -> int:
        return len(self.numbers)


def covered_rows(agreed: Agreed, site: Site, columns: Sequence[str], only: str = "") -> Matrix:
    """A flag a row: whether the patient has a value in these columns and meets the condition."""
    kept: Matrix = np.asarray(meets(read_conditions(only), agreed, site))
    for name in columns:
        is_number = agreed.columns[name].kind == "number"
        kept = kept & (np.isfinite(values_of(site, name)) if is_number else codes_of(agreed, site, name) >= 0)
    return kept


def complete_rows(
    agreed: Agreed,
    site: Site,
    *,
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
    only: str = "",
    cell: int = 1,
) -> CompleteRows:
    """Refused where the condition singles out, or leaves out, fewer patients than a cell."""
    x = [values_of(site, name) for name in numbers]
    codes = {name: codes_of(agreed, site, name) for name in categories}
    yes = {name: flags_of(agreed, site, name, level) for name, level in (flags or {}).items()}
    known = np.ones(len(site.table), bool)
    for values in (*x, *yes.values()):
        known &= np.isfinite(values)
    for places in codes.values():
        known &= places >= 0
    kept = known & meets(read_conditions(only), agreed, site) if only else known
    if only:
        check_condition(int(kept.sum()), int(known.sum()), cell, site=site.name)
    matrix = np.column_stack([values[kept] for values in x]) if x else np.empty((int(kept.sum()), 0))
    return CompleteRows(
        matrix,
        {name: places[kept] for name, places in codes.items()},
        {name: values[kept] for name, values in yes.items()},
    )
