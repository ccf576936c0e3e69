"""What a study owes its partners: their share told before training, what they did in it, and what that earns.

`settle_dilution` makes the choice of partners anew until nobody withdraws over its share. `read_facts` reads in a
finished run folder who asked, who was chosen and who took part; `statement` divides a budget by that. Nothing here
computes a measure: what a folder does not say is refused.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.errors import Refusal
from wardround.engine.registry import suggest_name
from wardround.incentives.dilution import DilutedPart, PartnerSet, check_limits, settle
from wardround.incentives.rewards import RULES, reward
from wardround.runs.read import hash_of, require_manifest, require_result, round_lines
from wardround.runs.result import PartnersResult, RunResult

ALONE = 'no partner is left: train alone with [algorithm] name = "local"'


class DilutionOutcome(NamedTuple):
    """Whom the asking site trains with once nobody withdraws any more."""

    partners: tuple[str, ...]
    """Best first, as they were chosen."""
    table: list[dict[str, Any]]
    """Every site's share of rows and weight; at the end, with `over` true, what those saw who withdrew over it."""
    reasons: dict[str, str]
    """Who withdrew, and why."""
    words: str
    advice: str
    """What to do where nobody is left, else empty."""


def settle_dilution(
    choose: Callable[[tuple[str, ...]], Sequence[str]],
    rows: Mapping[str, int],
    limits: Mapping[str, float],
    asking: str,
    *,
    withdrawn: Sequence[str] = (),
    weights: Mapping[str, float] | None = None,
) -> DilutionOutcome:
    """Choose partners, tell each site its share among all that train, and choose again without those who withdraw.

    `choose` is given the names that remain, in the order of `rows`, and gives the partners, best first; it is called
    once, and once more whenever somebody withdraws. `rows` are every site's training rows, those of the asking site
    included: they dilute the others. A site without a limit accepts any share, and the asking site's is passed over.
    """
    places = (("[study] user", [asking]), ("[partners] limits", limits), ("[partners] withdrawn", withdrawn))
    for where, names in places:
        for name in names:
            if name not in rows:
                raise Refusal(f"'{name}' is not among the sites", where=where, remedy=suggest_name(name, tuple(rows)))
    if asking in withdrawn:
        remedy = "remove it from withdrawn, or let another site ask"
        raise Refusal(f"'{asking}' asks for partners and has withdrawn", where="[partners] withdrawn", remedy=remedy)
    check_limits(limits)
    chosen: tuple[str, ...] = ()

    def choice(remaining: frozenset[str]) -> PartnerSet:
        nonlocal chosen
        candidates = tuple(site for site in rows if site in remaining)
        chosen = tuple(dict.fromkeys(choose(candidates))) if candidates else ()
        together = {site: rows.get(site, 0) for site in (asking, *chosen)}
        known = None if weights is None else {site: weights[site] for site in together if site in weights}
        return PartnerSet(together, known) if chosen else PartnerSet({})

    possible = {site: limits.get(site, 1.0) for site in rows if site != asking and site not in withdrawn}
    settled = settle(choice, possible, asking=asking)
    left = [part for turn in settled.turns for part in turn.dilution.parts if part.over]
    reasons = {site: f"{site} had withdrawn before the choice was made." for site in withdrawn}
    reasons |= {
        part.site: f"{part.site} withdrew: {describe_shares(part)}, and it accepts at most {part.limit:.1%}."
        for part in left
    }
    table = [
        {**part._asdict(), "over": part.over} for part in (*(settled.dilution.parts if settled.dilution else ()), *left)
    ]
    advice = "" if chosen else ALONE
    outcome = f"Training goes ahead with {', '.join(chosen)}." if chosen else f"{advice[:1].upper()}{advice[1:]}."
    nobody = ["Nobody withdraws."] if chosen and not reasons else []
    return DilutionOutcome(chosen, table, reasons, " ".join([outcome, *reasons.values(), *nobody]), advice)


def describe_shares(part: DilutedPart) -> str:
    told = f"it would be {part.row_share:.1%} of the training rows"
    return told if part.weight_share is None else f"{told} and {part.weight_share:.1%} of the weight"


class Score(NamedTuple):
    """What a measure says about a site: larger is better; None where the site did not answer."""

    value: float | None
    error: float | None = None


class Presence(NamedTuple):
    """In how many rounds a site took part, and from which to which."""

    rounds: int = 0
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        if self.rounds < 2:
            return f"1 round ({self.first})" if self.rounds else "no round"
        return f"{self.rounds} rounds ({self.first} to {self.last})"


class Training(NamedTuple):
    """Who took part in a training, and the sum of each site's weights over the rounds that moved the model."""

    presence: Mapping[str, Presence]
    weights: Mapping[str, float]
    rounds: int
    weighed: int
    """Rounds that tell the weights by site."""


@dataclass(frozen=True)
class Facts:
    """What a finished run folder says about who did what; `training` is None for a choice of partners alone."""

    folder: Path
    study: str
    study_hash: str
    run_hash: str
    asking: str | None
    rows: Mapping[str, int]
    """Training rows of every site."""
    partners: tuple[str, ...] | None
    """Best first; None where no choice was made."""
    withdrawn: tuple[str, ...]
    measures: Mapping[str, Mapping[str, Score]]
    """The first is the one that the choice was made by."""
    dilution: Mapping[str, Mapping[str, Any]]
    training: Training | None

    @property
    def reference(self) -> str:
        """The study and this run of it, so that a line of a ledger names the very files that it was made from."""
        return f"{self.study} study:{self.study_hash} run:{self.run_hash}"

    @property
    def others(self) -> tuple[str, ...]:
        """Every site but the one that asks."""
        present = self.training.presence if self.training else {}
        return tuple(site for site in dict.fromkeys([*self.rows, *present]) if site != self.asking)


def read_facts(folder: Path) -> Facts:
    """What `wardround run` or `wardround partners` left in a folder."""
    manifest = require_manifest(folder, "name one that `run` or `partners` wrote")
    result = require_result(folder)
    said = as_table(manifest.get("study"))
    training, told = None, dict[str, Any]()
    partners: Sequence[str] | None = None
    withdrawn: Sequence[str] = ()
    asked, measures, dilution = "", dict[str, Mapping[str, Score]](), dict[str, Mapping[str, Any]]()
    if isinstance(result, PartnersResult):
        partners, withdrawn, asked = result.verdict.partners, result.verdict.withdrawn, result.asking
        measures = {
            one.name: {site: Score(found.value, found.error) for site, found in one.scores.items()}
            for one in result.measures
        }
        dilution = {one.site: one.plain() for one in result.dilution}
    else:
        training, told = read_training(folder)
        partners = as_texts(told["chosen"]) if "chosen" in told else None
    if not measures and "score" in told:
        measures = {"score": {site: Score(as_number(value)) for site, value in as_table(told["score"]).items()}}
    asking = asked or as_table(said.get("study")).get("user")
    sites = result.sites if isinstance(result, RunResult | PartnersResult) else ()
    return Facts(
        folder,
        result.study,
        str(manifest.get("study_hash")),
        hash_of(folder),
        str(asking) if asking else None,
        {site.name: site.train or 0 for site in sites},
        None if partners is None else tuple(partners),
        tuple(dict.fromkeys([*withdrawn, *as_texts(as_table(said.get("partners")).get("withdrawn"))])),
        measures,
        dilution,
        training,
    )


class Round(NamedTuple):
    """One round as it was written down: who took part (None: too many to name), and what the algorithm told."""

    run: tuple[Any, ...]
    number: int
    sites: list[str] | None
    sent: int
    state: dict[str, Any]


def read_round(record: Any) -> Round:
    """A ValueError, KeyError or TypeError where the record is not as it was written."""
    sites = as_texts(record["sites"])
    run = (record["method"], record["repeat"], record.get("user"))
    state = as_table(as_table(record["measures"]).get("told"))
    return Round(
        run, int(record["round"]), sites if len(sites) == record["count"] else None, int(record["bytes_up"]), state
    )


def read_training(folder: Path) -> tuple[Training, dict[str, Any]]:
    """The rounds of the one training in a folder, and what was told in round 0, when partners were chosen."""
    rounds: dict[int, Round] = {}
    for where, record in round_lines(folder):
        try:
            one = read_round(record)
        except (ValueError, KeyError, TypeError):
            raise Refusal("a round is not as `run` wrote it", where=where, remedy="restore the file") from None
        if rounds and one.run != next(iter(rounds.values())).run:
            raise Refusal(
                "this folder holds several trainings side by side, and credit is for one",
                where=str(folder),
                remedy="train the study with `wardround run STUDY`, and name that folder",
            )
        if one.number in rounds:
            raise Refusal(f"round {one.number} is recorded twice", where=where, remedy="restore the file")
        if one.sites is None:
            raise Refusal(
                f"round {one.number} does not name who took part (more than a hundred sites are only counted)",
                where=where,
                remedy="draw smaller cohorts: [participation] cohort = 100",
            )
        rounds[one.number] = one
    chosen = rounds.pop(0).state if 0 in rounds else {}
    if not any(one.sent for one in rounds.values()):
        raise Refusal(
            "no site sent anything in this run, so no site helped another",
            where=str(folder),
            remedy="name a run in which sites trained together, not a baseline such as local",
        )
    return sum_rounds([rounds[number] for number in sorted(rounds)]), chosen


def sum_rounds(rounds: Sequence[Round]) -> Training:
    """Rounds and weights by site. A round that was skipped, or came after the algorithm had stopped, moved nothing."""
    presence, parts = dict[str, Presence](), defaultdict[str, list[float]](list)
    weighed, skipped = 0, 0.0
    for one in rounds:
        for site in one.sites or ():
            before = presence.get(site, Presence(0, one.number))
            presence[site] = Presence(before.rounds + 1, before.first, one.number)
        alpha = one.state.get("alpha")
        if isinstance(alpha, dict):
            weighed += 1
            in_vain = as_number(one.state.get("skipped")) or 0.0
            moved = not one.state.get("stopped") and in_vain <= skipped
            skipped = in_vain
            for site in (one.sites or ()) if moved else ():
                parts[site].append(as_number(alpha.get(site)) or 0.0)
    return Training(presence, {site: math.fsum(weights) for site, weights in parts.items()}, len(rounds), weighed)


class RewardBasis(NamedTuple):
    """What a site's reward is based on: a number (None: nothing), its standard error, and the same in words."""

    value: float | None
    error: float | None
    words: str


def figures_of(facts: Facts, rule: str) -> dict[str, RewardBasis]:
    """What the folder says about every site but the asking one, under a rule; refused where it says nothing."""
    if rule in ("rounds", "weights"):
        if facts.training is None:
            raise missing_figure(facts, rule, "says whom to train with and holds no training", "`wardround run STUDY`")
        training = facts.training
        if rule == "rounds":
            seen = {site: training.presence.get(site, Presence()) for site in facts.others}
            return {site: RewardBasis(found.rounds, None, str(found)) for site, found in seen.items()}
        if not training.rounds == training.weighed > 0:
            raise missing_figure(
                facts,
                rule,
                f"records each site's weight in {training.weighed} of {training.rounds} rounds",
                "`wardround run STUDY` with an algorithm that weighs sites (weight_erosion) and [evaluation] every = 1,"
                " for at most 100 sites",
            )
        sums = {site: training.weights.get(site, 0.0) for site in facts.others}
        return {
            site: RewardBasis(total, None, f"{total:.4g} in {training.presence.get(site, Presence())}")
            for site, total in sums.items()
        }
    choosing = "`wardround partners STUDY`"
    if rule == "inclusion":
        if facts.partners is None:
            raise missing_figure(facts, rule, "records no choice of partners", choosing)
        return {site: inclusion_figure(site, facts.partners, facts.withdrawn) for site in facts.others}
    wanted = next(iter(facts.measures), "") if rule == "rank" else rule
    if wanted not in facts.measures:
        how = choosing if rule == "rank" else f'{choosing} with "{rule}" among the measures of [partners]'
        raise missing_figure(facts, rule, "ranks no site" if rule == "rank" else f"has no measure '{rule}'", how)
    scores = {
        site: facts.measures[wanted].get(site, Score(None)) for site in facts.others if site not in facts.withdrawn
    }
    known = [found.value for found in scores.values() if found.value is not None]
    figures = {site: RewardBasis(None, None, "withdrew") for site in facts.others}
    for site, found in scores.items():
        if found.value is None:
            figures[site] = RewardBasis(None, None, "no answer")
        elif rule == "rank":
            place = 1 + sum(other > found.value for other in known)
            figures[site] = RewardBasis(place, None, f"place {place} of {len(known)} (score {format_score(found)})")
        else:
            figures[site] = RewardBasis(found.value, found.error, format_score(found))
    return figures


def inclusion_figure(site: str, partners: Sequence[str], withdrawn: Sequence[str]) -> RewardBasis:
    words = "withdrew" if site in withdrawn else "chosen" if site in partners else "not chosen"
    return RewardBasis(words == "chosen", None, words)


def missing_figure(facts: Facts, rule: str, why: str, how: str) -> Refusal:
    return Refusal(
        f"a reward by {RULES[rule].by} cannot be computed from this folder, which {why}",
        where=str(facts.folder),
        remedy=f"make one with {how}, and name that",
    )


def statement(facts: Facts, rule: str, budget: int) -> dict[str, Any]:
    """Who is paid how many cents and for what; the asking site pays and is not paid."""
    figures = figures_of(facts, rule) if rule in RULES else {}
    payment = reward(rule, budget, {site: figure.value for site, figure in figures.items()})
    unsure = [
        site
        for site, (value, error, _) in figures.items()
        if error is not None and value is not None and 0 < value < 2 * error
    ]
    return {
        "study": facts.study,
        "study_hash": facts.study_hash,
        "run_hash": facts.run_hash,
        "rule": rule,
        "payer": facts.asking,
        "budget_cents": budget,
        "payments": [
            {"site": site, "based_on": figure.words, "figure": figure.value, "error": figure.error}
            | {"cents": payment.amounts[site]}
            for site, figure in figures.items()
        ],
        "back_to_payer_cents": payment.remainder,
        "words": payment.words,
        "notes": [f"Less than two standard errors above 0, so perhaps chance: {', '.join(unsure)}."] if unsure else [],
    }


def as_table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def as_number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None


def format_score(found: Score) -> str:
    return f"{found.value:.4g}" + ("" if found.error is None else f" ± {found.error:.2g}")
