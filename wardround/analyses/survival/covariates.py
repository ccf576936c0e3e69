"""The columns of a Cox regression: numbers, levels of categories against a reference, or the terms of a formula."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival.rows import codes_of, column_of, levels_of, numbers_in
from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.queries.columns import suggest_name
from wardround.statistics.regression import design as regression
from wardround.statistics.regression.formula import WHERE, Formula, parse_formula

Values = np.ndarray[Any, Any]


class Covariate(NamedTuple):
    """One column of the design: a number, a term of a formula, or 1 for a level and 0 for the reference."""

    column: str
    level: str = ""
    reference: str = ""

    @property
    def name(self) -> str:
        return f"{self.column}={self.level}" if self.level else self.column


def said_of(pairs: Sequence[str], key: str, known: Sequence[str]) -> dict[str, str]:
    """Settings such as "grade = 1", by column.

    >>> said_of(("age = 10 years",), "units", ("age",))
    {'age': '10 years'}
    """
    found = {}
    for pair in pairs:
        column, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not value:
            raise Refusal(f"{key}: '{pair}' is not of the form COLUMN = VALUE")
        if column not in known:
            raise Refusal(f"{key}: there is no column '{column}' in the model", remedy=suggest_name(column, known))
        found[column] = value
    return found


def design_of(agreed: Agreed, columns: Sequence[str], references: Sequence[str] = ()) -> tuple[Covariate, ...]:
    """The columns of the design; the reference of a category is its first level unless another is said."""
    said = said_of(references, "references", columns)
    design: list[Covariate] = []
    for name in columns:
        column = agreed.columns.get(name)
        if column is None:
            raise Refusal(f"no site has told what '{name}' is", remedy=suggest_name(name, agreed.columns))
        if column.kind == "number":
            design.append(Covariate(name))
            continue
        levels = levels_of(agreed, name)
        if len(levels) < 2:
            raise Refusal(f"'{name}' has one level only, so it has no effect", remedy="leave it out")
        first = said.get(name, levels[0])
        if first not in levels:
            raise Refusal(f"references: '{name}' has no level '{first}'", remedy=suggest_name(first, levels))
        design += [Covariate(name, level, first) for level in levels if level != first]
    return tuple(design)


def matrix_of(agreed: Agreed, design: Sequence[Covariate], site: Site) -> Values:
    """(rows, columns of the design), NaN where unknown."""
    x = np.empty((len(site.table), len(design)))
    codes = {one.column: codes_of(site, one.column, agreed.columns[one.column].levels) for one in design if one.level}
    for number, one in enumerate(design):
        if not one.level:
            x[:, number] = numbers_in(site, one.column)
            continue
        code = codes[one.column]
        is_level = code == agreed.columns[one.column].levels.index(one.level)
        x[:, number] = np.where(code >= 0, is_level, np.nan)
    return x


def formula_of(text: str, time: str) -> Formula:
    """The terms of a formula without an outcome, such as `age * sex + log(pgr)`; what it cannot be here is refused."""
    if "~" in text:
        raise Refusal(
            "a Cox regression explains time and event, so that its formula has no left side",
            where=WHERE,
            remedy="write what stands behind the ~ only",
        )
    formula = parse_formula(f"`{time}` ~ {text}")
    splines = [one.label for one in formula.variables if one.function == "spline"]
    if splines or formula.offsets:
        raise Refusal(
            f"a Cox regression takes no {'spline' if splines else 'offset'}",
            where=WHERE,
            remedy="use square(...) or log(...), or groups with strata",
        )
    return formula


def formula_covariates(formula: Formula, agreed: Agreed) -> tuple[Covariate, ...]:
    """A column each for the terms; a level alone is told as compared with its reference."""
    unknown = [name for name in formula.columns if name not in agreed.columns]
    if unknown:
        remedy = suggest_name(unknown[0], agreed.columns)
        raise Refusal(f"no site has told what '{unknown[0]}' is", where=WHERE, remedy=remedy)
    found = []
    for one in regression.design_of(formula._replace(intercept=True), agreed).columns[1:]:
        term = formula.terms[one.term]
        if len(term) == 1 and one.levels:
            column, level = one.levels[0]
            found.append(Covariate(column, level, regression.reference_of(term[0], agreed.columns[column])))
        else:
            found.append(Covariate(one.label))
    return tuple(found)


def formula_matrix(formula: Formula, agreed: Agreed, site: Site) -> Values:
    """(rows, columns of the design), NaN where something is unknown or has no logarithm."""
    design = regression.design_of(formula._replace(intercept=True), agreed)
    known = np.ones(len(site.table), bool)
    for variable in formula.variables:
        if agreed.columns[variable.column].kind == "category":
            known &= codes_of(site, variable.column, levels_of(agreed, variable.column)) >= 0
        else:
            values = numbers_in(site, variable.column)
            known &= (values > 0) if variable.function == "log" else ~np.isnan(values)
    column_of(site, formula.outcome)
    x = np.full((len(site.table), design.width - 1), np.nan)
    # The outcome is not explained here, and an unknown one must not drop a row.
    table = site.table[known].assign(**{formula.outcome: 0.0})
    x[known] = regression.rows_of(design, agreed, table, {}).x[:, 1:]
    return x
