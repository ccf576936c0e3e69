"""Who masks with whom: enough that the honest stay connected, whoever is declared lost, and known to nobody else."""

from hashlib import sha256
from math import comb, log2

import numpy as np
import pytest
from scipy.stats import binom

from wardround.privacy.secure_sum.mask_graph import PARTS, dealers_needed, fewest_neighbours, is_pair, pair_parts
from wardround.privacy.secure_sum.session import most_colluding, threshold_of


def most(sites: int) -> tuple[int, int]:
    """(threshold, colluding) of a session in which all sites take part: a third may collude."""
    return threshold_of(sites, most_colluding(sites)), most_colluding(sites)


@pytest.mark.parametrize("count", [3, 4, 30, 200])
def test_up_to_two_hundred_sites_everybody_masks_with_everybody(count):
    assert pair_parts(count, *most(count)) == PARTS
    assert is_pair(b"\xff" * 32, count, *most(count))
    assert is_pair(b"\x00" * 32, count, *most(count))
    assert fewest_neighbours(count, *most(count)) == most(count)[0] - 1


@pytest.mark.parametrize(("count", "parts", "fewest"), [(217, 146, 48), (300, 113, 49), (1000, 39, 50)])
def test_above_the_share_is_the_smallest_that_keeps_the_bounds(count, parts, fewest):
    threshold, colluding = most(count)
    assert (pair_parts(count, threshold, colluding), fewest_neighbours(count, threshold, colluding)) == (parts, fewest)
    # K pairs that all lead to colluding sites, at any of n sites: (c / (t - 1))^K n < 2^-40, and K - 1 are too few.
    chance = [log2(count) + k * log2(colluding / (threshold - 1)) for k in (fewest - 1, fewest)]
    assert chance[1] <= -40 < chance[0]
    # An honest site among the fewest survivors has K pairs but once in n 2^20 times: SciPy's binomial tail.
    assert count * 2**20 * binom.cdf(fewest - 1, threshold - 1, parts / PARTS) < 1
    assert count * 2**20 * binom.cdf(fewest - 1, threshold - 1, (parts - 1) / PARTS) > 1
    # The honest survivors fall apart: the whole sum over the sizes of the smaller part, not the bound of it.
    honest, missing = threshold - colluding, log2(1 - parts / PARTS)
    terms = [log2(comb(honest, k)) + k * (honest - k) * missing for k in range(1, honest // 2 + 1)]
    assert max(terms) + log2(len(terms)) < -40


def graph_of(count: int, seed: int) -> np.ndarray:
    """Who masks with whom, where every pair shares a secret of its own."""
    graph = np.zeros((count, count), bool)
    for one in range(count):
        for other in range(one):
            hashed = sha256(f"{seed} {one} {other}".encode()).digest()
            graph[one, other] = graph[other, one] = is_pair(hashed, count, *most(count))
    return graph


def alone(graph: np.ndarray, good: np.ndarray) -> list[int]:
    """The sizes of the parts into which these sites fall."""
    left, sizes = set(np.flatnonzero(good).tolist()), []
    while left:
        waiting, reached = [left.pop()], 1
        while waiting:
            found = [other for other in np.flatnonzero(graph[waiting.pop()]).tolist() if other in left]
            left -= set(found)
            waiting += found
            reached += len(found)
        sizes.append(reached)
    return sorted(sizes)


@pytest.mark.parametrize("count", [217, 300])
def test_dropouts_that_are_chosen_at_will_cut_nobody_off(count):
    """The coordinator and a third of the sites know who masks with the colluding ones, and drop whom they like."""
    threshold, colluding = most(count)
    most_lost = count - threshold
    graph, generator = graph_of(count, 1), np.random.default_rng(0)
    assert abs(graph.sum() / count / (count - 1) - pair_parts(count, threshold, colluding) / PARTS) < 0.02
    bad = np.zeros(count, bool)
    bad[generator.choice(count, colluding, replace=False)] = True
    seen = graph[:, bad].sum(axis=1)  # pairs with colluding sites are known to the coalition
    honest = np.flatnonzero(~bad)
    choices = [honest[np.argsort(seen[honest])][:most_lost], honest[np.argsort(-seen[honest])][:most_lost]]
    choices += [generator.choice(honest, most_lost, replace=False) for _ in range(100)]
    for dropped in choices:
        good = ~bad
        good[dropped] = False
        assert alone(graph, good) == [threshold - colluding]


@pytest.mark.parametrize(("count", "degree"), [(217, 72), (300, 78)])
def test_a_graph_that_is_seen_is_cut(count, degree):
    """The control: a ring that follows from public keys, with the degree that is right for dropouts chosen blindly."""
    ring = np.zeros((count, count), bool)
    place = np.arange(count)
    for step in range(1, degree // 2 + 1):
        ring[place, (place + step) % count] = ring[(place + step) % count, place] = True
    assert ring[0].sum() <= count - most(count)[0], "as many as may be declared lost, and nobody colludes"
    assert alone(ring, ~ring[0])[0] == 1


def test_even_who_saw_the_whole_graph_of_217_sites_could_not_cut_one_off_alone():
    """Every site masks with more sites than may be dropped; so it took colluding ones, and they see nothing."""
    assert graph_of(217, 3).sum(axis=1).min() > 217 - most(217)[0]


@pytest.mark.parametrize(("count", "needed"), [(200, 134), (217, 185), (300, 259), (1000, 884)])
def test_a_site_that_is_told_of_few_others_and_not_asked_to_sign_is_not_cut_off(count, needed):
    """Of those it masks with, o = D + (t - c) - n honest ones at least sign; that it has a pair with none of them, at
    any of n sites, has a probability below 2^-42. Up to 200 sites one is enough, since every pair is there."""
    threshold, colluding = most(count)
    assert dealers_needed(count, threshold, colluding) == needed
    signing = needed + threshold - colluding - count
    if count <= 200:
        assert signing == 2 * threshold - colluding - count >= 1
    else:
        absent = log2(1 - pair_parts(count, threshold, colluding) / PARTS)
        assert log2(count) + signing * absent <= -42 < log2(count) + (signing - 1) * absent
