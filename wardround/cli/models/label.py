"""`wardround label`: an expert at the terminal judges rules, one at a time; the records stay where they are."""

import getpass
import time
from collections.abc import Callable
from pathlib import Path

import typer
from rich.console import Console

from wardround.api.commands import analyse
from wardround.cli.analyses import print_analysis
from wardround.core.analysis import ExpertQuestion
from wardround.core.errors import Refusal
from wardround.core.text import counted, plain_line
from wardround.runs.file_names import FUNCTIONS, REPORT
from wardround.runs.json_files import as_json as to_json
from wardround.runs.read import has_manifest
from wardround.runs.result import values_of
from wardround.study.analyses.analysis import said_analysis
from wardround.study.file import Study
from wardround.workflows.expert import DialogueStopped, give_answer, waiting_question

OUTPUT = Console()
KEYS = {"y": "yes", "n": "no", "u": "unsure", "b": "back", "d": "done", "q": "stop"}
HELP = "y yes, n no, u not sure, b take the last answer back, d done, q stop and go on another time"
BEGINNING = (
    "You see one rule at a time. Say yes if most records on which it fires really are of its class; nobody's record is"
    " shown."
)
HEIGHT, WIDTH = 9, 60
PATIENCE = 60.0
"""Seconds to wait for the next question."""


def drawing(samples: list[float]) -> list[str]:
    """A template as lines of text, without gaps where it is steep.

    >>> drawing([0.0, 1.0])[0].rstrip(), len(drawing([0.0, 1.0]))
    ('                              ██████████████████████████████', 9)
    >>> drawing([0.0, 1.0])[4].strip()
    '█'
    """
    places = [int(column * len(samples) / WIDTH) for column in range(WIDTH)]
    low, high = min(samples), max(samples)
    rows = [round((HEIGHT - 1) * (samples[place] - low) / ((high - low) or 1.0)) for place in places]
    spans = [(min(before, row), max(before, row)) for before, row in zip([rows[0], *rows], rows, strict=False)]
    lines = range(HEIGHT - 1, -1, -1)
    return ["".join("█" if first <= line <= last else " " for first, last in spans) for line in lines]


def show(asked: ExpertQuestion) -> None:
    """What the rule says, how often it fires at how many sites, and how it agrees with rules already accepted."""
    facts = asked.facts
    lines = ["", f"Rule {asked.number} of {asked.most}: {plain_line(asked.words)}"]
    if "samples" in facts["rule"]:
        lines += drawing(list(map(float, facts["rule"]["samples"])))
    share = f" ({100 * facts['records'] / facts['of']:.1f} %)" if facts["of"] else ""
    lines.append(f"  {facts['sites']} sites propose it; it fires on about {facts['records']:,} records{share}.")
    if facts["agree_of"]:
        lines.append(
            f"  Where accepted rules vote too ({facts['agree_of']:,} records), they say {plain_line(facts['label'])} in"
            f" {100 * facts['agree'] / facts['agree_of']:.0f} %."
        )
    for line in lines:
        say(line)


def ask_at_terminal(asked: ExpertQuestion) -> str:
    """Until a key, or the whole word of one, was given; the end of the input is a stop, and nothing is lost."""
    show(asked)
    while True:
        try:
            key = str(typer.prompt(f"Mostly right? ({'/'.join(KEYS)}, ? for help)")).strip().lower()
        except (typer.Abort, KeyboardInterrupt):
            OUTPUT.print()
            raise DialogueStopped from None
        answer = KEYS.get(key, key if key in KEYS.values() else "")
        if answer == "stop":
            raise DialogueStopped
        if answer == "back" and asked.number == 1:
            say("There is no answer to take back.")
        elif answer:
            return answer
        else:
            say(HELP if key == "?" else f"{plain_line(key)!r} is no answer: {HELP}")


def say(line: str) -> None:
    OUTPUT.print(line, markup=False, highlight=False, soft_wrap=True)


class TerminalExpert:
    """Whoever sits at the terminal: by the name given, or that of the login."""

    def __init__(self, by: str | None = None) -> None:
        self.by = by or getpass.getuser()
        self.begun = False

    def __call__(self, asked: ExpertQuestion) -> str:
        if not self.begun:
            self.begun = True
            say(BEGINNING)
            say(f"Keys: {HELP}.")
            if asked.number > 1:
                say(f"{counted(asked.number - 1, 'answer')} so far; you go on where you stopped.")
        return ask_at_terminal(asked)


def label_command(
    study: Study, *, out: Path | None, resume: bool, as_json: bool, by: str | None = None, file: Path = Path("STUDY")
) -> None:
    """Mine rules with an expert at the terminal (or an oracle, if the study says so)."""
    if said_analysis(study).name != "rule_mining":
        raise Refusal(
            f"the analysis '{said_analysis(study).name}' asks no expert",
            where="[analysis]",
            remedy='name = "rule_mining"; other analyses go with `wardround run`',
        )
    opened: list[Path] = []
    try:
        finished = analyse(study, out=out, resume=resume, on_folder=opened.append, expert=TerminalExpert(by))
    except (DialogueStopped, KeyboardInterrupt):
        going_on = f" Go on with: wardround label {file} --resume --out {opened[0]}" if opened else ""
        say(f"Stopped; all answers are kept.{going_on}")
        return
    if as_json:
        files = {"folder": str(finished.folder), "functions": str(finished.folder / FUNCTIONS)}
        print(to_json({**files, **values_of(finished.result)}))
        return
    print_analysis(finished.result)
    OUTPUT.print(f"Functions: {finished.folder / FUNCTIONS}", markup=False, soft_wrap=True)
    OUTPUT.print(f"Report: {finished.folder / REPORT}", markup=False, soft_wrap=True)


def answer_folder(
    folder: Path, ask: Callable[[ExpertQuestion], str] | None = None, wait: float = 1.0, by: str | None = None
) -> None:
    """Answer the questions of a study over real sites, as they come into its run folder."""
    if not has_manifest(folder):
        raise Refusal("this folder holds no run", where=str(folder), remedy="name a study file, or a run's folder")
    expert = TerminalExpert(by)
    while (asked := waiting_question(folder)) is not None:
        try:
            give_answer(folder, asked, (ask or expert)(asked), expert.by)
        except (DialogueStopped, KeyboardInterrupt):
            say(f"Stopped; the question waits in the folder. Go on with: wardround label {folder}")
            return
        waited = 0.0
        while waited < PATIENCE and waiting_question(folder) in (asked, None):  # until the sites have answered
            time.sleep(wait)
            waited += wait
    if (folder / FUNCTIONS).exists():
        say(f"The dialogue is over. Functions: {folder / FUNCTIONS}")
    else:
        say(f"No question waits in this folder now: the sites are at work. Look again: wardround label {folder}")
