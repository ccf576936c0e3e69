"""Every edit of the log is found, every interruption is put right, and a full disk lets nothing leave."""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.amount import ALL
from wardround.core.errors import Refusal
from wardround.core.journals.journal_head import head_path
from wardround.deploy.trust.audit_log import AuditLog, event_entry, examine, sent_entry, verify
from wardround.deploy.trust.log_heads import HEAD_SEAL, countersign, sign_head

KEY, OTHER = (ec.derive_private_key(number, ec.SECP256R1()) for number in (1234567, 7654321))
KEYS = {"freetown": [KEY.public_key()], "hub": [OTHER.public_key()]}


def leaving(number: int) -> dict:
    return {
        "study": "triage-0123456789ab",
        "topic": "round",
        "round": number,
        "to": "server",
        "bytes": 400 + number,
        "sha256": "ab" * 32,
        "arrays": {"update/w": [3, 2], "weight": []},
    }


def filled(path: Path, entries: int = 4) -> AuditLog:
    log = AuditLog(path, "freetown", KEY)
    for number in range(entries):
        log.append(sent_entry(leaving(number)))
    return log


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return filled(tmp_path / "audit.jsonl")


def lines(log: AuditLog) -> list[bytes]:
    return log.path.read_bytes().splitlines(keepends=True)


def told(findings) -> str:
    return "\n".join(map(str, findings))


def test_the_chain_and_the_signature_recomputed_apart(log):
    """From the files alone, with json, hashlib and the raw signature check."""
    before = bytes(32)
    for number, raw in enumerate(lines(log), start=1):
        line = json.loads(raw)
        content = json.dumps(line["entry"], sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(before + content).digest()
        assert (line["number"], line["previous"], line["hash"]) == (number, before.hex(), digest.hex())
        assert line["entry"]["kind"] == "sent"
        assert line["entry"]["bytes"] == 399 + number
        before = digest
    head = json.loads(head_path(log.path).read_bytes())
    assert (head["entries"], head["hash"], head["who"]) == (4, before.hex(), "freetown")
    words = json.dumps({"entries": 4, "hash": before.hex(), "who": "freetown"}, separators=(",", ":")).encode()
    signature = bytes.fromhex(head["signature"])
    KEY.public_key().verify(signature, b"wardround audit head\n" + words, ec.ECDSA(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        OTHER.public_key().verify(signature, b"wardround audit head\n" + words, ec.ECDSA(hashes.SHA256()))
    assert verify(log.path, KEYS) == []


@pytest.mark.parametrize("flip", [0x01, 0x20])
def test_any_one_byte_edit_is_found(tmp_path, flip):
    """Every byte of both files, or every third; 0x20 turns small letters into capitals, which hexadecimal ignores."""
    log = AuditLog(tmp_path / "audit.jsonl", "freetown", KEY)
    log.append(sent_entry({"study": "triage", "bytes": 400}))
    log.keep(countersign(log.head(), "hub", OTHER))
    for path in (log.path, head_path(log.path)):
        whole = path.read_bytes()
        ends = [place for place, byte in enumerate(whole) if byte == 10]
        for place in range(0, len(whole), 1 if ALL else 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            found = {finding.line for finding in verify(log.path, KEYS)}
            line = 0 if path != log.path else 1 + sum(end < place for end in ends)
            assert line in found, (path.name, place, found)
        path.write_bytes(whole)
    assert verify(log.path, KEYS) == []


def test_any_one_byte_taken_out_or_put_in_is_found_without_keys(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl", "freetown", KEY)
    log.append(sent_entry({"study": "triage", "bytes": 400}))
    for path in (log.path, head_path(log.path)):
        whole = path.read_bytes()
        for place in range(len(whole)):
            for changed in (whole[:place] + whole[place + 1 :], whole[:place] + b" " + whole[place:]):
                path.write_bytes(changed)
                assert verify(log.path), (path.name, place)
        path.write_bytes(whole)
    assert verify(log.path) == []


@pytest.mark.parametrize("gone", range(4))
def test_a_deleted_line_is_found_the_last_one_too(log, gone):
    kept = lines(log)
    del kept[gone]
    log.path.write_bytes(b"".join(kept))
    found = told(verify(log.path, KEYS))
    assert "names 4 entries and the log has 3: its end is missing" in found
    if gone < 3:
        assert f"line {gone + 1}: it calls itself entry {gone + 2}" in found


def test_an_emptied_log_is_found_with_its_head_and_without(log):
    log.path.write_bytes(b"")
    assert "names 4 entries and the log has 0: its end is missing" in told(verify(log.path, KEYS))
    head_path(log.path).unlink()
    assert "the head is missing" in told(verify(log.path, KEYS))


def test_another_order_and_a_doubled_line_are_found(log):
    one, two, three, four = lines(log)
    for changed in ([one, three, two, four], [one, two, two, three, four], [one, two, three, four, four]):
        log.path.write_bytes(b"".join(changed))
        assert verify(log.path), changed


def test_a_log_written_anew_without_the_key_is_found(tmp_path):
    """Every hash is right: only the signature, and the name under it, tell."""
    for who, key in (("freetown", OTHER), ("mallory", OTHER)):
        log = AuditLog(tmp_path / f"{who}.jsonl", who, key)
        log.append(sent_entry(leaving(1)))
        assert verify(log.path) == []
        found = told(verify(log.path, {"freetown": [KEY.public_key()]}))
        assert ("the signature is not by 'freetown'" if who == "freetown" else "whose key is not known here") in found


def test_a_rollback_of_both_files_is_found_by_a_witness_only(log, tmp_path):
    for path in (log.path, head_path(log.path)):
        shutil.copy(path, tmp_path / f"old-{path.name}")
    log.append(sent_entry(leaving(5)))
    seen = countersign(log.head(), "hub", OTHER)
    assert verify(log.path, KEYS, witnesses=[seen]) == []
    for path in (log.path, head_path(log.path)):
        shutil.copy(tmp_path / f"old-{path.name}", path)
    assert verify(log.path, KEYS) == []
    found = told(verify(log.path, KEYS, witnesses=[seen]))
    assert "countersigned names 5 entries and the log has 4: its end is missing" in found
    log.append(sent_entry(leaving(6)))  # as many entries again, and other ones: even the owner's key does not help
    assert "history was rewritten" in told(verify(log.path, KEYS, witnesses=[seen]))


def test_a_forged_countersignature_is_found_and_a_stranger_is_named(log):
    log.keep(countersign(log.head(), "hub", KEY))
    assert "the signature is not by 'hub'" in told(verify(log.path, KEYS))
    examined = examine(log.path, {"freetown": [KEY.public_key()]})
    assert (examined.findings, examined.unchecked) == ([], ("hub",))


def test_a_torn_line_is_cut_off_and_the_log_says_so(log):
    with open(log.path, "ab") as file:
        file.write(b'{"entry":{"bytes"')
    assert "torn" in told(verify(log.path, KEYS))
    log.append(sent_entry(leaving(9)))
    assert verify(log.path, KEYS) == []
    mended, last = examine(log.path, KEYS).entries[-2:]
    assert mended["what"] == "after an interruption 17 bytes of an entry that was never finished were cut off"
    assert last["round"] == 9


@pytest.mark.parametrize("behind", [1, 3])
def test_a_head_left_behind_is_renewed_and_the_log_says_so(log, behind):
    """What a kill leaves between line and head (1), and a power cut that loses the head's last writes (3)."""
    first = head_path(log.path).read_bytes()
    for number in range(behind):
        log.append(sent_entry(leaving(10 + number)))
    head_path(log.path).write_bytes(first)
    assert f"the head covers 4 of {4 + behind} entries" in told(verify(log.path, KEYS))
    log.append(sent_entry(leaving(20)))
    assert verify(log.path, KEYS) == []
    assert examine(log.path, KEYS).entries[-2]["what"] == f"after an interruption the head was behind by {behind}"


def test_nothing_is_added_to_a_log_that_lost_its_end_or_its_head(log):
    whole = log.path.read_bytes()
    log.path.write_bytes(b"".join(lines(log)[:-1]))
    with pytest.raises(Refusal, match="nothing is sent"):
        log.append(sent_entry(leaving(1)))
    log.path.write_bytes(whole)
    head_path(log.path).unlink()
    with pytest.raises(Refusal, match="nothing is sent"):
        log.append(sent_entry(leaving(1)))
    assert "the head is missing" in told(verify(log.path, KEYS))
    assert log.path.read_bytes() == whole


def test_nothing_is_added_after_an_endless_line(log):
    with open(log.path, "ab") as file:
        file.write(b"a" * (3 << 20))
    with pytest.raises(Refusal, match="damaged"):
        log.append(sent_entry(leaving(1)))
    assert "longer than any entry" in told(verify(log.path, KEYS))


def test_a_full_disk_lets_nothing_leave_and_breaks_nothing(log):
    before, limit = log.path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limit[1]))
    try:
        with pytest.raises(Refusal, match="cannot be written"):
            log.append(sent_entry(leaving(4)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert log.path.read_bytes() == before
    log.append(sent_entry(leaving(4)))
    assert verify(log.path, KEYS) == []


def test_a_disk_that_really_fills_up(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    try:
        log, written = AuditLog(place / "audit.jsonl", "freetown", KEY), 0
        while os.statvfs(place).f_bavail or log.path.stat().st_size % 4096 < 3400:
            log.append(sent_entry(leaving(written)))
            written += 1
        with pytest.raises(Refusal, match="No space left"):
            log.append(sent_entry({**leaving(0), "words": "x" * 800}))
        assert written > 20
        assert verify(log.path, KEYS) == []
        assert len(examine(log.path, KEYS).entries) == written
    finally:
        subprocess.run(["umount", str(place)], check=True)


WRITER = """
import sys
from pathlib import Path
from cryptography.hazmat.primitives.asymmetric import ec
from wardround.deploy.trust.audit_log import AuditLog, event_entry
log = AuditLog(Path(sys.argv[1]), "freetown", ec.derive_private_key(1234567, ec.SECP256R1()))
for number in range(int(sys.argv[2])):
    log.append(event_entry("note", writer=sys.argv[3], number=number))
"""


def start(path: Path, entries: int, name: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(entries), name])


def test_two_processes_write_one_log(tmp_path):
    path = tmp_path / "audit.jsonl"
    writers = [start(path, 15, name) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert verify(path, KEYS) == []
    entries = examine(path, KEYS).entries
    for name in ("a", "b"):
        assert [entry["number"] for entry in entries if entry["writer"] == name] == list(range(15))


def test_killed_while_writing_it_goes_on(tmp_path):
    path = tmp_path / "audit.jsonl"
    for turn in range(3):
        size = path.stat().st_size if path.exists() else 0
        writer = start(path, 100_000, f"turn {turn}")
        while not path.exists() or path.stat().st_size < size + 2000:
            assert writer.poll() is None
            time.sleep(0.001)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    AuditLog(path, "freetown", KEY).append(event_entry("note", writer="end", number=0))
    assert verify(path, KEYS) == []
    entries = [entry for entry in examine(path, KEYS).entries if entry["kind"] == "note"]
    for turn in range(3):
        numbers = [entry["number"] for entry in entries if entry["writer"] == f"turn {turn}"]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 3


def test_an_entry_tells_shapes_and_never_more_than_a_line_can_hold(log):
    entry = sent_entry({**leaving(1), "arrays": {f"layer_{number}": [2] for number in range(1500)}})
    assert (len(entry["arrays"]), entry["more_arrays"]) == (1000, 500)
    with pytest.raises(Refusal, match="too long"):
        log.append(event_entry("note", words="x" * (1 << 20)))
    assert verify(log.path, KEYS) == []


def test_heads_are_of_one_log_only():
    """A head is bound to its owner: freetown's signature does not do for another name."""
    head = sign_head(3, "ab" * 32, "freetown", KEY)
    moved = type(head)(head.entries, head.hash, "kenema", head.signature)
    assert moved.signed_bytes(HEAD_SEAL) != head.signed_bytes(HEAD_SEAL)


def test_several_entries_together_are_a_chain_and_one_wait(log, monkeypatch):
    waits = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (waits.append(file), fsync(file)))
    log.append(*(sent_entry(leaving(number)) for number in (10, 11, 12)))
    assert len(waits) == 1
    examined = examine(log.path, KEYS)
    assert examined.findings == []
    assert [entry["round"] for entry in examined.entries][-3:] == [10, 11, 12]
    head = log.append()  # nothing to write down
    assert (head.entries, len(waits)) == (7, 1)


def test_together_cut_short_in_the_second_it_goes_on_after_the_first(log):
    whole = log.path.stat().st_size
    before = head_path(log.path).read_bytes()
    log.append(sent_entry(leaving(10)), sent_entry(leaving(11)))
    first = lines(log)[4]
    with open(log.path, "r+b") as file:
        file.truncate(whole + len(first) + 1 + 20)
    head_path(log.path).write_bytes(before)
    log.append(sent_entry(leaving(12)))
    examined = examine(log.path, KEYS)
    assert examined.findings == []
    assert [entry.get("round", entry["kind"]) for entry in examined.entries] == [0, 1, 2, 3, 10, "mended", 12]


def test_what_others_did_to_the_files_in_between_is_seen(log):
    """An append trusts its own last look only as long as nobody touched the files."""
    AuditLog(log.path, "freetown", KEY).append(event_entry("decided"))
    content = log.path.read_bytes()
    log.path.write_bytes(content[: content[:-1].rindex(b"\n") + 1])
    with pytest.raises(Refusal, match="does not match its signed head"):
        log.append(event_entry("decided"))
