"""`wardround explain` and `wardround gaps`: progress on standard error, the answer in sentences or as JSON."""

from collections.abc import Callable
from pathlib import Path

from wardround.api.commands import explain_study, find_gaps
from wardround.cli.studies import OUTPUT, interruptible, progress_from
from wardround.core.text import plain_line
from wardround.report.explain.terminal import explain_lines, gaps_table, rules_table
from wardround.runs.file_names import REPORT
from wardround.runs.json_files import as_json as to_json
from wardround.runs.result import values_of
from wardround.study.file import Study


def explain_command(study: Study, *, out: Path | None, as_json: bool) -> None:
    with interruptible("explain") as opened, progress_from(opened, "explain", None) as (begin, show):
        result, folder = explain_study(study, out=out, say=_described(show), on_folder=begin)
    if as_json:
        print(to_json({"folder": str(folder), "report": str(folder / REPORT), **values_of(result)}))
        return
    for line in explain_lines(result):
        OUTPUT.print(line, markup=False, soft_wrap=True)
    rules = rules_table(result)
    if rules is not None:
        OUTPUT.print(rules)
    for note in result.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print(f"Report: {folder / REPORT}", markup=False, soft_wrap=True)


def gaps_command(study: Study, *, out: Path | None, as_json: bool) -> None:
    with interruptible("gaps") as opened, progress_from(opened, "gaps", None) as (begin, show):
        result, folder = find_gaps(study, out=out, say=_described(show), on_folder=begin)
    if as_json:
        print(to_json({"folder": str(folder), "report": str(folder / REPORT), **values_of(result)}))
        return
    for line in result.words:
        OUTPUT.print(plain_line(line), markup=False, soft_wrap=True)
    OUTPUT.print(gaps_table(result))
    for note in result.notes:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print(f"Report: {folder / REPORT}", markup=False, soft_wrap=True)


def _described(show: Callable[..., None]) -> Callable[[str], None]:
    return lambda words: show(description=words)
