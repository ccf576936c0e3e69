"""Many settings compared in one command: every case of [[compare.cases]] is a comparison in a folder of its own.

All cases are checked before anything is trained. A case is finished when its result is whole; a resumed run goes on
with the others. The result over all cases is put together from theirs, so it can always be made again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.errors import Refusal
from wardround.report.notes import case_notes, rate_notes
from wardround.runs.cases_result import CaseDifference, CaseMethodResult, CaseResult, MethodLabel, RateSearch
from wardround.runs.fields import part_of
from wardround.runs.folder import RunFolder, digest
from wardround.runs.read import has_manifest, read_manifest, read_result
from wardround.runs.result import ALL, CasesResult, RunResult
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.data_rules import shares_by_role
from wardround.study.file import CaseSection, Settings, Study, parse_study
from wardround.study.methods import Method, compared_methods
from wardround.workflows.cost.equal_cost import budgets, trainer_of
from wardround.workflows.learning_rates import rate_of, refuse_rates, with_rate
from wardround.workflows.run import OnRound, run
from wardround.workflows.training_plan import Plans, check_methods, plan_methods

RATES = "rates.jsonl"
FOLDER = "cases"
MOST_KEPT = 1_000_000_000
"""Bytes of splits kept for later cases, at most."""


class Case(NamedTuple):
    """One setting: its study, complete, and the methods to compare, planned on the first split of its data."""

    name: str
    title: str
    study: Study
    plans: Plans

    @property
    def setting(self) -> Setting:
        return self.plans[0][0].setting

    @property
    def methods(self) -> list[Method]:
        return methods_in(self.plans)


class Watch(NamedTuple):
    """Who wants to know how far it is: told when a case begins, when a rate was tried, and after every round."""

    on_case: Callable[[str, int, int], None] = lambda title, number, cases: None
    on_rate: Callable[[str], None] = lambda method: None
    on_round: OnRound = lambda method, repeat, record: None


NOBODY = Watch()


def study_of(study: Study, case: CaseSection) -> Study:
    """The study as the case has it: its own tables laid over the study's."""
    whole: dict[str, Any] = study.model_dump(mode="json", exclude_none=True)
    tables = {"data": case.data, "study": {"name": case.name, **case.study}, "model": case.model}
    for table, key in (("data", "source"), ("study", ""), ("model", "name")):
        whole[table] = overlay_table(whole[table], tables[table], key)
    if case.privacy:
        whole["privacy"] = {**whole.get("privacy", {}), **case.privacy}
    whole["compare"]["cases"] = []
    if "rounds" not in {*study.study.model_fields_set, *case.study}:
        whole["study"].pop("rounds")  # left open: such a study adjusts itself
    return parse_study(whole, where=f"[[compare.cases]] {case.name}")


def overlay_table(under: Settings, over: Settings, whole: str) -> Settings:
    """The keys of one table over those of another; a table that has the key `whole` stands by itself."""
    return dict(over) if whole in over else {**under, **over}


def read_cases(study: Study) -> list[Case]:
    """Every case with its data read and all that can be known to be wrong refused, before anything is trained."""
    assert study.compare is not None
    names = [case.name for case in study.compare.cases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refusal(f"two cases are called '{twice}'", where="[[compare.cases]]", remedy="give each its own name")
    studies = [study_of(study, case) for case in study.compare.cases]
    shelf = SplitCache((own, 0) for own in studies)
    return [read_case(own, case, shelf) for own, case in zip(studies, study.compare.cases, strict=True)]


@contextmanager
def case_refusals(case: str) -> Iterator[None]:
    """A refusal also tells the case it comes from."""
    try:
        yield
    except Refusal as refusal:
        where = ", ".join(filter(None, [f"[[compare.cases]] {case}", refusal.where]))
        raise Refusal(refusal.what, where=where, remedy=refusal.remedy) from None


def read_case(own: Study, case: CaseSection, shelf: "SplitCache") -> Case:
    with case_refusals(case.name):
        plans = check_comparison(own, shelf.take)
    return Case(case.name, case.title or case.name, own, plans)


class SplitCache:
    """Splits that several cases need are read once: each is kept until the last of them has taken it."""

    def __init__(self, wanted: Iterable[tuple[Study, int]]) -> None:
        self._waiting = Counter(split_of(study, repeat) for study, repeat in wanted)
        self._kept: dict[str, Setting] = {}

    def take(self, study: Study, repeat: int) -> Setting:
        """The split of the study's data that a repeat has."""
        key = split_of(study, repeat)
        found = self._kept.pop(key, None) or assemble.load_repeat(study, repeat)
        self._waiting[key] -= 1
        if self._waiting[key] > 0 and sum(map(size, [found, *self._kept.values()])) <= MOST_KEPT:
            self._kept[key] = found
        return found


def split_of(study: Study, repeat: int) -> str:
    """All that decides about a split of the data."""
    return digest([study.data.model_dump(mode="json"), shares_by_role(study), study.study.seed, repeat])


def first_split(study: Study, cases: Sequence[Case]) -> Setting:
    """The first split of the study itself, which some case may have read already."""
    own = split_of(study, 0)
    read = (case.setting for case in cases if split_of(case.study, 0) == own)
    return next(read, None) or assemble.load_repeat(study, 0)


def size(setting: Setting) -> int:
    """Bytes of the rows as they are trained on; the raw ones beside them are about as many."""
    return int(setting.federation.x.nbytes)


def check_comparison(study: Study, load: Callable[[Study, int], Setting] = assemble.load_repeat) -> Plans:
    """The methods of a comparison that can work, planned on the first split."""
    assert study.compare is not None
    methods = compared_methods(study)
    if study.compare.against is not None and study.compare.against not in study.compare.methods:
        raise Refusal(
            f"'{study.compare.against}' is not among the methods", where="[compare] against", remedy="name it there"
        )
    setting = load(study, 0)
    refuse_rates(study, setting, methods)
    return check_methods(study, setting, methods)


def methods_in(plans: Plans) -> list[Method]:
    return [of_method[0].method for of_method in plans]


def compare_cases(
    study: Study,
    cases: Sequence[Case],
    folder: RunFolder,
    *,
    resume: bool = False,
    watch: Watch = NOBODY,
    on_finished: Callable[[Path], Any] = lambda folder: None,
) -> CasesResult:
    """Every case into its folder, and what they say together; `on_finished` may write a report there."""
    fingerprint = digest([case.setting.fingerprint for case in cases])
    manifest = folder.begin(study.model_dump(mode="json"), fingerprint, kind="cases", resume=resume)
    results: dict[str, RunResult] = {}
    shelf = SplitCache((case.study, repeat) for case in cases for repeat in later_repeats(case.study))
    for number, case in enumerate(cases):
        watch.on_case(case.title, number, len(cases))
        place = folder.path / FOLDER / case.name
        found = read_finished(place, case) if resume else None
        if found is None:
            begun = resume and has_manifest(place)
            own = RunFolder.create(place, resume=begun)
            with case_refusals(case.name):
                found = compare_at_rates(case.study, own, case.plans, resume=begun, watch=watch, load=shelf.take)
            on_finished(place)
        results[case.name] = found
    result = CasesResult(
        study=study.study.name,
        kind="cases",
        against=against_of(study),
        users=study.compare.users if study.compare else "one",
        methods=tuple(MethodLabel(name=method.name, label=method.label) for method in cases[0].methods),
        cases=tuple(summary(case, results[case.name]) for case in cases),
        notes=tuple(case_notes(in_turn=study.compare is not None and study.compare.users == "each")),
    )
    folder.write_result(result)
    folder.finish(manifest)
    return result


def later_repeats(study: Study) -> range:
    """Those whose data are still to be read; the first were read when the case was checked."""
    assert study.compare is not None
    return range(1, study.compare.repeats)


def read_finished(place: Path, case: Case) -> RunResult | None:
    """The whole result of a case that is done, if the folder holds it and it is this very case's."""
    try:
        found, manifest = read_result(place), read_manifest(place)
    except Refusal:  # what cannot be read is made anew
        return None
    result = found.result if found else None
    if not isinstance(result, RunResult) or manifest is None or result.budgets is None:
        return None
    same = manifest.get("study_hash") == digest(case.study.model_dump(mode="json"))
    return result if same and manifest.get("data_hash") == case.setting.fingerprint else None


def compare_at_rates(
    study: Study,
    folder: RunFolder,
    plans: Plans,
    *,
    kind: str = "compare",
    resume: bool = False,
    watch: Watch = NOBODY,
    load: Callable[[Study, int], Setting] = assemble.load_repeat,
) -> RunResult:
    """A comparison in which each method first gets its rate, where the study names some; with budgets in its result."""
    assert study.compare is not None
    setting, methods, rates = plans[0][0].setting, methods_in(plans), study.compare.rates
    folder.begin(study.model_dump(mode="json"), setting.fingerprint, kind=kind, resume=resume)
    rated = rates_of(study, folder, plans, watch.on_rate)
    with_rates = methods_at_rates(study, methods, rated)
    planned = plans_for(study, plans, with_rates)
    result = run(
        study,
        folder,
        with_rates,
        kind=kind,
        repeats=study.compare.repeats,
        plans=planned,
        resume=True,  # the manifest is there already, also where nothing is trained yet
        on_round=watch.on_round,
        notes=rate_notes(rates, rated, [one.name for one in methods]) if rates else [],
        load=load,
    )
    rows = {site.name: site.train or 0 for site in result.sites}
    trainers = [trainer_of(of_method[0]) for of_method in planned]
    further: dict[str, Any] = {"budgets": budgets(folder.records(), trainers, rows)}
    if rated:
        further["rates"] = tuple(part_of(RateSearch, one) for one in rated.values())
    result = result.model_copy(update=further)
    folder.write_result(result)
    return result


def plans_for(study: Study, plans: Plans, methods: Sequence[Method]) -> Plans:
    """The plans of these methods on the same split: those that are there, and new ones for another rate."""
    setting, known = plans[0][0].setting, {of_method[0].method.name: of_method for of_method in plans}
    return [
        known[method.name] if known[method.name][0].method == method else plan_methods(study, setting, [method], 0)[0]
        for method in methods
    ]


def methods_at_rates(study: Study, methods: Sequence[Method], rated: Mapping[str, Mapping[str, Any]]) -> list[Method]:
    """The methods with the rates that were found; one that diverged with all of them is left out."""
    found = []
    for method in methods:
        if method.name not in rated:
            found.append(method)
        elif rated[method.name]["rate"] is not None:
            found.append(with_rate(method, rated[method.name]["rate"]))
    if against_of(study) not in [method.name for method in found]:
        raise Refusal(
            f"training diverged with every rate that was tried for {against_of(study)}, which all are compared with",
            where="[compare] rates",
            remedy="add smaller rates",
        )
    return found


def rates_of(
    study: Study, folder: RunFolder, plans: Plans, on_rate: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """What was found for every method that knows a rate; each is written down as soon as it is known."""
    assert study.compare is not None
    if not study.compare.rates:
        return {}
    found: dict[str, dict[str, Any]] = {entry["method"]: entry for entry in folder.lines(RATES)}
    for of_method in plans:
        method = of_method[0].method
        if method.name in found:
            continue
        rated = rate_of(of_method, study.compare.rates, on_try=partial(on_rate, method.label))
        if rated is not None:
            found[method.name] = rated.told()
            folder.append(RATES, found[method.name])
    return found


def against_of(study: Study) -> str:
    """Whom the methods are compared with in every case."""
    assert study.compare is not None
    return study.compare.against or study.compare.methods[0]


def summary(case: Case, result: RunResult) -> CaseResult:
    """What the table over all cases tells of one: every method's main measure, its rate, and how it compares."""
    assert result.budgets is not None
    metric = result.metric
    verdicts = {(entry.method, entry.against): entry for entry in result.comparison if entry.site == ALL}
    rates = {entry.method: entry.rate for entry in result.rates}
    scope = result.budgets.scope.methods
    methods = {}
    for one in result.methods:
        measure = one.over_all(metric).plain()
        methods[one.name] = CaseMethodResult(
            **{key: measure[key] for key in ("value", "low", "high", "undefined") if key in measure},
            rate=rates.get(one.name),
            scope=scope[one.name].scope if one.name in scope else None,
            against={
                other: CaseDifference(
                    difference=entry.difference,
                    low=entry.low,
                    high=entry.high,
                    p_value=entry.p_value,
                    verdict=entry.verdict,
                )
                for (name, other), entry in verdicts.items()
                if name == one.name
            },
        )
    return CaseResult(
        name=case.name,
        title=case.title,
        folder=f"{FOLDER}/{case.name}",
        metric=metric,
        repeats=result.repeats,
        task=result.task,
        sites=result.sites,
        methods=methods,
        budgets=result.budgets,
    )
