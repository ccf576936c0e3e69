"""Searches hyper-parameters with Optuna by cross-validation over every site's own rows. Resumable.

Folds are made of training and validation rows; test rows are never looked at. Imputation and scaling stay those of the
study's split: they are fitted without labels, so a fold learns nothing about the outcomes it is judged on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine.checkpoint import write_whole
from wardround.evaluate.losses import loss_of
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study, parse_study
from wardround.study.folder import RunFolder
from wardround.study.run import refuse_early, train


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


def suggested(trial: optuna.Trial, key: str, one: BaseDistribution) -> Any:
    if isinstance(one, FloatDistribution):
        return trial.suggest_float(key, one.low, one.high, log=one.log)
    if isinstance(one, IntDistribution):
        return trial.suggest_int(key, one.low, one.high, log=one.log)
    return trial.suggest_categorical(key, one.choices)


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


def cross_validated(study: Study, parts: list[Setting]) -> np.ndarray[Any, Any]:
    """The weighted validation loss in every fold."""
    method = assemble.own_method(study)
    losses = []
    for number, setting in enumerate(parts):
        trained = train(study, setting, method, number, None, part="validation")
        losses.append(loss_of(trained.scores, setting.federation.task).weighted)
    return np.array(losses)


def space_of(study: Study, setting: Setting) -> dict[str, BaseDistribution]:
    """What is searched; both ends of every range are tried on the study's words before anything is trained."""
    assert study.tune is not None
    space = {key: distribution(key, said) for key, said in study.tune.parameters.items()}
    refuse_early(study, setting, [assemble.own_method(study)])
    for key, one in space.items():
        for value in one.choices if isinstance(one, CategoricalDistribution) else (one.low, one.high):
            tried = with_settings(study, {key: value})
            assemble.build(tried, assemble.own_method(tried), setting.federation.task)
            assemble.transform_of(tried.transforms)
    return space


def mend_journal(path: Path) -> None:
    """After a crash: take away the lock that nobody holds any more, and a last line that was cut off."""
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    if path.exists():
        whole, end, torn = path.read_bytes().rpartition(b"\n")
        if torn:
            write_whole(path, whole + end)


def tune(
    study: Study,
    folder: RunFolder,
    *,
    resume: bool = False,
    on_trial: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Search for the settings with the least cross-validated loss; finished trials are kept across a crash."""
    assert study.tune is not None
    setting = assemble.load_setting(study, study.study.seed)
    space = space_of(study, setting)
    parts = [
        replace(setting, federation=part) for part in folds(setting.federation, study.tune.folds, study.study.seed)
    ]
    folder.begin(study.model_dump(mode="json"), setting.fingerprint, kind="tune", resume=resume)
    journal = folder.path / "trials.log"
    mend_journal(journal)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(
        study_name=study.study.name,
        storage=JournalStorage(JournalFileBackend(str(journal))),
        load_if_exists=True,
    )

    def finished() -> list[optuna.trial.FrozenTrial]:
        return [trial for trial in search.get_trials(deepcopy=False) if trial.state.is_finished()]

    def objective(trial: optuna.Trial) -> float:
        values = {key: suggested(trial, key, one) for key, one in space.items()}
        try:
            losses = cross_validated(with_settings(study, values), parts)
        except Refusal as refusal:
            if "diverged" not in refusal.what and "finite" not in refusal.what:
                raise
            # A rate that makes training diverge is an answer too: as bad as can be.
            trial.set_user_attr("refused", str(refusal))
            return float("inf")
        trial.set_user_attr("losses", losses.tolist())
        return float(losses.mean())

    while len(finished()) < study.tune.trials:
        # A sampler of its own for every trial, so that a resumed search goes on as if it had never stopped.
        search.sampler = optuna.samplers.TPESampler(seed=(study.study.seed + 1_000_003 * len(finished())) % 2**32)
        search.optimize(objective, n_trials=1)
        on_trial(len(finished()))
    best = search.best_trial
    if best.value is None or not np.isfinite(best.value):
        raise Refusal("training diverged in every trial", where="[tune]", remedy="search smaller learning rates")
    settings: dict[str, dict[str, Any]] = {}
    for key, value in best.params.items():
        table, _, name = key.rpartition(".")
        settings.setdefault(table or "algorithm", {})[name] = value
    found = {
        "study": study.study.name,
        "kind": "tune",
        "trials": len(finished()),
        "loss": best.value,
        "spread": float(np.std(best.user_attrs["losses"])),
        "settings": settings,
        "all": [{"settings": trial.params, "loss": trial.value} for trial in finished()],
    }
    folder.write("result.json", found)
    return found
