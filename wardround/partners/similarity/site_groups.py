"""Which sites mean the same by the same findings: a posterior over all ways to put the sites into groups.

Each site tells its score b and information A at one common model, so that its log-likelihood of a change c of the model
is b c - c A c / 2 (see `wardround.partners.probes.information`). Sites of a group have the same coefficients. Groups
differ from each other either in some directions only, in each of which their coefficients are the same or draws of a
normal distribution whose variance is that direction's own (a spike and a slab; Mitchell and Beauchamp 1988), or in all
directions by one and the same variance; all variances of a grid are equally likely. The groups' mean is left free.
Partitions have the prior of the Chinese restaurant process with concentration 1 and, with chance one half, one by which
sites with like patients are likelier to be of one group: then unlike patients count against a site only as far as
unlike coefficients go with them. All of it is averaged over, in closed form for each partition; up to eight sites every
partition is looked at (4,140), above that those on the way of greedy merging and single moves from its best.

Directions are the coefficients, made uncorrelated with as little turning as can be (Kessy, Lewin and Strimmer 2018), so
that a difference in one coefficient stays in about one direction; within one the sites' information is taken to differ
in amount only.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]

ALL_PARTITIONS = 8
"""Sites up to which every partition is looked at."""
SLABS = np.exp2(np.arange(-1.5, 12.5, 1.5))
"""Variances between groups over the sampling variance of a site of mean size."""
SPIKES = (0.2, 0.5, 0.8, 0.95)
"""Shares of directions in which all sites are the same, where each direction has a variance of its own."""
SMALLEST = 1e-3
"""Directions that hold less than this part of the information of an average one are left out."""
NEGLIGIBLE = 1e-6
"""Posterior weight below which a partition is forgotten."""
LIKENESS = 0.5
"""How much the patients' distances count where they do: the mean one is 2."""
NEIGHBOURS = 5
"""Groups with which a group may be merged, where not every partition is looked at."""
CHUNK = 2**21
"""Numbers held at a time while partitions are weighed."""


class Directions(NamedTuple):
    """All sites' scores and information in directions in which their sum is the unit matrix."""

    basis: Numbers
    """(coefficients, directions): a change by `basis @ c` of the model is the change c in these directions."""
    dual: Numbers
    """(directions, coefficients): a change d of the model is, as near as can be, `dual @ d` in these directions."""
    score: Numbers
    """(sites, directions)"""
    information: Numbers
    """(sites, directions, directions)"""


class SiteGroups(NamedTuple):
    """What is known of every site's own coefficients, once all sites have lent each other strength."""

    together: Numbers
    """(sites, sites): how likely two sites mean the same."""
    mean: Numbers
    """(sites, directions): the expected change from the common model."""
    covariance: Numbers
    """(directions, sites, sites): of the sites' changes, direction by direction."""


def directions_of(score: Numbers, information: Numbers) -> Directions:
    """Whitens the sum of the information; columns that say the same as others are counted once."""
    total = information.sum(axis=0)
    scale = np.sqrt(np.maximum(np.diag(total), 0.0))
    told = scale > 1e-3 * max(float(scale.max(initial=0.0)), 1e-9)
    kept = np.flatnonzero(told)[independent(total[np.ix_(told, told)] / np.outer(scale[told], scale[told]))]
    if not len(kept):
        none = np.zeros((len(total), 0))
        return Directions(none, none.T, np.zeros((len(score), 0)), np.zeros((len(score), 0, 0)))
    values, vectors = np.linalg.eigh(total[np.ix_(kept, kept)] / np.outer(scale[kept], scale[kept]))
    root = (vectors / np.sqrt(values)) @ vectors.T
    basis = np.zeros((len(total), len(kept)))
    basis[kept] = root / scale[kept][:, None]
    turned = np.einsum("ip,sij,jq->spq", basis, information, basis, optimize=True)
    return Directions(basis, basis.T @ total, score @ basis, turned)


def independent(correlation: Numbers) -> Numbers:
    """Which columns to keep so that none follows from the others: a Cholesky factorization with pivots."""
    left = correlation.copy()
    kept: list[int] = []
    while len(kept) < len(left):
        # In the columns' own order as long as they add much: of two that say the same, the first is kept.
        rest = np.diag(left)
        open_ones = [i for i in range(len(left)) if i not in kept and rest[i] > SMALLEST]
        if not open_ones:
            break
        best = next((i for i in open_ones if rest[i] > 0.1), max(open_ones, key=lambda i: rest[i]))
        kept.append(best)
        left -= np.outer(left[:, best], left[best]) / left[best, best]
    return np.array(sorted(kept), np.int64)


def group_sites(told: Directions, apart: Numbers | None = None) -> SiteGroups:
    """The posterior over partitions of the sites, and of every site's coefficients.

    `apart` (sites, sites) are squared distances of their patients, where known.
    """
    sites, width = told.score.shape
    if not width:
        return SiteGroups(np.ones((sites, sites)), np.zeros((sites, 0)), np.zeros((0, sites, sites)))
    common = told.score.sum(axis=0)
    # What is left of a site's score once all sites have the common change that suits them best.
    rest = told.score - told.information @ common
    amount = np.einsum("spp->sp", told.information)
    slabs = SLABS * sites
    apart = np.zeros((sites, sites)) if apart is None else apart
    prior = partial(partition_prior, apart=apart)
    labels = all_partitions(sites) if sites <= ALL_PARTITIONS else likely_partitions(amount, rest, slabs, prior, apart)
    logs = weigh(labels, amount, rest, slabs) + prior(labels)[:, None]
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    held = weight.sum(axis=1) > NEGLIGIBLE
    labels, weight = labels[held], weight[held] / weight[held].sum()
    same = (labels[:, :, None] == labels[:, None, :]).astype(np.float64)
    together = np.einsum("p,pst->st", weight.sum(axis=1), same)
    mean, second = np.zeros((sites, width)), np.zeros((width, sites, sites))
    for one, share in zip(labels, weight, strict=True):
        first_moment, second_moment = moments(one, share, amount, rest, slabs)
        mean, second = mean + first_moment, second + second_moment
    spread = second - np.einsum("sp,tp->pst", mean, mean)
    centre = common - np.einsum("spq,sq->p", told.information, mean)
    # A site's change is the centre's and its own; the centre is as uncertain as all patients leave it (variance 1).
    shift = np.eye(sites)[None] - amount.T[:, None, :]
    return SiteGroups(together, centre + mean, 1.0 + shift @ spread @ shift.transpose(0, 2, 1))


def all_partitions(sites: int) -> Numbers:
    """(partitions, sites): the group of every site; groups are numbered as they appear."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(sites):
        found = [(*labels, group) for labels in found for group in range(max(labels, default=-1) + 2)]
    return np.array(found, np.int64)


def group_terms(amount: Numbers, rest: Numbers, slabs: Numbers) -> Numbers:
    """What groups with this information and rest of the score, both (..., directions), add to a likelihood.

    (4, ..., directions, slabs), to be added up over the groups of a partition. Each group's own change has the
    variance v beforehand; because the centre is free, the groups' information is diag(a) - a a' in each direction.
    """
    a, r = amount[..., None], rest[..., None]
    left = slabs / (1 + slabs * a)
    return np.stack([np.log1p(slabs * a), r * r * left, a * r * left, a * a * left])


def log_likelihoods(terms: Numbers) -> Numbers:
    """(..., directions, slabs): how much likelier the scores are than if all sites were the same."""
    volume, square, cross, share = terms
    open_part = np.maximum(1 - share, 1e-300)
    return np.asarray(0.5 * (square + cross**2 / open_part - volume - np.log(open_part)))


def slab_priors() -> Numbers:
    """(spikes, 1 + slabs): the logarithm of the prior of no difference, and of each slab."""
    return np.log([[spike, *[(1 - spike) / len(SLABS)] * len(SLABS)] for spike in SPIKES])


def mixed(logs: Numbers) -> Numbers:
    """(..., spikes, directions, 1 + slabs): of every setting, prior times likelihood in logarithms."""
    none = np.zeros((*logs.shape[:-1], 1))
    return np.asarray(np.concatenate([none, logs], axis=-1)[..., None, :, :] + slab_priors()[:, None])


def log_sum(logs: Numbers) -> Numbers:
    largest = logs.max(axis=-1)
    return np.asarray(largest + np.log(np.exp(logs - largest[..., None]).sum(axis=-1)))


def settings_of(logs: Numbers) -> Numbers:
    """(..., spikes + slabs): prior and likelihood of every setting, in logarithms.

    First a variance for each direction, one setting a spike; then one variance for all of them, one setting a slab.
    Both kinds are equally likely beforehand: groups may differ in a coefficient or two, or a little in all.
    """
    each = log_sum(mixed(logs)).sum(axis=-1) - math.log(2 * len(SPIKES))
    same = logs.sum(axis=-2) - math.log(2 * len(SLABS))
    return np.concatenate([each, same], axis=-1)


def weigh(labels: Numbers, amount: Numbers, rest: Numbers, slabs: Numbers) -> Numbers:
    """(partitions, settings): the logarithm of each partition's likelihood, up to a constant."""
    size = max(1, CHUNK // (amount.size * len(slabs)))
    found = []
    for start in range(0, len(labels), size):
        some = labels[start : start + size]
        member = (some[:, :, None] == np.arange(some.max() + 1)).astype(np.float64)
        terms = group_terms(np.einsum("psg,sd->pgd", member, amount), np.einsum("psg,sd->pgd", member, rest), slabs)
        found.append(settings_of(log_likelihoods(terms.sum(axis=2))))
    return np.concatenate(found)


def partition_prior(labels: Numbers, *, apart: Numbers) -> Numbers:
    """The logarithm of the prior: patients' distances count for nothing, or much; equally likely beforehand.

    Where they count, every two sites of a group cost as much as their patients are apart.
    """
    plain = restaurant_prior(labels)
    same = labels[:, :, None] == labels[:, None, :]
    following = plain - LIKENESS * np.where(same, apart, 0.0).sum(axis=(1, 2)) / 2
    both = np.stack([plain - log_sum(plain), following - log_sum(following)], axis=-1)
    return log_sum(both) - math.log(2)


def restaurant_prior(labels: Numbers) -> Numbers:
    """The logarithm of the Chinese restaurant process with concentration 1: the product of (size - 1)! over groups."""
    sizes = (labels[:, :, None] == np.arange(labels.shape[1])).sum(axis=1)
    logs = np.array([0.0, *np.cumsum(np.log(np.arange(1, labels.shape[1] + 1)))])
    return np.asarray(logs[np.maximum(sizes - 1, 0)].sum(axis=1))


def moments(labels: Numbers, share: Numbers, amount: Numbers, rest: Numbers, slabs: Numbers) -> tuple[Numbers, Numbers]:
    """Of the sites' own changes, (sites, directions) and (directions, sites, sites), times the partition's weights."""
    member = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
    a, r = member.T @ amount, member.T @ rest
    terms = group_terms(a, r, slabs)
    logs = mixed(log_likelihoods(terms.sum(axis=1)))
    weight = np.einsum("h,hdt->dt", share[: len(SPIKES)], np.exp(logs - log_sum(logs)[..., None]))[:, 1:]
    weight = weight + share[len(SPIKES) :]
    left = slabs / (1 + slabs * a[..., None])
    _, _, cross, closed = terms.sum(axis=1)
    open_part = np.maximum(1 - closed, 1e-300)
    lever = left * a[..., None]
    change = left * r[..., None] + lever * cross / open_part
    own = np.einsum("dt,gdt->gd", weight, left)
    products = np.einsum("dt,gdt,hdt->dgh", weight, change, change, optimize=True)
    products += np.einsum("dt,gdt,hdt->dgh", weight / open_part, lever, lever, optimize=True)
    products += own.T[:, :, None] * np.eye(len(own))
    return member @ np.einsum("dt,gdt->gd", weight, change), member @ products @ member.T


def likely_partitions(
    amount: Numbers, rest: Numbers, slabs: Numbers, prior: Callable[[Numbers], Numbers], apart: Numbers
) -> Numbers:
    """Partitions worth a look where there are too many: greedy merging, then single moves from the best found.

    Sites are merged by what they told and, where it is known, by their patients.
    """
    seen = dict.fromkeys(merged_partitions(amount, rest, slabs))
    seen.update(dict.fromkeys(merged_by_distance(apart)))
    path = np.array(list(seen), np.int64)
    best = path[int((weigh(path, amount, rest, slabs).max(axis=1) + prior(path)).argmax())]
    for _ in range(2 * len(best)):
        moves = np.array([canonical(one) for one in single_moves(best)], np.int64)
        seen.update(dict.fromkeys(map(tuple, moves)))
        tried = np.concatenate([best[None], moves])
        logs = weigh(tried, amount, rest, slabs).max(axis=1) + prior(tried)
        if int(logs.argmax()) == 0:
            break
        best = moves[int(logs.argmax()) - 1]
    return np.array(list(seen), np.int64)


def merged_by_distance(apart: Numbers) -> Iterator[tuple[int, ...]]:
    """From every site alone to all together, merging each time the groups whose patients are nearest."""
    if not apart.any():
        return
    labels = np.arange(len(apart))
    for _ in range(len(apart) - 1):
        member = (labels[:, None] == np.unique(labels)).astype(np.float64)
        mean = member.T @ apart @ member / np.outer(member.sum(axis=0), member.sum(axis=0))
        np.fill_diagonal(mean, np.inf)
        first, second = np.unravel_index(int(mean.argmin()), mean.shape)
        names = np.unique(labels)
        labels = np.where(labels == names[second], names[first], labels)
        yield canonical(labels)


def single_moves(labels: Numbers) -> Iterator[Numbers]:
    """Every site in every other group, and in one of its own."""
    for site in range(len(labels)):
        for group in range(labels.max() + 2):
            if group != labels[site]:
                moved = labels.copy()
                moved[site] = group
                yield moved


def canonical(labels: Numbers) -> tuple[int, ...]:
    """The same partition with its groups numbered as they appear."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(int(label), len(numbers)) for label in labels)


def merged_partitions(amount: Numbers, rest: Numbers, slabs: Numbers) -> Iterator[tuple[int, ...]]:
    """From every site alone to all together, each time merging the two groups that it is likeliest to be one."""
    groups = [[site] for site in range(len(amount))]
    a, r = amount.copy(), rest.copy()
    terms = group_terms(a, r, slabs)
    yield tuple(range(len(amount)))
    while len(groups) > 1:
        pairs = near_pairs(a, r)
        new = group_terms(a[pairs[:, 0]] + a[pairs[:, 1]], r[pairs[:, 0]] + r[pairs[:, 1]], slabs)
        total = terms.sum(axis=1)[:, None] - terms[:, pairs[:, 0]] - terms[:, pairs[:, 1]] + new
        logs = settings_of(log_likelihoods(total)).max(axis=-1)
        sizes = np.array([len(group) for group in groups])
        both = sizes[pairs].sum(axis=1)
        logs += [math.lgamma(n) - math.lgamma(i) - math.lgamma(j) for n, (i, j) in zip(both, sizes[pairs], strict=True)]
        first, second = pairs[int(logs.argmax())]
        groups[first] += groups.pop(second)
        terms[:, first] = new[:, int(logs.argmax())]
        a[first], r[first] = a[first] + a[second], r[first] + r[second]
        a, r, terms = np.delete(a, second, 0), np.delete(r, second, 0), np.delete(terms, second, 1)
        labels = np.zeros(len(amount), np.int64)
        for number, group in enumerate(groups):
            labels[group] = number
        yield canonical(labels)


def near_pairs(amount: Numbers, rest: Numbers) -> Numbers:
    """(pairs, 2), the first below the second: every group with those nearest to it, by their difference over chance."""
    held = np.maximum(amount, 1e-12)
    place, chance = rest / held, 1 / held
    apart = ((place[:, None] - place) ** 2 / (chance[:, None] + chance)).sum(axis=-1)
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1)[:, :NEIGHBOURS]
    found = {(min(i, int(j)), max(i, int(j))) for i in range(len(apart)) for j in nearest[i] if int(j) != i}
    return np.array(sorted(found), np.int64)
