"""A site keeps a study's promise of privacy for itself: it checks the noise, and debits its ledger before it trains.

It trusts nothing of what the coordinator sends. The recipe of the algorithm is compared with the words that were
approved; a dry run finds out what a round does with the own patients; noise under which the approved promise would not
hold for them is refused. What is debited is never given back, and a debit pays for one answer.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wardround.core.components.recipes import Recipe
from wardround.core.errors import Refusal
from wardround.deploy.protocol.requests import Received, SecureStep
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.budget import Budget, BudgetExhausted
from wardround.study import assemble, privacy
from wardround.study.file import PrivacySection, Study
from wardround.study.privacy import KIND, Steps

SETTLED = frozenset({"epsilon", "noise_multiplier", "answers", "whole_numbers"})
"""Words of [privacy] that the coordinator settles; all others must come as they were approved.

Noise in whole numbers is as much as other noise, and without a secure sum that adds it no answer leaves.
"""
SLACK = 1e-6
"""Of epsilon, for sums of floats."""


@dataclass(frozen=True)
class SiteFacts:
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

    def check(self, recipe: Recipe, sites: int, *, silent: bool) -> None:
        """Refuse an algorithm that is not protected as the approved study says; a silent one sends nothing."""
        said = self.study.privacy
        if said is None:
            if recipe.kind == KIND:
                raise self._refusal("the approved study has no [privacy], but a private algorithm was requested")
            return
        if recipe.kind != KIND:
            if not silent:
                raise self._refusal("the approved study adds noise, but an algorithm without noise was requested")
            return
        given, _ = privacy.words_in(recipe)
        for key in sorted(PrivacySection.model_fields.keys() - SETTLED):
            if getattr(given, key) != getattr(said, key):
                raise self._refusal(
                    f"the approved study has {key} {getattr(said, key)} under [privacy], but the coordinator asks for "
                    f"{getattr(given, key)}"
                )
        noise, least = given.noise_multiplier or 0.0, said.noise_multiplier or 0.0
        if noise < least:
            raise self._refusal(
                f"the approved study has a noise multiplier of {least:g}, but the coordinator asks for {noise:g}"
            )
        # The more are said to share the noise, the less of it each adds.
        most = said.answers or min(self.study.deploy.quorum or sites, sites)
        if said.level == "site" and not 1 <= (given.answers or 0) <= most:
            raise self._refusal(
                f"the noise would be shared by {given.answers} sites, but the approved study guarantees only {most}"
            )

    def check_sum(self, recipe: Recipe, step: str, letter: Any) -> None:
        """Open no sum of fewer answers than are said to share the noise of whole sites."""
        if self.study.privacy is None or recipe.kind != KIND or step != "agree":
            return
        given, _ = privacy.words_in(recipe)
        answered = letter["content"]["survivors"]
        if given.level == "site" and len(answered) < (given.answers or 1):
            raise self._refusal(f"{len(answered)} sites answered, but {given.answers} must share the noise")

    def charge(self, recipe: Recipe, number: int, request: str, own: SiteFacts) -> None:
        """Debit the ledger for one answer, before it is made; raises Spent where the site must stay out.

        The same request costs nothing again: a crash after the debit leaves either an answer on the disk, which is then
        sent, or none. In the latter case another one is made, under new noise, and it is the only one that ever leaves
        this site, so one debit is the whole cost. An answer that may have left and is kept no more is not made anew.
        """
        if recipe.kind != KIND or not own.rows:
            return  # nothing leaves, or there is nobody to protect
        assert self.study.privacy is not None
        given, _ = privacy.words_in(recipe)
        steps = self._steps(recipe, given, own)
        budget, level = self.budget(), given.level
        before = [charge for charge in budget.charges() if (charge.study, charge.level) == (self.name, level)]
        self._refuse_weak(steps, own, len({charge.round for charge in before} | {number}))
        if not budget.debit(self.name, number, steps, level=level, request=request) and before[-1].round != number:
            raise self._refusal(
                f"round {number} was answered and the answer is no longer stored; "
                "a second answer would reveal more than was charged"
            )

    def _steps(self, recipe: Recipe, given: PrivacySection, own: SiteFacts) -> Steps:
        noise = given.noise_multiplier or 0.0
        if given.level == "site":
            return (Step(1.0, noise, 1),)
        return privacy.with_noise(assemble.steps_of(recipe, own.row, own.rows, len(own.sites)), noise)

    def _refuse_weak(self, steps: Steps, own: SiteFacts, rounds: int) -> None:
        """The approved promise must hold for the own patients over all rounds of the study, or those asked for."""
        said = self.study.privacy
        assert said is not None
        records = own.rows if said.level == "sample" else len(own.sites)
        if said.delta * records > 1:
            whose = "patients of this site" if said.level == "sample" else "sites of this study"
            raise self._spent(f"the study's delta of {said.delta:g} is larger than 1 / (number of {whose})")
        if said.epsilon is None:
            return
        participation = assemble.participation_of(self.study, own.sites, self.study.study.seed)
        planned = privacy.attendance(
            participation, self.study.study.rounds, np.ones(len(own.sites), np.int64), pooled=False
        ).times[own.number]
        times = max(int(planned), rounds)
        lost = times * privacy.overflow(steps) if said.level == "sample" else 0.0
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

    def _spent(self, what: str) -> BudgetExhausted:
        return BudgetExhausted(
            what,
            where=f"site {self.site}, study {self.name}",
            remedy="leave this site out, or offer a study with a guarantee that holds here",
        )


def charged_request(asked: Received[SecureStep]) -> str:
    """What a debit of a secure sum pays for: all that the answer follows from.

    Attempts at the same round differ in their sessions, and of all of them one sum is opened at most.
    """
    question = asked.question
    words = {**question.method.words(), "round": asked.round}
    return hashlib.sha256(json.dumps([words, question.session["model"]], sort_keys=True).encode()).hexdigest()
