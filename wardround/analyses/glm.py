"""Generalised linear model: the fit that all rows in one place would give, by Newton's method on sums.

McCullagh and Nelder, "Generalized Linear Models", 1989; by sums over sites as DataSHIELD's ds.glm (Gaye et al., Int J
Epidemiol 2014). One exchange for the means of the columns (one more before it where the formula has splines), then one
for every step of Newton's method, usually five to eight. Each sends a triangle of parameters x parameters and a few
numbers more. Works under the secure sum unless `by_site` asks for every site's own fit.
"""

from typing import Annotated, Any, Literal

import numpy as np

from wardround.core.analysis import Agreed, Analysis, ExchangeKind
from wardround.core.bounds import Bound, Count, NotNegative, Share
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.regression.course import FitCourse, RegressionSettings
from wardround.statistics.regression.design import Design, DesignRows, design_of, rows_of
from wardround.statistics.regression.families import FAMILIES, LINKS, FamilyName, LinkName
from wardround.statistics.regression.formula import parse_formula
from wardround.statistics.regression.private_fit import private_fit
from wardround.statistics.regression.private_newton import private_newton
from wardround.statistics.regression.report import findings_of
from wardround.statistics.regression.site_sums import (
    Problem,
    evaluate,
    folds_of,
    has_telling_fold,
    is_telling,
    moments,
)

LABEL = "Generalised linear model"
PenaltyName = Literal["none", "ridge", "lasso", "elastic_net"]
Folds = Annotated[int, Bound(low=2, high=20)]
GRID = 20
"""Strengths of a penalty that are tried."""


def parameters_in(triangles: int, settings: Settings) -> int:
    most = int(settings["most_parameters"])
    return triangles * (most * (most + 1) // 2) + 3 * most + 12


def numbers_of(of: Extent) -> int:
    """In one exchange: a triangle and a few numbers for every fit that it is about."""
    said = of.settings
    if said["ranges"]:
        return (int(said["most_parameters"]) + 1) * (int(said["most_parameters"]) + 2) // 2
    fits = 1 + (int(said["most_terms"]) if said["likelihood_ratio"] else 0) + (of.sites if said["by_site"] else 0)
    if said["penalty"] != "none" and said["strength"] is None:
        fits += (int(said["folds"]) + 1) * GRID
    return fits * parameters_in(2 if said["robust"] else 1, said)


def words_of(said: Settings) -> str:
    if said["ranges"]:
        what = "sums of products" if said["family"] == "gaussian" else "noised scores and information"
        return (
            f"{what} for the regression {said['formula']} ({said['family']}), of columns clipped to the ranges that "
            f"the study declares ({'; '.join(said['ranges'])})"
        )
    return (
        f"sums over your patients for the regression {said['formula']} ({said['family']}), at coefficients that are "
        "sent to you: products of columns with one another and with the outcome, weighted, and the deviance; at most "
        f"{said['most_parameters']} coefficients. Your site adds nothing where it has fewer than "
        f"{said['smallest_cell']} patients, fewer than three for every coefficient, or a level, an outcome or a part "
        f"of a spline with fewer than {said['smallest_cell']}, and it refuses coefficients that would single out "
        "patients. All exchanges together can still tell whoever asks how many patients have each value of a column"
    )


@recorded("analysis", Terms(words_of, numbers_of))
def glm(
    *,
    formula: str,
    family: FamilyName = "gaussian",
    link: LinkName = "default",
    event: str = "",
    weights: str = "",
    alpha: NotNegative = 0.0,
    penalty: PenaltyName = "none",
    strength: NotNegative | None = None,
    mixing: Share = 0.5,
    folds: Folds = 5,
    robust: bool = False,
    likelihood_ratio: bool = False,
    by_site: bool = False,
    per: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    level: Share = 0.95,
    most_parameters: Count = 50,
    most_terms: Count = 20,
    smallest_cell: Count = 1,
) -> Analysis:
    """Linear, logistic, Poisson, gamma or negative binomial regression, equal to the fit on pooled rows."""
    if ranges:
        refuse_beside_ranges(family, penalty, weights, link, others=robust or likelihood_ratio or by_site)
        if family in ("binomial", "poisson"):
            return private_newton(
                formula=formula, family=family, event=event, ranges=ranges, per=per, level=level,
                most_parameters=most_parameters,
            )  # fmt: skip
        return private_fit(formula=formula, ranges=ranges, per=per, level=level, most_parameters=most_parameters)
    parsed, kind = parse_formula(formula), FAMILIES[family]
    way = LINKS[kind.link if link == "default" else link]
    refuse_settings(family, link, alpha, penalty, strength, robust=robust, by_site=by_site)
    settings = RegressionSettings(
        family=kind,
        link=way,
        alpha=alpha,
        penalty=penalty,
        strength=strength,
        mixing={"ridge": 0.0, "lasso": 1.0}.get(penalty, mixing),
        folds=folds,
        robust=robust,
        likelihood_ratio=likelihood_ratio,
        by_site=by_site,
        grid=GRID,
    )
    columns = tuple(dict.fromkeys((*parsed.columns, *([weights] if weights else []))))

    def design_for(agreed: Agreed) -> Design:
        made = design_of(parsed, agreed, event=event, binary=family == "binomial", weights=weights)
        if made.width > most_parameters:
            raise Refusal(
                f"the formula has {made.width} coefficients, and {most_parameters} are allowed",
                where="[analysis] most_parameters",
                remedy="leave columns out, group levels with recode in [data.cleaning], or allow more",
            )
        return made

    def begin(agreed: Agreed) -> Tree:
        return FitCourse.start(settings, design_for(agreed), agreed)

    def message(course: FitCourse) -> Message | None:
        return course.question()

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        design, arrays = design_for(agreed), checked(asked.arrays, design_for(agreed), settings, agreed)
        stage, knots = int(arrays["stage"]), arrays.get("knots", {})
        if stage == 0:
            return Message(spline_sums(design, agreed, site, smallest_cell))
        rows: DesignRows | None = rows_of(design, agreed, site.table, knots)
        assert rows is not None, "always"
        refuse_outcome(rows, site)
        splines = {one.column: complete(design, agreed, site, one.column) for one in design.splines}
        if is_telling(rows, design, knots, splines, smallest_cell):
            rows = None
        if stage == 1:
            return Message(moments(rows, design.width))
        fold = None if rows is None else folds_of(len(rows.y), folds, site.name)
        silent = rows is None or fold is None or has_telling_fold(rows, fold, design, smallest_cell)
        number = agreed.sites.index(site.name) if site.name in agreed.sites else -2
        found = []
        for at in range(len(arrays["beta"])):
            one = Problem(
                np.asarray(arrays["beta"][at], np.float64),
                float(arrays["alpha"][at]),
                int(arrays["fold"][at]),
                int(arrays["place"][at]),
            )
            counts = one.place in (-1, number)
            own = evaluate(
                rows if counts and not (silent and one.fold >= 0) else None,
                one,
                kind,
                way,
                center=np.asarray(arrays["center"]),
                scale=np.asarray(arrays["scale"]),
                fold=fold,
                clustered=robust,
                cell=smallest_cell,
            )
            found.append(own)
        return Message({name: np.stack([one[name] for one in found]) for name in found[0]})

    def refuse_outcome(rows: DesignRows, site: Site) -> None:
        if not kind.fits(rows.y):
            raise Refusal(
                f"the outcome {parsed.outcome!r} has values that a {family} regression cannot have (it needs "
                f"{kind.needs})",
                where=f"site {site.name}",
                remedy="choose another family, or correct the column in [data.cleaning]",
            )
        if weights and (rows.weights < 0).any():
            raise Refusal(f"the weights {weights!r} are below 0 for some patients", where=f"site {site.name}")

    def step(course: FitCourse, told: Message) -> Tree:
        return course.advance(told.arrays)

    def report(course: FitCourse) -> Report:
        return findings_of(course, formula=formula, per=per, level=level).report()

    most = 60 if penalty != "none" else 40

    def kind_of(asked: Message) -> ExchangeKind:
        stage = int(np.asarray(asked.arrays.get("stage", -1)))
        return ExchangeKind(f"stage {stage}", most if stage == 2 else 1, ("center", "scale", "knots"))

    return Analysis(columns, begin, message, ask, step, report, most=most, sums=not by_site, kind=kind_of)


def refuse_settings(
    family: str, link: str, alpha: float, penalty: str, strength: float | None, *, robust: bool, by_site: bool
) -> None:
    """Settings that do not go together."""
    wrong = {
        "alpha belongs to the family negative_binomial": bool(alpha) and family != "negative_binomial",
        f"the link {link} does not go with the family {family}": link in ("logit", "probit", "cloglog")
        and family != "binomial",
        "a strength needs a penalty: ridge, lasso or elastic_net": strength is not None and penalty == "none",
        "a penalised fit has no standard errors, so neither robust ones nor those by site": penalty != "none"
        and (robust or by_site),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise Refusal(what, where="[analysis]", remedy="leave one of them out")


def refuse_beside_ranges(family: str, penalty: str, weights: str, link: str, *, others: bool) -> None:
    """Noise is reckoned for three families in their plain form."""
    usual = {"gaussian": "identity", "binomial": "logit", "poisson": "log"}.get(family, "")
    if not usual or penalty != "none" or weights or link not in ("default", usual) or others:
        raise Refusal(
            "with ranges, as [privacy] needs them, there are plain linear, logistic and Poisson regression only",
            where="[analysis]",
            remedy="leave out all but formula, family, event, per and level; or leave out ranges and [privacy]",
        )


def checked(arrays: dict[str, Any], design: Design, settings: RegressionSettings, agreed: Agreed) -> dict[str, Any]:
    """What is asked has the shapes of this regression; nothing else is looked at."""
    width, splines = design.width, [one.column for one in design.splines]
    stage = int(np.asarray(arrays.get("stage", -1)))
    knots = arrays.get("knots", {})
    sound = stage in (0, 1, 2) and (stage == 0 or sorted(knots) == sorted(splines))
    if sound and stage > 0:
        sizes = {one.column: int(one.argument) + 1 for one in design.splines}
        sound = all(
            np.shape(at) == (sizes[name],) and bool((np.diff(np.asarray(at)) > 0).all()) for name, at in knots.items()
        )
    if sound and stage == 2:
        beta = np.asarray(arrays.get("beta", 0))
        many = len(beta) if beta.ndim == 2 else 0
        sound = beta.shape == (many, width) and 0 < many <= settings.most_fits(design, len(agreed.sites))
        sound = sound and all(np.shape(arrays.get(name, 0)) == (many,) for name in ("alpha", "fold", "place"))
        sound = sound and all(np.shape(arrays.get(name, 0)) == (width,) for name in ("center", "scale"))
        sound = (
            sound and bool((np.asarray(arrays["scale"]) > 0).all()) and bool((np.asarray(arrays["alpha"]) > 0).all())
        )
    if not sound:
        raise Refusal("what is asked is not a question of this regression", remedy="ask for what was approved")
    return arrays


def complete(design: Design, agreed: Agreed, site: Site, column: str) -> np.ndarray[Any, Any]:
    """The values of a column among the complete rows."""
    names = [*design.formula.columns, *([design.weights] if design.weights else [])]
    return np.asarray(site.table.loc[site.table[names].notna().all(axis=1), column].to_numpy(np.float64))


def spline_sums(design: Design, agreed: Agreed, site: Site, cell: int) -> dict[str, Any]:
    """From which the knots are placed: how many, sum and squares."""
    found = {}
    for one in design.splines:
        x = complete(design, agreed, site, one.column)
        x = x if len(x) >= cell else x[:0]
        found[one.column] = np.array([float(len(x)), x.sum(), x @ x])
    return found
