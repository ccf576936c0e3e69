"""Made-up federations in which the right partners are known: fourteen kinds, and beside them the data set `triage`.

Site 0 asks. Every kind was written down before any choice of partners was tuned on it. A kind is a function of a random
generator that gives one `Hospital` a site: how its patients are drawn, how many there are, and whose rows it holds. A
large sample from the asking site's own distribution then tells the true loss of any model, so the best set of partners
and the gain from joining are known and not estimated.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.data.datasets.triage import triage

Numbers = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, int], tuple[Numbers, Numbers]]

PATIENTS = 200
COLUMNS = 8
BASE = np.array([0.9, -0.7, 0.5, 0.8, -0.4, 0.3, 0.0, 0.0])
"""What findings mean where nothing else is said; the last two mean nothing."""
INTERCEPT = -0.3


class Hospital(NamedTuple):
    """A made-up hospital."""

    draw: Draw
    patients: int = PATIENTS
    right: bool = True
    """Whether its patients mean the same by the same findings as the asking hospital's."""
    copies: int | None = None
    """The number of the hospital whose rows it hands on as its own."""


def chance(score: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-score))


def linear(weights: Numbers, intercept: float = INTERCEPT, *, mean: Any = 0.0, scale: Any = 1.0) -> Draw:
    """Independent normal findings and a logistic outcome."""

    def draw(generator: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
        x = mean + scale * generator.normal(size=(count, len(weights)))
        return x, generator.random(count) < chance(x @ weights + intercept)

    return draw


def changed(weights: Numbers, **columns: float) -> Numbers:
    """The weights with some replaced: changed(BASE, c0=-0.9)."""
    found = weights.copy()
    for name, value in columns.items():
        found[int(name[1:])] = value
    return found


def two_groups(generator: np.random.Generator) -> list[Hospital]:
    """Three and three hospitals: one finding speaks for the disease in one group and against it in the other."""
    own, other = linear(changed(BASE, c0=1.0)), linear(changed(BASE, c0=-1.0))
    return [Hospital(own)] * 3 + [Hospital(other, right=False)] * 3


def two_groups_weak(generator: np.random.Generator) -> list[Hospital]:
    """The same, with less than half the difference."""
    own, other = linear(changed(BASE, c0=0.4)), linear(changed(BASE, c0=-0.4))
    return [Hospital(own)] * 3 + [Hospital(other, right=False)] * 3


def alike(generator: np.random.Generator) -> list[Hospital]:
    """All hospitals are alike."""
    return [Hospital(linear(BASE))] * 6


def asker_alone(generator: np.random.Generator) -> list[Hospital]:
    """The asking hospital differs from all others in one coefficient."""
    return [Hospital(linear(changed(BASE, c0=-0.9)))] + [Hospital(linear(BASE), right=False)] * 5


def other_patients(generator: np.random.Generator) -> list[Hospital]:
    """Only the patients differ (older here, sicker there, more varied elsewhere); findings mean the same."""
    found = []
    for _ in range(6):
        mean, scale = generator.normal(scale=0.8, size=COLUMNS), np.exp(generator.normal(scale=0.3, size=COLUMNS))
        found.append(Hospital(linear(BASE, mean=mean, scale=scale)))
    return found


def flipped_labels(generator: np.random.Generator) -> list[Hospital]:
    """One partner writes 0 for 1 and 1 for 0; the others are alike."""
    return [Hospital(linear(BASE))] * 5 + [Hospital(linear(-BASE, -INTERCEPT), right=False)]


def prevalences(generator: np.random.Generator) -> list[Hospital]:
    """The disease is common in three hospitals and rare in three; findings mean the same."""
    own, other = linear(BASE, 0.6), linear(BASE, -1.4)
    return [Hospital(own)] * 3 + [Hospital(other, right=False)] * 3


def hierarchy(generator: np.random.Generator) -> list[Hospital]:
    """Two regions that differ in every coefficient, and hospitals that differ a little within their region."""
    regions = [BASE + generator.normal(scale=0.5, size=COLUMNS) for _ in range(2)]
    weights = [regions[site // 3] + generator.normal(scale=0.1, size=COLUMNS) for site in range(6)]
    return [Hospital(linear(one), right=site < 3) for site, one in enumerate(weights)]


def giant_other(generator: np.random.Generator) -> list[Hospital]:
    """One partner is a hundred times larger and means something else by two findings."""
    other = Hospital(linear(changed(BASE, c0=0.1, c3=0.0)), 100 * PATIENTS, right=False)
    return [Hospital(linear(BASE))] * 5 + [other]


def giant_alike(generator: np.random.Generator) -> list[Hospital]:
    """One partner is a hundred times larger and like the asking hospital; two small ones are not."""
    other = linear(changed(BASE, c1=0.7))
    return [Hospital(linear(BASE))] * 3 + [Hospital(other, right=False)] * 2 + [Hospital(linear(BASE), 100 * PATIENTS)]


def categories(generator: np.random.Generator) -> list[Hospital]:
    """Correlated numbers and a categorical column of four values; two groups differ in one number and one category."""
    mixing = np.linalg.cholesky(0.6 * np.ones((4, 4)) + 0.4 * np.eye(4))

    def of(slope: float, level: float) -> Draw:
        def draw(generator: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
            numbers = generator.normal(size=(count, 4)) @ mixing.T
            ward = np.eye(4)[generator.choice(4, size=count, p=(0.4, 0.3, 0.2, 0.1))]
            score = numbers @ np.array([0.8, -0.6, 0.5, slope]) + ward @ np.array([0.0, level, -0.6, 0.9]) - 0.2
            return np.concatenate([numbers, ward], axis=1), generator.random(count) < chance(score)

        return draw

    return [Hospital(of(0.7, 0.8))] * 4 + [Hospital(of(-0.5, -0.8), right=False)] * 2


def nonlinear(generator: np.random.Generator) -> list[Hospital]:
    """The truth has a square and a product that a logistic model has not; two groups differ in one finding's sign."""

    def of(slope: float) -> Draw:
        def draw(generator: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
            x = generator.normal(size=(count, COLUMNS))
            score = x @ changed(BASE, c0=slope) + 0.6 * (x[:, 1] ** 2 - 1) + 0.7 * x[:, 2] * x[:, 3] + INTERCEPT
            return x, generator.random(count) < chance(score)

        return draw

    return [Hospital(of(0.8))] * 3 + [Hospital(of(-0.8), right=False)] * 3


def copies(generator: np.random.Generator) -> list[Hospital]:
    """Three partners hand on the rows of one hospital that is unlike the asking one; two are like it."""
    other = linear(changed(BASE, c0=-0.3, c3=0.0))
    first = Hospital(other, right=False)
    return [Hospital(linear(BASE))] * 3 + [first, first._replace(copies=3), first._replace(copies=3)]


def many_groups(generator: np.random.Generator) -> list[Hospital]:
    """Three pairs of hospitals; each pair has its own meaning of three findings."""
    weights = [changed(BASE, c0=a, c1=b, c4=c) for a, b, c in ((1.0, -0.7, 0.6), (-0.4, -0.7, -0.6), (0.2, 0.7, 0.0))]
    return [Hospital(linear(weights[site % 3]), right=site % 3 == 0) for site in range(6)]


KINDS: Mapping[str, Callable[[np.random.Generator], list[Hospital]]] = {
    one.__name__: one
    for one in (
        *(two_groups, two_groups_weak, alike, asker_alone, other_patients, flipped_labels, prevalences),
        *(hierarchy, giant_other, giant_alike, categories, nonlinear, copies, many_groups),
    )
}


class World(NamedTuple):
    """A federation of one kind: what every hospital holds, and the asking one's own distribution."""

    right: frozenset[int]
    """The numbers of the right partners; the asking hospital is number 0."""
    frames: dict[str, pd.DataFrame]
    """Every hospital's patients; the column `ill` is 1 or 0."""
    fresh: pd.DataFrame
    """A large sample from the distribution of the asking hospital."""


def world(kind: str, seed: int, *, asking: int | None = None, fresh: int = 40_000) -> World:
    """The federation of this kind and seed; `asking` gives the asking hospital another number of patients."""
    if kind in TRIAGE:
        return of_triage(*TRIAGE[kind], seed, fresh)
    generator = np.random.default_rng([list(KINDS).index(kind), seed])
    hospitals = KINDS[kind](generator)
    if asking is not None:
        hospitals[0] = hospitals[0]._replace(patients=asking)
    rows: list[tuple[Numbers, Numbers]] = []
    for one in hospitals:
        x, y = rows[one.copies] if one.copies is not None else one.draw(generator, one.patients)
        rows.append((x, y))
    right = frozenset(site for site, one in enumerate(hospitals) if site and one.right)
    frames = {f"site-{site}": frame_of(*one) for site, one in enumerate(rows)}
    return World(right, frames, frame_of(*hospitals[0].draw(generator, fresh)))


def frame_of(x: Numbers, y: Numbers) -> pd.DataFrame:
    columns = [f"c{i}" for i in range(x.shape[1])]
    return pd.DataFrame(x.astype(np.float32), columns=columns).assign(ill=y.astype(np.int32))


TRIAGE: Mapping[str, tuple[int, int]] = {"triage_4": (4, 2), "triage_8": (8, 2), "triage_8_of_4": (8, 4)}
"""The data set `triage` beside the kinds above, on which earlier choices were tuned: hospitals, and groups of them."""


def of_triage(hospitals: int, clusters: int, seed: int, fresh: int) -> World:
    """The hospital whose number is the rest of the seed asks, so that every group does in turn."""
    few, many = (triage(hospitals=hospitals, clusters=clusters, patients=n, seed=seed) for n in (PATIENTS, fresh))
    order = [(seed + site) % hospitals for site in range(hospitals)]
    names = list(few.sites)
    frames = {f"site-{place}": with_outcome(few.sites[names[site]]) for place, site in enumerate(order)}
    right = frozenset(place for place, site in enumerate(order) if place and (site - order[0]) % clusters == 0)
    # A hospital's distribution is drawn before its patients, so it is the same for more of them.
    asking = many.sites[names[order[0]]].iloc[len(frames["site-0"]) :]
    return World(right, frames, with_outcome(asking))


def with_outcome(patients: pd.DataFrame) -> pd.DataFrame:
    return patients.drop(columns="ebola").assign(ill=(patients["ebola"] == "confirmed").astype(np.int32))
