"""The course of a regression at the coordinator: what is asked next, from the sums so far.

Knots of splines first, then means and deviations of the columns, then the steps of all fits that are under way at the
same time: the model itself, the models without one term each (likelihood-ratio tests), each site's own fit, and under a
penalty whose strength is to be found, fits on all but one fold for every strength.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.statistics.regression.design import Design, knots_for, places_of, unpacked
from wardround.statistics.regression.families import Family, Link
from wardround.statistics.regression.newton import Fit, Penalty, advance, refuse_collinear, separating

Array = np.ndarray[Any, Any]
START_ALPHA = 0.5
EVERYWHERE = -1


class RegressionSettings(NamedTuple):
    """What the study says of a regression, beside its formula."""

    family: Family
    link: Link
    alpha: float = 0.0
    penalty: str = "none"
    strength: float | None = None
    mixing: float = 0.0
    folds: int = 5
    robust: bool = False
    likelihood_ratio: bool = False
    by_site: bool = False
    grid: int = 20

    @property
    def finds_alpha(self) -> bool:
        return self.family.name == "negative_binomial" and not self.alpha

    @property
    def is_tuned(self) -> bool:
        return self.penalty != "none" and self.strength is None

    def most_fits(self, design: Design, sites: int) -> int:
        """Fits that one exchange may be about."""
        fits = 1 + len(design.formula.terms) * self.likelihood_ratio + sites * self.by_site
        return fits + (self.folds + 1) * self.grid * self.is_tuned


@dataclass(frozen=True)
class Course:
    """All that is known so far."""

    settings: RegressionSettings
    design: Design
    agreed: Agreed
    knots: Mapping[str, Array] | None = None
    center: Array = field(default_factory=lambda: np.zeros(0))
    scale: Array = field(default_factory=lambda: np.zeros(0))
    rows: float = 0.0
    dropped: float = 0.0
    silent: tuple[str, ...] | int = 0
    """Sites that add nothing: by name where each is seen, else how many."""
    fits: tuple[Fit, ...] = ()
    """The model, then the others; see `plan`."""
    null_deviance: float | None = None
    chosen: float | None = None
    """The strength of the penalty that was found."""
    tried: tuple[tuple[float, float, float], ...] = ()
    """(strength, held-out deviance per patient, its standard error over folds)."""

    @classmethod
    def start(cls, settings: RegressionSettings, design: Design, agreed: Agreed) -> "Course":
        return cls(settings, design, agreed, knots=None if design.splines else {})

    # ---- what is asked ----

    def question(self) -> Message | None:
        if self.knots is None:
            return Message({"stage": np.array(0.0)})
        knots = {"knots": dict(self.knots)} if self.knots else {}
        if not len(self.scale):
            return Message({"stage": np.array(1.0), **knots})
        open_fits = [fit for fit in self.fits if not fit.done]
        if not open_fits:
            return None
        return Message(
            {
                "stage": np.array(2.0),
                **knots,
                "center": self.center,
                "scale": self.scale,
                "beta": np.stack([fit.beta for fit in open_fits]),
                "alpha": np.array([fit.alpha for fit in open_fits]),
                "fold": np.array([float(fit.fold) for fit in open_fits]),
                "place": np.array([float(fit.place) for fit in open_fits]),
            }
        )

    # ---- what follows from the answers ----

    def advance(self, told: Mapping[str, Any]) -> "Course":
        each = dict(told) if self.settings.by_site else {}
        total: dict[str, Any] = (
            {key: np.sum([np.asarray(one[key]) for one in each.values()], axis=0) for key in next(iter(each.values()))}
            if each
            else dict(told)
        )
        if self.knots is None:
            return self._place_knots(total)
        if not len(self.scale):
            return self._scale(total, each)
        return self._step(total)

    def _place_knots(self, total: Mapping[str, Any]) -> "Course":
        knots = {}
        for one in self.design.splines:
            count, sum_of, square = (float(part) for part in np.asarray(total[one.column]))
            spread = square / count - (sum_of / count) ** 2 if count else 0.0
            if not spread > 0:
                raise Refusal(
                    f"column {one.column!r} has too few different values for a spline",
                    where="[analysis] formula",
                    remedy="use the column itself",
                )
            knots[one.column] = knots_for(sum_of / count, spread**0.5, int(one.argument))
        return replace(self, knots=knots)

    def _scale(self, total: Mapping[str, Any], each: Mapping[str, Any]) -> "Course":
        rows = float(total["rows"])
        if rows <= self.design.width:
            few = " (sites that would tell of few patients add nothing)" if float(total["silent"]) else ""
            raise Refusal(
                f"{rows:.0f} complete rows are too few for {self.design.width} coefficients{few}",
                where="[analysis]",
                remedy="leave columns out that are often missing, or let more sites take part",
            )
        mean = np.asarray(total["sum"]) / rows
        spread = np.sqrt(np.maximum(np.asarray(total["square"]) / rows - mean**2, 0.0))
        tiny = spread <= 1e-9 * np.maximum(np.abs(mean), 1e-300)
        center, scale = mean.copy(), np.where(tiny, 1.0, spread)
        if self.design.formula.intercept:
            center[0], scale[0], tiny[0] = 0.0, 1.0, False
        else:
            center[:] = 0.0
            size = np.sqrt(np.asarray(total["square"]) / rows)
            scale, tiny = np.where(size > 0, size, 1.0), size <= 0
        if tiny.any():
            first = self.design.labels[int(np.argmax(tiny))]
            raise Refusal(
                f"the column {first} has the same value for all patients that count",
                where="[analysis] formula",
                remedy="leave it out",
            )
        outcome = float(total["outcome"]) / float(total["weight"])
        self._refuse_constant(outcome)
        silent: tuple[str, ...] | int = int(total["silent"])
        if each:
            silent = tuple(site for site, one in each.items() if float(one["silent"]))
        course = replace(self, center=center, scale=scale, rows=rows, dropped=float(total["dropped"]), silent=silent)
        return replace(course, fits=course._plan(outcome))

    def _refuse_constant(self, outcome: float) -> None:
        name, lowest = self.settings.family.name, self.settings.family.bounds[0]
        if (name != "gaussian" and outcome <= max(lowest, 0.0)) or (name == "binomial" and outcome >= 1):
            raise Refusal(
                f"the outcome {self.design.formula.outcome!r} is the same for all patients, so there is nothing to"
                " explain",
                where="[analysis] formula",
                remedy="choose another outcome, or add sites with other ones",
            )

    def _plan(self, outcome: float) -> tuple[Fit, ...]:
        """All fits, each from the model that knows the mean outcome only."""
        width, said = self.design.width, self.settings
        beta = np.zeros(width)
        if self.design.formula.intercept:
            beta[0] = float(said.link.of(np.array(outcome)))
        free = np.ones(width, bool)
        first = Fit(beta, free, alpha=said.alpha or START_ALPHA)
        if said.penalty != "none" and said.strength is not None:
            return (first._replace(penalty=Penalty(said.strength, said.mixing)),)
        if said.is_tuned:
            return (first,)  # strengths follow from the first sums
        fits = [first]
        if said.likelihood_ratio:
            for term in range(len(self.design.formula.terms)):
                kept = free.copy()
                kept[places_of(self.design, term)] = False
                fits.append(first._replace(free=kept))
        if said.by_site:
            fits += [first._replace(place=number) for number in range(len(self.agreed.sites))]
        return tuple(fits)

    def _step(self, total: Mapping[str, Any]) -> "Course":
        at, fits = 0, list(self.fits)
        null = self.null_deviance
        for number, fit in enumerate(self.fits):
            if fit.done:
                continue
            sums = {key: value[at] for key, value in total.items()}
            info = unpacked(np.asarray(sums["info"]), self.design.width)
            at += 1
            if number == 0 and null is None:
                null = float(sums["deviance"])
                if self.settings.penalty == "none":
                    refuse_collinear(info, self.design)
            fits[number] = self._moved(fit, sums, info, number)
        course = replace(self, fits=tuple(fits), null_deviance=null)
        if self.settings.is_tuned and len(self.fits) == 1 and self.chosen is None:
            return course._spread_strengths(total)
        if self.settings.is_tuned and self.chosen is None and all(fit.done for fit in fits):
            return course._choose()
        return course

    def _moved(self, fit: Fit, sums: dict[str, Any], info: Array, number: int) -> Fit:
        if not float(sums["rows"]) > fit.free.sum():
            return fit._replace(done=True, failed="too few patients", info=info, sums=sums)
        moved = advance(
            fit,
            sums,
            info,
            intercept=self.design.formula.intercept,
            dispersion_free=self.settings.finds_alpha,
        )
        far = separating(moved, self.design) if self.settings.family.name == "binomial" else []
        runs_away = bool(far) and fit.penalty.is_none and not moved.done and moved.steps > 6
        lost = moved.failed == "collinear" or runs_away or (moved.steps > 35 and not moved.done)
        if not lost:
            return moved
        if number > 0:
            return moved._replace(done=True, failed="no finite fit")
        if far or (self.settings.family.name == "binomial" and moved.failed):
            named = ", ".join((far or ["several columns"])[:4])
            raise Refusal(
                f"the outcome is separated perfectly: from {named} it is known without doubt, so no finite coefficient "
                "fits best",
                where="[analysis] formula",
                remedy='add penalty = "ridge", which has an answer; or leave the column out',
            )
        if moved.failed:
            refuse_collinear(info, self.design)
        raise Refusal(
            "the fit does not come to an end",
            where="[analysis]",
            remedy='choose another family or link, or add penalty = "ridge"',
        )

    # ---- the strength of a penalty ----

    def _spread_strengths(self, total: Mapping[str, Any]) -> "Course":
        """From the sums at the mean outcome: the strength at which all coefficients are 0, and a grid below it."""
        first, said = self.fits[0], self.settings
        score = np.abs(np.asarray(total["score"][0]))[1 if self.design.formula.intercept else 0 :] / self.rows
        top = float(score.max(initial=0.0)) / max(said.mixing, 0.001)
        if not top > 0:
            raise Refusal("no column has anything to do with the outcome", where="[analysis] formula")
        strengths = top * np.logspace(0, -4, said.grid)
        start = first._replace(beta=self._plan_beta(first), done=False, before=None, objective=np.inf, steps=0)
        fits = [
            start._replace(penalty=Penalty(float(strength), said.mixing), fold=fold)
            for fold in range(-1, said.folds)
            for strength in strengths
        ]
        return replace(self, fits=tuple(fits))

    def _plan_beta(self, first: Fit) -> Array:
        return first.before if first.before is not None else first.beta

    def _choose(self) -> "Course":
        """The strength of the smallest held-out deviance."""
        grid = self.settings.grid
        tried = []
        for at in range(grid):
            folds = [self.fits[grid * (fold + 1) + at] for fold in range(self.settings.folds)]
            usable = [fit.sums for fit in folds if fit.sums is not None and float(fit.sums["held_rows"])]
            means = np.array([float(one["held"]) / float(one["held_rows"]) for one in usable])
            error = float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else 0.0
            tried.append((self.fits[at].penalty.strength, float(means.mean()), error))
        best = int(np.argmin([mean for _, mean, _ in tried]))
        return replace(self, fits=(self.fits[best],), chosen=tried[best][0], tried=tuple(tried))
