"""Who takes part in which round: everybody, a share drawn anew each round, or a given pattern of presence."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal

Cohort = np.ndarray[Any, Any]


class Participation(NamedTuple):
    """`cohort(round)` gives the indices of the sites that take part, in ascending order; never more than `largest`."""

    cohort: Callable[[int], Cohort]
    largest: int


def everyone(sites: int) -> Participation:
    all_sites = np.arange(sites)
    return Participation(lambda number: all_sites, sites)


def random_cohort(sites: int, cohort: int, seed: int) -> Participation:
    """`cohort` sites drawn without replacement each round; costs what the cohort costs, not what all sites would."""
    if not 1 <= cohort <= sites:
        raise Refusal(
            f"{cohort} sites were asked for each round and there are {sites}",
            where="participation",
            remedy=f"choose a cohort from 1 to {sites}",
        )

    def draw(number: int) -> Cohort:
        generator = np.random.default_rng((seed, number))
        return np.sort(generator.choice(sites, cohort, replace=False, shuffle=False))

    return Participation(draw, cohort)


def random_fraction(sites: int, share: float, seed: int) -> Participation:
    """A share of the sites drawn each round, at least one."""
    return everyone(sites) if share >= 1 else random_cohort(sites, max(1, round(share * sites)), seed)


def restrict(participation: Participation, chosen: Sequence[int]) -> Participation:
    """Only these of the sites that would take part; a round in which none of them would is refused when it comes."""
    members = np.unique(np.asarray(chosen, np.int64))

    def cohort(number: int) -> Cohort:
        present = np.intersect1d(participation.cohort(number), members, assume_unique=True)
        if not len(present):
            raise Refusal(
                f"none of the chosen sites takes part in round {number}",
                where="participation",
                remedy="let the asking site be present in every round, or choose more partners",
            )
        return present

    return Participation(cohort, min(participation.largest, len(members)))


def pattern(sites: Sequence[str], present: Mapping[str, str], rounds: int) -> Participation:
    """Sites present only in given rounds, as in {"va": "1-10, 20-"}; sites not named are always there.

    >>> pattern(["a", "b"], {"b": "2-3"}, 4).cohort(1).tolist()
    [0]
    """
    names = list(sites)
    table = np.ones((rounds + 1, len(names)), bool)
    for name, spans in present.items():
        if name not in names:
            raise Refusal(
                f"there is no site called '{name}'",
                where="participation.present",
                remedy=f"sites are {', '.join(names[:20])}",
            )
        table[:, names.index(name)] = _rounds(spans, rounds, name)
    counts = table[1:].sum(axis=1)
    if not counts.all():
        raise Refusal(
            f"no site takes part in round {int(np.argmin(counts)) + 1}",
            where="participation.present",
            remedy="let at least one site be present in every round",
        )
    return Participation(lambda number: np.flatnonzero(table[number]), int(counts.max()))


def _rounds(spans: str, rounds: int, name: str) -> np.ndarray[Any, Any]:
    row = np.zeros(rounds + 1, bool)
    for span in spans.split(","):
        first, dash, last = span.strip().partition("-")
        try:
            begin, end = int(first or 1), int(last) if last.strip() else (rounds if dash else int(first))
            if begin < 1 or (last.strip() and end < begin):
                raise ValueError
        except ValueError:
            raise Refusal(
                f"'{span.strip()}' does not name rounds",
                where=f"participation.present, site {name}",
                remedy='write spans such as "1-10, 15, 20-"',
            ) from None
        row[begin : end + 1] = True
    return row
