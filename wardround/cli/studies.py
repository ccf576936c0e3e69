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

from wardround.core.contracts import RoundRecord
from wardround.core.errors import Refusal
from wardround.core.text import plain_line
from wardround.engine.hosts import is_leader
from wardround.engine.memory import estimate
from wardround.report.model_card.facts import write_card
from wardround.report.run.page import write_report
from wardround.report.terminal import summary_table
from wardround.runs.folder import RunFolder
from wardround.runs.json_files import as_json as to_json
from wardround.runs.result import CasesResult, RunResult, values_of
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import Method, compared_methods, own_method
from wardround.workflows.run import OnRound, run
from wardround.workflows.training_plan import Plans, check_methods, first_shapes

ERRORS = Console(stderr=True)
OUTPUT = Console()


@contextmanager
def interruptible(folder: RunFolder, kind: str) -> Iterator[None]:
    """Ctrl-C leaves a folder that can be gone on with: say how."""
    try:
        yield
    except KeyboardInterrupt:
        again = "" if kind == "demo" else f" Continue with: wardround {kind} STUDY --resume --out {folder.path}"
        typer.echo(f"wardround: interrupted. All work so far is saved in {folder.path}.{again}", err=True)
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


def open_folder(study: Study, out: Path | None, resume: bool) -> RunFolder:
    if resume and out is None:
        raise Refusal("--resume needs the folder of a run", remedy="name its folder with --out")
    return RunFolder.create(out or RunFolder.free_name(Path("runs"), study.study.name), resume=resume)


def run_command(study: Study, *, kind: str, out: Path | None, resume: bool, as_json: bool) -> None:
    """`run`, `compare` and `demo`: train, write the folder and the report, print the table."""
    if kind == "compare" and study.compare is not None and (study.compare.cases or study.compare.rates):
        cases_command(study, out=out, resume=resume, as_json=as_json)
        return
    methods, repeats = [own_method(study)], 1
    if kind != "run":
        if study.compare is None:
            raise Refusal(
                "the study does not name methods to compare",
                where="[compare]",
                remedy='add methods = ["local", "global"]',
            )
        methods, repeats = compared_methods(study), study.compare.repeats
        if study.compare.against is not None and study.compare.against not in study.compare.methods:
            raise Refusal(
                f"'{study.compare.against}' is not among the methods", where="[compare] against", remedy="name it there"
            )
    # Wrong data or settings are refused before there is a folder.
    plans = check_methods(study, assemble.load_setting(study, study.study.seed), methods)
    if not is_leader():
        follow(study, methods, plans, kind=kind, repeats=repeats, out=out, resume=resume)
        return
    folder = open_folder(study, out, resume)
    with interruptible(folder, kind), round_bar(study.study.rounds, len(methods) * repeats) as advance:
        result = run(study, folder, methods, kind=kind, repeats=repeats, plans=plans, resume=resume, on_round=advance)
    write_card(folder.path)
    print_result(result, folder, write_report(folder.path), summary_table, as_json=as_json)


def cases_command(study: Study, *, out: Path | None, resume: bool, as_json: bool) -> None:
    """`compare` of a study with rates to choose from, or with cases: each is a comparison in a folder of its own."""
    import jax

    from wardround.report.cases.page import cases_table, write_cases_report
    from wardround.workflows.compare_cases import Watch, check_comparison, compare_at_rates, compare_cases, read_cases

    assert study.compare is not None
    if jax.process_count() > 1:
        raise Refusal("rates and cases run on one host only", where="[compare]", remedy="remove --hosts")
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
        result: RunResult | CasesResult
        if not study.compare.cases:
            plans = check_comparison(study)
            folder = open_folder(study, out, resume)
            with interruptible(folder, "compare"):
                result = compare_at_rates(study, folder, plans, resume=resume, watch=watch)
        else:
            cases = read_cases(study)
            folder = open_folder(study, out, resume)
            with interruptible(folder, "compare"):
                result = compare_cases(study, cases, folder, resume=resume, watch=watch, on_finished=write_report)
    if study.compare.cases:
        print_result(result, folder, write_cases_report(folder.path), cases_table, as_json=as_json)
    else:
        print_result(result, folder, write_report(folder.path), summary_table, as_json=as_json)


def print_result(
    result: RunResult | CasesResult, folder: RunFolder, report: Path, table: Callable[[Any], Table], *, as_json: bool
) -> None:
    """The result on standard output: as a table with notes, or as one JSON object."""
    if as_json:
        print(to_json({"folder": str(folder.path), "report": str(report), **values_of(result)}))
        return
    OUTPUT.print(table(result))
    for note in result.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print(f"Report: {report}", markup=False, soft_wrap=True)


def follow(
    study: Study, methods: list[Method], plans: Plans, *, kind: str, repeats: int, out: Path | None, resume: bool
) -> None:
    """Another host than the first: computes its share, and leaves nothing behind."""
    with TemporaryDirectory(prefix="wardround-") as place:
        folder = RunFolder(Path(place))
        (folder.path / "checkpoints").mkdir()
        if resume and out is not None:  # all hosts must go on from the same round
            shutil.copytree(out / "checkpoints", folder.path / "checkpoints", dirs_exist_ok=True)
        run(study, folder, methods, kind=kind, repeats=repeats, plans=plans, resume=resume)


def check_command(study: Study, *, as_json: bool) -> None:
    """`check`: everything but the training."""
    if study.compare is not None and study.compare.cases:
        from wardround.workflows.compare_cases import first_split, read_cases

        setting = first_split(study, read_cases(study))
    else:
        setting = assemble.load_setting(study, study.study.seed)
    federation = setting.federation
    methods = [own_method(study), *(compared_methods(study) if study.compare else [])]
    words = describe_study(study, check_methods(study, setting, methods))
    if as_json:
        print(to_json(words))
        return
    OUTPUT.print(
        f"{study.study.name}: {words['sites']} sites, {words['rows']} rows, {len(federation.features)} features"
    )
    for site in words["largest_sites"]:
        OUTPUT.print(
            f"  {site['name']}: {site['train']} train, {site['validation']} validation, {site['test']} test rows",
            markup=False,
        )
    OUTPUT.print(
        f"Predicts {federation.task.target} with {study.model.name} ({words['parameters']} parameters), "
        f"{study.study.rounds} rounds.",
        markup=False,
    )
    OUTPUT.print(f"Memory: about {words['memory_bytes'] / 1e6:.1f} MB. Each message: {words['message_bytes']} bytes.")
    for label, noise in words["noise"].items():
        OUTPUT.print(privacy_words(study, label, noise), markup=False)
    for note in setting.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print("The study is valid.")


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


def tune_command(study: Study, *, out: Path | None, resume: bool, as_json: bool) -> None:
    """`tune`: search, and say what to write into the study file."""
    from wardround.workflows.tune import space_of, tune

    if study.tune is None:
        raise Refusal("the study has no [tune] table", where="[tune]", remedy="add a table [tune] with parameters")
    setting = assemble.load_setting(study, study.study.seed)
    space = space_of(study, setting)
    folder = open_folder(study, out, resume)
    with interruptible(folder, "tune"), Progress(console=ERRORS, transient=True) as bars:
        bar = bars.add_task("tuning", total=study.tune.trials)
        found = tune(
            study, setting, space, folder, resume=resume, on_trial=lambda done: bars.update(bar, completed=done)
        )
    if as_json:
        print(to_json({"folder": str(folder.path), **values_of(found)}))
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
    from wardround.study.file import PartnersSection
    from wardround.workflows.partners.recommend import check_partners, partners

    said = study.partners or PartnersSection()
    said = said.model_copy(update={"withdrawn": [*said.withdrawn, *withdrawn]})
    about = study.study if asking is None else study.study.model_copy(update={"user": asking})
    study = study.model_copy(update={"study": about, "partners": said})
    # Wrong data or settings are refused before there is a folder.
    plan = check_partners(study, assemble.load_setting(study, study.study.seed))
    folder = open_folder(study, out, False)
    with interruptible(folder, "partners"), Progress(console=ERRORS, transient=True) as bars:
        bar = bars.add_task("partners", total=None)
        result = partners(plan, folder, step=lambda words: bars.update(bar, description=words))
    report = write_report(folder.path)
    if as_json:
        print(to_json({"folder": str(folder.path), "report": str(report), **values_of(result)}))
        return
    OUTPUT.print(partners_table(result))
    for note in result.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print(f"Report: {report}", markup=False, soft_wrap=True)
