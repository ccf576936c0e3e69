"""C-indices by site, and pooled over pairs within sites."""

import numpy as np

from wardround.evaluate.survival.order import harrell, uno


def test_pairs_are_formed_within_sites_only():
    # Site 1: events at 1 and 2 with risks 2 and 1: one pair, right. Site 2: events at 1, 2, 3 with risks 1, 2, 3: three
    # pairs, all wrong. Pooled 1/4. A third site has no pair.
    time, event = np.array([1.0, 2, 1, 2, 3, 5]), np.ones(6)
    risk = np.array([2.0, 1, 1, 2, 3, 9])
    order = harrell(time, event, risk, np.array([0, 2, 5, 6]))
    assert order.by_site == (1.0, 0.0, None)
    assert order.pooled == 0.25
    assert uno(time, event, risk, np.array([0, 2, 5, 6])) == order  # nobody is censored
