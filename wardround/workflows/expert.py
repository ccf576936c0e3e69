"""The expert of an analysis that asks one: every answer is on the disk before it counts, so a dialogue can last days.

The answers stand in the run folder in their order. Begun again, the dialogue runs through them and asks on where it was
left. Answers may come from a person at the terminal, from Python, or through the folder itself: the question that waits
is a file there, and whoever answers adds a line to the answers. Each answer is kept with who gave it.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wardround.core.analysis import ExpertQuestion
from wardround.core.contracts import Report
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.engine.analyse import Expert
from wardround.runs.file_names import EXPERT_ANSWERS, EXPERT_QUESTION, FUNCTIONS
from wardround.runs.folder import RunFolder
from wardround.weak_supervision.function_file import FORMAT
from wardround.weak_supervision.search.dialogue import ANSWERS

UNNAMED = "expert"
"""Whoever answers without a name."""


class DialogueStopped(Exception):
    """The expert goes on another time; all answers so far are kept."""


def recorded_expert(folder: RunFolder, ask: Expert) -> Expert:
    """An expert whose answers are written down; those that are there already are given again, in their order.

    An attribute `by` of the expert says who it is.
    """
    before = iter(folder.lines(EXPERT_ANSWERS))

    def expert(asked: ExpertQuestion) -> str:
        entry = next(before, None)
        if entry is None:
            answer = ask(asked)
            return record_answer(folder, asked, answer, str(getattr(ask, "by", UNNAMED)))
        if entry["question"] != asked.key:
            raise Refusal(
                f"answer {asked.number} in the folder is about another rule than the one that is shown",
                where=str(folder.path / EXPERT_ANSWERS),
                remedy="resume with the same study and data, or start in another folder",
            )
        return str(entry["answer"])

    return expert


def record_answer(folder: RunFolder, asked: ExpertQuestion, answer: str, by: str) -> str:
    if answer not in ANSWERS:
        raise Refusal(f"{answer!r} is no answer", where="expert", remedy=f"say one of {', '.join(ANSWERS)}")
    folder.append(EXPERT_ANSWERS, {"question": asked.key, "words": asked.words, "answer": answer, "by": by})
    with open(folder.path / EXPERT_ANSWERS, "rb") as file:
        os.fsync(file.fileno())
    return answer


class FolderExpert:
    """An expert who answers through the folder: the question waits in a file until an answer to it is there."""

    def __init__(self, folder: Path, is_stopped: Callable[[], bool], pause: float = 1.0) -> None:
        self.folder, self.is_stopped, self.pause = folder, is_stopped, pause
        self.by = UNNAMED
        """Who gave the last answer."""

    def __call__(self, asked: ExpertQuestion) -> str:
        waiting, inbox = self.folder / EXPERT_QUESTION, self.folder / f"{EXPERT_QUESTION}.answer"
        words = {"question": asked.key, "number": asked.number, "of": asked.most, "words": asked.words}
        write_whole(waiting, json.dumps({**words, "facts": dict(asked.facts)}).encode())
        while not self.is_stopped():
            if inbox.exists():
                told = read_answer(inbox)
                inbox.unlink()
                if told.get("question") == asked.key and told.get("answer") in ANSWERS:
                    waiting.unlink()
                    self.by = str(told.get("by", UNNAMED))
                    return str(told["answer"])
                problem = f"the last answer was not heard: say the question's key, and one of {', '.join(ANSWERS)}"
                write_whole(waiting, json.dumps({**words, "facts": dict(asked.facts), "problem": problem}).encode())
            time.sleep(self.pause)
        raise DialogueStopped


def read_answer(path: Path) -> dict[str, Any]:
    """What somebody wrote, perhaps by hand; nothing where it is no answer at all."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def waiting_question(folder: Path) -> ExpertQuestion | None:
    """The question that waits in a run folder."""
    path = folder / EXPERT_QUESTION
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    return ExpertQuestion(told["question"], told["number"], told["of"], told["words"], told["facts"])


def give_answer(folder: Path, asked: ExpertQuestion, answer: str, by: str = UNNAMED) -> None:
    """Answer the question that waits in a run folder."""
    content = json.dumps({"question": asked.key, "answer": answer, "by": by})
    write_whole(folder / f"{EXPERT_QUESTION}.answer", content.encode())


def keep_functions(folder: RunFolder, report: Report) -> None:
    """The functions that an analysis found, in a file that a study can name."""
    found = report["numbers"].get("functions")
    if found is not None:
        folder.write(FUNCTIONS, {"format": FORMAT, "functions": found})


def with_judges(folder: RunFolder, report: Report) -> Report:
    """The report with who gave every answer that stands; as it is where nobody was asked."""
    standing: list[str] = []
    for entry in folder.lines(EXPERT_ANSWERS):
        if entry["answer"] == "back":
            standing[-1:] = []
        elif entry["answer"] != "done":
            standing.append(str(entry["by"]))
    if not standing:
        return report
    tables = [
        {
            **table,
            "columns": (*table["columns"], "by"),
            "rows": [[*row, by] for row, by in zip(table["rows"], standing, strict=True)],
        }
        if table["name"] == "rules"
        else table
        for table in report["tables"]
    ]
    named = ", ".join(f"{name} ({count})" for name, count in Counter(standing).items())
    return {**report, "words": [*report["words"], f"Answers by {named}."], "tables": tables}
