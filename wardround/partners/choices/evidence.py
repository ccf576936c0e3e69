"""Partners by all evidence: whose patients mean the same by the same findings, as far as everything known tells.

What counts is p(y|x). Each site tells its mean gradient at one common model and how it scatters from patient to
patient: the score test, which needs no model of a site's own and so holds up where a site has few patients. In units of
that scatter the true gradients of two sites lie D apart, and 1/2 D² is the extra loss per patient when one follows the
other (exactly so for small differences and log loss). A hierarchical normal model (Fay and Herriot 1979; Efron and
Morris 1975) then borrows over all pairs at once: the sites' true gradients vary by tau², and of that the share rho
follows the likeness of their patients (histograms, outcome included; eigenvalues that chance would make left out).
tau and rho are averaged over by their likelihood with flat priors. So unlike patients count against a site only as far
as, in this federation, sites with unlike patients do have other gradients.

The score is minus the expected 1/2 D², its error the posterior standard deviation. The cut takes the nearest sites as
long as their common model is expected to lose less at the asking site: each further site takes variance away (as its
patients do) and brings bias (as D² does). With few patients this also lets in sites of other groups. On made-up
hospitals of 200 patients (20 seeds, two asking sites each) the sites above the cut had a lower held-out loss together
than the asking site alone (by 0.02 to 0.04) and than all sites (by 0.01 to 0.05), and a higher one than the right
partners would have had (by 0.001 to 0.009; only the last, where nothing but p(y|x) differs, is beyond chance).
Needs the answers one by one, so no secure sum; costs one training of the common model, an exchange of up to 256²
numbers a site, and the histograms. Time grows with the cube of the number of sites: for hundreds, not for millions.
The second moments of gradients are not noised: `epsilon` covers the histograms only.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ncx2

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Tree
from wardround.core.errors import Refusal
from wardround.partners.choice import Choice, Evidence, Question, SiteQuestions, probe
from wardround.partners.probes.scatter import scatter
from wardround.partners.similarity.histograms import (
    Histograms,
    ask_histograms,
    column_differences,
    count_queries,
    differences,
)
from wardround.partners.similarity.site_map import map_of

LABEL = "Partners by all evidence"

Numbers = np.ndarray[Any, Any]

SMALLEST_SCATTER = 1e-3
"""Directions in which patients scatter less than this part of the widest hold nothing but rounding."""
TAUS = np.concatenate([[0.0], np.exp2(np.arange(-4.0, 11.0))])
"""Between-site variance over sampling variance: from none to a thousandfold."""
RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)


class Posterior(NamedTuple):
    """What is known about the sites' true gradients, in every setting of (tau, rho) and their weights."""

    weight: Numbers
    mean: Numbers
    """(settings, sites, directions)"""
    covariance: Numbers
    """(settings, sites, sites), alike in all directions"""
    rho: float
    """The expected share of the sites' differences that follows the likeness of their patients."""


def evidence(*, epsilon: NotNegative = 0.0, smallest_cell: Count = 5) -> Choice:
    """All evidence together: what findings mean at each site, and how alike its patients are (epsilon: their noise)."""

    def assess(question: Question) -> Evidence:
        common = question.train(question.everyone)
        state = question.probe(scatter(question.model), common)
        told = ask_histograms(question.engine, epsilon=epsilon, smallest_cell=smallest_cell)
        rows = np.asarray(state["rows"], np.float64)
        asked = np.isin(np.arange(len(rows)), question.everyone) & (rows > 1)
        sites = np.flatnonzero(asked)
        blank = np.full(len(rows), np.nan)
        if not asked[question.user] or len(sites) < 2:
            return Evidence(blank, blank.copy(), 0.0, {"sites": {}})
        gradient, noise = whiten_gradients(state, sites)
        known = posterior(gradient, noise, likeness(told, sites))
        return assess_candidates(question, told, sites, rows[sites], noise, known)

    return Choice(
        assess, SiteQuestions((probe("scatter"),), "once with all sites", count_queries(epsilon, smallest_cell))
    )


def whiten_gradients(state: Tree, sites: Numbers) -> tuple[Numbers, Numbers]:
    """Gradients in units of the patients' common scatter, (sites, directions), and each site's sampling variance."""
    slope, square, rows = (np.asarray(state[name], np.float64)[sites] for name in ("slope", "square", "rows"))
    spread = square - slope[:, :, None] * slope[:, None, :]
    values, vectors = np.linalg.eigh(np.einsum("s,sij->ij", rows, spread) / rows.sum())
    wide = values > max(SMALLEST_SCATTER * float(values[-1]), 1e-12)
    if not wide.any():
        raise Refusal(
            "the gradients do not differ from patient to patient, so sites cannot be told apart",
            remedy="look for a target or columns that never vary",
        )
    scale = vectors[:, wide] / np.sqrt(values[wide])
    own = np.einsum("ik,sij,jk->s", scale, spread, scale) / int(wide.sum())
    # A site that by chance shows almost no scatter (one class only) is not thereby certain.
    return slope @ scale, np.maximum(own, 0.1) / rows * (rows / (rows - 1))


def likeness(told: Histograms, sites: Numbers) -> Numbers:
    """(sites, sites), mean variance 1: who has like patients, beyond chance; all 0 where nothing is known to differ."""
    count, parts, freedom = len(sites), [np.zeros((len(sites), 0))], 0
    chance = np.zeros(count)
    for index in range(len(told.columns)):
        rows, shares = told.rows(index)[sites], told.shares(index)[sites]
        answered = np.isfinite(rows) & (rows > 0)
        if answered.sum() < 2:
            continue
        mean = told.counts[index][sites][answered].sum(axis=0) / rows[answered].sum()
        held = mean > 0
        apart = (shares - mean)[:, held] / np.sqrt(mean[held])
        parts.append(np.where(answered[:, None], apart, 0.0))
        safe = np.where(answered, rows, np.inf)
        chance += (int(held.sum()) - 1) / safe + told.noise * float((1 / mean[held]).sum()) / safe**2
        freedom += int(held.sum()) - 1
    if not freedom:
        return np.zeros((count, count))
    embedded, centre = np.concatenate(parts, axis=1), centering_matrix(count)
    values, vectors = np.linalg.eigh(centre @ (embedded @ embedded.T - np.diag(chance)) @ centre)
    # Chance spreads its eigenvalues around their mean, up to this edge (Marchenko and Pastur 1967).
    edge = float(chance.mean()) * (2 * np.sqrt(count / freedom) + count / freedom)
    values = np.where(values > edge, values, 0.0)
    kernel = (vectors * values) @ vectors.T
    return np.asarray(kernel * (count - 1) / values.sum() if values.any() else kernel)


def centering_matrix(count: int) -> Numbers:
    return np.eye(count) - 1 / count


def posterior(gradient: Numbers, noise: Numbers, kernel: Numbers) -> Posterior:
    """True gradients given those told; every direction is a draw of the same model, the sites' mean left free."""
    count, directions = gradient.shape
    centre, unit = centering_matrix(count), float(noise.mean())
    contrasts = np.linalg.svd(np.ones((1, count)))[2][1:]
    observed = contrasts @ gradient
    rhos = RHOS if kernel.any() else (0.0,)
    settings = [(tau, rho) for tau in TAUS for rho in (rhos if tau else (0.0,))]
    logs, means, covariances = [], [], []
    for tau, rho in settings:
        between = tau * unit * (rho * kernel + (1 - rho) * centre)
        total = contrasts @ (between + np.diag(noise)) @ contrasts.T
        misfit = float(np.sum(observed * np.linalg.solve(total, observed)))
        logs.append(-0.5 * (directions * np.linalg.slogdet(total)[1] + misfit) - np.log(len(rhos) if tau else 1))
        # What is common to all sites does not matter between two of them, so only contrasts are estimated.
        gain = np.linalg.solve(total, contrasts @ between).T
        means.append(gain @ observed)
        covariances.append(between - gain @ contrasts @ between)
    weight = np.exp(np.array(logs) - max(logs))
    weight /= weight.sum()
    return Posterior(weight, np.array(means), np.array(covariances), float(weight @ [rho for _, rho in settings]))


def assess_candidates(
    question: Question, told: Histograms, sites: Numbers, rows: Numbers, noise: Numbers, known: Posterior
) -> Evidence:
    """Every candidate's expected difference, its error, the cut, and what it comes from."""
    names, user = tuple(question.engine.sites), int(np.flatnonzero(sites == question.user)[0])
    directions = known.mean.shape[-1]
    gram = second_moments(known)
    squared = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
    error, helps = uncertainty(known, user, directions * (noise + noise[user]))
    others = np.array([i for i in range(len(sites)) if i != user and sites[i] in question.candidates], np.int64)
    score, spread = np.full(len(names), np.nan), np.full(len(names), np.nan)
    score[sites[others]] = -squared[user, others] / 2
    spread[sites[others]] = error[others] / 2
    distances = np.full((len(names), len(names)), np.nan)
    distances[np.ix_(sites, sites)] = np.sqrt(np.maximum(squared, 0.0))
    found = differences(told)
    reasons = {
        names[sites[i]]: {
            "extra_loss": float(squared[user, i] / 2),
            "error": float(error[i] / 2),
            "helps_as_only_partner": float(helps[i]),
            "columns": column_differences(told, found, question.user, int(sites[i])),
        }
        for i in others
    }
    cut = natural_cut(gram, directions * noise, rows, user, others)
    followed = {"sites": reasons, "patients_count_for": known.rho, "map": map_of(names, distances, question.everyone)}
    return Evidence(score, spread, cut, followed)


def second_moments(known: Posterior) -> Numbers:
    """(sites, sites): expected products of the sites' true gradients, summed over the directions."""
    products = known.mean @ known.mean.transpose(0, 2, 1) + known.mean.shape[-1] * known.covariance
    return np.asarray(np.einsum("h,hij->ij", known.weight, products))


def uncertainty(known: Posterior, user: int, bearable: Numbers) -> tuple[Numbers, Numbers]:
    """The standard deviation of D² from the asking site, and how likely it is below what is bearable.

    Bearable is the sampling variance of both sites together: two sites of n and m patients with D² below it are better
    off with their common model than alone, since then its bias (m / (n + m))² D² is less than the variance it saves.
    """
    directions = known.mean.shape[-1]
    apart = np.sum((known.mean - known.mean[:, [user]]) ** 2, axis=-1)
    diagonal = np.diagonal(known.covariance, axis1=1, axis2=2)
    variance = np.maximum(diagonal + diagonal[:, [user]] - 2 * known.covariance[:, user], 0.0)
    expected = apart + directions * variance
    within = 2 * directions * variance**2 + 4 * variance * apart
    mean = known.weight @ expected
    total = known.weight @ (within + (expected - mean) ** 2)
    # Without variance D² is what it is; a chi-square distribution needs a little of it.
    sure = variance <= 1e-12 * np.maximum(bearable, 1e-300)
    safe = np.where(sure, 1.0, variance)
    below = np.where(sure, apart <= bearable, ncx2.cdf(bearable / safe, directions, np.minimum(apart / safe, 1e6)))
    return np.sqrt(total), np.asarray(known.weight @ below)


def natural_cut(gram: Numbers, noise: Numbers, rows: Numbers, user: int, others: Numbers) -> float:
    """Between the last of the nearest sites that one should take and the first that one should not."""
    score = -(gram[user, user] + gram[others, others] - 2 * gram[user, others]) / 2
    order = others[np.argsort(-score, kind="stable")]
    ranked = np.sort(score)[::-1]

    def expected_loss(taken: Numbers) -> float:
        share = np.zeros(len(rows))
        share[user], share[taken] = rows[user], rows[taken]
        share /= share.sum()
        bias = -share
        bias[user] += 1
        return float(bias @ gram @ bias + share**2 @ noise)

    losses = [expected_loss(order[:count]) for count in range(len(order) + 1)]
    count = int(np.argmin(losses))
    if not len(ranked) or (count == len(ranked) and ranked[-1] >= 0):
        return -1e-12
    if count == len(ranked):
        return float(2 * ranked[-1])
    return float(ranked[0] / 2 if count == 0 else (ranked[count - 1] + ranked[count]) / 2)
