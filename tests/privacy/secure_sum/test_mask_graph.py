"""Who masks with whom: enough that the honest stay connected."""

from math import comb

import numpy as np
import pytest

from wardround.privacy.secure_sum.mask_graph import degree, neighbours


def names(count: int) -> list[str]:
    return [f"site-{i}" for i in range(count)]


@pytest.mark.parametrize("count", [3, 4, 10, 30])
def test_up_to_thirty_sites_everybody_masks_with_everybody(count):
    graph = neighbours(names(count), b"seed")
    assert all(graph[site] == set(names(count)) - {site} for site in names(count))


@pytest.mark.parametrize("count", [31, 32, 64, 100, 301])
def test_above_the_graph_is_regular_mutual_and_without_loops(count):
    graph = neighbours(names(count), b"seed")
    assert set(graph) == set(names(count))
    for site, others in graph.items():
        assert len(others) == degree(count) < count - 1
        assert site not in others
        assert all(site in graph[other] for other in others)


def test_the_degree_is_the_smallest_that_keeps_the_honest_together():
    # 100 sites, 33 collude and 33 drop: two gaps of k/2 among 66 bad places, at most C(100,2) C(66,k) / C(100,k).
    def chance(k: int) -> float:
        return comb(100, 2) * comb(66, k) / comb(100, k)

    assert degree(100) == 54
    assert chance(54) < 2**-40 < chance(52)
    # It grows with the logarithm of the number of sites: ever more slowly.
    assert [degree(count) for count in (200, 1000, 10000)] == [70, 96, 112]


def connected(graph, good: set[str]) -> bool:
    reached, waiting = set(), [min(good)]
    while waiting:
        site = waiting.pop()
        if site not in reached:
            reached.add(site)
            waiting += graph[site] & good
    return reached == good


def test_a_third_of_honest_survivors_stays_connected():
    graph = neighbours(names(100), b"seed")
    generator = np.random.default_rng(0)
    for _ in range(200):
        good = {names(100)[i] for i in generator.choice(100, 34, replace=False)}
        assert connected(graph, good)
    # The measure sees a cut where there is one: a site whose neighbours are all gone.
    assert not connected(graph, set(names(100)) - graph["site-0"])


def test_the_order_on_the_ring_depends_on_the_seed_and_on_nothing_else():
    one = neighbours(names(60), b"seed")
    assert one == neighbours(reversed(names(60)), b"seed")
    assert one != neighbours(names(60), b"another")
