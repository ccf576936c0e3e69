"""Runs a study, one method or several on the same splits, into a run folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Params, RoundRecord, Scores
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.fit import Fitted, Judge, Schedule, Stopping, fit
from wardround.engine.memory import refuse_if_too_large
from wardround.engine.simulate import Simulation
from wardround.evaluate.losses import loss_of
from wardround.study import assemble
from wardround.study.assemble import Method, Setting
from wardround.study.file import Study
from wardround.study.folder import RunFolder, digest, now
from wardround.study.result import comparison_of, described, method_block

OnRound = Callable[[Method, int, RoundRecord], None]
MOST_LOSSES = 100
"""Sites up to which each site's validation loss is recorded every round."""


@dataclass(frozen=True)
class Trained:
    """One method, one repeat: what it learned and how it predicts held-out patients."""

    method: Method
    repeat: int
    fitted: Fitted
    params: Params
    scores: Scores
    sites: Sequence[str]
    """Those evaluated, in the order of the scores."""
    seconds: float


def run(
    study: Study,
    folder: RunFolder,
    methods: Sequence[Method],
    *,
    kind: str,
    repeats: int = 1,
    first: Setting | None = None,
    resume: bool = False,
    on_round: OnRound = lambda method, repeat, record: None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Train every method on every split, and write manifest, rounds, models and result; gives the result.

    `first` is the first split, where it was loaded already; `refuse_early` tells whether the study can work at all.
    """
    settings: list[Setting] = []
    trained: list[Trained] = []
    manifest: dict[str, Any] = {}
    for repeat in range(repeats):
        setting = (None if repeat else first) or assemble.load_setting(study, study.study.seed + repeat)
        settings.append(setting)
        if not repeat:
            manifest = folder.begin(study.model_dump(mode="json"), setting.fingerprint, kind=kind, resume=resume)
        for method in methods:
            trained.append(train(study, setting, method, repeat, folder, resume=resume, on_round=on_round))
    identity = {"study": study.study.name, "kind": kind, "metric": main_metric(study, settings[0])}
    result = {
        **identity,
        **described(settings[0]),
        "repeats": repeats,
        "methods": [
            method_block(study, settings, [one for one in trained if one.method == method], meters_of(folder, method))
            for method in methods
        ],
        "comparison": comparison_of(study, settings, trained, methods, identity["metric"]),
        "notes": [*settings[0].notes, *notes],
    }
    for one in trained:
        if one.repeat == 0:
            name = "model.safetensors" if len(methods) == 1 else f"model-{one.method.name}.safetensors"
            folder.write_model(one.params, {"study": study.study.name, "method": one.method.name}, name)
    folder.write("result.json", result)
    folder.write("manifest.json", {**manifest, "finished": now()})
    return result


def train(
    study: Study,
    setting: Setting,
    method: Method,
    repeat: int,
    folder: RunFolder | None,
    *,
    resume: bool = False,
    on_round: OnRound = lambda method, repeat, record: None,
    part: str = "test",
) -> Trained:
    """Train one method on one split and predict the held-out patients."""
    started = time.perf_counter()
    federation, seed = setting.federation, study.study.seed + repeat
    algorithm: Algorithm = assemble.build(study, method, federation.task, federation.sites)
    participation = assemble.participation_of(study, federation.sites, seed)
    evaluated = evaluated_sites(study, setting, seed)

    def report(record: RoundRecord) -> None:
        if folder is not None:
            folder.record(method.name, repeat, record)
        on_round(method, repeat, record)

    with Simulation(
        federation,
        seed=seed,
        transform=assemble.transform_of(study.transforms),
        tables=setting.tables,
        largest_cohort=participation.largest,
        evaluated=evaluated,
    ) as engine:
        fitted = fit(
            algorithm,
            engine,
            assemble.model_of(study, federation.task).init(jax.random.key(seed)),
            participation,
            Schedule(study.study.rounds, study.evaluation.every),
            judge=judge_for(setting, evaluated),
            stopping=Stopping(study.stopping.patience, study.stopping.smallest) if study.stopping else None,
            checkpoint=folder.checkpoint(method.name, repeat) if folder else None,
            identity=digest([study.model_dump(mode="json"), method, setting.fingerprint]),
            resume=resume,
            on_round=report,
        )
        scores = engine.evaluate(algorithm, fitted.progress, part)
    params = jax.device_get(algorithm.params(fitted.progress.server))
    names = [federation.sites[int(index)] for index in evaluated]
    return Trained(method, repeat, fitted, params, scores, names, time.perf_counter() - started)


def evaluated_sites(study: Study, setting: Setting, seed: int) -> np.ndarray[Any, Any]:
    """All sites, or as many as the study allows, drawn once."""
    everyone = np.arange(len(setting.federation.sites))
    if len(everyone) <= study.evaluation.sites:
        return everyone
    generator = np.random.default_rng((seed, 0xE7A1))
    return np.sort(generator.choice(everyone, study.evaluation.sites, replace=False))


def judge_for(setting: Setting, evaluated: np.ndarray[Any, Any]) -> Judge | None:
    """Validation loss and accuracy of a round; none where no site has validation rows."""
    federation = setting.federation
    if not federation.part("validation")[1][evaluated].any():
        return None
    names = [federation.sites[int(index)] for index in evaluated] if len(evaluated) <= MOST_LOSSES else []

    def judge(scores: Scores) -> Mapping[str, Any]:
        losses = loss_of(scores, federation.task)
        sites = {name: float(loss) for name, loss in zip(names, losses.sites, strict=False) if np.isfinite(loss)}
        measures: dict[str, Any] = {"validation_loss": {"weighted": losses.weighted, "sites": sites}}
        if not federation.task.regression:
            right = scores.predicted.argmax(axis=1) == scores.actual
            measures["validation_accuracy"] = {"weighted": float(right.mean())}
        return measures

    return judge


def main_metric(study: Study, setting: Setting) -> str:
    task = setting.federation.task
    default = "rmse" if task.regression else "roc_auc" if len(task.classes) == 2 else "accuracy"
    return study.study.metric or default


def refuse_early(study: Study, setting: Setting, methods: Sequence[Method]) -> None:
    """Refuse whatever can be known to be wrong before the first round, so that nothing is left half-written."""
    federation, seed = setting.federation, study.study.seed
    refuse_metric(study, setting)
    participation = assemble.participation_of(study, federation.sites, seed)
    if study.stopping and judge_for(setting, evaluated_sites(study, setting, seed)) is None:
        raise Refusal(
            "early stopping needs validation rows, and no site has any",
            where="[stopping]",
            remedy="give validation a share, such as [data] shares = [0.6, 0.2, 0.2], or take [stopping] out",
        )
    algorithms = [assemble.build(study, method, federation.task, federation.sites) for method in methods]
    model = assemble.model_of(study, federation.task)
    # Shapes only: a model that does not fit into memory must be refused before it is made.
    shapes = jax.eval_shape(model.init, jax.random.key(seed))
    transform = assemble.transform_of(study.transforms)
    with Simulation(federation, transform=transform, largest_cohort=participation.largest) as engine:
        for algorithm in algorithms:
            kept = jax.eval_shape(algorithm.init_client, shapes)
            refuse_if_too_large(algorithm, shapes, kept, federation, engine.shape(algorithm, shapes))
        params = model.init(jax.random.key(seed))
        for algorithm in algorithms:
            engine.begin(algorithm, params)


def refuse_metric(study: Study, setting: Setting) -> None:
    """A metric that is unknown or does not fit the task is refused before anything is trained."""
    from wardround.evaluate.metrics import metrics_for

    metrics_for(setting.federation.task, [main_metric(study, setting)])
    if study.study.user is not None:
        assemble.site_number(study.study.user, setting.federation.sites)


def meters_of(folder: RunFolder, method: Method) -> dict[str, Any]:
    """What every meter says about the method's first repeat, from the recorded rounds."""
    reports = {}
    for name, component in registry.components("meter").items():
        meter = component.build()
        state = meter.init()
        for entry in folder.rounds(method.name, 0):
            values = {key: value for key, value in entry.items() if key not in ("method", "repeat")}
            state = meter.observe(state, RoundRecord(**values))
        reports[name] = meter.report(state)
    return reports
