"""Runs a study, one method or several on the same splits, into a run folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Params, RoundRecord, Scores
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine import registry
from wardround.engine.checks import refuse_few
from wardround.engine.fit import EarlyStopping, FitResult, Judge, Schedule, fit
from wardround.engine.memory import refuse_if_too_large
from wardround.engine.participation import restrict
from wardround.engine.simulate import Simulation
from wardround.evaluate.losses import loss_of
from wardround.runs.folder import RunFolder, digest, now
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method, site_number
from wardround.study.privacy import noted
from wardround.workflows.partners.choose import choose, question_of, refuse_user, user_of
from wardround.workflows.results import averaged, comparison_of, described, method_block

OnRound = Callable[[Method, int, RoundRecord], None]
MOST_LOSSES = 100
"""Sites up to which each site's validation loss is recorded every round."""


@dataclass(frozen=True)
class Trained:
    """One method, one repeat: what it learned and how it predicts held-out patients."""

    method: Method
    repeat: int
    fitted: FitResult
    params: Params
    scores: Scores
    sites: Sequence[str]
    """Those evaluated, in the order of the scores."""
    seconds: float
    user: str | None = None
    """The site it was trained for."""
    partners: tuple[str, ...] | None = None
    """Whom the method chose to train with it."""


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
    load: Callable[[Study, int], Setting] = assemble.load_setting,
) -> dict[str, Any]:
    """Train every method on every split, and write manifest, rounds, models and result; gives the result.

    `first` is the first split, where it was loaded already, and `load` reads the others by their seeds; `refuse_early`
    tells whether the study can work at all.
    """
    settings: list[Setting] = []
    trained: list[Trained] = []
    manifest: dict[str, Any] = {}
    for repeat in range(repeats):
        setting = (None if repeat else first) or load(study, study.study.seed + repeat)
        settings.append(setting)
        if not repeat:
            manifest = folder.begin(study.model_dump(mode="json"), setting.fingerprint, kind=kind, resume=resume)
        for method in methods:
            each = [
                train(asked, setting, method, repeat, folder, resume=resume, on_round=on_round)
                for asked in askings(study, setting, method)
            ]
            if repeat == 0:
                write_models(study, folder, each, alone=len(methods) == 1)
            trained.append(each[0] if len(each) == 1 else side_by_side(each))
    identity = {"study": study.study.name, "kind": kind, "metric": main_metric(study, settings[0])}
    result = {
        **identity,
        **described(settings[0]),
        "repeats": repeats,
        "methods": [
            method_block(
                study,
                settings,
                [one for one in trained if one.method == method],
                averaged([meters_of(folder, method, asked) for asked in askings(study, settings[0], method)]),
            )
            for method in methods
        ],
        "comparison": comparison_of(study, settings, trained, methods, identity["metric"]),
        "notes": [*settings[0].notes, *notes, *filter(None, [assemble.transform_of(study.transforms).words])],
    }
    folder.write("result.json", result)
    folder.write("manifest.json", {**manifest, "finished": now()})
    return result


def askings(study: Study, setting: Setting, method: Method) -> list[Study]:
    """The study once for every site that asks: for each in turn where it says so and the method is for one site."""
    if study.compare is None or study.compare.users == "one" or not method.for_one_site:
        return [study]
    sites = [setting.federation.sites[int(site)] for site in evaluated_sites(study, setting, study.study.seed)]
    return [study.model_copy(update={"study": study.study.model_copy(update={"user": site})}) for site in sites]


def side_by_side(each: Sequence[Trained]) -> Trained:
    """One method trained for each site in turn: every site's patients as predicted by the model trained for it."""
    first = each[0].scores.first
    own = [one.scores.predicted[first[i] : first[i + 1]] for i, one in enumerate(each)]
    scores = each[0].scores._replace(predicted=np.concatenate(own))
    return replace(each[0], scores=scores, seconds=sum(one.seconds for one in each), user=None, partners=None)


def write_models(study: Study, folder: RunFolder, each: Sequence[Trained], *, alone: bool) -> None:
    """The model of every method; one for each asking site where they take turns."""
    for number, one in enumerate(each):
        words = {"study": study.study.name, "method": one.method.name, "user": one.user or ""}
        name = "model" if alone else f"model-{one.method.name}"
        folder.write_model(one.params, words, f"{name}{f'-{number + 1}' if len(each) > 1 else ''}.safetensors")


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
    participation = assemble.participation_of(study, federation.sites, seed)
    study, protection = assemble.with_noise(study, method, federation, participation)
    algorithm: Algorithm = assemble.build(study, method, federation.task, federation.sites)
    evaluated = evaluated_sites(study, setting, seed)
    user = study.study.user if method.for_one_site else None

    def report(record: RoundRecord) -> None:
        record = noted(record, protection)
        if folder is not None:
            folder.record(method.name, repeat, record, user=in_turn(study, method))
        on_round(method, repeat, record)

    with Simulation(
        federation,
        seed=seed,
        transform=assemble.transform_of(study.transforms),
        tables=setting.tables,
        largest_cohort=participation.largest,
        evaluated=evaluated,
    ) as engine:
        params = assemble.model_of(study, federation.task).init(jax.random.key(seed))
        partners = None
        if method.choice:
            chosen = choose(question_of(study, setting, engine, algorithm, params, participation), method)
            participation = restrict(participation, [chosen.user, *chosen.partners])
            partners = tuple(federation.sites[site] for site in chosen.partners)
            report(chosen.record)
        fitted = fit(
            algorithm,
            engine,
            params,
            participation,
            Schedule(study.study.rounds, study.evaluation.every, study.evaluation.every),
            judge=judge_for(setting, evaluated),
            stopping=stopping_of(study),
            checkpoint=folder.checkpoint(method.name, repeat, place(study, method, federation)) if folder else None,
            identity=digest([study.model_dump(mode="json"), method, setting.fingerprint]),
            resume=resume,
            on_round=report,
        )
        scores = engine.evaluate(algorithm, fitted.progress, part)
    params = jax.device_get(algorithm.params(fitted.progress.server))
    names = [federation.sites[int(index)] for index in evaluated]
    return Trained(method, repeat, fitted, params, scores, names, time.perf_counter() - started, user, partners)


def in_turn(study: Study, method: Method) -> str | None:
    """The asking site, where sites take turns and records must tell whose they are."""
    takes_turns = study.compare is not None and study.compare.users == "each" and method.for_one_site
    return study.study.user if takes_turns else None


def place(study: Study, method: Method, federation: Federation) -> str:
    """What tells the checkpoints of sites that take turns apart; names of sites may hold anything, numbers do not."""
    user = in_turn(study, method)
    return "" if user is None else f"-for-{site_number(user, federation.sites)}"


def stopping_of(study: Study) -> EarlyStopping | None:
    if study.stopping is None:
        return None
    site = study.study.user if study.stopping.user else None
    return EarlyStopping(study.stopping.patience, study.stopping.smallest, site)


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
    refuse_askings(study, setting, methods)
    participation = assemble.participation_of(study, federation.sites, seed)
    if study.stopping and judge_for(setting, evaluated_sites(study, setting, seed)) is None:
        raise Refusal(
            "early stopping needs validation rows, and no site has any",
            where="[stopping]",
            remedy="give validation a share, such as [data] shares = [0.6, 0.2, 0.2], or take [stopping] out",
        )
    algorithms = [
        assemble.build(
            assemble.with_noise(asked, method, federation, participation)[0], method, federation.task, federation.sites
        )
        for method in methods
        for asked in askings(study, setting, method)[:1]
    ]
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
    if transform.fewest > 1 and not all(algorithm.silent or algorithm.pools for algorithm in algorithms):
        rows = federation.part("train")[1]
        for number in range(1, study.study.rounds + 1):
            there = int(np.count_nonzero(rows[participation.cohort(number)]))
            refuse_few(transform, there, f"[participation], round {number}")


def refuse_askings(study: Study, setting: Setting, methods: Sequence[Method]) -> None:
    """A study that asks for one site needs a site that can be helped."""
    turns = study.compare is not None and study.compare.users == "each"
    if study.study.user is not None or (any(method.for_one_site for method in methods) and not turns):
        refuse_user(study, setting)
    if study.stopping and study.stopping.user:
        user = user_of(study, setting.federation)
        if not setting.federation.part("validation")[1][user]:
            raise Refusal(
                "the asking site has no validation patients to stop by",
                where="[stopping] user",
                remedy="give validation a share, such as [data] shares = [0.6, 0.2, 0.2], or take user = true out",
            )


def refuse_metric(study: Study, setting: Setting) -> None:
    """A metric that is unknown or does not fit the task is refused before anything is trained."""
    from wardround.evaluate.metrics import metrics_for

    metrics_for(setting.federation.task, [main_metric(study, setting)])


def meters_of(folder: RunFolder, method: Method, study: Study) -> dict[str, Any]:
    """What every meter says about the method's first repeat, from the recorded rounds."""
    user = in_turn(study, method)
    reports = {}
    for name, component in registry.components("meter").items():
        meter = component.build()
        state = meter.init()
        for entry in folder.rounds(method.name, 0, user=user):
            values = {key: value for key, value in entry.items() if key not in ("method", "repeat", "user")}
            state = meter.observe(state, RoundRecord(**values))
        reports[name] = meter.report(state)
    return reports
