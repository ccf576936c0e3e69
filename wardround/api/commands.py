"""What the commands do, from Python: run, compare, tune, recommend partners, attack.

Each checks everything before it writes anything. A folder is written as on the command line (`runs/NAME` unless `out`
says otherwise), so that what Python made can be reported, resumed and predicted with there, and the other way round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wardround.api.finished_analysis import FinishedAnalysis
from wardround.api.finished_run import FinishedRun
from wardround.api.studies import compare_words
from wardround.core.contracts import RoundRecord
from wardround.core.errors import Refusal
from wardround.engine.analyse import Expert, no_expert
from wardround.privacy.attacks.membership import FEWEST_SHADOWS
from wardround.report.cases.page import write_cases_report
from wardround.report.model_card.facts import write_card
from wardround.report.run.page import write_report
from wardround.runs.explain.explain_result import ExplainResult
from wardround.runs.explain.gaps_result import GapsResult
from wardround.runs.folder import RunFolder
from wardround.runs.result import CasesResult, PartnersResult, RunResult, TuneResult
from wardround.study import assemble
from wardround.study.file import PartnersSection, Study, parse_study
from wardround.study.methods import Method, compared_methods, own_method
from wardround.workflows import analysis as analyses
from wardround.workflows import compare_cases as cases
from wardround.workflows import run as runs
from wardround.workflows import tune as tuning
from wardround.workflows.attack import attack as attacks
from wardround.workflows.explain import explain as explaining
from wardround.workflows.explain import gaps
from wardround.workflows.partners import recommend
from wardround.workflows.training_plan import Plans, check_methods

OnRound = Callable[[Method, int, RoundRecord], None]
"""Called after every round with the method, the repeat and the round's record."""


OnFolder = Callable[[Path], None]
"""Called with the folder of the run when everything is checked and training is about to begin."""


def unnoticed(folder: Path) -> None:
    """Nobody wants to know."""


def silent(method: Method, repeat: int, record: RoundRecord) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class PreparedRun:
    """A study that was checked, with the folder into which it will be trained."""

    study: Study
    kind: str
    methods: Sequence[Method]
    repeats: int
    plans: Plans
    folder: RunFolder
    resume: bool

    def train(self, on_round: OnRound = silent) -> FinishedRun:
        """Train, evaluate, and write models, card and report."""
        runs.run(
            self.study,
            self.folder,
            self.methods,
            kind=self.kind,
            repeats=self.repeats,
            plans=self.plans,
            resume=self.resume,
            on_round=on_round,
        )
        write_card(self.folder.path)
        write_report(self.folder.path)
        return FinishedRun(self.folder.path, self.study)


def check_run(study: Study, kind: str) -> tuple[list[Method], int, Plans]:
    """The methods, the repeats, and their plans on the first split; wrong data or settings are refused."""
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
    return methods, repeats, check_methods(study, assemble.load_setting(study, study.study.seed), methods)


def prepare_run(study: Study, kind: str, *, out: str | Path | None = None, resume: bool = False) -> PreparedRun:
    """Check the study and open its folder; wrong data or settings are refused before there is a folder."""
    methods, repeats, plans = check_run(study, kind)
    return PreparedRun(study, kind, methods, repeats, plans, open_folder(study, out, resume=resume), resume)


def open_folder(study: Study, out: str | Path | None, *, resume: bool) -> RunFolder:
    """The folder of a run: the one that is named, or a new one in runs/."""
    if resume and out is None:
        raise Refusal("--resume needs the folder of a run", remedy="name its folder with --out")
    path = RunFolder.free_name(Path("runs"), study.study.name) if out is None else Path(out)
    return RunFolder.create(path, resume=resume)


def run(
    study: Study, *, out: str | Path | None = None, resume: bool = False, on_round: OnRound = silent
) -> FinishedRun | FinishedAnalysis:
    """Train a study and evaluate its model on held-out patients; or, of a study with an [analysis], find its answer."""
    if study.analysis is not None:
        return analyse(study, out=out, resume=resume)
    return prepare_run(study, "run", out=out, resume=resume).train(on_round)


def analyse(
    study: Study,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_folder: OnFolder = unnoticed,
    expert: Expert = no_expert,
) -> FinishedAnalysis:
    """Ask every site for sums until the study's [analysis] has its answer, and write folder and report.

    `expert` is called with every question of an analysis that asks one, and gives "yes", "no", "unsure", "back" or
    "done".
    """
    plan = analyses.check_analysis(study)
    folder = open_folder(study, out, resume=resume)
    on_folder(folder.path)
    analyses.run_analysis(plan, folder, resume=resume, expert=expert)
    write_report(folder.path)
    return FinishedAnalysis(folder.path)


def compare(
    study: Study,
    methods: Sequence[Any] = (),
    *,
    repeats: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_round: OnRound = silent,
) -> FinishedRun:
    """Compare methods on the same splits: those given, or those of [compare]."""
    if methods or repeats is not None:
        study = with_comparison(study, methods, repeats)
    if study.compare is not None and (study.compare.cases or study.compare.rates):
        folder = compare_settings(study, out=out, resume=resume, watch=cases.Watch(on_round=on_round))[1]
        return FinishedRun(folder.path, study)
    return prepare_run(study, "compare", out=out, resume=resume).train(on_round)


def with_comparison(study: Study, methods: Sequence[Any], repeats: int | None) -> Study:
    """The study with another [compare] table."""
    content = study.model_dump(mode="json", exclude_none=True)
    before = content.get("compare", {})
    many = repeats or before.get("repeats", 5)
    content["compare"] = {**before, **(compare_words(methods, many) if methods else {"repeats": many})}
    return parse_study(content, where="compare")


def compare_settings(
    study: Study,
    *,
    out: str | Path | None,
    resume: bool,
    watch: cases.Watch = cases.NOBODY,
    on_folder: OnFolder = unnoticed,
) -> tuple[RunResult | CasesResult, RunFolder]:
    """A comparison with rates to choose from, or with cases, each of which is a comparison in a folder of its own."""
    import jax

    assert study.compare is not None
    if jax.process_count() > 1:
        raise Refusal("rates and cases run on one host only", where="[compare]", remedy="remove --hosts")
    if not study.compare.cases:
        plans = cases.check_comparison(study)
        folder = open_folder(study, out, resume=resume)
        on_folder(folder.path)
        result: RunResult | CasesResult = cases.compare_at_rates(study, folder, plans, resume=resume, watch=watch)
        write_report(folder.path)
        return result, folder
    found = cases.read_cases(study)
    folder = open_folder(study, out, resume=resume)
    on_folder(folder.path)
    result = cases.compare_cases(study, found, folder, resume=resume, watch=watch, on_finished=write_report)
    write_cases_report(folder.path)
    return result, folder


def tune(
    study: Study,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_trial: Callable[[int], None] = lambda done: None,
    on_folder: OnFolder = unnoticed,
) -> TuneResult:
    """Search the hyperparameters of [tune] by cross-validation; test patients are never used."""
    if study.tune is None:
        raise Refusal("the study has no [tune] table", where="[tune]", remedy="add a table [tune] with parameters")
    setting = assemble.load_setting(study, study.study.seed)
    space = tuning.space_of(study, setting)
    folder = open_folder(study, out, resume=resume)
    on_folder(folder.path)
    return tuning.tune(study, setting, space, folder, resume=resume, on_trial=on_trial)


def recommend_partners(
    study: Study,
    user: str | None = None,
    *,
    without: Sequence[str] = (),
    out: str | Path | None = None,
    step: Callable[[str], None] = lambda words: None,
    on_folder: OnFolder = unnoticed,
) -> tuple[PartnersResult, Path]:
    """Whose data help a site's patients, whose do not, and why; and the page that says so."""
    said = study.partners or PartnersSection()
    said = said.model_copy(update={"withdrawn": [*said.withdrawn, *without]})
    about = study.study if user is None else study.study.model_copy(update={"user": user})
    study = study.model_copy(update={"study": about, "partners": said})
    plan = recommend.check_partners(study, assemble.load_setting(study, study.study.seed))
    folder = open_folder(study, out, resume=False)
    on_folder(folder.path)
    result = recommend.partners(plan, folder, step=step)
    return result, write_report(folder.path)


def explain_study(
    study: Study,
    *,
    out: str | Path | None = None,
    say: Callable[[str], None] = lambda words: None,
    on_folder: OnFolder = unnoticed,
) -> tuple[ExplainResult, Path]:
    """For which patients another site's classifier knows more, with rules in words; and the folder with the page."""
    plan = explaining.check_explain(study, say)
    folder = open_folder(study, out, resume=False)
    on_folder(folder.path)
    result = explaining.run_explain(plan, folder, say)
    write_report(folder.path)
    return result, folder.path


def find_gaps(
    study: Study,
    *,
    out: str | Path | None = None,
    say: Callable[[str], None] = lambda words: None,
    on_folder: OnFolder = unnoticed,
) -> tuple[GapsResult, Path]:
    """For which practices another organisation's model is better or more consistent; and the folder with the page."""
    plan = gaps.check_gaps(study)
    folder = open_folder(study, out, resume=False)
    on_folder(folder.path)
    result = gaps.run_gaps(plan, folder, say)
    write_report(folder.path)
    return result, folder.path


def attack(study: Study, *, shadows: int = 16, say: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """What a curious or lying coordinator could learn from the study, with and without its protections."""
    if shadows < FEWEST_SHADOWS:
        raise Refusal(
            f"{shadows} shadow models are too few", where="--shadows", remedy=f"train at least {FEWEST_SHADOWS}"
        )
    ((plan,),) = check_methods(study, assemble.load_setting(study, study.study.seed), [own_method(study)])
    return attacks.attack(study, plan, shadows=shadows, say=say)
