"""Cox regression over sites: hazard ratios, exact where patients are compared within their own site.

Cox, JRSS B 1972; ties after Efron or Breslow. With `by_site` (the default) every site keeps its own baseline hazard and
its own risk sets: partial likelihoods then add up over sites, so sums of score and information give the stratified fit
of all rows in one place. Without, patients of all sites are compared with each other through sums over shared intervals
of time, as if times were rounded up to the intervals' edges; how far this moves the answer is told. Asks once for the
lengths of follow-up, once for each step of Newton's method (about six), and once for checks and predictions.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival import cox_sums
from wardround.analyses.survival.covariates import (
    Covariate,
    design_of,
    formula_covariates,
    formula_matrix,
    formula_of,
    matrix_of,
    said_of,
)
from wardround.analyses.survival.cox_report import Closed, CoxFit, cox_findings
from wardround.analyses.survival.rows import FollowUp, FollowUpOutcome, follow_up, strata_of
from wardround.analyses.survival.survey import NUMBERS, Survey, check_times, fine_edges, read_survey, survey_of
from wardround.core.analysis import Agreed, Analysis, kind_by_word
from wardround.core.bounds import Count, NotNegative
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal
from wardround.queries.columns import as_text
from wardround.statistics.selection.rows import covered_rows
from wardround.statistics.survival.binned_likelihood import IntervalSums, binned_likelihood, width_of
from wardround.statistics.survival.newton import Ascent, begin_ascent, climb, ridged
from wardround.statistics.survival.partial_likelihood import Likelihood, Ties

LABEL = "Cox regression"
MOST = 20
LEVELS = 10
"""Columns of the design that a column of the table may become, on average."""
Values = np.ndarray[Any, Any]
RIDGE = "add a small penalty (penalty = 0.01)"


def most_columns(columns: Sequence[str], formula: str) -> int:
    """Columns of the design at most."""
    return LEVELS * (len(columns) + (len(formula_of(formula, "time").terms) if formula else 0))


def size_of(of: Extent) -> int:
    # A category adds a column a level; how many is not known before the sites agree, so that this is a limit.
    p = most_columns(of.settings["columns"], of.settings["formula"])
    edges = max(len(of.settings["times"]), of.settings["bins"]) + len(of.settings["horizons"]) + 1
    per_edge = 2 if of.settings["by_site"] else 2 * width_of(p) + p + 1
    return NUMBERS + 10 * p + 5 * p * p + 10 + edges * per_edge


def words_of(settings: Settings) -> str:
    shared = "by interval of time, " if not settings["by_site"] else ""
    return (
        f"sums over your patients, {shared}that say how the hazard of {settings['event']} depends on"
        f" {', '.join(settings['columns']) or settings['formula']}; in about eight exchanges, never of fewer than"
        f" {settings['smallest_cell']} patients and events, at coefficients that are sent to you"
    )


TERMS = Terms(words_of, size_of, times=MOST, rows="table")


class CoxState(NamedTuple):
    """What is known so far; `sums` are the last sums by interval where sites are compared with each other."""

    agreed: Agreed
    design: tuple[Covariate, ...]
    ascent: Ascent
    survey: Survey | None = None
    center: Values | None = None
    scale: Values | None = None
    binary: tuple[bool, ...] = ()
    edges: Values | None = None
    sums: tuple[IntervalSums, ...] = ()
    closed: Closed | None = None


class CoxPlan(NamedTuple):
    """The settings of a study."""

    outcome: FollowUpOutcome
    columns: tuple[str, ...]
    formula: str
    references: tuple[str, ...]
    units: tuple[str, ...]
    strata: tuple[str, ...]
    by_site: bool
    ties: Ties
    penalty: float
    robust: bool
    site_by_site: bool
    hold_out: str
    horizons: tuple[float, ...]
    times: tuple[float, ...]
    bins: int
    unit: str
    check_units: bool
    smallest_cell: int

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that a site's table must have."""
        held = self.hold_out.partition("=")[0].strip()
        terms = formula_of(self.formula, self.outcome.time).columns[1:] if self.formula else ()
        named = (self.outcome.time, self.outcome.event, self.outcome.entry, *self.columns, *terms, *self.strata, held)
        return tuple(dict.fromkeys(one for one in named if one))

    def design(self, agreed: Agreed) -> tuple[Covariate, ...]:
        """The columns of the model, from what the table's columns were agreed to be."""
        if self.formula:
            return formula_covariates(formula_of(self.formula, self.outcome.time), agreed)
        return design_of(agreed, self.columns, self.references)

    def rows_of(self, agreed: Agreed, site: Site, *, held: bool = False) -> FollowUp:
        """The site's patients to fit on, or those held out."""
        if self.formula:
            x = formula_matrix(formula_of(self.formula, self.outcome.time), agreed, site)
        else:
            x = matrix_of(agreed, self.design(agreed), site)
        return follow_up(agreed, site, self.outcome, x=x, strata=self.strata, held_out=self.hold_out, held=held)

    def covered(self, agreed: Agreed, site: Site) -> list[Values]:
        """Whom a fit is about: complete rows, without those held out."""
        column, _, value = (part.strip() for part in self.hold_out.partition("="))
        kept = covered_rows(agreed, site, [name for name in self.read if name != column])
        return [kept & (as_text(site.table[column]) != value) if column else kept]


@recorded("analysis", TERMS)
def cox(
    *,
    time: str,
    event: str,
    columns: tuple[str, ...] = (),
    formula: str = "",
    event_is: str = "",
    references: tuple[str, ...] = (),
    units: tuple[str, ...] = (),
    strata: tuple[str, ...] = (),
    by_site: bool = True,
    ties: Ties = "efron",
    penalty: NotNegative = 0.0,
    robust: bool = False,
    site_by_site: bool = False,
    hold_out: str = "",
    horizons: tuple[float, ...] = (),
    times: tuple[float, ...] = (),
    bins: Count = 100,
    unit: str = "",
    check_units: bool = True,
    entry: str = "",
    smallest_cell: Count = 1,
) -> Analysis:
    """Cox regression: hazard ratios with intervals and tests, checks, site by site on request, and predictions."""
    plan = CoxPlan(
        FollowUpOutcome(time, event, event_is, entry=entry),
        *(
            columns,
            formula,
            references,
            units,
            strata,
            by_site,
            ties,
            penalty,
            robust,
            site_by_site,
            hold_out,
            horizons,
        ),
        *(times, bins, unit, check_units, smallest_cell),
    )
    return Analysis(
        columns=plan.read,
        begin=partial(begin, plan),
        message=message,
        ask=partial(ask, plan),
        step=partial(step, plan),
        report=partial(report, plan),
        most=MOST,
        sums=not site_by_site,
        covers=plan.covered,
        alone=by_site,  # a block of patients, asked about with other coefficients again and again, can be solved for
        kind=kind_by_word("asked", {"survey": 1, "fit": MOST - 2, "close": 1}, fixed=("center", "scale", "edges")),
    )


def begin(plan: CoxPlan, agreed: Agreed) -> CoxState:
    """Refuse what cannot be computed; the design follows from what the columns were agreed to be."""
    check_times(plan.times, plan.bins)
    if bool(plan.columns) == bool(plan.formula):
        what = "both columns and a formula" if plan.formula else "neither columns nor a formula"
        raise Refusal(f"there are {what}", remedy='say one: columns = ["age", "sex"], or formula = "age * sex"')
    terms = formula_of(plan.formula, plan.outcome.time).columns[1:] if plan.formula else plan.columns
    if {plan.outcome.time, plan.outcome.event} & set(terms):
        raise Refusal("time and event are what is explained: they cannot be columns of the model too")
    if plan.outcome.entry and (not plan.by_site or plan.horizons):
        raise Refusal(
            "with entry times patients are compared within their own site, and no curve is predicted",
            where="[analysis] entry",
            remedy="leave out by_site = false and horizons",
        )
    if plan.outcome.entry in {plan.outcome.time, plan.outcome.event, *terms} - {""}:
        raise Refusal(f"'{plan.outcome.entry}' says when patients enter: it cannot be anything else too")
    if plan.robust and not plan.by_site:
        raise Refusal("robust errors need risk sets within sites", remedy="set by_site = true, or robust = false")
    if plan.hold_out and "=" not in plan.hold_out:
        raise Refusal(f"hold_out: '{plan.hold_out}' is not of the form COLUMN = VALUE")
    if plan.formula and plan.references:
        raise Refusal("references go with columns", remedy='in a formula write category(stage, "II")')
    said_of(plan.units, "units", terms)
    strata_of(agreed, plan.strata)
    design = plan.design(agreed)
    if len(design) > most_columns(plan.columns, plan.formula):
        raise Refusal(
            f"the categories have {len(design)} levels in all",
            remedy=f"form groups with recode in [data.cleaning]: at most {LEVELS} levels a column on average",
        )
    return CoxState(agreed, design, begin_ascent(len(design)))


def message(state: CoxState) -> Message | None:
    """The survey, then the coefficients of each step, then the last ones."""
    if state.survey is None:
        return Message({}, (("asked", "survey"),))
    if state.closed is not None:
        return None
    arrays = {"beta": state.ascent.beta, "center": state.center, "scale": state.scale, "edges": state.edges}
    if not state.ascent.done:
        return Message(arrays, (("asked", "fit"),))
    return Message({**arrays, "clock": clock_of(state.survey)}, (("asked", "close"),))


def ask(plan: CoxPlan, agreed: Agreed, asked: Message, site: Site) -> Message:
    """What a site adds up; with fewer patients or events than a cell all of it is 0."""
    what, told, cell = dict(asked.meta)["asked"], asked.arrays, plan.smallest_cell
    rows = plan.rows_of(agreed, site)
    if what == "survey":
        shown = rows.x[:0] if cox_sums.tells_of_few(rows, cell) else rows.x
        return Message({**survey_of(rows, cell), **cox_sums.column_moments(shown, cell)})
    beta, center, scale, edges = (np.asarray(told[name], np.float64) for name in FIT)
    few = cox_sums.tells_of_few(rows, cell)
    rows = rows.where(np.full(len(rows.time), not few)).scaled(center, scale)
    cox_sums.refuse_isolated(rows, beta, cell)
    if what == "fit" and plan.by_site:
        return Message(cox_sums.site_likelihood(rows, beta, plan.ties)._asdict())
    if what == "fit":
        return Message(cox_sums.site_intervals(rows, beta, edges, strata_of(agreed, plan.strata), cell))
    answer = {
        "pairs": cox_sums.site_pairs(rows, beta, cell),
        "own": cox_sums.own_estimate(rows, plan.ties),
        "few": np.asarray(float(few and len(site.table) > 0)),
    }
    if plan.hold_out:
        held = plan.rows_of(agreed, site, held=True).scaled(center, scale)
        answer["held"] = cox_sums.site_pairs(held, beta, cell)
    if not plan.by_site:
        answer["blur"] = cox_sums.site_blur(rows, edges, cell)
    else:
        middle, width = np.asarray(told["clock"], np.float64)
        answer |= cox_sums.site_trend(rows, beta, plan.ties, float(middle), float(width))
        if plan.horizons:
            answer |= cox_sums.site_baseline(rows, beta, edges, cell)
    if plan.robust:
        answer["meat"] = cox_sums.site_meat(rows, beta, plan.ties)
    return Message(answer)


def step(plan: CoxPlan, state: CoxState, answers: Message) -> CoxState:
    """Newton's method, from the sums of all sites."""
    by_name = answers.arrays if plan.site_by_site else {"": answers.arrays}
    names = next(iter(by_name.values()))
    arrays = {name: np.sum([one[name] for one in by_name.values()], axis=0) for name in names}
    if state.survey is None:
        return surveyed(plan, state, arrays)
    if state.ascent.done:
        return state._replace(closed=Closed(arrays, by_name if plan.site_by_site else {}))
    sums: tuple[IntervalSums, ...] = ()
    if plan.by_site:
        found = Likelihood(float(arrays["value"]), arrays["score"], arrays["information"])
    else:
        parts = (arrays[name] for name in IntervalSums._fields)
        sums = tuple(IntervalSums(*one) for one in zip(*parts, strict=True))
        each = [binned_likelihood(one, state.ascent.beta, plan.ties) for one in sums]
        found = Likelihood(*(sum(part) for part in zip(*each, strict=True)))
    found = ridged(found, state.ascent.beta, plan.penalty * state.survey.patients)
    return state._replace(ascent=climb(state.ascent, found, [one.name for one in state.design], RIDGE), sums=sums)


def surveyed(plan: CoxPlan, state: CoxState, arrays: dict[str, Values]) -> CoxState:
    """A common centre, scale and axis, from the first answers."""
    survey = read_survey(arrays, check_units=plan.check_units)
    center = arrays["x_sum"] / arrays["rows"]
    variance = arrays["x_square"] / arrays["rows"] - center**2
    same = [one.name for one, v, c in zip(state.design, variance, center, strict=True) if v <= 1e-12 * max(1, c * c)]
    if same:
        raise Refusal(f"the same value for all patients: {', '.join(same)}", remedy="leave these columns out")
    edges = fine_edges(survey, plan.times, plan.bins, plan.horizons)
    binary = tuple(bool(one == 0) for one in arrays["x_odd"])
    return state._replace(survey=survey, center=center, scale=np.sqrt(variance), binary=binary, edges=edges)


def report(plan: CoxPlan, state: CoxState) -> Report:
    """The finished fit in words, tables and charts."""
    assert state.survey is not None
    assert state.closed is not None
    fit = CoxFit(
        **{name: getattr(state, name) for name in ("agreed", "design", "ascent", "survey", "center", "scale")},
        **{name: getattr(state, name) for name in ("binary", "edges", "sums", "closed")},
        **{name: getattr(plan, name) for name in ("by_site", "strata", "ties", "penalty", "robust")},
        **{name: getattr(plan, name) for name in ("horizons", "unit", "hold_out")},
        units=said_of(plan.units, "units", [one.column for one in state.design]),
        cell=plan.smallest_cell,
        clock=clock_of(state.survey),
    )
    return cox_findings(fit).report()


FIT = ("beta", "center", "scale", "edges")


def clock_of(survey: Survey) -> Values:
    """The mean time of the events and its spread, in which effects that change with time are looked for."""
    middle = survey.event_time / survey.events
    return np.array([middle, np.sqrt(max(survey.event_square / survey.events - middle**2, 0.0)) or 1.0])
