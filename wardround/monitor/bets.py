"""An alarm that may be looked at after every patient, for ever: bets that cannot win in the long run by chance.

A bettor starts with a capital of 1 and stakes on something being wrong. While nothing is, the capital is a nonnegative
supermartingale, so it ever reaches 1 / alpha with probability at most alpha, however often one looks (Ville, "Étude
critique de la notion de collectif", 1939; Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 2024). Since nobody knows when a model begins to age, new bettors begin with every window: the k-th
group of them with 1 / (k (k + 1)) of the capital, which adds up to 1, so that all of them together are still one bet
(a mixture over the time of the change, as in Shin, Ramdas and Rinaldo, "E-detectors", 2024). The bets are fixed in
advance, so a start needs two numbers a bettor, however many starts there were.

On calibration, each bettor stakes the likelihood ratio of a fixed shift of the log-odds, up or down, among all
patients, those of high or those of low risk (Arnold, Henzi and Ziegel, "Sequentially valid tests for forecast
calibration", Annals of Applied Statistics 2023). While the odds of the outcome, given all that came before, are within
the tolerance of those predicted, no such bet has an expected gain. On inputs, the bettors stake on the rank of a
patient's value among all values before (ties broken by chance), which is uniform as long as patients come from one
population: a conformal test martingale (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005,
chapter 7).
"""

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.special import log_expit, logit, logsumexp

Numbers = np.ndarray[Any, Any]

SURE = 1e-7
SHIFTS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Of the log-odds, that bettors on calibration stake on."""
CALIBRATION_BETS = 6 * len(SHIFTS)
TILTS = (-0.9, -0.5, -0.2, 0.2, 0.5, 0.9)
SPREADS = (-0.45, -0.2, 0.3, 0.9)
RANK_CELLS = 10
RANK_BETS = len(TILTS) + len(SPREADS) + RANK_CELLS
AT_ONCE = 20_000
"""Patients whose bets are held at a time: a few megabytes."""


class Capital(BaseModel):
    """What a group of bettors has: logarithms, so that nothing overflows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gains: tuple[float, ...]
    """Of a bettor who began with the first patient."""
    stakes: tuple[float, ...]
    """The log of the sum, over all starts, of the starting capital divided by the gains up to then."""
    starts: int = 0
    now: float = 0.0
    """The log of the whole capital."""
    peak: float = 0.0
    """The highest it ever was."""


def first_capital(bettors: int) -> Capital:
    return Capital(gains=(0.0,) * bettors, stakes=(-1e300,) * bettors)


def begin(capital: Capital) -> Capital:
    """A further group of bettors starts, with capital that lay aside."""
    count = capital.starts + 1
    own = -np.log(count * (count + 1.0)) - np.array(capital.gains)
    return capital.model_copy(
        update={"stakes": tuple(np.logaddexp(capital.stakes, own).tolist()), "starts": count},
    )


def bet(capital: Capital, factors: Numbers) -> tuple[Capital, Numbers]:
    """After these patients; `factors` are the logs of what each bettor's capital is multiplied by, (patients, bettors).

    Also the log of the whole capital after every patient.
    """
    if not len(factors):
        return capital, np.zeros(0)
    gains = np.array(capital.gains) + np.cumsum(factors, axis=0)
    won = logsumexp(gains + np.array(capital.stakes), axis=1) - np.log(factors.shape[1])
    path = np.logaddexp(won, -np.log(capital.starts + 1.0))
    after = capital.model_copy(
        update={
            "gains": tuple(gains[-1].tolist()),
            "now": float(path[-1]),
            "peak": max(capital.peak, float(path.max())),
        }
    )
    return after, path


def calibration_bets(risk: Numbers, ill: Numbers, cut: float, tolerance: float) -> Numbers:
    """Shape (patients, bettors); `cut` parts high risks from low ones, `tolerance` is a share of the odds."""
    odds = logit(np.clip(np.asarray(risk, np.float64), SURE, 1 - SURE))
    slack = np.log1p(tolerance)
    high = (odds >= logit(np.clip(cut, SURE, 1 - SURE)))[:, None]
    columns = []
    for sign in (1.0, -1.0):
        told = (odds + sign * slack)[:, None]
        staked = told + sign * np.array(SHIFTS)
        if_ill, if_well = log_expit(staked) - log_expit(told), log_expit(-staked) - log_expit(-told)
        gain = np.where(np.asarray(ill, bool)[:, None], if_ill, if_well)
        columns += [gain, np.where(high, gain, 0.0), np.where(high, 0.0, gain)]
    return np.concatenate(columns, axis=1)


def rank_bets(ranks: Numbers) -> Numbers:
    """Shape (patients, bettors), of ranks between 0 and 1: shifted, spread, or too often in one tenth."""
    ranks = np.asarray(ranks, np.float64)[:, None]
    shifted = 1 + np.array(TILTS) * (2 * ranks - 1)
    spread = 1 + np.array(SPREADS) * (12 * np.square(ranks - 0.5) - 1)
    tenth = np.minimum((ranks * RANK_CELLS).astype(np.int64), RANK_CELLS - 1) == np.arange(RANK_CELLS)
    crowded = np.where(tenth, 1 + 0.25 * (RANK_CELLS - 1), 0.75)
    return np.log(np.concatenate([shifted, spread, crowded], axis=1))


def ranks_of(symbols: Numbers, before: Numbers, chance: Numbers) -> tuple[Numbers, Numbers]:
    """Each patient's rank among all before and itself, ties broken by `chance`; and the counts afterwards.

    `symbols` are numbers of cells in their order, `before` how many were seen in each, `chance` is uniform.
    """
    ranks = np.empty(len(symbols))
    seen = np.array(before, np.int64)
    for start in range(0, len(symbols), AT_ONCE):
        part = symbols[start : start + AT_ONCE]
        own = part[:, None] == np.arange(len(seen))
        upto = seen + np.cumsum(own, axis=0)
        below = np.where(np.arange(len(seen)) < part[:, None], upto, 0).sum(axis=1)
        same = upto[np.arange(len(part)), part]
        ranks[start : start + AT_ONCE] = (below + chance[start : start + AT_ONCE] * same) / upto.sum(axis=1)
        seen = upto[-1]
    return ranks, seen
