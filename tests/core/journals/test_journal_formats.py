"""Logs, ledgers and budgets written before they shared one journal still verify, and go on as they were.

The files beside this test were written at commit 472d858, when each of the three still had code of its own.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wardround.core.errors import Refusal
from wardround.deploy.trust import audit_log
from wardround.deploy.trust.audit_log import AuditLog
from wardround.incentives.ledger import Ledger
from wardround.incentives.ledger_entries import LedgerEntry
from wardround.incentives.ledger_keys import public_key
from wardround.privacy.accountant import Step
from wardround.privacy.budget import Budget, Charge

OLD = Path(__file__).parent / "files"
SITE, HUB = (ec.derive_private_key(number, ec.SECP256R1()) for number in (1234567, 7654321))
LOG_KEYS = {"freetown": [SITE.public_key()], "hub": [HUB.public_key()]}
SIGNERS = {site: Ed25519PrivateKey.from_private_bytes(site.encode().ljust(32, b".")) for site in ("freetown", "va")}
LEDGER_KEYS = {site: public_key(key) for site, key in SIGNERS.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "files"))


def is_whole(path: Path) -> bool:
    """Whether the file verifies, whichever of the three it is."""
    if path.name.startswith("audit"):
        return not audit_log.verify(path.parent / "audit.jsonl", LOG_KEYS)
    if path.name.startswith("ledger"):
        return not Ledger(path.parent / "ledger.jsonl").verify(LEDGER_KEYS)
    try:
        Budget(path).charges()
    except Refusal:
        return False
    return True


def test_an_old_log_verifies_and_goes_on(folder: Path) -> None:
    path = folder / "audit.jsonl"
    old = path.read_bytes()
    examined = audit_log.examine(path, LOG_KEYS)
    assert (examined.findings, examined.unchecked) == ([], ())
    kinds = [entry["kind"] for entry in examined.entries]
    assert kinds == ["decided", "sent", "sent", "countersigned", "note", "note"]
    head = AuditLog(path, "freetown", SITE).append({"time": "2031-05-01T12:00:00+00:00", "kind": "note"})
    assert head.entries == 7
    assert path.read_bytes().startswith(old)
    assert is_whole(path)


def test_an_old_ledger_verifies_and_goes_on(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    old = path.read_bytes()
    entries = Ledger(path).entries(LEDGER_KEYS)
    assert [(entry.who, entry.phase, entry.kind) for entry in entries] == [
        ("freetown", "choice", "joined"),
        ("va", 1, "answered"),
        ("freetown", 2, "rewarded"),
    ]
    assert dict(entries[2].numbers) == {"freetown": 1200, "va": -3.5e-7}
    new = LedgerEntry("va", "triage", 3, "answered", {"rows": 7}, "2031-05-01T12:00:09+00:00")
    assert Ledger(path).append(new, SIGNERS["va"]).entries == 4
    assert path.read_bytes().startswith(old)
    assert is_whole(path)


def test_an_old_budget_is_charged_on_and_never_twice(folder: Path) -> None:
    path = folder / "privacy.jsonl"
    old, budget = path.read_bytes(), Budget(path)
    assert budget.charges() == [
        Charge("sample", "triage", 1, "ab", (Step(1.0, 8.0, 10),)),
        Charge("sample", "triage", 2, "cd", (Step(0.25, 8.0, 10), Step(1.0, 20.0, 1))),
        Charge("site", "sepsis", 1, "", (Step(1.0, 10.0, 1),)),
    ]
    assert not budget.debit("triage", 1, [Step(1.0, 8.0, 10)], request="ab")
    assert path.read_bytes() == old
    assert budget.debit("triage", 3, [Step(1.0, 8.0, 10)], request="ef")
    assert path.read_bytes().startswith(old)
    assert len(budget.charges()) == 4


@pytest.mark.parametrize(
    "name", ["audit.jsonl", "audit.jsonl.head", "ledger.jsonl", "ledger.jsonl.head", "privacy.jsonl"]
)
def test_any_one_byte_edit_of_an_old_file_is_found(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    assert is_whole(path)
    # A budget has no head: without its last newline its last line is one that a crash cut off.
    end = len(whole) - (name == "privacy.jsonl")
    for place in {*range(0, end, 3), end - 1}:
        for flip in (0x01, 0x20):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            assert not is_whole(path), (place, flip)


@pytest.mark.parametrize("name", ["audit.jsonl", "ledger.jsonl", "privacy.jsonl"])
@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[1:],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines, b"x" * (1 << 20)],
    ],
    ids=["first deleted", "second deleted", "reordered", "doubled", "endless"],
)
def test_deletion_and_reorder_are_found(folder: Path, name: str, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = folder / name
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    assert not is_whole(path)


@pytest.mark.parametrize("name", ["audit.jsonl", "ledger.jsonl"])
@pytest.mark.parametrize("kept", [0, 1, -1])
def test_a_deleted_end_is_found_by_the_head(folder: Path, name: str, kept: int) -> None:
    path = folder / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    assert not is_whole(path)


@pytest.mark.parametrize("name", ["audit.jsonl", "ledger.jsonl", "privacy.jsonl"])
def test_a_torn_last_line_is_no_entry(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[0][:40])
    if name == "audit.jsonl":
        AuditLog(path, "freetown", SITE).head()
        assert json.loads(path.read_bytes().splitlines()[-1])["entry"]["kind"] == "mended"
    elif name == "ledger.jsonl":
        assert len(Ledger(path).mend("va", SIGNERS["va"])) == 1
        assert path.read_bytes() == whole
    else:
        assert len(Budget(path).charges()) == 3
        assert Budget(path).debit("sepsis", 2, [Step(1.0, 10.0, 1)], level="site")
        assert path.read_bytes().startswith(whole + b'{"hash"')
    assert is_whole(path)


@pytest.mark.parametrize("name", ["audit.jsonl", "ledger.jsonl", "privacy.jsonl"])
def test_an_entry_is_on_the_disk_before_the_call_returns(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waited, fsync = folder / name, list[tuple[int, int]](), os.fsync

    def record(file: int) -> None:
        status = os.fstat(file)
        waited.append((status.st_ino, status.st_size))
        fsync(file)

    monkeypatch.setattr(os, "fsync", record)
    if name == "audit.jsonl":
        AuditLog(path, "freetown", SITE).append(audit_log.event_entry("note"))
    elif name == "ledger.jsonl":
        entry = LedgerEntry("va", "triage", 3, "answered", {}, "2031-05-01T12:00:09+00:00")
        Ledger(path).append(entry, SIGNERS["va"])
    else:
        Budget(path).debit("sepsis", 2, [Step(1.0, 10.0, 1)])
    assert (path.stat().st_ino, path.stat().st_size) in waited, "the whole line was waited for"
