"""The expert of an analysis that asks one: every answer is on the disk before it counts, so a dialogue can last days.

The answers stand in the run folder in their order. Begun again, the dialogue runs through them and asks on where it was
left. Answers may come from a person at the terminal, from Python, or through the folder itself: the question that waits
is a file there, and whoever answers adds a line to the answers.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from wardround.core.analysis import ExpertQuestion
from wardround.core.contracts import Report
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.engine.analyse import Expert
from wardround.runs.file_names import EXPERT_ANSWERS, EXPERT_QUESTION, FUNCTIONS
from wardround.runs.folder import RunFolder
from wardround.weak_supervision.function_file import FORMAT
from wardround.weak_supervision.search.dialogue import ANSWERS


class DialogueStopped(Exception):
    """The expert goes on another time; all answers so far are kept."""


def recorded_expert(folder: RunFolder, ask: Expert, by: str = "expert") -> Expert:
    """An expert whose answers are written down; those that are there already are given again, in their order."""
    before = iter(folder.lines(EXPERT_ANSWERS))

    def expert(asked: ExpertQuestion) -> str:
        entry = next(before, None)
        if entry is None:
            return record_answer(folder, asked, ask(asked), by)
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


def answers_in(folder: Path, is_stopped: Callable[[], bool], pause: float = 1.0) -> Expert:
    """An expert who answers through the folder: the question waits in a file until an answer to it is there."""

    def expert(asked: ExpertQuestion) -> str:
        inbox = folder / f"{EXPERT_QUESTION}.answer"
        words = {"question": asked.key, "number": asked.number, "of": asked.most, "words": asked.words}
        write_whole(folder / EXPERT_QUESTION, json.dumps({**words, "facts": dict(asked.facts)}).encode())
        while not is_stopped():
            if inbox.exists():
                told = json.loads(inbox.read_text(encoding="utf-8"))
                inbox.unlink()
                if told.get("question") == asked.key and told.get("answer") in ANSWERS:
                    (folder / EXPERT_QUESTION).unlink()
                    return str(told["answer"])
            time.sleep(pause)
        raise DialogueStopped

    return expert


def waiting_question(folder: Path) -> ExpertQuestion | None:
    """The question that waits in a run folder."""
    path = folder / EXPERT_QUESTION
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    return ExpertQuestion(told["question"], told["number"], told["of"], told["words"], told["facts"])


def give_answer(folder: Path, asked: ExpertQuestion, answer: str) -> None:
    """Answer the question that waits in a run folder."""
    content = json.dumps({"question": asked.key, "answer": answer})
    write_whole(folder / f"{EXPERT_QUESTION}.answer", content.encode())


def keep_functions(folder: RunFolder, report: Report) -> None:
    """The functions that an analysis found, in a file that a study can name."""
    found = report["numbers"].get("functions")
    if found is not None:
        folder.write(FUNCTIONS, {"format": FORMAT, "functions": found})
