"""Answers of an expert are on the disk before they count, and are given again in their order."""

import json
import threading

import pytest
import typer

from wardround.cli.models.label import KEYS, TerminalExpert, answer_folder, ask_at_terminal, drawing
from wardround.core.analysis import ExpertQuestion
from wardround.core.errors import Refusal
from wardround.runs.folder import RunFolder
from wardround.workflows.expert import (
    DialogueStopped,
    FolderExpert,
    give_answer,
    keep_functions,
    recorded_expert,
    waiting_question,
    with_judges,
)


class Doctor:
    """Says what is on the list, by a name."""

    def __init__(self, by, *said):
        self.by, self.said = by, iter(said)

    def __call__(self, _):
        return next(self.said)


def question(key="a", number=1):
    facts = {"sites": 3, "records": 40, "of": 400, "agree": 9, "agree_of": 10, "rule": {"word": key}, "label": "ill"}
    return ExpertQuestion(key, number, 5, f'ill where note has the word "{key}"', facts)


def test_answers_are_kept_and_given_again(tmp_path):
    folder = RunFolder.create(tmp_path / "run", resume=False)
    first = recorded_expert(folder, Doctor("Dr. A", "yes", "no"))
    assert [first(question("a")), first(question("b", 2))] == ["yes", "no"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "expert.jsonl").read_text().splitlines()]
    assert [(one["answer"], one["by"]) for one in lines] == [("yes", "Dr. A"), ("no", "Dr. A")]
    again = recorded_expert(folder, lambda asked: "unsure")
    assert [again(question("a")), again(question("b", 2)), again(question("c", 3))] == ["yes", "no", "unsure"]
    with pytest.raises(Refusal, match="about another rule"):
        recorded_expert(folder, lambda asked: "yes")(question("z"))
    with pytest.raises(Refusal, match="'perhaps' is no answer"):
        recorded_expert(RunFolder.create(tmp_path / "new", resume=False), lambda asked: "perhaps")(question())


def test_the_report_says_who_gave_every_answer_that_stands(tmp_path):
    """One goes on where another stopped; what was taken back is nobody's, and "done" is no answer about a rule."""
    folder = RunFolder.create(tmp_path / "run", resume=False)
    report = {"words": ["So."], "tables": [{"name": "rules", "columns": ("rule",), "rows": [["a"], ["b"]]}]}
    assert with_judges(folder, report) == report, "nobody was asked"
    first = recorded_expert(folder, Doctor("Dr. A", "yes", "no", "back"))
    for key in ("a", "b", "c"):
        first(question(key))
    second = recorded_expert(folder, Doctor("Dr. B", "unsure", "done"))
    for key in ("a", "b", "c", "b", "c"):
        second(question(key))
    told = with_judges(folder, report)
    assert told["words"] == ["So.", "Answers by Dr. A (1), Dr. B (1)."]
    assert told["tables"][0]["columns"] == ("rule", "by")
    assert told["tables"][0]["rows"] == [["a", "Dr. A"], ["b", "Dr. B"]]


def test_an_answer_through_the_folder(tmp_path):
    found = []
    expert = FolderExpert(tmp_path, lambda: False, pause=0.01)
    thread = threading.Thread(target=lambda: found.append(expert(question())), daemon=True)
    thread.start()
    while waiting_question(tmp_path) is None:
        pass
    inbox = tmp_path / "question.json.answer"
    give_answer(tmp_path, question("other"), "no")  # about something else: not heard
    while inbox.exists():
        pass
    for by_hand in ("yes", "[]", '{"question": "a", "answer": "perhaps"}'):
        inbox.write_text(by_hand)
        while inbox.exists():
            pass
    while "problem" not in (waiting := json.loads((tmp_path / "question.json").read_text())):
        pass
    assert waiting["problem"].startswith("the last answer was not heard")
    give_answer(tmp_path, waiting_question(tmp_path), "yes", "Dr. C")
    thread.join(5)
    assert found == ["yes"]
    assert expert.by == "Dr. C"
    assert waiting_question(tmp_path) is None
    with pytest.raises(DialogueStopped):
        FolderExpert(tmp_path, lambda: True)(question())


def at_terminal(monkeypatch, *said):
    """The keys that are pressed; then the input ends, as with Ctrl-C or Ctrl-D."""
    keys = iter(said)

    def prompt(text):
        try:
            return next(keys)
        except StopIteration:
            raise typer.Abort from None

    monkeypatch.setattr("typer.prompt", prompt)


def test_at_the_terminal(monkeypatch, capsys):
    at_terminal(monkeypatch, "what", "?", "back", "Y")
    template = question()._replace(facts={**question().facts, "rule": {"samples": [0.0, 1.0, 0.0]}})
    assert ask_at_terminal(template) == "yes"
    shown = capsys.readouterr().out
    assert "3 sites propose it; it fires on about 40 records (10.0 %)" in shown
    assert "(10 records), they say ill in 90 %." in shown
    assert "█" in shown
    assert "'what' is no answer: y yes, n no, u not sure" in shown
    assert "There is no answer to take back." in shown, "of the first question"
    assert shown.count("u not sure") == 2, "for what is no answer, and for help"
    at_terminal(monkeypatch, "unsure", "b", "nonsense", "no")
    assert [ask_at_terminal(question(number=number)) for number in (1, 2, 3)] == ["unsure", "back", "no"]
    assert set(KEYS.values()) == {"yes", "no", "unsure", "back", "done", "stop"}


@pytest.mark.parametrize("keys", [("q",), ("stop",), ()], ids=["key", "word", "end of the input"])
def test_a_stop_at_the_terminal_loses_nothing(monkeypatch, keys):
    at_terminal(monkeypatch, *keys)
    with pytest.raises(DialogueStopped):
        ask_at_terminal(question())


def test_what_is_asked_is_said_once_and_how_far_one_was(monkeypatch, capsys):
    at_terminal(monkeypatch, "y", "n")
    expert = TerminalExpert("Dr. A")
    assert [expert(question(number=3)), expert(question(number=4))] == ["yes", "no"]
    shown = capsys.readouterr().out
    assert shown.count("Say yes if most records on which it fires really are of its class") == 1
    assert "2 answers so far; you go on where you stopped." in shown


def test_a_template_is_drawn_without_gaps():
    """A step from 0 to 1: the bottom line up to the middle, the top line from there, and a column that joins them."""
    lines = drawing([0.0, 0.0, 1.0, 1.0])
    assert [line.rstrip() for line in lines] == [" " * 30 + "█" * 30, *[" " * 30 + "█"] * 7, "█" * 31]
    assert {len(line) for line in drawing([2.0, 2.0, 2.0])} == {60}, "a flat one is a line"


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(Refusal, match="holds no run"):
        answer_folder(tmp_path)
    folder = RunFolder.create(tmp_path / "run", resume=False)
    keep_functions(folder, {"numbers": {}})
    assert not (tmp_path / "run" / "functions.json").exists()


def test_a_run_folder_says_whether_the_dialogue_is_over(tmp_path, capsys):
    folder = RunFolder.create(tmp_path / "run", resume=False)
    folder.write("manifest.json", {})
    answer_folder(folder.path)
    assert "the sites are at work" in capsys.readouterr().out
    keep_functions(folder, {"numbers": {"functions": []}})
    answer_folder(folder.path)
    assert "The dialogue is over. Functions:" in capsys.readouterr().out
