"""The commands that run studies: progress on standard error, the result as a table or as JSON."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from wardround.api.commands import (
    OnFolder,
    check_run,
    compare_settings,
    prepare_run,
    recommend_partners,
    tune,
)
from wardround.core.contracts import RoundRecord
from wardround.core.text import plain_line
from wardround.engine.machine.hosts import is_leader
from wardround.engine.machine.memory import estimate
from wardround.report.run.advised_method import advised_method
from wardround.report.terminal import summary_table
from wardround.runs.file_names import REPORT
from wardround.runs.folder import RunFolder
from wardround.runs.json_files import as_json as to_json
from wardround.runs.result import CasesResult, RunResult, values_of
from wardround.study.file import Study
from wardround.study.methods import Method
from wardround.workflows.run import OnRound, run
from wardround.workflows.self_adjustment import longest_training
from wardround.workflows.training_plan import Plans, first_shapes

ERRORS = Console(stderr=True)
OUTPUT = Console()


@contextmanager
def interruptible(kind: str) -> Iterator[OnFolder]:
    """Ctrl-C leaves a folder that can be gone on with: say how, once there is one."""
    opened: list[Path] = []
    try:
        yield opened.append
    except KeyboardInterrupt:
        if not opened:
            raise
        again = "" if kind == "demo" else f" Continue with: wardround {kind} STUDY --resume --out {opened[0]}"
        typer.echo(f"wardround: interrupted. All work so far is saved in {opened[0]}.{again}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def round_bar(rounds: int, runs: int) -> Iterator[OnRound]:
    """A progress bar over all rounds of all methods and repeats."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=ERRORS, transient=True) as bars:
        bar = bars.add_task("starting", total=rounds * runs)
        finished: dict[tuple[str, int], int] = {}

        def advance(method: Method, repeat: int, record: RoundRecord) -> None:
            finished[method.name, repeat] = record.round
            # A method that stopped early has no rounds left: count those before the present one as done.
            done = rounds * (len(finished) - 1) + record.round
            loss = record.measures.get("validation_loss", {}).get("weighted")
            words = f"{method.label}, round {record.round}"
            bars.update(bar, completed=done, description=words if loss is None else f"{words}, loss {loss:.3f}")

        yield advance


def run_command(study: Study, *, kind: str, out: Path | None, resume: bool, as_json: bool) -> None:
    """`run`, `compare` and `demo`: train, write the folder and the report, print the table."""
    if study.analysis is not None and kind == "run":
        from wardround.cli.analyses import analysis_command

        analysis_command(study, out=out, resume=resume, as_json=as_json)
        return
    if kind == "compare" and study.compare is not None and (study.compare.cases or study.compare.rates):
        cases_command(study, out=out, resume=resume, as_json=as_json)
        return
    if not is_leader():
        follow(study, *check_run(study, kind), kind=kind, out=out, resume=resume)
        return
    prepared = prepare_run(study, kind, out=out, resume=resume)
    rounds = longest_training(study, prepared.plans)
    with interruptible(kind) as opened, round_bar(rounds, len(prepared.methods) * prepared.repeats) as bar:
        opened(prepared.folder.path)
        finished = prepared.train(bar)
    print_result(finished.result, prepared.folder, summary_table, as_json=as_json)
    if kind == "run" and not as_json:
        trained = [method.algorithm for method in finished.result.methods]
        sites = len(finished.result.sites)
        advice = advised_method(study.model.name, trained, hospitals=sites, private=study.privacy is not None)
        if advice:
            OUTPUT.print(advice, markup=False, highlight=False)


def cases_command(study: Study, *, out: Path | None, resume: bool, as_json: bool) -> None:
    """`compare` of a study with rates to choose from, or with cases: each is a comparison in a folder of its own."""
    from wardround.report.cases.page import cases_table
    from wardround.workflows.compare_cases import Watch

    assert study.compare is not None
    with Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=ERRORS, transient=True) as bars:
        bar, place = bars.add_task("reading"), [""]

        def say(words: str) -> None:
            bars.update(bar, description=f"{place[0]}{words}")

        def begin(title: str, number: int, cases: int) -> None:
            place[0] = f"{title} ({number + 1} of {cases}): "

        watch = Watch(
            on_case=begin,
            on_rate=lambda label: say(f"{label}, choosing its rate"),
            on_round=lambda method, repeat, record: say(f"{method.label}, repeat {repeat + 1}, round {record.round}"),
        )
        with interruptible("compare") as opened:
            result, folder = compare_settings(study, out=out, resume=resume, watch=watch, on_folder=opened)
    print_result(result, folder, cases_table if study.compare.cases else summary_table, as_json=as_json)


def print_result(
    result: RunResult | CasesResult, folder: RunFolder, table: Callable[[Any], Table], *, as_json: bool
) -> None:
    """The result on standard output: as a table with notes, or as one JSON object."""
    report = folder.path / REPORT
    if as_json:
        print(to_json({"folder": str(folder.path), "report": str(report), **values_of(result)}))
        return
    OUTPUT.print(table(result))
    for note in result.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print(f"Report: {report}", markup=False, soft_wrap=True)


def follow(
    study: Study, methods: list[Method], repeats: int, plans: Plans, *, kind: str, out: Path | None, resume: bool
) -> None:
    """Another host than the first: computes its share, and leaves nothing behind."""
    with TemporaryDirectory(prefix="wardround-") as place:
        folder = RunFolder(Path(place))
        (folder.path / "checkpoints").mkdir()
        if resume and out is not None:  # all hosts must go on from the same round
            shutil.copytree(out / "checkpoints", folder.path / "checkpoints", dirs_exist_ok=True)
        run(study, folder, methods, kind=kind, repeats=repeats, plans=plans, resume=resume)


def privacy_words(study: Study, label: str, noise: float) -> str:
    """What [privacy] promises, and the noise it takes."""
    said = study.privacy
    assert said is not None
    whom = "each patient" if said.level == "sample" else "each site"
    promise = f"epsilon {said.epsilon:g} at delta {said.delta:g} for {whom}: " if said.epsilon is not None else ""
    return f"Privacy, {label}: {promise}noise of {noise:.3g} times the clipping bound of {said.clip:g}."


def describe_study(study: Study, plans: Plans) -> dict[str, Any]:
    """What `check` tells of a study that can work, from shapes alone."""
    import jax

    from wardround.core import trees

    setting, federation = plans[0][0].setting, plans[0][0].federation
    memory, sent = 0, 0
    noise: dict[str, float] = {}
    for plan, *_ in plans:
        algorithm = plan.algorithm
        if plan.study.privacy is not None:
            noise.setdefault(plan.method.label, plan.study.privacy.noise_multiplier or 0.0)
        params, progress = first_shapes(plan)
        with plan.engine() as engine:
            kept = jax.eval_shape(algorithm.init_client, params)
            parts = estimate(algorithm, params, kept, federation, engine.shape(algorithm, params))
            memory, sent = max(memory, sum(parts.values())), max(sent, *engine.message_bytes(algorithm, progress))
    largest = sorted(range(len(federation.sites)), key=lambda i: -int(federation.counts[i].sum()))[:20]
    return {
        "study": study.study.name,
        "sites": len(federation.sites),
        "rows": int(federation.counts.sum()),
        "features": list(federation.features),
        "classes": list(federation.task.classes),
        "largest_sites": [
            {"name": federation.sites[i]}
            | dict(zip(("train", "validation", "test"), (int(n) for n in federation.counts[i]), strict=True))
            for i in largest
        ],
        "methods": [plan.method.name for plan, *_ in plans],
        "cohort": plans[0][0].participation.largest,
        "parameters": trees.nbytes(params) // 4,
        "memory_bytes": memory,
        "message_bytes": sent,
        "noise": noise,
        "notes": list(setting.notes),
    }


@contextmanager
def progress_from(opened: OnFolder, words: str, total: int | None) -> Iterator[tuple[OnFolder, Callable[..., None]]]:
    """A bar that appears when the run's folder is opened: what is refused before shows no bar."""
    bars = Progress(console=ERRORS, transient=True)
    bar = bars.add_task(words, total=total)

    def begin(folder: Path) -> None:
        opened(folder)
        bars.start()

    try:
        yield begin, lambda **shown: bars.update(bar, **shown)
    finally:
        if bars.live.is_started:
            bars.stop()


def tune_command(study: Study, *, out: Path | None, resume: bool, as_json: bool) -> None:
    """`tune`: search, and say what to write into the study file."""
    folders: list[Path] = []
    trials = study.tune.trials if study.tune else None

    def note(folder: Path) -> None:
        folders.append(folder)
        opened(folder)

    with interruptible("tune") as opened, progress_from(note, "tuning", trials) as (begin, show):
        found = tune(study, out=out, resume=resume, on_trial=lambda done: show(completed=done), on_folder=begin)
    if as_json:
        print(to_json({"folder": str(folders[0]), **values_of(found)}))
        return
    loss, spread = found.loss, found.spread
    OUTPUT.print(f"Best of {found.trials} trials: validation loss {loss:.4f} (spread between folds: {spread:.4f}).")
    OUTPUT.print("Put this into the study file:")
    for table, values in found.settings.items():
        OUTPUT.print(f"[{table}]", markup=False)
        for key, value in values.items():
            OUTPUT.print(f"{key} = {json.dumps(value)}", markup=False)


def partners_command(
    study: Study, asking: str | None, withdrawn: list[str], *, out: Path | None, as_json: bool
) -> None:
    """`partners`: judge, write the folder and the page, print the answer."""
    from wardround.report.terminal import partners_table

    with interruptible("partners") as opened, progress_from(opened, "partners", None) as (begin, show):
        result, report = recommend_partners(
            study, asking, without=withdrawn, out=out, step=lambda words: show(description=words), on_folder=begin
        )
    if as_json:
        print(to_json({"folder": str(report.parent), "report": str(report), **values_of(result)}))
        return
    OUTPUT.print(partners_table(result))
    for note in result.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print(f"Report: {report}", markup=False, soft_wrap=True)
