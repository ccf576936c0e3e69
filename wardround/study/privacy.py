"""What a study's [privacy] table means: which noise it needs, and the algorithm under it.

Epsilon and noise are two ways to say the same; which noise an epsilon needs follows from the steps that the sites
really take, found out by a dry run of the algorithm. One noise serves all sites: it is that of the site for which the
promise is hardest to keep, mostly the smallest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from pydantic import ValidationError

from wardround.core.components.recipes import Recipe, recipe_of, remember
from wardround.core.contracts import Algorithm, Model
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine import registry
from wardround.engine.participation import Participation
from wardround.engine.shared_programs import with_number
from wardround.privacy.accountant import Step, merge_steps
from wardround.privacy.calibration import noise_for
from wardround.privacy.distributed_noise import NoisePlan
from wardround.privacy.dp_sgd import private_model, refuse_coupled, sample_level
from wardround.privacy.dry_run import DryRun
from wardround.privacy.sampling import OVERFLOW, ExpectedSize
from wardround.privacy.site_level import AdaptiveClip, site_level
from wardround.study import integer_noise
from wardround.study.file import PrivacySection, Study
from wardround.study.release_noise import names_delta

Frozen = tuple[tuple[str, Any], ...]
Words = tuple[registry.Component, Frozen, registry.Component, Frozen, Model]
"""An algorithm's component and settings, its aggregator's, and the model."""
Make = Callable[..., Algorithm]
"""From such words to the algorithm; the same words give the same object."""
ANY = "every site, at most"
MOST_NAMED = 10_000
KIND = "private"
Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Protection:
    """How one method of a study is protected, and what a round costs each site."""

    privacy: PrivacySection
    rounds: Mapping[str, Steps] = field(default_factory=dict)
    """A site's noised sums in one round, for its patients; under ANY those of the site that spends most."""
    empty: frozenset[str] = frozenset()
    secure: bool = False
    """Whether the coordinator sees sums only."""
    silent: bool = False
    """Nothing leaves a site at all."""
    plan: NoisePlan | None = None
    """Of noise in whole numbers, inside a secure sum."""
    before: Steps = ()
    """What every patient of a training part paid before the first round."""


def protect(privacy: PrivacySection, make: Make, words: Words) -> Algorithm:
    """The algorithm under the privacy that a study asks for; always the same object for the same words."""
    if privacy.noise_multiplier is None:
        raise Refusal(
            "the noise for this epsilon has not been found",
            where="[privacy] epsilon",
            remedy="give noise_multiplier instead: this command cannot compute the noise that an epsilon needs",
        )
    return _protect(privacy, make, words)


@lru_cache(maxsize=64)
def _protect(privacy: PrivacySection, make: Make, words: Words) -> Algorithm:
    component, settings, aggregator, aggregator_settings, model = words
    plain = make(*words)
    if plain.silent and not plain.pools:
        return plain  # nothing leaves a site, so there is nothing to protect
    noise = privacy.noise_multiplier or 0.0
    if privacy.level == "sample":
        refuse_coupled(model)
        # All that decides about the program but the noise, so that other noise needs no other program.
        alike = {"noise_multiplier": None, "epsilon": None, "delta": 0.5}
        made = with_number(_noise_family(privacy.model_copy(update=alike), make, words), noise)
    elif plain.pools:
        return plain  # all rows in one place: there are no sites whose presence could be hidden
    else:
        uniform = make(component, with_uniform_weights(component, settings), aggregator, aggregator_settings, model)
        made = site_level(
            uniform,
            noise_multiplier=noise,
            clip=privacy.clip,
            sites=privacy.answers or 1,
            seeded=privacy.seeded,
            adapting=adaptive_clip(privacy),
            whole=privacy.whole_numbers,
        )
    try:
        said = privacy.model_dump(exclude_none=True, exclude={"epsilon"})  # the noise tells what is done
        remember(made, Recipe(KIND, privacy.level, tuple(sorted(said.items())), (recipe_of(plain),)))
    except Refusal:
        pass  # made from something made by hand: no other site could make it
    return made


@lru_cache(maxsize=64)
def _noise_family(privacy: PrivacySection, make: Make, words: Words) -> Callable[[Any], Algorithm]:
    """From a noise multiplier to the algorithm under DP-SGD."""
    component, settings, aggregator, aggregator_settings, model = words
    under = private_model(model, clip=privacy.clip, noise_multiplier=1.0)
    inner = make(component, with_expected_batches(component, settings, privacy), aggregator, aggregator_settings, under)
    plain = make(*words)
    return lambda noise: sample_level(inner, plain, seeded=privacy.seeded, noise=noise)


def adaptive_clip(privacy: PrivacySection) -> AdaptiveClip | None:
    if privacy.quantile is None:
        return None
    return AdaptiveClip(privacy.quantile, privacy.rate, max(privacy.rate, privacy.first_rate), privacy.count_share)


def with_expected_batches(component: registry.Component, settings: Frozen, privacy: PrivacySection) -> Frozen:
    """Settings whose batch sizes are expectations of Poisson batches."""
    said = dict(settings)
    for parameter in component.parameters:
        if parameter.name.endswith("batch_size"):
            size = privacy.batch or said.get(parameter.name, parameter.default)
            if size:
                said[parameter.name] = ExpectedSize(size)
    return tuple(sorted(said.items()))


def with_uniform_weights(component: registry.Component, settings: Frozen) -> Frozen:
    """Settings under which every site counts the same, whatever the number of its patients."""
    said = dict(settings)
    if not any(parameter.name == "weights" for parameter in component.parameters):
        return settings
    if said.get("weights") == "samples":
        raise Refusal(
            "sites are weighted by their patients, and the privacy of whole sites needs equal weights",
            where="[algorithm] weights",
            remedy='set weights = "uniform", or remove the key',
        )
    return tuple(sorted({**said, "weights": "uniform"}.items()))


class Patients(NamedTuple):
    """From whom a study learns: the sites, how many rows each trains on, and the shapes of a single row's x and y."""

    sites: Sequence[str]
    rows: np.ndarray[Any, Any]
    row: tuple[Any, Any]


def patients_of(federation: Federation) -> Patients:
    row = tuple(jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in (federation.x, federation.y))
    return Patients(federation.sites, federation.part("train")[1], (row[0], row[1]))


def plan_noise(
    study: Study,
    words: Words,
    make: Make,
    patients: Patients,
    participation: Participation,
    *,
    quorum: int | None = None,
    before: Steps = (),
) -> tuple[Study, Protection | None]:
    """The study with the noise that its promise needs, and what the rounds will cost.

    `quorum` is how many sites of a round answer at least; by default all do. `before` is what training patients pay for
    the statistics of the preparation.
    """
    privacy = study.privacy
    if privacy is None:
        return study, None
    refuse_split_by(study)
    plain, sites, rows = make(*words), list(patients.sites[:]), patients.rows
    secure = any(one.name == "secure_sum" for one in study.transforms)
    if plain.silent and not plain.pools:
        silent = Protection(privacy, silent=True, before=before)
        return _with_noise(study, privacy, noise=privacy.noise_multiplier or 1.0), silent
    if plain.pools:
        sites, rows = ["all"], np.array([rows.sum()])
        if privacy.level == "site":
            return _with_noise(study, privacy, noise=privacy.noise_multiplier or 1.0), None
    refuse_delta(privacy, rows)
    taking_part = attendance(participation, study.study.rounds, rows, pooled=plain.pools)
    # Of more sites than are named in records, nobody needs each one's steps.
    named = list(zip(sites, rows.tolist(), strict=True)) if len(sites) <= MOST_NAMED else []
    empty = frozenset(name for name, count in named if not count)
    if privacy.level == "site":
        # Who has no patients adds no noise, and may yet be among those who answer.
        surely = len(sites) if quorum is None else max(1, quorum - int((rows == 0).sum()))
        answers = privacy.answers or min(surely, *taking_part.answering)
        if secure:
            entries = integer_noise.entries_of(plain, words[-1], patients.row, len(patients.sites))
            plan = integer_noise.plan_integer_noise(study, entries, answers, int(taking_part.times.max()), len(sites))
            found = _with_noise(study, privacy, noise=plan.noise_multiplier, answers=answers, whole=True)
            return found, Protection(found.privacy or privacy, empty=empty, secure=True, plan=plan)
        noise = privacy.noise_multiplier or noise_for(
            [(Step(1.0, 0.0, int(taking_part.times.max())),)], privacy.epsilon or 0.0, privacy.delta
        )
        found = _with_noise(study, privacy, noise=noise, answers=answers)
        assert found.privacy is not None
        return found, Protection(found.privacy, empty=empty, secure=secure)
    of_size = {
        int(count): round_steps(privacy, make, words, patients.row, int(count), len(patients.sites))
        for count in np.unique(rows[rows > 0])
    }
    delta = safe_delta(privacy, of_size, study) - names_delta(privacy, before)
    plans = [(*plan, *before) for plan in costliest(of_size, rows, taking_part.times)]
    noise = privacy.noise_multiplier or noise_for(plans, privacy.epsilon or 0.0, delta)
    found = _with_noise(study, privacy, noise=noise)
    assert found.privacy is not None
    under = {size: with_noise(steps, noise) for size, steps in of_size.items()}
    largest = under[max(under, key=lambda size: cost(under[size]))]
    each = {name: under[count] for name, count in named if count}
    return found, Protection(found.privacy, {**each, ANY: largest}, empty, secure, before=before)


def _with_noise(
    study: Study, privacy: PrivacySection, *, noise: float, answers: int | None = None, whole: bool = False
) -> Study:
    update = {"noise_multiplier": noise, "answers": answers, "whole_numbers": whole}
    return study.model_copy(update={"privacy": privacy.model_copy(update=update)})


def refuse_delta(privacy: PrivacySection, rows: np.ndarray[Any, Any]) -> None:
    """A delta above one in the number of records would allow a record to be published now and then."""
    records = int(rows.max(initial=0)) if privacy.level == "sample" else int((rows > 0).sum())
    if privacy.delta * records > 1:
        whose = "patients of the largest site" if privacy.level == "sample" else "sites"
        raise Refusal(
            f"a delta of {privacy.delta:g} is above one in the {records} {whose}",
            where="[privacy] delta",
            remedy=f"choose a delta below {1 / records:.1g}",
        )


@dataclass(frozen=True)
class Attendance:
    """In how many rounds each site takes part, and how many sites with patients answer in each."""

    times: np.ndarray[Any, Any]
    answering: tuple[int, ...]


def attendance(participation: Participation, rounds: int, rows: np.ndarray[Any, Any], *, pooled: bool) -> Attendance:
    if pooled:
        return Attendance(np.array([rounds]), (1,) * rounds)
    times, answering = np.zeros(len(rows), np.int64), []
    for number in range(1, rounds + 1):
        cohort = participation.cohort(number)
        times[cohort] += 1
        answering.append(max(1, int((rows[cohort] > 0).sum())))
    return Attendance(times, tuple(answering))


def refuse_uncovered(privacy: PrivacySection, make: Make, words: Words, patients: Patients) -> None:
    """Refuse an algorithm that looks at patients in a way that noise does not cover; it is traced, not compiled."""
    plain = make(*words)
    if plain.silent and not plain.pools:
        return
    refuse_delta(privacy, np.array([patients.rows.sum()]) if plain.pools else patients.rows)
    if privacy.level == "sample":
        run, algorithm = _dry_run(without_noise(privacy), make, words)
        run.trace(algorithm, first_shapes(words), patients.row, len(patients.sites))
    elif not plain.pools:
        with_uniform_weights(words[0], words[1])


def first_shapes(words: Words) -> Any:
    """Of the parameters before training."""
    return jax.eval_shape(lambda: words[-1].init(jax.random.key(0)))


def without_noise(privacy: PrivacySection) -> PrivacySection:
    """What decides about the steps: noise does not change what is counted, and each dry run compiles."""
    return privacy.model_copy(update={"noise_multiplier": None, "epsilon": None, "answers": None})


@lru_cache(maxsize=4096)
def round_steps(privacy: PrivacySection, make: Make, words: Words, row: Any, rows: int, sites: int) -> Steps:
    """What a site of so many rows does in a round: rates and numbers of sums, the noise left open."""
    run, algorithm = _dry_run(without_noise(privacy), make, words)
    found = run.rounds(algorithm, first_shapes(words), row, rows, sites)
    return tuple(Step(rate, 0.0, times) for rate, times in found)


@lru_cache(maxsize=64)
def _dry_run(privacy: PrivacySection, make: Make, words: Words) -> tuple[DryRun, Algorithm]:
    component, settings, aggregator, aggregator_settings, model = words
    run = DryRun()
    algorithm = make(
        component,
        with_expected_batches(component, settings, privacy),
        aggregator,
        aggregator_settings,
        run.model(model),
    )
    return run, algorithm


def costliest(of_size: Mapping[int, Steps], rows: np.ndarray[Any, Any], times: np.ndarray[Any, Any]) -> list[Steps]:
    """What the sites that spend most do over all rounds: a few, since each takes time to account for."""
    most: dict[int, int] = {}
    for size, count in zip(rows.tolist(), times.tolist(), strict=True):
        if size:
            most[size] = max(most.get(size, 0), count)
    plans = [
        tuple(step._replace(times=step.times * most[size]) for step in steps)
        for size, steps in of_size.items()
        if most.get(size)
    ]
    return sorted(plans, key=cost, reverse=True)[:3]


def cost(steps: Steps) -> float:
    """What grows with epsilon: exactly where rates are small or noise is large, and in the same order elsewhere."""
    return sum(step.times * step.rate**2 for step in steps)


def with_noise(steps: Steps, noise: float) -> Steps:
    return merge_steps(step._replace(noise_multiplier=noise) for step in steps)


def overflow(steps: Steps) -> float:
    """The probability, at most, that some batch had more rows than places."""
    return OVERFLOW * sum(step.times for step in steps if step.rate < 1)


def safe_delta(privacy: PrivacySection, of_size: Mapping[int, Steps], study: Study) -> float:
    """What is left of delta after the probability that a batch overflows."""
    lost = study.study.rounds * max((overflow(steps) for steps in of_size.values()), default=0.0)
    if lost >= privacy.delta / 2:
        raise Refusal(
            f"a delta of {privacy.delta:g} is too small for so many steps",
            where="[privacy] delta",
            remedy=f"choose a delta above {4 * lost:.1g}",
        )
    return privacy.delta - lost


# ---- at a real site ----


def words_in(recipe: Recipe) -> tuple[PrivacySection, Words]:
    """The [privacy] and the algorithm that a recipe of the kind "private" names; seeded noise is refused."""
    broken = Refusal("a message names no private algorithm", remedy="compare the versions of wardround on both sides")
    try:
        privacy = PrivacySection(**dict(recipe.settings))
        plain = recipe.parts[0]
        kinds = (recipe.kind, recipe.name, plain.kind, plain.parts[0].kind)
    except (ValidationError, IndexError):
        raise broken from None
    if kinds != (KIND, privacy.level, "algorithm", "model") or privacy.noise_multiplier is None:
        raise broken
    if privacy.seeded:
        raise Refusal(
            "the noise would follow from the study's seed, which the coordinator knows",
            where="[privacy] seeded",
            remedy="remove seeded: real sites draw their own noise",
        )
    model = registry.make_from(plain.parts[0])
    aggregator = plain.parts[1] if len(plain.parts) > 1 else Recipe("aggregator", "weighted_mean")
    component = registry.find(plain.kind, plain.name)
    return privacy, (
        component,
        plain.settings,
        registry.find("aggregator", aggregator.name),
        aggregator.settings,
        model,
    )


def refuse_split_by(study: Study) -> None:
    """Where parts follow a patient's number, another number in one row moves many rows, and noise is made for one."""
    if study.privacy is not None and study.data.split_by:
        raise Refusal(
            f"rows are split by '{study.data.split_by}', so that one row can move many others to another part, and the"
            " noise of [privacy] is made for one",
            where="[data] split_by",
            remedy="remove split_by, and let each patient have one row",
        )


def refuse_choice(choice: str, methods: Sequence[str] = ()) -> None:
    """Choosing partners looks at gradients and losses without noise."""
    if choice:
        raise Refusal(
            f"the choice of partners by '{choice}' looks at the sites' losses and gradients without noise",
            where="[privacy]",
            remedy="remove [partners], or choose them by hand in a study of their own",
        )
