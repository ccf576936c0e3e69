"""Gray's test: whether the cumulative incidence of one cause differs between groups, where other causes compete.

Gray, "A class of K-sample tests for comparing the cumulative incidence of a competing risk", Annals of Statistics 1988,
with weight 1. Patients who left by another cause stay at risk of the subdistribution, weighted by how many of their
group would still be there: R_k(t) = Y_k(t) (1 - F_k(t-)) / S_k(t-), and a group's score is observed minus expected, the
sum over groups j of the integrals of a_kj = R_k (1[k = j] - R_j / R) over j's subdistribution hazard.

Covariance: linearised in the martingales of the cause (M1) and of the others (M2) of each group, a_kj enters with
a S / (1 - F) - F2 G over dM1 / Y and with -(1 - F) G over dM2 / Y, where G(u) adds up a(t) times the rise of
1 / (1 - F) after u. The variance of dM1 is taken under equality, so that without competing causes and ties this is the
log-rank test.
"""

from typing import Any

import numpy as np

from wardround.statistics.survival.life_table import share
from wardround.statistics.survival.rank_tests import RankTest, rank_test

Values = np.ndarray[Any, Any]
TINY = 1e-12


def gray_test(events: Values, all_events: Values, at_risk: Values) -> RankTest:
    """From events of the cause, events of any cause and numbers at risk, each of shape (groups, times)."""
    groups = len(events)
    first = np.ones((groups, 1))
    survival = np.cumprod(1 - share(all_events, at_risk), axis=1)
    before = np.concatenate([first, survival[:, :-1]], axis=1)
    struck = np.cumsum(before * share(events, at_risk), axis=1)
    free = np.concatenate([first, 1 - struck[:, :-1]], axis=1)
    risk = np.where(at_risk > 0, at_risk * share(free, before), 0.0)
    everyone = risk.sum(axis=0)
    common = share(events.sum(axis=0).astype(np.float64), everyone)
    difference = (events - risk * common).sum(axis=1)
    covariance = np.zeros((groups, groups))
    part = share(risk, np.broadcast_to(everyone, risk.shape))
    for j in range(groups):
        own = np.array([risk[k] * ((k == j) - part[j]) for k in range(groups)])
        # Once a group is used up, nothing of it is at risk and what is said here does not count.
        still, after = np.where(free[j] > TINY, free[j], 1.0), np.where(struck[j] < 1 - TINY, 1 - struck[j], 1.0)
        rise = np.maximum(1 / after - 1 / still, 0.0)
        later = np.cumsum((own * rise)[:, ::-1], axis=1)[:, ::-1] - own * rise
        others = np.maximum(free[j] - before[j], 0.0)
        by_cause = own * before[j] / still - others * later
        by_others = free[j] * later
        square = at_risk[j].astype(np.float64) ** 2
        due, rivals = share(risk[j] * common, square), share((all_events - events)[j].astype(np.float64), square)
        covariance += (by_cause * due) @ by_cause.T + (by_others * rivals) @ by_others.T
    return rank_test(difference, covariance)
