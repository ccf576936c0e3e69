"""[privacy] over real sites: the coordinator settles the noise once, and every site keeps the promise for itself.

The coordinator finds the noise from the rows that the sites told, and names it in the recipe of the algorithm. A site
trusts none of it: it compares the recipe with the words it approved, finds out by a dry run what a round does with its
own patients, refuses noise under which the approved promise would not hold for them, and debits its ledger before it
trains. What is debited is never given back, and a debit pays for one answer.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.core.recipes import Recipe, recipe_of
from wardround.engine.registry import made_from
from wardround.privacy.accountant import Step, epsilon, renyi_epsilon
from wardround.privacy.budget import Budget, Spent
from wardround.study import assemble, privately
from wardround.study.file import PrivacySection, Study
from wardround.study.methods import own_method
from wardround.study.privately import KIND, Patients, Protection, Steps

Counts = Mapping[str, tuple[int, int, int]]
"""Rows for training, validation and test by site, as told."""
SETTLED = frozenset({"epsilon", "noise_multiplier", "answers"})
"""Words of [privacy] that the coordinator settles; all others must come as they were approved."""
SLACK = 1e-6
"""Of epsilon, for sums of floats."""


def row_of(task: Task) -> tuple[Any, Any]:
    """The shapes of a single row's x and y."""
    label = np.float32 if task.regression else np.int32
    return jax.ShapeDtypeStruct(task.shape, np.float32), jax.ShapeDtypeStruct((), label)


# ---- the coordinator's part ----


def refuse_early(study: Study) -> None:
    """What no site would do, told before anything is offered."""
    if study.privacy is None:
        return
    privately.refuse_choice(own_method(study).choice)
    if study.privacy.seeded:
        raise Refusal(
            "the noise would follow from the study's seed, which the coordinator knows",
            where="[privacy] seeded",
            remedy="take seeded out: real sites draw their noise themselves",
        )


def settled(
    study: Study, task: Task, sites: Sequence[str], rows: Counts, quorum: int
) -> tuple[Study, Protection | None]:
    """The study with the noise that its promise needs at these sites, and what a round costs each of them."""
    if study.privacy is None:
        return study, None
    told = {site: counts[0] for site, counts in rows.items()}
    if study.privacy.level == "sample":
        few = fewest_told(study, task, len(sites)) if 0 in told.values() else 0
        told = {site: count or few for site, count in told.items()}
    counts = np.array([told.get(site, 0) for site in sites], np.int64)
    participation = assemble.participation_of(study, sites, study.study.seed)
    found, protection = assemble.noised(
        study, own_method(study), task, Patients(sites, counts, row_of(task)), participation, quorum
    )
    refuse_answers(study, quorum)
    return found, protection


def fewest_told(study: Study, task: Task, sites: int) -> int:
    """A site tells no rows where it has fewer than the smallest cell: taken to be the number that costs it most."""
    most = study.data.preparation.smallest_cell
    if most <= 1:
        return 0
    assert study.privacy is not None
    noise = study.privacy.model_copy(update={"noise_multiplier": 1.0})
    recipe = recipe_of(assemble.build(study.model_copy(update={"privacy": noise}), own_method(study), task))
    if recipe.kind != KIND:  # nothing leaves a site
        return 0
    return max(range(1, most), key=lambda rows: privately.cost(assemble.steps_of(recipe, row_of(task), rows, sites)))


def refuse_answers(study: Study, quorum: int) -> None:
    said = study.privacy.answers if study.privacy else None
    if said is not None and said > quorum:
        raise Refusal(
            f"the noise would be shared by {said} sites, and a round may be concluded with {quorum}",
            where="[privacy] answers",
            remedy="say fewer answers, or a larger [deploy] quorum",
        )


def as_words(study: Study) -> dict[str, Any] | None:
    """What was settled, for the coordinator's disk: a restart must not find other noise."""
    privacy = study.privacy
    return None if privacy is None else {"noise_multiplier": privacy.noise_multiplier, "answers": privacy.answers}


def with_words(study: Study, words: Mapping[str, Any] | None) -> Study:
    if study.privacy is None or words is None:
        return study
    return study.model_copy(update={"privacy": study.privacy.model_copy(update=dict(words))})


def noted(record: RoundRecord, protection: Protection | None) -> RoundRecord:
    """The record of a round with what it cost; a sum that could not be opened has told nothing."""
    if protection is not None and record.round > 0 and not record.count:
        protection = replace(protection, silent=True)
    return privately.noted(record, protection)


@dataclass
class SoFar:
    """The epsilon of the rounds up to now, at most: quickly found, and never told above what the study promises."""

    promised: float | None
    delta: float
    _steps: dict[str, list[Step]]

    @classmethod
    def of(cls, study: Study, records: Sequence[Mapping[str, Any]]) -> "SoFar | None":
        if study.privacy is None:
            return None
        found = cls(study.privacy.epsilon, study.privacy.delta, {})
        for record in records:
            found.after(record.get("measures", {}))
        return found

    def after(self, measures: Mapping[str, Any]) -> float | None:
        told = measures.get("privacy", {})
        ledger = told.get("patients" if told.get("level") == "sample" else "whole_sites", {})
        for site, steps in ledger.items():
            self._steps.setdefault(site, []).extend(Step(*step) for step in steps)
        spent = max((renyi_epsilon(steps, self.delta) for steps in self._steps.values()), default=0.0)
        found = spent if self.promised is None else min(spent, self.promised)
        return found if np.isfinite(found) else None


# ---- the site's part ----


@dataclass(frozen=True)
class Known:
    """What a site knows of itself in a study: its training rows, their shapes, its number, and all sites' names."""

    rows: int
    row: tuple[Any, Any]
    number: int
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Promise:
    """What an approved study promises the patients of a site, and the ledger by which the site sees to it."""

    site: str
    name: str
    study: Study
    budget: Callable[[], Budget]

    def check(self, recipe: Recipe, sites: int) -> None:
        """Refuse an algorithm that is not protected as the approved study says."""
        said = self.study.privacy
        if said is None:
            if recipe.kind == KIND:
                raise self._refusal("the approved study says nothing of privacy, and a private algorithm came")
            return
        if recipe.kind != KIND:
            if not made_from(recipe).silent:
                raise self._refusal("the approved study adds noise, and an algorithm without any was asked for")
            return
        given, _ = privately.words_in(recipe)
        for key in sorted(PrivacySection.model_fields.keys() - SETTLED):
            if getattr(given, key) != getattr(said, key):
                raise self._refusal(
                    f"the approved study says {key} {getattr(said, key)} under [privacy], and the coordinator "
                    f"{getattr(given, key)}"
                )
        noise, least = given.noise_multiplier or 0.0, said.noise_multiplier or 0.0
        if noise < least:
            raise self._refusal(
                f"the approved study says a noise multiplier of {least:g}, and the coordinator {noise:g}"
            )
        # The more are said to share the noise, the less of it each adds.
        most = said.answers or min(self.study.deploy.quorum or sites, sites)
        if said.level == "site" and not 1 <= (given.answers or 0) <= most:
            raise self._refusal(
                f"{given.answers} sites are said to share the noise, and the approved study is sure of {most}"
            )

    def check_sum(self, recipe: Recipe, step: str, letter: Any) -> None:
        """Open no sum of fewer answers than are said to share the noise of whole sites."""
        if self.study.privacy is None or recipe.kind != KIND or step != "agree":
            return
        given, _ = privately.words_in(recipe)
        answered = letter["content"]["survivors"]
        if given.level == "site" and len(answered) < (given.answers or 1):
            raise self._refusal(f"{len(answered)} sites answered, and {given.answers} must share the noise")

    def charge(self, recipe: Recipe, number: int, request: str, own: Known) -> None:
        """Debit the ledger for one answer, before it is made; raises Spent where the site must stay out.

        The same request costs nothing again: a crash after the debit leaves either an answer on the disk, which is then
        sent, or none. In the latter case another one is made, under new noise, and it is the only one that ever leaves
        this site, so one debit is the whole cost. An answer that may have left and is kept no more is not made anew.
        """
        if recipe.kind != KIND or not own.rows:
            return  # nothing leaves, or there is nobody to protect
        assert self.study.privacy is not None
        given, _ = privately.words_in(recipe)
        steps = self._steps(recipe, given, own)
        budget, level = self.budget(), given.level
        before = [entry for entry in budget.entries() if (entry.study, entry.level) == (self.name, level)]
        self._refuse_weak(steps, own, len({entry.round for entry in before} | {number}))
        if not budget.debit(self.name, number, steps, level=level, request=request) and before[-1].round != number:
            raise self._refusal(
                f"round {number} was answered and its answer is kept no more; another would tell more than was charged"
            )

    def _steps(self, recipe: Recipe, given: PrivacySection, own: Known) -> Steps:
        noise = given.noise_multiplier or 0.0
        if given.level == "site":
            return (Step(1.0, noise, 1),)
        return privately.under_noise(assemble.steps_of(recipe, own.row, own.rows, len(own.sites)), noise)

    def _refuse_weak(self, steps: Steps, own: Known, rounds: int) -> None:
        """The approved promise must hold for the own patients over all rounds of the study, or those asked for."""
        said = self.study.privacy
        assert said is not None
        records = own.rows if said.level == "sample" else len(own.sites)
        if said.delta * records > 1:
            whose = "patients of this site" if said.level == "sample" else "sites of this study"
            raise self._spent(f"the study's delta of {said.delta:g} is above one in the number of {whose}")
        if said.epsilon is None:
            return
        participation = assemble.participation_of(self.study, own.sites, self.study.study.seed)
        planned = privately.rounds_of(
            participation, self.study.study.rounds, np.ones(len(own.sites), np.int64), pooled=False
        ).times[own.number]
        times = max(int(planned), rounds)
        lost = times * privately.overflow(steps) if said.level == "sample" else 0.0
        if lost >= said.delta:
            raise self._spent(f"the study's delta of {said.delta:g} is too small for so many steps")
        spends = epsilon([step._replace(times=step.times * times) for step in steps], said.delta - lost)
        if spends > said.epsilon * (1 + SLACK):
            raise self._spent(
                f"with the noise that the coordinator names, {times} rounds would spend an epsilon of {spends:.3f} "
                f"here, and {said.epsilon:g} was approved"
            )

    def _refusal(self, what: str) -> Refusal:
        return Refusal(what, where=f"site {self.site}, study {self.name}", remedy="ask for what was approved")

    def _spent(self, what: str) -> Spent:
        return Spent(
            what,
            where=f"site {self.site}, study {self.name}",
            remedy="leave this site out, or offer a study whose promise holds here",
        )


def request_of(header: Mapping[str, Any], model: str) -> str:
    """What a debit of a secure sum pays for: all that the answer follows from.

    Attempts at the same round differ in their sessions, and of all of them one sum is opened at most.
    """
    words = {key: header[key] for key in ("algorithm", "transforms", "seed", "round")}
    return hashlib.sha256(json.dumps([words, model], sort_keys=True).encode()).hexdigest()
