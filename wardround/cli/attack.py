"""`wardround attack`: what a curious or lying coordinator could learn, as a table and in words, or as JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from wardround.api.commands import attack
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.runs.json_files import as_json as to_json
from wardround.study.file import Study

ERRORS = Console(stderr=True)
OUTPUT = Console()


def attack_command(study: Study, *, shadows: int, out: Path | None, as_json: bool) -> None:
    """Attack, print, and keep what was found where a folder was named."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refusal("the folder is not empty", where=str(out), remedy="choose another with --out")
    with Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=ERRORS, transient=True) as bars:
        bar = bars.add_task("attacking", total=None)
        found = attack(study, shadows=shadows, say=lambda words: bars.update(bar, description=words))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "attack.json", (to_json(found) + "\n").encode())
    if as_json:
        print(to_json(found))
        return
    OUTPUT.print(
        f"What a coordinator could learn from {study.study.name} (lies: one that breaks the rules):", markup=False
    )
    OUTPUT.print(table_of(found))
    for note in found["notes"]:
        OUTPUT.print(f"Note: {note}", style="dim", markup=False)


def table_of(found: dict[str, Any]) -> Table:
    """One line an attack, one column a variant."""
    table = Table()
    table.add_column("attack")
    for variant in found["variants"]:
        table.add_column(
            ": ".join([variant["name"], *([", ".join(variant["protections"])] * bool(variant["protections"]))])
        )
    lines: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("patients reconstructed from an update", lambda one: rows_words(one["updates"])),
        ("outcomes of a site from its update", lambda one: labels_words(one["updates"])),
        ("patients reconstructed, if a site had one patient", lambda one: rows_words(one["one_patient"])),
        ("outcome of that patient", lambda one: labels_words(one["one_patient"])),
        ("membership in the training data, by loss", lambda one: member_words(one["membership"], "yeom")),
        ("membership in the training data, by shadow models", lambda one: member_words(one["membership"], "lira")),
    ]
    lines += [
        ("lies: whether a validation patient is there, from losses", lambda one: presence_words(one["losses"])),
        ("lies: one site's update, from two sums", lambda one: sum_words(one["sums"])),
    ]
    if any("weights" in one for one in found["variants"]):
        lines.append(("prevalence at the partners, from their weights", lambda one: weight_words(one["weights"])))
    for name, words in lines:
        table.add_row(name, *(words(one) for one in found["variants"]))
    return table


def rows_words(told: dict[str, Any]) -> str:
    rows = told if "not_tried" in told else told["rows"]
    if "not_tried" in rows:
        return f"not tried: {rows['not_tried']}"
    return f"{rows['rebuilt']} of {rows['rows']} (typical error: {rows['typical']:.0%} of a blind guess)"


def labels_words(told: dict[str, Any]) -> str:
    labels = told if "not_tried" in told else told["labels"]
    if "not_tried" in labels:
        return f"not tried: {labels['not_tried']}"
    if "right" in labels:
        return f"{labels['right']:.0%} correct (guessing: {labels['guess_right']:.0%})"
    return f"error {labels['error']:.1%} (guessing: {labels['guess_error']:.1%})"


def member_words(told: dict[str, Any], which: str) -> str:
    if "not_tried" in told:
        return f"not tried: {told['not_tried']}"
    one = told[which]
    words = f"advantage {one['advantage']:.0%} ± {2 * one['error']:.0%}, AUC {one['auc']:.2f}"
    return f"{words} (at most {told['bound']:.0%} by epsilon {told['epsilon']:.2g})" if "bound" in told else words


def presence_words(told: dict[str, Any]) -> str:
    if "not_tried" in told:
        return f"not tried: {told['not_tried']}"
    looks = f"{told['looks']} {'look' if told['looks'] == 1 else 'looks'}"
    return f"{told['released']} of {told['patients']} in {looks} (from exact losses: {told['exact']})"


def sum_words(told: dict[str, Any]) -> str:
    if "not_tried" in told:
        return f"not tried: {told['not_tried']}"
    if told["single_updates_seen"]:
        return f"seen as it is sent (error {told['error']:.0%} of its length)"
    return f"error {told['error']:.0%} of its length (guessing: {told['guess_error']:.0%})"


def weight_words(told: dict[str, Any]) -> str:
    if "not_tried" in told:
        return f"not tried: {told['not_tried']}"
    return f"rank correlation {told['correlation']:.2f} (by chance: p = {told['p_value']:.2g})"
