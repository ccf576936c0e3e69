"""A site keeps a study's promise of privacy for itself: it checks the noise, and debits its ledger before it trains.

It trusts nothing of what the coordinator sends. The recipe of the algorithm is compared with the words that were
approved; a dry run finds out what a round does with the own patients; noise under which the approved promise would not
hold for them is refused. What is debited is never given back, and a debit pays for one answer.

How much noise statistics, looks and figures get follows from the approved study alone (`study.release_noise`); each is
debited before it is made, and asked for as often as the study says.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from wardround.core.components.recipes import Recipe
from wardround.core.errors import Refusal
from wardround.deploy.protocol.requests import Received, SecureStep
from wardround.privacy.accountant import Step, epsilon, merge_steps
from wardround.privacy.budget import Budget, BudgetExhausted, Charge
from wardround.study import assemble, privacy
from wardround.study.file import ParticipationSection, PrivacySection, Study
from wardround.study.privacy import KIND, Steps
from wardround.study.release_noise import NAMES_SHARE, STATISTICS, names_delta, release_noise

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

    @property
    def section(self) -> PrivacySection:
        """[privacy] as it was approved."""
        assert self.study.privacy is not None
        return self.study.privacy

    def check_sites(self, sites: Sequence[str]) -> None:
        """Refuse other sites than the approved study names: how much noise each adds depends on who takes part."""
        approved = self.study.deploy.sites
        if approved and sorted(sites) != sorted(approved):
            raise self._refusal(
                f"the approved study is for {len(approved)} sites, but the coordinator names {len(sites)}"
                if len(sites) != len(approved)
                else "the coordinator names other sites than the approved study"
            )

    def check(self, recipe: Recipe, *, silent: bool) -> None:
        """Refuse an algorithm that is not protected as the approved study says; a silent one sends nothing."""
        said = self.section
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
        # The more are said to share the noise, the less of it each adds: what a message says of others does not count.
        named = len(self.study.deploy.sites)
        most = said.answers or min(self.study.deploy.quorum or named, named or self.study.deploy.quorum or 0)
        if said.level == "site" and not most:
            raise self._refusal("the approved study does not say how many sites share the noise")
        if said.level == "site" and not 1 <= (given.answers or 0) <= most:
            raise self._refusal(
                f"the noise would be shared by {given.answers} sites, but the approved study guarantees only {most}"
            )

    def check_sum(self, recipe: Recipe, step: str, letter: Any) -> None:
        """Open no sum of fewer answers than are said to share the noise of whole sites."""
        if recipe.kind != KIND or step != "agree":
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
        given, _ = privacy.words_in(recipe)
        steps = self._steps(recipe, given, own)
        budget, level = self.budget(), given.level
        paid = [charge for charge in budget.charges() if (charge.study, charge.level) == (self.name, level)]
        before = [charge for charge in paid if charge.round > 0]
        told = tuple(step for charge in paid if charge.round <= 0 for step in charge.steps)
        others = [charge for charge in before if charge.round != number]
        answered = tuple(step for charge in others for step in charge.steps)
        self._refuse_weak(steps, own, len({charge.round for charge in others}) + 1, told, answered)
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

    def _refuse_weak(self, steps: Steps, own: SiteFacts, rounds: int, told: Steps, answered: Steps) -> None:
        """The approved promise must hold for the own patients over all rounds of the study, or those asked for.

        It must hold for all rounds with the noise of this one, and for this one together with those that were really
        `answered`, whose noise may have been other. `told` is what the statistics of the preparation cost.
        """
        said = self.section
        records = own.rows if said.level == "sample" else len(own.sites)
        if said.delta * records > 1:
            whose = "patients of this site" if said.level == "sample" else "sites of this study"
            raise self._spent(f"the study's delta of {said.delta:g} is larger than 1 / (number of {whose})")
        if said.epsilon is None:
            return
        times = max(planned_rounds(self.study, own.sites, own.number), rounds)
        really = merge_steps([*answered, *steps])
        most = max(times * privacy.overflow(steps), privacy.overflow(really))
        lost = most + names_delta(said, told) if said.level == "sample" else 0.0
        if lost >= said.delta:
            raise self._spent(f"the study's delta of {said.delta:g} is too small for so many steps")
        spends = epsilon([*(step._replace(times=step.times * times) for step in steps), *told], said.delta - lost)
        if spends > said.epsilon * (1 + SLACK):
            raise self._spent(
                f"with the noise that the coordinator names, {times} rounds would spend an epsilon of {spends:.3f} "
                f"here, and {said.epsilon:g} was approved"
            )
        if is_within(really, steps, times):
            return
        spends = epsilon([*really, *told], said.delta - lost)
        if spends > said.epsilon * (1 + SLACK):
            raise self._spent(
                f"with the rounds that were answered before, this one would spend an epsilon of {spends:.3f} here, and "
                f"{said.epsilon:g} was approved"
            )

    # ---- what is told beside the rounds ----

    def statistic(self, recipe: Recipe, request: str, rows: int, *, prepared: bool) -> Recipe:
        """The query as this site answers it: with the noise of the approved study, debited before it is made."""
        if recipe.name == "cards":  # names, kinds, labels and numbers of rows are public
            return with_settings(recipe, private=True)
        noise = release_noise(self.study).statistics
        if recipe.name not in STATISTICS or noise is None:
            raise self._refusal(f"the approved study adds noise, and the query {recipe.name} would be answered without")
        if prepared:
            raise self._refusal("statistics were requested after the rows were prepared")
        if rows:
            place = -STATISTICS.index(recipe.name)
            self._pay("sample", place, request, noise, "this statistic")
        delta = {"delta": NAMES_SHARE * self.section.delta} if recipe.name == STATISTICS[0] else {}
        return with_settings(recipe, noise=noise, seed=None, **delta)

    def check_part(self, asked: str, meant: str) -> None:
        """Each part of the rows pays for one thing: no other may be asked of it."""
        if asked != meant:
            raise self._refusal(f"the {meant} rows are meant, but the {asked} rows were asked for")

    def look(self, request: str) -> float | None:
        """The noise of a look at the validation patients, debited; none where looks are not made."""
        found = release_noise(self.study)
        if found.looks is None:
            return None
        before = [charge.request for charge in self._charges("validation")]
        number = before.index(request) + 1 if request in before else len(before) + 1
        if number < len(before):
            raise self._refusal("this look was answered and the answer is no longer stored")
        if number > found.look_count:
            raise self._refusal(f"the approved study looks at validation patients {found.look_count} times at most")
        self._pay("validation", number, request, found.looks, "this look")
        return found.looks

    def figures(self, request: str) -> float | None:
        """The noise of the figures on test patients, debited; none where they are not made."""
        noise = release_noise(self.study).figures
        if noise is not None:
            self._pay("test", 1, request, noise, "the figures")
        return noise

    def _pay(self, level: str, number: int, request: str, noise: float, what: str) -> None:
        try:
            self.budget().debit(self.name, number, (Step(1.0, noise, 1),), level=level, request=request)
        except BudgetExhausted:
            raise
        except Refusal as refusal:
            if "another request" not in refusal.what:
                raise
            raise self._refusal(
                f"{what} was told already: a second answer would reveal more than was charged"
            ) from None

    def _charges(self, level: str) -> list[Charge]:
        return [one for one in self.budget().charges() if (one.study, one.level) == (self.name, level)]

    def _refusal(self, what: str) -> Refusal:
        return Refusal(what, where=f"site {self.site}, study {self.name}", remedy="ask for what was approved")

    def _spent(self, what: str) -> BudgetExhausted:
        return BudgetExhausted(
            what,
            where=f"site {self.site}, study {self.name}",
            remedy="leave this site out, or offer a study with a guarantee that holds here",
        )


def is_within(really: Steps, steps: Steps, times: int) -> bool:
    """Whether what was really done is no more than `steps` so many times, which mostly saves accounting for it."""
    planned = {(step.rate, step.noise_multiplier): step.times * times for step in merge_steps(steps)}
    return all(step.times <= planned.get((step.rate, step.noise_multiplier), 0) for step in really)


def planned_rounds(study: Study, sites: Sequence[str], number: int) -> int:
    """In how many rounds of the study a site takes part; found once, since every answer asks."""
    words = study.participation.model_dump_json()
    return _planned_rounds(words, study.study.rounds, study.study.seed, tuple(sites), number)


@lru_cache(maxsize=256)
def _planned_rounds(participation: str, rounds: int, seed: int, sites: tuple[str, ...], number: int) -> int:
    said = ParticipationSection.model_validate_json(participation)
    who = assemble.participation_from(said, sites, rounds, seed)
    return int(privacy.attendance(who, rounds, np.ones(len(sites), np.int64), pooled=False).times[number])


def with_settings(recipe: Recipe, **settings: Any) -> Recipe:
    return recipe._replace(settings=tuple(sorted({**dict(recipe.settings), **settings}.items())))


def charged_request(asked: Received[SecureStep]) -> str:
    """What a debit of a secure sum pays for: all that the answer follows from.

    Attempts at the same round differ in their sessions, and of all of them one sum is opened at most.
    """
    question = asked.question
    words = {**question.method.words(), "round": asked.round}
    return hashlib.sha256(json.dumps([words, question.session["model"]], sort_keys=True).encode()).hexdigest()
