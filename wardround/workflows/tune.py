"""Searches hyper-parameters with Optuna by cross-validation over every site's own rows. Resumable.

Folds are made of training and validation rows; test rows are never looked at. Imputation and scaling stay those of the
study's split: they are fitted without labels, so a fold learns nothing about the outcomes it is judged on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from wardround.core.errors import Diverged, Refusal
from wardround.core.federation import Federation
from wardround.evaluate.losses import loss_of
from wardround.runs.fields import part_of
from wardround.runs.folder import RunFolder
from wardround.runs.result import TuneResult, TuneTrial
from wardround.study.assemble import Setting
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import train
from wardround.workflows.training_plan import check_methods, draft, plan_training, refuse_uncovered, with_noise

TRIALS = "trials.jsonl"


def folds(federation: Federation, count: int, seed: int) -> list[Federation]:
    """The same federation `count` times, each with another part of its rows for validation; test rows stay."""
    generator = np.random.default_rng((seed, 0xF01D))
    first, counts = federation.first, federation.counts
    open_rows = counts[:, 0] + counts[:, 1]
    mixed = [first[i] + generator.permutation(int(n)) for i, n in enumerate(open_rows)]
    made = []
    for number in range(count):
        order, table = [], []
        for i, rows in enumerate(mixed):
            held_out = np.arange(len(rows)) % count == number
            test = np.arange(first[i] + open_rows[i], first[i] + counts[i].sum())
            order += [rows[~held_out], rows[held_out], test]
            table.append([int((~held_out).sum()), int(held_out.sum()), len(test)])
        index = np.concatenate(order)
        made.append(
            replace(
                federation,
                x=federation.x[index],
                y=federation.y[index],
                counts=np.array(table, np.int64),
                groups={name: column[index] for name, column in federation.groups.items()},
            )
        )
    return made


def distribution(key: str, said: list[Any]) -> BaseDistribution:
    """[low, high], [low, high, "log"], or a list of choices."""
    where = f"[tune.parameters] {key}"
    numbers = [value for value in said if isinstance(value, int | float) and not isinstance(value, bool)]
    logarithmic = len(said) == 3 and said[2] == "log"
    if logarithmic or (len(said) == 2 and len(numbers) == 2):
        low, high = said[:2]
        if len(numbers) < 2 or not low < high or (logarithmic and low <= 0):
            raise Refusal(
                f"{said} is no range", where=where, remedy='write [low, high] or [low, high, "log"], low first'
            )
        if isinstance(low, int) and isinstance(high, int):
            return IntDistribution(low, high, log=logarithmic)
        return FloatDistribution(float(low), float(high), log=logarithmic)
    if not said:
        raise Refusal("there is nothing to choose from", where=where, remedy="give a range or a list of choices")
    return CategoricalDistribution(said)


def with_settings(study: Study, values: Mapping[str, Any]) -> Study:
    """The study with these settings; a key without a table belongs to [algorithm]."""
    content = study.model_dump(mode="json", exclude_none=True)
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        section = content.get(table or "algorithm")
        if not isinstance(section, dict):
            raise Refusal(
                f"there is no table [{table}]", where=f"[tune.parameters] {key}", remedy="name one of the study"
            )
        section[name] = value
    return parse_study(content, where="[tune.parameters]")


def cross_validate(study: Study, parts: list[Setting]) -> np.ndarray[Any, Any]:
    """The weighted validation loss in every fold."""
    method = own_method(study)
    losses = []
    for number, setting in enumerate(parts):
        trained = train(plan_training(study, setting, method, number), None, part="validation")
        losses.append(loss_of(trained.scores, setting.federation.task).weighted)
    return np.array(losses)


def space_of(study: Study, setting: Setting) -> dict[str, BaseDistribution]:
    """What is searched; both ends of every range are tried on the study's words before anything is trained."""
    assert study.tune is not None
    space = {key: distribution(key, said) for key, said in study.tune.parameters.items()}
    tried = [
        with_settings(study, {key: value})
        for key, one in space.items()
        for value in (one.choices if isinstance(one, CategoricalDistribution) else (one.low, one.high))
    ]
    plans = [draft(one, setting, own_method(one)) for one in tried]
    for plan in plans:
        refuse_uncovered(plan)
    check_methods(study, setting, [own_method(study)])
    for plan in plans:
        with_noise(plan)
    return space


def tune(
    study: Study,
    setting: Setting,
    space: Mapping[str, BaseDistribution],
    folder: RunFolder,
    *,
    resume: bool = False,
    on_trial: Callable[[int], None] = lambda done: None,
) -> TuneResult:
    """Search `space` for the settings with the least cross-validated loss; finished trials are kept across a crash."""
    assert study.tune is not None
    parts = [
        replace(setting, federation=part) for part in folds(setting.federation, study.tune.folds, study.study.seed)
    ]
    folder.begin(study.model_dump(mode="json"), setting.fingerprint, kind="tune", resume=resume)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(study_name=study.study.name)
    for entry in folder.lines(TRIALS):
        search.add_trial(create_trial(params=entry["settings"], distributions=dict(space), value=loss_in(entry)))
    while len(search.trials) < study.tune.trials:
        # A sampler of its own for every trial, so that a resumed search goes on as if it had never stopped.
        seed = (study.study.seed + 1_000_003 * len(search.trials)) % 2**32
        search.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = search.ask(dict(space))
        entry = try_settings(study, trial.params, parts)
        folder.append(TRIALS, entry)
        search.tell(trial, loss_in(entry))
        on_trial(len(search.trials))
    done = folder.lines(TRIALS)
    best = min(done, key=loss_in)
    if best["loss"] is None:
        raise Refusal("training diverged in every trial", where="[tune]", remedy="search smaller learning rates")
    settings: dict[str, dict[str, Any]] = {}
    for key, value in best["settings"].items():
        table, _, name = key.rpartition(".")
        settings.setdefault(table or "algorithm", {})[name] = value
    found = TuneResult(
        study=study.study.name,
        kind="tune",
        trials=len(done),
        loss=best["loss"],
        spread=float(np.std(best["folds"])),
        settings=settings,
        all=tuple(part_of(TuneTrial, one) for one in done),
    )
    folder.write_result(found)
    return found


def try_settings(study: Study, values: Mapping[str, Any], parts: list[Setting]) -> dict[str, Any]:
    """One trial: its settings and its loss, none where training diverged."""
    try:
        losses = cross_validate(with_settings(study, values), parts)
    except Diverged as diverged:  # a rate that makes training diverge is an answer too: as bad as can be
        return {"settings": dict(values), "loss": None, "folds": [], "refused": str(diverged)}
    return {"settings": dict(values), "loss": float(losses.mean()), "folds": losses.tolist()}


def loss_in(entry: Mapping[str, Any]) -> float:
    return float("inf") if entry["loss"] is None else float(entry["loss"])
