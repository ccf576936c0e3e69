"""A run as a report sees it: its result, its rounds and its manifest together, complete even where the files are not.

Everything may be missing or short. A number that is not there, or is not finite, is None and is said in words later;
nothing is made up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.runs.cases_result import BudgetTables
from wardround.runs.clinical.patient_table import PatientFlow, PatientTable
from wardround.runs.courses import Course, read_courses
from wardround.runs.fields import TOLERANT, Json, mapping, total
from wardround.runs.file_names import MANIFEST, RESULT, ROUNDS
from wardround.runs.read import read_manifest, read_result, read_rounds
from wardround.runs.result import Cost, MethodDifference, MethodResult, PartnersResult, RunResult
from wardround.runs.sites import PredictionTask, SiteSummary


@dataclass(frozen=True)
class Run:
    name: str
    kind: str = "run"
    task: PredictionTask = field(default_factory=lambda: PredictionTask.model_validate({}, context=TOLERANT))
    metric: str = ""
    level: float | None = None
    """Confidence level of the intervals, when the result tells it."""
    hospitals: tuple[SiteSummary, ...] = ()
    methods: tuple[MethodResult, ...] = ()
    differences: tuple[MethodDifference, ...] = ()
    flow: PatientFlow | None = None
    patient_table: PatientTable | None = None
    truth: Any = ()
    """What the maker of the data knows: sentences, or a table of groups, reasons and numbers."""
    notes: tuple[str, ...] = ()
    budgets: BudgetTables | None = None
    """Methods at equal cost, where that was found."""
    courses: tuple[Course, ...] = ()
    manifest: Json = field(default_factory=dict)
    finished: bool = True
    remarks: tuple[str, ...] = ()
    """What is wrong with the files themselves."""
    recorded_repeats: int | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that occur, the main one first."""
        found = dict.fromkeys([self.metric] if self.metric else [])
        for method in self.methods:
            own = method.scores
            for scores in (*own.sites.values(), own.weighted, own.unweighted):
                found.update(dict.fromkeys(scores))
        return tuple(found)

    @property
    def asking(self) -> str:
        """The hospital that a personal model is for; empty when there is none."""
        return str(mapping(mapping(self.manifest.get("study")).get("study")).get("user") or "")

    @property
    def repeats(self) -> int:
        return self.recorded_repeats or len({course.repeat for course in self.courses})

    def method(self, name: str) -> MethodResult:
        """The method of that name; one that the result does not list goes by its name."""
        return next((method for method in self.methods if method.name == name), unknown_method(name))

    def cost(self, method: MethodResult) -> Cost:
        """What a method used; what its own meters do not tell is added up from the rounds."""
        mine = [course.cost for course in self.courses if course.method == method.name]
        cost = method.cost
        if cost.traffic is None:
            cost = replace(
                cost, bytes_down=total([c.bytes_down for c in mine]), bytes_up=total([c.bytes_up for c in mine])
            )
        return cost if cost.seconds is not None else replace(cost, seconds=total([c.seconds for c in mine]))

    def first_course(self, method: str) -> Course | None:
        return next(iter(self.first_courses(method)), None)

    def first_courses(self, method: str) -> list[Course]:
        """Of the first repeat: one, or one for each hospital that asked in turn."""
        mine = [course for course in self.courses if course.method == method]
        first = min((course.repeat for course in mine), default=0)
        return [course for course in mine if course.repeat == first]

    def asker(self, course: Course) -> str:
        """The hospital that this course was for; empty where it was for all."""
        return course.user or self.asking


def read_run(folder: Path) -> Run:
    """All that the folder tells about the run."""
    if not any((folder / name).is_file() for name in (MANIFEST, ROUNDS, RESULT)):
        raise Refusal(
            f"there is no run in this folder: none of {MANIFEST}, {ROUNDS} and {RESULT} is there",
            where=str(folder),
            remedy="give the folder that `wardround run --out FOLDER` or `wardround compare --out FOLDER` wrote",
        )
    manifest, found = read_manifest(folder), read_result(folder)
    records, torn = read_rounds(folder)
    courses = tuple(read_courses(records))
    remarks = list(found.remarks) if found else []
    if manifest is None:
        remarks.append(f"{MANIFEST} is missing, so versions, seed and hashes cannot be shown.")
    if torn:
        lines, are = ("One line", "is") if torn == 1 else (f"{torn} lines", "are")
        remarks.append(f"{lines} of {ROUNDS} could not be read (cut off in writing) and {are} left out.")
    study = mapping(mapping((manifest or {}).get("study")).get("study"))
    name = str(study.get("name") or mapping((manifest or {}).get("study")).get("name") or folder.resolve().name)
    result = found.result if found else None
    run = run_of(result, default_name=name) if isinstance(result, RunResult) else unfinished_run(name, courses)
    return replace(run, courses=courses, manifest=manifest or {}, remarks=tuple(remarks))


def run_of(result: RunResult | PartnersResult, *, default_name: str = "study") -> Run:
    """What a result alone tells of a run."""
    methods = result.methods if isinstance(result, RunResult) else ()
    return Run(
        name=result.study or default_name,
        kind=result.kind or "run",
        task=result.task,
        metric=result.metric,
        level=level_of(methods),
        hospitals=result.sites,
        methods=methods,
        differences=result.comparison if isinstance(result, RunResult) else (),
        flow=result.flow if isinstance(result, RunResult) else None,
        patient_table=result.patient_table if isinstance(result, RunResult) else None,
        truth=result.truth or (),
        notes=result.notes,
        budgets=result.budgets if isinstance(result, RunResult) else None,
        recorded_repeats=result.repeats,
    )


def unfinished_run(name: str, courses: tuple[Course, ...]) -> Run:
    """A run that did not end: what the rounds alone tell."""
    names = dict.fromkeys(site for course in courses for site in course.site_loss)
    methods = dict.fromkeys(course.method for course in courses)
    return Run(
        name=name,
        hospitals=tuple(SiteSummary.model_validate({"name": name}, context=TOLERANT) for name in names),
        methods=tuple(unknown_method(name, last_round(name, courses)) for name in methods),
        finished=False,
    )


def unknown_method(name: str, rounds: int | None = None) -> MethodResult:
    """A method of which the name is known, and perhaps how far it came."""
    return MethodResult.model_validate({"name": name, "label": name, "rounds": rounds}, context=TOLERANT)


def last_round(method: str, courses: tuple[Course, ...]) -> int:
    return max((course.rounds[-1] for course in courses if course.method == method and course.rounds), default=0)


def level_of(methods: Iterable[MethodResult]) -> float | None:
    """The confidence level of the intervals, when all methods tell the same."""
    levels = {method.scores.intervals.level if method.scores.intervals else None for method in methods}
    return levels.pop() if len(levels) == 1 else None
