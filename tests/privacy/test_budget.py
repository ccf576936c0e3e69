"""A site's privacy ledger: charged before, never twice, never refunded, never forgotten, never silently changed."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from wardround.core.errors import Refusal
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.budget import Budget, BudgetExhausted, KeptHead

ROUND = (Step(1.0, 8.0, 10),)


def test_rounds_of_all_studies_add_up(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "site" / "privacy.jsonl")
    assert budget.total_epsilon() == 0.0
    for study, number in (("a", 1), ("a", 2), ("b", 1)):
        assert budget.debit(study, number, ROUND)
    assert budget.total_epsilon(1e-6) == pytest.approx(epsilon([Step(1.0, 8.0, 30)], 1e-6))
    # Whole sites are another ledger in the same file.
    budget.debit("c", 1, [Step(1.0, 10.0, 1)], level="site")
    assert budget.total_epsilon(1e-6) == pytest.approx(epsilon([Step(1.0, 8.0, 30)], 1e-6))
    assert budget.total_epsilon(1e-6, level="site") == pytest.approx(epsilon([Step(1.0, 10.0, 1)], 1e-6))


def test_the_same_request_is_charged_once_also_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "privacy.jsonl"
    assert Budget(path).debit("a", 1, ROUND, request="ab")
    assert not Budget(path).debit("a", 1, ROUND, request="ab")
    code = (
        "import sys; from pathlib import Path; from wardround.privacy.budget import Budget; "
        "from wardround.privacy.accountant import Step; "
        "print(Budget(Path(sys.argv[1])).debit('a', 1, [Step(1.0, 8.0, 10)], request='ab'))"
    )
    told = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
    assert len(Budget(path).charges()) == 1


def test_studies_that_are_charged_at_once_are_charged_exactly(tmp_path: Path) -> None:
    """Eight studies that make the first debit at once: as many are charged as the cap allows, and no more."""
    # Noise 5, so two sums cost 1.06 and three 1.33: of eight that ask at once two are answered.
    kept, calls = list[KeptHead](), count()

    def slow_heads() -> list[KeptHead]:
        if not (tmp_path / "privacy.jsonl").exists():
            time.sleep(3.0 if next(calls) else 0.2)  # all find no ledger; one makes it and keeps its head, others look
        return kept[-1:]

    def keep(entries: int, hash: str) -> None:
        kept.append(KeptHead("beside", entries, hash))

    def charge(study: str) -> str:
        together.wait(10)
        budget = Budget(tmp_path / "privacy.jsonl", 1.2, heads=slow_heads, keep=keep)
        try:
            return str(budget.debit(study, 1, [Step(1.0, 5.0, 1)]))
        except BudgetExhausted:
            return "spent"

    together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(charge, "abcdefgh"))
    assert sorted(told) == ["True"] * 2 + ["spent"] * 6
    charges = Budget(tmp_path / "privacy.jsonl", heads=slow_heads).charges()
    assert {one.study for one in charges} == {
        study for study, word in zip("abcdefgh", told, strict=True) if word == "True"
    }
    assert epsilon([step for one in charges for step in one.steps], 1e-5) == pytest.approx(1.06, abs=0.01)


def test_another_question_in_a_round_that_was_charged_is_refused(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "privacy.jsonl")
    budget.debit("a", 1, ROUND, request="ab")
    for steps, request in ((ROUND, "cd"), ((Step(1.0, 8.0, 11),), "ab")):
        with pytest.raises(Refusal, match="charged for another request"):
            budget.debit("a", 1, steps, request=request)
    assert len(budget.charges()) == 1


def test_the_cap_holds_and_names_the_site(tmp_path: Path) -> None:
    # Sums over everybody with noise 5: one costs 0.73, two 1.06, three 1.33 (the exact formula).
    cap, sums = 1.2, [Step(1.0, 5.0, 1)]
    assert epsilon([Step(1.0, 5.0, 2)], 1e-5) < cap < epsilon([Step(1.0, 5.0, 3)], 1e-5)
    budget = Budget(tmp_path / "privacy.jsonl", cap, site="kenema")
    budget.debit("a", 1, sums)
    budget.debit("b", 1, sums)
    with pytest.raises(BudgetExhausted, match=r"epsilon would be 1\.\d+, and the cap is 1\.2 \(site kenema, study b\)"):
        budget.debit("b", 2, sums)
    assert len(budget.charges()) == 2, "what was refused was not charged"
    assert budget.total_epsilon() <= cap
    assert not budget.debit("a", 1, sums), "what was charged before may be answered again"
    # Without noise nothing is within a cap.
    with pytest.raises(BudgetExhausted):
        Budget(tmp_path / "other.jsonl", cap).debit("a", 1, [Step(1.0, 0.0, 1)])


def test_a_torn_line_was_never_acted_upon(tmp_path: Path) -> None:
    path = tmp_path / "privacy.jsonl"
    budget = Budget(path)
    budget.debit("a", 1, ROUND)
    whole = path.read_bytes()
    budget.debit("a", 2, ROUND)
    second = path.read_bytes()
    for end in (len(whole) + 1, len(second) - 1):
        path.write_bytes(second[:end])
        assert [charge.round for charge in budget.charges()] == [1]
        assert budget.debit("a", 2, ROUND)
        assert path.read_bytes() == second


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.replace(b'"round":1', b'"round":7'),
        lambda content: content.replace(b"[1.0,8.0,10]", b"[1.0,9.0,10]"),
        lambda content: b"\n".join(content.split(b"\n")[1:]),
        lambda content: b"\n".join([*content.split(b"\n")[1::-1], b""]),
        lambda content: b"{}\n" + content,
        lambda content: b"\xff\n",
    ],
)
def test_an_edited_ledger_stops_everything(tmp_path: Path, damage) -> None:
    path = tmp_path / "privacy.jsonl"
    budget = Budget(path)
    budget.debit("a", 1, ROUND)
    budget.debit("a", 2, ROUND)
    path.write_bytes(damage(path.read_bytes()))
    for act in (budget.total_epsilon, lambda: budget.debit("a", 3, ROUND)):
        with pytest.raises(Refusal, match="cannot be trusted"):
            act()


def test_a_full_disk_charges_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "privacy.jsonl"
    budget = Budget(path)
    budget.debit("a", 1, ROUND)
    before = path.read_bytes()

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        budget.debit("a", 2, ROUND)
    monkeypatch.undo()
    assert path.read_bytes() == before


def test_bad_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cap of 0"):
        Budget(tmp_path / "p", 0.0)
    with pytest.raises(Refusal, match="no privacy level 'patient'"):
        Budget(tmp_path / "p").debit("a", 1, ROUND, level="patient")
