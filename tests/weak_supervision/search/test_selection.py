import math

import numpy as np
import pytest

from wardround.weak_supervision.search.selection import choose, lower_bound

TOTAL, SITES = np.array([0.9, 7.0, 1.9, 0.0]), np.array([1.0, 10.0, 2.0, 0.0])
OPEN = np.ones(4, bool)


def pick(strategy, **more):
    said = {"delta": 0.05, "fewest": 1, "seed": 0, **more}
    return choose(strategy, TOTAL, SITES, said.pop("open", OPEN), **said)


def test_the_bound_prefers_what_many_sites_propose():
    # Means 0.9, 0.7, 0.95; the bounds take off sqrt(ln 40 / 2 n): 1.358 / sqrt n, 0.429 for ten sites.
    assert lower_bound(TOTAL, SITES, 0.05)[1] == pytest.approx(0.7 - math.sqrt(math.log(40) / 20))
    assert pick("bound") == 1
    assert pick("greedy") == 2
    assert pick("bound", delta=2.0) == 2, "without a margin the bound is the mean"


def test_nothing_that_too_few_propose_or_that_was_asked():
    assert pick("greedy", fewest=3) == 1
    assert pick("greedy", open=np.array([True, False, False, True])) == 0
    assert pick("bound", fewest=11) is None
    assert {pick("random", seed=seed, fewest=2) for seed in range(20)} == {1, 2}
