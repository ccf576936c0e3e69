"""Noise that the sites add themselves, in whole numbers under the secure sum: nobody ever sees a sum without it.

Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation",
ICML 2021; sampling after Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020.

Every site clips its answer to a length, turns it into whole numbers, and adds discrete Gaussian noise to every one of
them. Each adds so much that those which are sure to be in the sum (all but the allowed losses, and but those who might
tell their own noise) make up the noise that the study asks for; whoever comes beyond that only adds to it. Adjacency is
one site more or less (site-level privacy); all sites have the same weight, since a weight would tell, too.

The sum of discrete Gaussians is none, but with the large scale of fixed-point numbers it differs by less than any
float can tell (`closeness` says by how much, and is accounted for). Rounding lengthens an answer by half a unit an
entry at most, which the sensitivity includes. Costs nothing on the wire; about 0.3 s of work a million parameters.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.privacy.discrete_laplace import propose_laplace
from wardround.privacy.secure_sum.masks import Ring, stream

RING_BITS = 64
SMALLEST = 0.5
"""Deviation of a site's noise, in units, from which on the theorem holds."""


@dataclass(frozen=True)
class NoisePlan:
    """How much noise each site adds, from what is public before the round.

    `noise_multiplier` is the deviation of the noise in the sum relative to `clip`, the greatest length of an answer.
    `sites` are invited; `lost` of them may be missing in the sum, and `telling` may tell the coordinator their noise.
    """

    noise_multiplier: float
    clip: float
    entries: int
    fraction_bits: int
    sites: int
    lost: int = 0
    telling: int = 0

    def __post_init__(self) -> None:
        where = "distributed noise"
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0 and 0 < self.clip < math.inf):
            raise Refusal(
                f"a noise multiplier of {self.noise_multiplier:g} with answers of length {self.clip:g} adds no noise",
                where=where,
                remedy="give both a number above 0",
            )
        if min(self.entries, self.lost + 1, self.telling + 1) < 1 or self.hiding_sites < 2:
            raise Refusal(
                f"of {self.sites} sites, {self.lost} may be lost and {self.telling} may reveal their noise: "
                "too few are left to hide each other",
                where=where,
                remedy="let more sites take part, or allow fewer losses",
            )
        if self.site_deviation < SMALLEST:
            raise Refusal(
                f"noise of {self.site_deviation:g} units a site is too coarse to be accounted for",
                where=where,
                remedy="choose more fraction_bits",
            )
        if 16 * self.site_deviation * self.sites + self.sites * self.sensitivity >= 2.0 ** (RING_BITS - 1):
            raise Refusal(
                f"so much noise with {self.fraction_bits} binary places does not fit into {RING_BITS} bits",
                where=where,
                remedy="choose fewer fraction_bits",
            )

    @property
    def hiding_sites(self) -> int:
        """Sites whose noise is sure to be in the sum and unknown to the coordinator."""
        return self.sites - self.lost - self.telling

    @property
    def sensitivity(self) -> float:
        """How far one answer can move the sum, in units of 2^-fraction_bits: its length, and what rounding adds."""
        return self.clip * 2.0**self.fraction_bits + math.sqrt(self.entries) / 2

    @property
    def site_deviation(self) -> float:
        """The deviation of what one site adds to every number, in the same units."""
        return self.noise_multiplier * self.sensitivity / math.sqrt(self.hiding_sites)

    @property
    def closeness(self) -> float:
        """How far the sum of discrete Gaussians is from one discrete Gaussian (tau of the paper's theorem 1)."""
        exponent = -2 * math.pi**2 * self.site_deviation**2
        return 10 * sum(math.exp(exponent * k / (k + 1)) for k in range(1, self.hiding_sites))

    @property
    def rho(self) -> float:
        """Concentrated privacy of one round (rho-zCDP): 1 / (2 z²) but for the closeness."""
        return self.rho_of(1.0)

    def rho_of(self, moves: float) -> float:
        """The same for something that moves the sum by so many times what a whole site does by being there."""
        ratio, tau, entries = moves / self.noise_multiplier, self.closeness, self.entries
        return min(ratio**2 + tau * entries / 2, (ratio + tau * math.sqrt(entries)) ** 2) / 2


def epsilon_of(plan: NoisePlan, rounds: int, delta: float) -> float:
    """What so many rounds cost."""
    refuse_delta(delta)
    return epsilon_from_rho(plan.rho * rounds, delta)


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Epsilon of a concentrated privacy, by way of Rényi privacy (Canonne et al. 2020, proposition 12)."""
    from scipy.optimize import minimize_scalar  # takes a moment to load

    def at(log_order: float) -> float:
        more = math.exp(log_order)  # the order minus 1
        order = 1 + more
        return rho * order + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / more

    found = minimize_scalar(at, bounds=(math.log(1e-6), math.log(1e9)), method="bounded", options={"xatol": 1e-9})
    return max(0.0, float(found.fun))


def plan_for(
    epsilon: float,
    delta: float,
    rounds: int,
    *,
    clip: float,
    entries: int,
    fraction_bits: int,
    sites: int,
    lost: int = 0,
    telling: int = 0,
) -> NoisePlan:
    """The least noise with which so many rounds cost no more than this epsilon."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise Refusal(f"epsilon cannot be {epsilon:g}", where="distributed noise", remedy="choose a number above 0")
    refuse_delta(delta)
    from scipy.optimize import brentq

    def beyond(log_multiplier: float) -> float:
        return epsilon_from_rho(rounds / (2 * math.exp(2 * log_multiplier)), delta) - epsilon

    multiplier = math.exp(float(brentq(beyond, math.log(1e-3), math.log(1e6), xtol=1e-10)))
    while True:  # a little more until it is on the private side, also of what the closeness costs
        multiplier *= 1 + 1e-9
        plan = NoisePlan(multiplier, clip, entries, fraction_bits, sites, lost, telling)
        if epsilon_of(plan, rounds, delta) <= epsilon:
            return plan
        multiplier *= 1 + 1e-3 * min(1.0, plan.closeness * entries)


def refuse_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise Refusal(f"delta cannot be {delta:g}", where="distributed noise", remedy="choose a number between 0 and 1")


# ---- at a site ----


def add_noise(vector: Ring, plan: NoisePlan, key: bytes) -> Ring:
    """An answer in whole numbers with the site's noise added; `key`: 32 fresh bytes of the operating system's."""
    if vector.shape != (plan.entries,) or vector.dtype != np.uint64:
        raise Refusal(
            f"noise for {plan.entries} numbers was to be added to {vector.shape[0] if vector.ndim else 0}",
            where="distributed noise",
            remedy="compare the models on both sides",
        )
    return vector + discrete_gaussian(plan.site_deviation, plan.entries, key).view(np.uint64)


def discrete_gaussian(deviation: float, size: int, key: bytes) -> np.ndarray[Any, Any]:
    """Whole numbers k with probabilities proportional to exp(-k² / (2 deviation²)), from a key's stream.

    A draw from the discrete Laplace distribution is taken with a probability that makes it Gaussian. That probability
    is compared with a 64-bit word as a float: right to one part in 2^52.
    """
    source = stream(key)

    def words(count: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(source.update(bytes(8 * count)), "<u8")

    def below(bound: int, count: int) -> np.ndarray[Any, Any]:
        if bound == 1:
            return np.zeros(count, np.uint64)
        found, last = words(count), np.uint64(2**64 - 1 - 2**64 % bound)
        while len(again := np.flatnonzero(found > last)):  # these would favour small numbers
            found = found.copy()
            found[again] = words(len(again))
        return found % np.uint64(bound)

    scale = math.floor(deviation) + 1
    parts: list[np.ndarray[Any, Any]] = []
    missing = size
    while missing > 0:
        value = propose_laplace(Fraction(1, scale), max(1024, int(1.8 * missing)), below)
        excess = np.abs(value) - deviation**2 / scale
        taken = value[uniform(words(len(value))) < np.exp(-(excess**2) / (2 * deviation**2))][:missing]
        parts.append(taken)
        missing -= len(taken)
    return np.concatenate(parts)


def uniform(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Between 0 and 1, neither included."""
    return (words.astype(np.float64) + 0.5) * 2.0**-64 * (1 - 2.0**-53)
