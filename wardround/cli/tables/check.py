"""`wardround check STUDY`: everything but the training, with a table of the columns and each warning with its fix."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wardround.cli.studies import OUTPUT, describe_study, privacy_words
from wardround.cli.tables.columns import as_facts, columns_table, print_findings, sites_table
from wardround.cli.tables.first_look import is_table, look_command
from wardround.core.errors import Refusal
from wardround.core.text import plain_line
from wardround.data.inspection.findings import Finding, find_in_table
from wardround.data.inspection.profile import ColumnProfile, profile_table
from wardround.data.table import Table
from wardround.runs.json_files import as_json as to_json
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study, read_study
from wardround.study.methods import compared_methods, own_method
from wardround.workflows.results import data_summary
from wardround.workflows.training_plan import check_methods


@dataclass
class TableLook:
    """What the rows show as soon as they are read, so that it can be printed also where the study is refused."""

    aside: tuple[str, ...]
    columns: tuple[ColumnProfile, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    def at(self, table: Table) -> None:
        self.columns = profile_table(table, self.aside)
        self.findings = find_in_table(table, self.aside)


def check_path(path: Path, *, as_json: bool) -> None:
    """Check a study file; or look at a table, for which there is no study yet."""
    if is_table(path):
        look_command(path, as_json=as_json)
    else:
        check_command(read_study(path), as_json=as_json)


def check_command(study: Study, *, as_json: bool) -> None:
    """Print what the study would train on, or the columns and why it is refused."""
    if study.analysis is not None:
        from wardround.cli.analyses import check_analysis_command

        check_analysis_command(study, as_json=as_json)
        return
    look = TableLook((study.data.split_by,) if study.data.split_by else ())
    try:
        setting = read_setting(study, look)
    except Refusal:
        if look.columns and not as_json:
            OUTPUT.print(columns_table(look.columns))
            print_findings(OUTPUT, look.findings[1:] if is_first_refused(look) else look.findings)
        raise
    methods = [own_method(study), *(compared_methods(study) if study.compare else [])]
    plans = check_methods(study, setting, methods)
    words = describe_study(study, plans) | as_facts(look.columns, setting.findings or look.findings)
    words |= {"site_rows": site_rows(setting), "positive": positive_label(setting)}
    if as_json:
        print(to_json(words))
    else:
        print_check(study, setting, look, words)


def is_first_refused(look: TableLook) -> bool:
    """Whether the refusal, which is printed last, tells the first finding already."""
    return bool(look.findings) and look.findings[0].stops


def read_setting(study: Study, look: TableLook) -> Setting:
    if study.compare is not None and study.compare.cases:
        from wardround.workflows.compare_cases import first_split, read_cases

        return first_split(study, read_cases(study))
    return assemble.load_setting(study, study.study.seed, on_rows=look.at)


def positive_label(setting: Setting) -> str:
    classes = setting.federation.task.classes
    return classes[setting.positive] if len(classes) == 2 else ""


def site_rows(setting: Setting) -> list[dict[str, Any]]:
    """Rows of every site, and the share of the positive label among its training rows."""
    return [
        {
            "name": one.name,
            "rows": (one.train or 0) + (one.validation or 0) + (one.test or 0),
            "train": one.train,
            "validation": one.validation,
            "test": one.test,
            "prevalence": one.prevalence,
        }
        for one in data_summary(setting)["sites"]
    ]


def print_check(study: Study, setting: Setting, look: TableLook, words: dict[str, Any]) -> None:
    federation = setting.federation
    shape = federation.task.shape
    read = f"{words['rows']} rows, {len(federation.features)} features"
    if len(shape) == 3:
        read = f"{words['rows']} images of {shape[0]} x {shape[1]} in {'grey' if shape[2] == 1 else 'colour'}"
    OUTPUT.print(f"{study.study.name}: {words['sites']} sites, {read}")
    if look.columns:
        OUTPUT.print(columns_table(look.columns))
    OUTPUT.print(sites_table(words["site_rows"], federation.task.target, words["positive"]))
    OUTPUT.print(
        f"Predicts {federation.task.target} with {study.model.name} ({words['parameters']} parameters), "
        f"{study.study.rounds} rounds.",
        markup=False,
    )
    OUTPUT.print(f"Memory: about {words['memory_bytes'] / 1e6:.1f} MB. Each message: {words['message_bytes']} bytes.")
    for label, noise in words["noise"].items():
        OUTPUT.print(privacy_words(study, label, noise), markup=False)
    told = {one.note for one in setting.findings}
    for note in setting.notes:
        if note not in told:
            OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    print_findings(OUTPUT, setting.findings)
    warnings = len(setting.findings)
    more = f" Read the {'warning' if warnings == 1 else f'{warnings} warnings'} above." if warnings else ""
    OUTPUT.print(f"The study is valid.{more}")
