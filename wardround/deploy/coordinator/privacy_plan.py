"""[privacy] over real sites, the coordinator's part: settles the noise once, and accounts for every round.

The noise follows from the rows that the sites told. It is written down with the agreement and named in the recipe of
the algorithm; every site checks it against what it approved (`privacy_guard.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wardround.core.components.recipes import recipe_of
from wardround.core.contracts import Algorithm, RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.engine.split_round import row_of
from wardround.privacy.accountant import Step, renyi_epsilon
from wardround.study import assemble
from wardround.study import privacy as privately
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.noised_figures import loss_bound
from wardround.study.privacy import KIND, Patients, Protection
from wardround.study.privacy_cost import with_privacy_cost
from wardround.study.release_noise import release_noise, statistics_steps

Counts = Mapping[str, tuple[int, int, int]]
"""Rows for training, validation and test by site, as told."""


def refuse_early(study: Study) -> None:
    """What no site would do, told before anything is offered."""
    if study.privacy is None:
        return
    privately.refuse_split_by(study)
    privately.refuse_choice(own_method(study).choice)
    if study.stopping is not None and release_noise(study).looks is None:
        raise Refusal(
            'with level = "site" nobody tells how well the model does on validation patients, so training cannot stop'
            " early",
            where="[stopping]",
            remedy='remove [stopping], or choose level = "sample"',
        )
    if study.privacy.seeded:
        raise Refusal(
            "the noise would come from the study's seed, which the coordinator knows",
            where="[privacy] seeded",
            remedy="remove seeded: real sites draw their own noise",
        )


def makes_looks(study: Study, algorithm: Algorithm, task: Task) -> bool:
    """Whether sites tell how well the model does on validation patients: under [privacy] only where noise covers it."""
    if study.privacy is None:
        return True
    bound = loss_bound(task, study.privacy.outcome)
    return release_noise(study).looks is not None and algorithm.personal is None and bound is not None


def untold_note(study: Study) -> str:
    """Why a private study has no figures from a site."""
    if study.privacy is None:
        return "too few test patients to report, or not connected at the end"
    if study.privacy.level == "site":
        return 'figures are not made under [privacy] with level = "site"; each site keeps its own'
    few = "too few test patients to report, or not connected at the end"
    return f"{few}, or a model of the site's own, which noise does not cover"


def quorum_of(study: Study, sites: int) -> int:
    """How many sites must answer in a round: as the study says, or all."""
    return study.deploy.quorum or sites


def fewest_of(study: Study, sites: int) -> int:
    """With fewer sites left than this a study ends.

    The noise of whole sites is that of a sum: it is only enough where as many answer as share it.
    """
    if study.privacy is None:
        return 1
    return quorum_of(study, sites) if study.privacy.level == "site" else study.deploy.quorum or 1


def plan_noise(study: Study, task: Task, sites: Sequence[str], rows: Counts) -> tuple[Study, Protection | None]:
    """The study with the noise that its promise needs at these sites, and what a round costs each of them."""
    if study.privacy is None:
        return study, None
    quorum = quorum_of(study, len(sites))
    refuse_answers(study, quorum)
    told = {site: counts[0] for site, counts in rows.items()}
    if study.privacy.level == "sample":
        few = costliest_row_count(study, task, len(sites)) if 0 in told.values() else 0
        told = {site: count or few for site, count in told.items()}
    counts = np.array([told.get(site, 0) for site in sites], np.int64)
    participation = assemble.participation_of(study, sites, study.study.seed)
    patients = Patients(sites, counts, row_of(task))
    before = statistics_steps(study)
    return assemble.plan_noise(study, own_method(study), task, patients, participation, quorum, before)


def costliest_row_count(study: Study, task: Task, sites: int) -> int:
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
            f"the noise would be shared by {said} sites, but a round may end with {quorum}",
            where="[privacy] answers",
            remedy="lower answers, or raise [deploy] quorum",
        )


def noise_to_json(study: Study) -> dict[str, Any] | None:
    """What was settled, for the coordinator's disk: a restart must not find other noise."""
    privacy = study.privacy
    keys = {"noise_multiplier", "answers", "whole_numbers"}
    return None if privacy is None else privacy.model_dump(include=keys)


def restore_noise(study: Study, words: Mapping[str, Any] | None) -> Study:
    if study.privacy is None or words is None:
        return study
    return study.model_copy(update={"privacy": study.privacy.model_copy(update=dict(words))})


@dataclass
class Accounts:
    """What the rounds of a study have cost; `study` has its noise, `records` are the rounds before a restart."""

    study: Study
    task: Task
    sites: Sequence[str]
    records: Sequence[Mapping[str, Any]]
    _protections: dict[tuple[str, ...], Protection | None] = field(default_factory=dict)
    _steps: dict[str, list[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.records:
            self._add(record.get("measures", {}))

    def annotate(self, record: RoundRecord, rows: Counts) -> RoundRecord:
        """The record with the training rows of those who answered, what it cost them, and epsilon up to now."""
        if record.round < 1:
            return record
        record = replace(record, rows=sum(rows[site][0] for site in record.sites if site in rows))
        protection = self._protection(rows)
        if protection is None:
            return record
        if not record.count:  # a sum that could not be opened has told nothing
            protection = replace(protection, silent=True)
        record = with_privacy_cost(record, protection)
        self._add(record.measures)
        told = {**record.measures["privacy"], "epsilon": self.epsilon_so_far()}
        return replace(record, measures={**record.measures, "privacy": told})

    def epsilon_so_far(self) -> float | None:
        """The epsilon of the rounds up to now, at most: quickly found, and never above what the study promises."""
        privacy = self.study.privacy
        assert privacy is not None
        spent = max((renyi_epsilon(steps, privacy.delta) for steps in self._steps.values()), default=0.0)
        found = spent if privacy.epsilon is None else min(spent, privacy.epsilon)
        return found if np.isfinite(found) else None

    def _protection(self, rows: Counts) -> Protection | None:
        key = tuple(sorted(rows))
        if key not in self._protections:  # a site that joined later has its own rows, and its own cost
            self._protections[key] = plan_noise(self.study, self.task, self.sites, rows)[1]
        return self._protections[key]

    def _add(self, measures: Mapping[str, Any]) -> None:
        told = measures.get("privacy", {})
        ledger = told.get("patients" if told.get("level") == "sample" else "whole_sites", {})
        for site, steps in ledger.items():
            self._steps.setdefault(site, []).extend(Step(*step) for step in steps)


def spent_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sites that had to leave since their privacy budget was spent, each with its reason, from the rounds' records."""
    left: dict[str, tuple[int, str]] = {}
    for record in records:
        for site, why in record.get("measures", {}).get("spent", {}).items():
            left.setdefault(site, (record["round"], why))
    return [f"{site} took no part from round {number} on: {why}" for site, (number, why) in sorted(left.items())]
