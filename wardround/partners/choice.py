"""With whom should I train? Who asks, whom, with which model; and what a choice of partners answers.

A choice is a component of the kind "choice". All it learns of other sites it learns over the engine: by probes (rounds
of an algorithm that trains nothing in common, kind "probe"), by training with some of the sites, or by queries. So it
works over real hospitals as it does in simulation, and everything that travels for it is written down.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Algorithm, Engine, Model, Params, Report, RoundRecord, Tree
from wardround.core.errors import Refusal

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Question:
    """Everything that a choice of partners may use. `records` collects what travelled on its behalf."""

    engine: Engine
    model: Model
    algorithm: Algorithm
    """How the study would train a common model of the sites that take part."""
    params: Params
    """The model before training."""
    rounds: int
    user: int
    candidates: tuple[int, ...]
    """Sites that may become partners: without the asking site, and without those that withdrew."""
    seed: int = 0
    records: list[RoundRecord] = field(default_factory=list)

    @property
    def everyone(self) -> tuple[int, ...]:
        """The asking site and all candidates, in ascending order."""
        return tuple(sorted({self.user, *self.candidates}))

    def probe(self, algorithm: Algorithm, params: Params, sites: Sequence[int] | None = None, rounds: int = 1) -> Tree:
        """The server's state after some rounds of a probe among these sites (or all)."""
        cohort = np.array(sorted(self.everyone if sites is None else sites), np.int64)
        progress = self.engine.begin(algorithm, params)
        progress, done = self.engine.train(algorithm, progress, [(number + 1, cohort) for number in range(rounds)])
        self.records.extend(done)
        return progress.server

    def train(self, sites: Sequence[int]) -> Params:
        """The common model of these sites, trained as the study says, always from the same start."""
        return self.algorithm.params(self.probe(self.algorithm, self.params, sites, self.rounds))


class Evidence(NamedTuple):
    """What a choice says about every site as a partner of the asking site, in the order of the engine's sites."""

    score: Numbers
    """Larger is better; NaN for the asking site, for whoever is no candidate, and for whoever did not answer."""
    error: Numbers
    """The score's standard error; NaN where it is unknown."""
    cut: float
    """Scores above it speak for the partner, those below against: the threshold when the study names none."""
    details: Report | None = None
    """Plain values for the record and the report."""
    among: "Callable[[Sequence[int]], Evidence] | None" = None
    """The same when only these sites may be chosen; none where a site's score does not depend on the others."""

    def with_candidates(self, candidates: Sequence[int]) -> "Evidence":
        """What is said where some that were judged are no candidates any more."""
        judged = set(np.flatnonzero(np.isfinite(self.score)).tolist())
        return self if self.among is None or judged <= set(candidates) else self.among(candidates)


class Probe(NamedTuple):
    """A probe as a choice announces it; the settings are those that it is made with, the model is the study's."""

    recipe: Recipe
    times: str = "once"
    """How often a site is asked, in words."""
    models: Callable[[int], int] = lambda sites: sites
    """How many models a site is given to judge, of so many sites."""
    most: Callable[[int], int] = lambda sites: 1
    """How many answers a site gives at most, of so many sites: it gives no more, whatever it is asked."""


class SiteQuestions(NamedTuple):
    """All that a choice asks of sites. It is said beforehand: a real site answers this and nothing else."""

    probes: tuple[Probe, ...] = ()
    trains: str = ""
    """With whom the study's algorithm is trained meanwhile, in words; empty where it is not."""
    queries: tuple[Recipe, ...] = ()
    """Questions with their settings; an epsilon among these is what all of them may spend together."""
    trainings: Callable[[int], int] = lambda sites: 1
    """In how many such trainings a site takes part at most, of so many sites."""
    rounds: int | None = None
    """Rounds of each such training; none: as many as the study has."""

    @property
    def epsilon(self) -> float:
        """What all queries together may spend; 0 where none adds noise."""
        return max((float(dict(one.settings).get("epsilon") or 0.0) for one in self.queries), default=0.0)


def probe(name: str, **settings: Any) -> Probe:
    return Probe(Recipe("probe", name, tuple(sorted(settings.items()))))


class Choice(NamedTuple):
    """A way to judge partners."""

    assess: Callable[[Question], Evidence]
    asks: SiteQuestions = SiteQuestions()


class Rule(NamedTuple):
    """Whom to take once they have been judged: the best few, those above a threshold, or whoever was named by hand."""

    top: int | None = None
    threshold: float | None = None
    by_hand: tuple[str, ...] | None = None


def select_partners(evidence: Evidence, rule: Rule, sites: Sequence[str], candidates: Sequence[int]) -> tuple[int, ...]:
    """The partners, best first; a site that has not answered can only be taken by hand."""
    refuse_rule(rule, sites, candidates)
    if rule.by_hand is not None:
        return tuple(list(sites).index(name) for name in rule.by_hand)
    evidence = evidence.with_candidates(candidates)
    order = [index for index in np.argsort(-evidence.score, kind="stable") if np.isfinite(evidence.score[index])]
    ranked = [int(index) for index in order if int(index) in candidates]
    if rule.top is not None:
        return tuple(ranked[: rule.top])
    cut = evidence.cut if rule.threshold is None else rule.threshold
    return tuple(index for index in ranked if evidence.score[index] > cut)


def refuse_rule(rule: Rule, sites: Sequence[str], candidates: Sequence[int]) -> None:
    """Refuse a rule that says two things, or takes whom nobody may take; before anybody is asked."""
    if sum(value is not None for value in rule) > 1:
        raise Refusal(
            "partners are chosen in two ways",
            where="[partners]",
            remedy="keep one of top, threshold and by_hand",
        )
    if rule.by_hand is not None:
        names = list(sites)
        for name in rule.by_hand:
            if name not in names or names.index(name) not in candidates:
                known = ", ".join(names[index] for index in candidates[:20])
                raise Refusal(
                    f"'{name}' is not among the possible partners",
                    where="[partners] by_hand",
                    remedy=f"choose from {known}",
                )
