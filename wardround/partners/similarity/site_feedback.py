"""What a site is told about itself, in numbers: its rank, where its model differs, and what else it might record.

Needs the probes `own_models` and `feature_gains` and one query; no record leaves a site. Columns that a site does not
record are filled with a common stand-in, so a model learns nothing from them there. Which of them would help it is
estimated at the sites that do record them: what their own cross-validated models lose when they are given only what
this site records, and win back with one column more. That is a promise for patients like theirs, not for this site's.
The same in sentences is `report.partners.feedback`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from wardround.core.contracts import Report, Tree
from wardround.core.errors import Refusal
from wardround.partners.choice import Evidence, Numbers
from wardround.partners.probes.feature_gains import Plan, check_recorded, inputs_of, pool_gains
from wardround.partners.similarity.multiple_tests import holm

SURE = 0.05
"""Chance, over all comparisons made for one site together, that one of them is called a difference by accident."""
NORMAL = 1.96
"""Standard errors to each side of a 95 % interval."""
ROWS_A_FOLD = 10
"""Patients in a fold below which the spread of a model's weights is not believed."""


class FurtherFeatures(NamedTuple):
    """What the site might record, best first (gain None where nobody can tell), and columns that no site records."""

    rows: tuple[Report, ...]
    nobody: tuple[str, ...] = ()


class DifferingWeights(NamedTuple):
    """Weights that differ from the peers' beyond chance, the surest first, of so many that were `compared`."""

    rows: tuple[Report, ...] = ()
    compared: int = 0
    regression: bool = False
    plain: bool = True
    """Whether the weights of this kind of model have a meaning that could be compared."""
    patients: float = 0
    """From how many the site's model was learned, and how many it takes to compare its weights."""
    needed: int = 0


class SiteFeedback(NamedTuple):
    """All that one site is told. The rank is among the sites that were judged; equal scores share the better place."""

    site: str
    user: str
    """Who asked; perhaps this very site."""
    rank: Report | None
    chosen: bool
    near: tuple[str, ...]
    """With whom chance alone could change the site's place."""
    weights: DifferingWeights
    further: FurtherFeatures


def further_features(
    state: Tree,
    tried: Plan,
    columns: Sequence[str],
    recorded: Numbers,
    site: int,
    *,
    similarity: Sequence[float] | Numbers | None = None,
) -> FurtherFeatures:
    """Which column the site should record next, best first, from the state of `feature_gains` after this plan.

    Sites that record a column count by the inverse of their variance and by their similarity to this one (0 or more;
    unknown counts 0), where given. The variance is that of their rows, pooled, plus what sites differ beyond chance
    (DerSimonian and Kacker 2007): each site's own standard error is small just where the column does nothing, and
    would draw the mean towards nothing.
    """
    has = check_recorded(recorded, columns)
    loss, error, count = (np.asarray(state[name], np.float64) for name in ("loss", "gain_error", "rows"))
    alike = np.ones(len(has)) if similarity is None else np.nan_to_num(np.asarray(similarity, np.float64))
    if (alike < 0).any():
        raise Refusal("a similarity is negative", remedy="give 0 to a site that should not count, and more to others")
    rows: list[Report] = []
    for number, column in enumerate(tried.further, start=1):
        gain = loss[:, 0] - loss[:, number]
        donors = has[:, list(columns).index(column)] & np.isfinite(gain) & np.isfinite(error[:, number])
        donors &= (count >= 2) & (alike > 0) & (np.arange(len(has)) != site)
        row: Report = {"column": column, "sites": int(donors.sum()), "patients": int(count[donors].sum())}
        if donors.any():
            mean, off = pool_gains(gain[donors], error[donors, number], count[donors], alike[donors])
            before = float(np.average(loss[donors, 0], weights=count[donors]))
            row |= {"gain": mean, "error": off, "low": mean - NORMAL * off, "high": mean + NORMAL * off}
            row |= {"share_of_loss": mean / before if before > 0 else None}
            row["chance"] = float(stats.norm.sf(mean / off)) if off > 0 else float(mean <= 0)
        rows.append(row)
    known = [row for row in rows if "gain" in row]
    for row, chance in zip(known, holm(np.array([row["chance"] for row in known])), strict=True):
        row |= {"chance": float(chance), "helps": bool(chance < SURE)}
    known.sort(key=lambda row: (not row["helps"], -row["gain"]))
    unknown = [row | {"gain": None, "error": None, "helps": False} for row in rows if "gain" not in row]
    nobody = [column for column, anyone in zip(columns, np.any(has, axis=0).tolist(), strict=True) if not anyone]
    return FurtherFeatures((*known, *unknown), tuple(nobody))


def differing_weights(
    own: Tree,
    features: Sequence[str],
    columns: Sequence[str],
    recorded: Numbers,
    site: int,
    *,
    target: str,
    classes: Sequence[str] = (),
    positive: str | None = None,
    peers: Sequence[int] | None = None,
    folds: int = 5,
) -> DifferingWeights:
    """Which weights of the site's own model differ from its peers' (all others, or those named), beyond chance.

    `own` is the state of `own_models` with that many `folds`. Two columns of a softmax, and the categories of a
    column, have meaning only against each other, so their contrasts are compared: one class against the other(s), one
    category against the other(s). Their spreads are added up as if the two always moved against each other, which they
    nearly do. A jackknife of few folds knows its own spread badly, so the spreads (per patient) of all sites are drawn
    together as far as they agree (Smyth 2004), and Student's t takes the place of the normal distribution; Holm's
    correction is over all weights of the site. Five folds serve logistic models only nearly well: of 100 sites that
    were made truly alike, 7 or 8, not 5, were told a difference. A peer that lacks further columns weighs the rest
    otherwise too: better name peers that record what this site does.
    """
    has = check_recorded(recorded, columns)
    kernel = plain_kernel(own["models"], len(features), max(1, len(classes)))
    if kernel is None:
        return DifferingWeights(plain=False)
    count = np.asarray(own["rows"], np.float64)
    others = [index for index in (range(len(count)) if peers is None else peers) if index != site]
    enough = count >= ROWS_A_FOLD * folds
    found_in = DifferingWeights(regression=not classes, patients=float(count[site]), needed=ROWS_A_FOLD * folds)
    if not enough[site]:
        return found_in
    signs = weight_contrasts(features, columns)
    made = np.array([list(columns).index(sign.column) for sign in signs], np.int64)
    weight, spread = np.asarray(own["models"][kernel], np.float64), np.asarray(own["spread"][kernel], np.float64)
    value = np.einsum("sdo,dm->som", weight, np.array([sign.weights for sign in signs]).T)
    error = np.einsum("sdo,dm->som", spread, np.array([sign.errors for sign in signs]).T)
    value, error, outcomes = by_outcome(value, error, target, list(classes), positive)
    known = enough[:, None, None] & has[:, None, made] & np.isfinite(value) & np.isfinite(error) & (error > 0)
    variance, freedom = moderate_variances(error, count, known, folds)
    found = compare_weights(
        value, variance, freedom, known, site, others, most=(folds - 1) * (1 + known[others].sum(axis=0))
    )
    rows: list[Report] = []
    usable = np.argwhere(np.isfinite(found.chance))
    chance = holm(np.array([found.chance[tuple(at)] for at in usable]))
    for at, corrected in zip(usable, chance, strict=True):
        outcome, sign = outcomes[at[0]], signs[at[1]]
        here, there, here_error, there_error, off = (float(array[tuple(at)]) for array in found[:5])
        if corrected < SURE:
            rows.append(
                {"feature": sign.feature, "column": sign.column, "outcome": outcome, "here": here}
                | {"here_error": here_error, "elsewhere": there, "elsewhere_error": there_error}
                | {"difference": here - there, "error": off, "chance": float(corrected)}
            )
    rows.sort(key=lambda row: (row["chance"], -abs(row["difference"]) / row["error"]))
    return found_in._replace(rows=tuple(rows), compared=len(usable))


def plain_kernel(models: Mapping[str, Any], inputs: int, outputs: int) -> str | None:
    """The name of the one array with a weight for each input and output, if that and a bias is all there is."""
    shapes = {name: np.shape(array)[1:] for name, array in models.items()}
    kernels = [name for name, shape in shapes.items() if shape == (inputs, outputs) and name.endswith("kernel")]
    rest = [shape for name, shape in shapes.items() if name not in kernels]
    return kernels[0] if inputs and len(kernels) == 1 and all(shape == (outputs,) for shape in rest) else None


class Sign(NamedTuple):
    """One thing about a patient that a linear model weighs, and how to read it off the weights."""

    feature: str
    column: str
    weights: Numbers
    errors: Numbers


def weight_contrasts(features: Sequence[str], columns: Sequence[str]) -> list[Sign]:
    """A number by its weight, one of two categories by the difference, one of several against the mean of the rest."""
    signs = []
    unit = np.eye(len(features))
    for column, places in inputs_of(features, columns).items():
        categories = [at for at in places if features[at].startswith(f"{column}=")]
        for at in [at for at in places if at not in categories]:
            signs.append(Sign(features[at], column, unit[at], unit[at]))
        size = len(categories)
        for at in categories if size != 2 else categories[-1:]:
            rest = unit[[other for other in categories if other != at]].sum(axis=0)
            errors = unit[at] + rest if size == 2 else unit[at] * (size / (size - 1) if size > 1 else 1.0)
            signs.append(Sign(features[at], column, unit[at] - rest / max(1, size - 1), errors))
    return signs


def by_outcome(
    value: Numbers, error: Numbers, target: str, classes: list[str], positive: str | None
) -> tuple[Numbers, Numbers, list[str]]:
    """Weights of one outcome against the other(s): (sites, outcomes, signs), their spreads, the outcomes' names."""
    if not classes:
        return value, error, [as_words(target)]
    if positive is not None and positive not in classes:
        raise Refusal(
            f"{positive!r} is not an outcome", where=f"target {target}", remedy=f"name one of {', '.join(classes)}"
        )
    if len(classes) == 2:
        at = 1 if positive is None else classes.index(positive)
        return (
            value[:, [at]] - value[:, [1 - at]],
            error.sum(axis=1, keepdims=True),
            [f"{as_words(target)} = {classes[at]}"],
        )
    size = len(classes) / (len(classes) - 1)
    against = (value - value.mean(axis=1, keepdims=True)) * size
    return against, error * size, [f"{as_words(target)} = {label}" for label in classes]


def moderate_variances(error: Numbers, rows: Numbers, known: Numbers, folds: int) -> tuple[Numbers, Numbers]:
    """Variances of the weights, drawn towards what all sites say of the same weight, and their degrees of freedom.

    Smyth, "Linear models and empirical Bayes methods for assessing differential expression", 2004: where sites' values
    of variance times patients scatter no more than chance makes them, all are one; the more they do, the less they are.
    """
    own = folds - 1
    size = np.maximum(rows[:, None, None], 1.0)
    logs = np.where(known, np.log(np.where(known, error, 1.0) ** 2 * size), 0.0)
    sites = known.sum(axis=0)
    center = logs.sum(axis=0) / np.maximum(1, sites)
    spare = np.maximum(0, sites - 1).sum()
    scatter = (np.where(known, logs - center, 0.0) ** 2).sum() / spare if spare else math.inf
    excess = scatter - float(special.polygamma(1, own / 2))
    # No more can be lent than the others have. Their geometric middle is above the paper's harmonic one: with caution.
    lent = np.minimum(freedom_for(excess), own * np.maximum(0, sites - 1)).astype(np.float64)
    common = np.exp(center - special.digamma(own / 2) + math.log(own / 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (own * error**2 + lent * common / size) / (own + lent)
    return np.where(known, variance, np.nan), np.broadcast_to(own + lent, error.shape)


def freedom_for(excess: float) -> float:
    """The degrees of freedom whose trigamma (of the half) is the excess scatter; by bisection, endless for none."""
    if not 0 < excess < math.inf:
        return math.inf if excess <= 0 else 0.0
    low, high = 1e-6, 1e6
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float(special.polygamma(1, middle / 2)) > excess else (low, middle)
    return low


class WeightComparison(NamedTuple):
    """(outcomes, signs): weight here and elsewhere, their standard errors, that of the difference, two-sided p."""

    here: Numbers
    there: Numbers
    here_error: Numbers
    there_error: Numbers
    error: Numbers
    chance: Numbers


def compare_weights(
    value: Numbers, variance: Numbers, freedom: Numbers, known: Numbers, site: int, others: list[int], *, most: Numbers
) -> WeightComparison:
    """The site's weights against the inverse-variance mean of the others', with Satterthwaite's degrees of freedom.

    These are `most` at most: variances that were drawn together are not known independently of each other.
    """
    usable = known[others] & known[site]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(usable, 1 / variance[others], 0.0)
        total = share.sum(axis=0)
        there = np.where(total > 0, np.where(usable, share * value[others], 0.0).sum(axis=0) / total, np.nan)
        both = variance[site] + 1 / total
        parts = variance[site] ** 2 / freedom[site] + (share**2 / freedom[others]).sum(axis=0) / total**4
        t = (value[site] - there) / np.sqrt(both)
        degrees = np.minimum(both**2 / parts, most)
        there_error = np.sqrt(1 / total)
    chance = 2 * stats.t.sf(np.abs(t), degrees)
    return WeightComparison(value[site], there, np.sqrt(variance[site]), there_error, np.sqrt(both), chance)


def as_words(name: str) -> str:
    return name.replace("_", " ")


def site_feedback(
    site: int,
    sites: Sequence[str],
    user: int,
    evidence: Evidence,
    chosen: Sequence[int],
    *,
    weights: DifferingWeights,
    further: FurtherFeatures,
) -> SiteFeedback:
    """What one site is told, with its rank among those that were judged, if it was."""
    score, error = np.asarray(evidence.score, np.float64), np.asarray(evidence.error, np.float64)
    judged = np.isfinite(score)
    rank: Report | None = None
    near: tuple[str, ...] = ()
    if site != user and judged[site]:
        known = float(error[site]) if np.isfinite(error[site]) else None
        place = 1 + int((score[judged] > score[site]).sum())
        rank = {"place": place, "of": int(judged.sum()), "score": float(score[site]), "error": known}
        gap, off = np.abs(score - score[site]), np.hypot(error, error[site])
        near = tuple(sites[int(at)] for at in np.flatnonzero(judged & (gap < NORMAL * off)) if at != site)
    return SiteFeedback(sites[site], sites[user], rank, site in chosen, near, weights, further)
