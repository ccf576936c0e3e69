"""What a round cost in privacy, as its record tells it: the noised sums of every site that took part."""

from dataclasses import replace
from typing import Any

from wardround.core.contracts import RoundRecord
from wardround.privacy.accountant import merge_steps
from wardround.study import integer_noise
from wardround.study.privacy import ANY, Protection, Steps, overflow
from wardround.study.release_noise import names_delta


def with_privacy_cost(record: RoundRecord, protection: Protection | None) -> RoundRecord:
    """The record of a round with what it cost in privacy."""
    if protection is None or record.round < 1:
        return record
    privacy = protection.privacy
    facts: dict[str, Any] = {
        "level": privacy.level,
        "delta": privacy.delta,
        "clip": privacy.clip,
        "noise_multiplier": privacy.noise_multiplier,
        **(spent_by_samples if privacy.level == "sample" else spent_by_sites)(record, protection),
    }
    return replace(record, measures={**record.measures, "privacy": facts})


def spent_by_samples(record: RoundRecord, protection: Protection) -> dict[str, Any]:
    """The steps of every site that took part; with the first round what all of them paid before it."""
    names = [name for name in record.sites if name not in protection.empty]
    before = protection.before if record.round == 1 else ()
    everybody = {name: () for name in protection.rounds if name != ANY} if before else {}
    known: dict[str, Steps]
    if protection.silent:
        known, lost = {**everybody, **dict.fromkeys(names or [ANY], ())}, 0.0
    else:
        known = {name: protection.rounds[name] for name in names if name in protection.rounds}
        if len(known) < len(names) or not names:
            known = {ANY: protection.rounds[ANY]}
        lost = max(overflow(steps) for steps in known.values())
        known = {**everybody, **known}
    spent = {name: [list(step) for step in merge_steps((*steps, *before))] for name, steps in known.items()}
    return {"patients": spent, "overflow": lost + names_delta(protection.privacy, before)}


def spent_by_sites(record: RoundRecord, protection: Protection) -> dict[str, Any]:
    """Every site that took part spends the noise of the sum; another patient counts twice as much as none."""
    names = [name for name in record.sites if name not in protection.empty] or [ANY]
    if protection.silent:
        nothing: dict[str, Any] = {name: [] for name in names}
        return {"whole_sites": nothing, "patients": nothing}
    if not record.count:
        return {"whole_sites": {}, "patients": {}}  # a sum that was never opened told nothing
    noise, answers = protection.privacy.noise_multiplier or 0.0, protection.privacy.answers or 1
    answered = len(names) if record.sites else record.count
    if protection.plan is not None:
        each = integer_noise.multipliers(protection.plan, answered)
        spent = {kind: {name: [[1.0, multiplier, 1]] for name in names} for kind, multiplier in each.items()}
        return {**spent, "concentrated": True}
    whole = noise * (answered / answers) ** 0.5
    facts = {"whole_sites": whole, "patients": whole / 2}
    if not protection.secure:
        facts["coordinator"] = noise / answers**0.5
    return {kind: {name: [[1.0, multiplier, 1]] for name in names} for kind, multiplier in facts.items()}
