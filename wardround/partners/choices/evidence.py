"""Partners by all evidence: with whom the common model comes nearest to what is best for the asking site.

What counts is p(y|x). Every site tells, at one common model, which way its patients would change it and how surely: its
score and information, which for small changes are all its likelihood has to say. From these a posterior over all ways
to group the sites says who means the same by the same findings, in which coefficients the groups differ, and so what
the asking site's own coefficients are, its patients' strength and that of all who are like it together (see
`wardround.partners.similarity.site_groups`). The question is put twice: at the model of everybody, and at the best
guess of the asking site's own, around which the differences that matter are small. How alike the sites' patients are
(histograms) counts only as far as, in this federation, unlike patients go with unlike meanings: sites whose patients
differ and whose findings mean the same are right partners.

The common model of any set of sites follows from their sums, so its expected loss at the asking site is known without
training it: half the squared distance from the best guess, in units of the asking site's information. What is foretold
is the model as it would be trained: the score that is left at the trained model of everybody tells how strongly
training holds back, by its end or by a penalty. Without that a partner with another meaning would seem to help by
holding back a model of few patients. The set is the one with the smallest expected loss; sets that are as good to
within a few thousandths are told apart by how likely their sites mean the same. A site's score is what the expected
loss falls by when it is among the partners, the others being chosen best; above 0 (the cut) it is taken. Its error is
the posterior standard deviation of that.

Measured on fourteen kinds of made-up federations of 6 hospitals with 200 patients (benchmarks/advice.py; the figures
are in docs/results/advice.md). Needs the answers one by one, so no secure sum. `epsilon` covers the histograms only; to
score and information no noise is added, so it is not for a private study. Costs one training of the common model, two
exchanges of up to 256² numbers a site, and the histograms.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Report
from wardround.partners.choice import Choice, Evidence, Question, SiteQuestions, probe
from wardround.partners.knowledge import Knowledge, expected_gain, learn_from_sites, pooled
from wardround.partners.similarity.histograms import ask_histograms, count_queries
from wardround.partners.similarity.site_map import map_of

LABEL = "Partners by all evidence"

Numbers = np.ndarray[Any, Any]

PLAUSIBLE = 0.01
"""Expected loss that odds of e to 1 for or against meaning the same outweigh, for all candidates together."""
LONGEST_ODDS = 4.0
"""Log odds beyond which a site's meaning the same, or not, counts no further."""


def evidence(*, epsilon: NotNegative = 0.0, smallest_cell: Count = 5) -> Choice:
    """All evidence together: what findings mean at each site, and how alike its patients are (epsilon: their noise)."""

    def assess(question: Question) -> Evidence:
        told = ask_histograms(question.engine, epsilon=epsilon, smallest_cell=smallest_cell)
        known = learn_from_sites(question, told)
        blank = np.full(len(question.engine.sites), np.nan)
        if known is None:
            return Evidence(blank, blank.copy(), 0.0, {"sites": {}})
        return assess_candidates(question, known)

    asked = probe("information")._replace(times="twice", most=lambda sites: 2)
    return Choice(assess, SiteQuestions((asked,), "once with all sites", count_queries(epsilon, smallest_cell)))


def assess_candidates(question: Question, known: Knowledge) -> Evidence:
    """Every candidate's worth, its error, and what it comes from; the cut is 0."""
    names, user = tuple(question.engine.sites), known.place_of(question.user)
    others = [i for i in range(len(known.sites)) if i != user and known.sites[i] in question.candidates]
    score, error, reasons = judge(known, user, others, names)
    distances = np.full((len(names), len(names)), np.nan)
    distances[np.ix_(known.sites, known.sites)] = site_distances(known, user)

    def among(candidates: Sequence[int]) -> Evidence:
        left = [site for site in others if known.sites[site] in candidates]
        return Evidence(*judge(known, user, left, names)[:2], 0.0)

    lies = [names[site] for site in known.impossible]
    details = {
        "sites": reasons,
        **({"impossible": lies} if lies else {}),
        "map": map_of(names, distances, question.everyone),
    }
    return Evidence(score, error, 0.0, details, among)


def judge(known: Knowledge, user: int, others: list[int], names: Sequence[str]) -> tuple[Numbers, Numbers, Report]:
    """Score and error of every site, and the reasons of those that are candidates."""
    found = best_sets(known, user, others)
    score, error = np.full(len(names), np.nan), np.full(len(names), np.nan)
    reasons = {}
    for site in others:
        inside, outside = found[site]
        worth, doubt = gain_between(known, user, outside, inside)
        beside = plausibility(known, user, others, inside) - plausibility(known, user, others, outside)
        score[known.sites[site]] = worth + beside
        error[known.sites[site]] = doubt
        reasons[names[known.sites[site]]] = {
            "means_the_same": float(known.groups.together[user, site]),
            "loss_saved": worth,
            "error": doubt,
        }
    return score, error, reasons


def gain_between(known: Knowledge, user: int, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[float, float]:
    """How much less the second set's model is expected to lose at the asking site than the first's, and its error."""
    return expected_gain(known, user, pooled(known, first), pooled(known, second))


def plausibility(known: Knowledge, user: int, others: list[int], sites: tuple[int, ...]) -> float:
    """What speaks for a set beside its expected loss, in units of it."""
    chance = np.clip(known.groups.together[user, [site for site in sites if site != user]], 1e-12, 1 - 1e-12)
    odds = np.clip(np.log(chance / (1 - chance)), -LONGEST_ODDS, LONGEST_ODDS)
    return float(PLAUSIBLE / max(5, len(others)) * odds.sum())


def best_sets(known: Knowledge, user: int, others: list[int]) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """For every candidate the best sets with and without it.

    From the likeliest to mean the same one after the other, and then by single additions and removals.
    """
    costs: dict[tuple[int, ...], float] = {}

    def cost(sites: tuple[int, ...]) -> float:
        if sites not in costs:
            saved, _ = gain_between(known, user, (user,), sites)
            costs[sites] = -saved - plausibility(known, user, others, sites)
        return costs[sites]

    def improve(sites: tuple[int, ...], fixed: int | None) -> tuple[int, ...]:
        while True:
            tried = [toggle(sites, other) for other in others if other != fixed]
            best = min(tried, key=cost, default=sites)
            if cost(best) >= cost(sites) - 1e-12:
                return sites
            sites = best

    order = sorted(others, key=lambda site: -known.groups.together[user, site])
    path = [tuple(sorted((user, *order[:count]))) for count in range(len(order) + 1)]
    best = improve(min(path, key=cost), None)
    found = {}
    for site in others:
        changed = improve(toggle(best, site), site)
        found[site] = (best, changed) if site in best else (changed, best)
    return found


def toggle(sites: tuple[int, ...], site: int) -> tuple[int, ...]:
    """Without it if it is there, with it if it is not."""
    return tuple(one for one in sites if one != site) if site in sites else tuple(sorted((*sites, site)))


def site_distances(known: Knowledge, user: int) -> Numbers:
    """(sites, sites): the square root of the expected extra loss, times two, when one site follows the other."""
    mean, covariance = known.groups.mean, known.groups.covariance
    weight = np.diag(known.told.information[user]) / known.rows[user]
    variance = np.einsum("p,pss->s", weight, covariance)
    apart = np.einsum("p,stp->st", weight, (mean[:, None] - mean[None]) ** 2)
    shared = np.einsum("p,pst->st", weight, covariance)
    return np.sqrt(np.maximum(apart + variance[:, None] + variance[None] - 2 * shared, 0.0))
