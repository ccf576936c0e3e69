"""Every edit is found, every interruption is told and mended, and nothing that was written is lost."""

import hashlib
import json
import resource
import shutil
import stat
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import ALL, examples
from wardround.core.errors import Refusal
from wardround.incentives.ledger import Ledger
from wardround.incentives.ledger_entries import LedgerEntry
from wardround.incentives.ledger_keys import make_key, public_key

SITES = ("freetown", "kenema", "va")
KEYS = {site: Ed25519PrivateKey.from_private_bytes(site.encode().ljust(32, b".")) for site in SITES}
PUBLIC = {site: public_key(key) for site, key in KEYS.items()}


def entry(number: int) -> LedgerEntry:
    kinds = ("joined", "chosen", "answered", "rewarded")
    return LedgerEntry(
        who=SITES[number % 3],
        study="triage",
        phase="choice" if number < 2 else number,
        kind=kinds[number % 4],
        numbers={"rows": 100 + number, "weight": number / 7},
        time=f"2031-05-01T12:00:{number:02}+00:00",
    )


def filled(path, entries=5):
    ledger = Ledger(path)
    return ledger, [ledger.append(entry(number), KEYS[entry(number).who]) for number in range(entries)]


@pytest.fixture
def ledger(tmp_path):
    return filled(tmp_path / "ledger.jsonl")[0]


def lines(ledger):
    return ledger.path.read_bytes().splitlines(keepends=True)


def where(findings):
    return {finding.line for finding in findings}


def told(findings):
    return "\n".join(map(str, findings))


def test_a_ledger_verifies_and_is_read_back(ledger):
    assert ledger.verify(PUBLIC) == []
    assert ledger.entries(PUBLIC) == tuple(entry(number) for number in range(5))
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_the_chain_and_the_signatures_recomputed_apart(ledger):
    """From the file alone, with json, hashlib and the raw signature check."""
    before = bytes(32)
    for number, raw in enumerate(lines(ledger), start=1):
        line = json.loads(raw)
        content = json.dumps(line["entry"], sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(before + content).digest()
        assert (line["number"], line["previous"], line["hash"]) == (number, before.hex(), digest.hex())
        key = load_pem_public_key(PUBLIC[line["entry"]["who"]].encode())
        key.verify(bytes.fromhex(line["signature"]), b"wardround ledger entry\n" + digest)
        before = digest
    head = json.loads(ledger.head_path.read_bytes())
    assert (head["entries"], head["hash"]) == (5, before.hex())


@pytest.mark.parametrize("flip", [0x01, 0x20])
def test_any_one_byte_edit_is_found(tmp_path, flip):
    """Every byte of both files, or every third; 0x20 turns small letters into capitals, which hexadecimal ignores."""
    ledger, _ = filled(tmp_path / "ledger.jsonl", 2)
    for path in (ledger.path, ledger.head_path):
        whole = path.read_bytes()
        first = whole.index(b"\n")
        for place in range(0, len(whole), 1 if ALL else 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            findings = ledger.verify(PUBLIC)
            assert findings, (path.name, place)
            expected = 0 if path == ledger.head_path else 1 if place <= first else 2
            assert expected in where(findings), (path.name, place, findings)
        path.write_bytes(whole)
    assert ledger.verify(PUBLIC) == []


def test_inserted_bytes_are_found(ledger):
    """Spaces and empty lines, which JSON does not mind."""
    whole = ledger.path.read_bytes()
    for changed in (whole.replace(b":", b": ", 1), b"\n" + whole, whole + b"\n", whole.replace(b"\n", b"\r\n", 1)):
        ledger.path.write_bytes(changed)
        assert ledger.verify(PUBLIC)


@pytest.mark.parametrize("gone", range(4))
def test_a_deleted_line_is_found(ledger, gone):
    kept = lines(ledger)
    del kept[gone]
    ledger.path.write_bytes(b"".join(kept))
    findings = ledger.verify(PUBLIC)
    assert f"line {gone + 1}: it calls itself entry {gone + 2}" in told(findings)
    assert f"line {gone + 1}: it does not follow on the line above" in told(findings)


def test_another_order_or_a_doubled_line_is_found(ledger):
    one, two, three, *rest = lines(ledger)
    ledger.path.write_bytes(b"".join([one, three, two, *rest]))
    assert {2, 3} <= where(ledger.verify(PUBLIC))
    ledger.path.write_bytes(b"".join([one, two, two, three, *rest]))
    assert 3 in where(ledger.verify(PUBLIC))


def test_a_cut_end_is_found_by_the_head_alone(ledger):
    """The chain that is left is whole: only line 0, the head, has something to say."""
    for kept in (4, 1, 0):
        ledger.path.write_bytes(b"".join(lines(ledger)[:kept]))
        findings = ledger.verify(PUBLIC)
        assert where(findings) == {0}
        assert f"the head names 5 entries and the ledger has {kept}: its end is missing" in told(findings)
    ledger.head_path.unlink()
    assert "the head is missing" in told(ledger.verify(PUBLIC))


def test_a_cut_ledger_cannot_be_covered_up_by_going_on(ledger):
    """The next append would sign a new head over the shorter ledger."""
    ledger.path.write_bytes(b"".join(lines(ledger)[:4]))
    before = ledger.path.read_bytes(), ledger.head_path.read_bytes()
    with pytest.raises(Refusal, match="does not end as its head says"):
        ledger.append(entry(5), KEYS["va"])
    with pytest.raises(Refusal, match="no interruption explains"):
        ledger.mend("va", KEYS["va"])
    ledger.head_path.unlink()
    with pytest.raises(Refusal, match="does not end as its head says"):
        ledger.append(entry(5), KEYS["va"])
    with pytest.raises(Refusal, match="no interruption explains"):
        ledger.mend("va", KEYS["va"])
    assert ledger.path.read_bytes() == before[0]


def test_an_old_head_is_found_or_needs_a_witness(tmp_path):
    """An old ledger with its own old head is a whole ledger: only who kept a later head can tell."""
    ledger, heads = filled(tmp_path / "ledger.jsonl", 3)
    old = ledger.path.read_bytes(), ledger.head_path.read_bytes()
    heads += [ledger.append(entry(number), KEYS[entry(number).who]) for number in (3, 4)]
    assert ledger.verify(PUBLIC, witnesses=heads) == [], "heads of every age bear witness to a ledger that only grew"
    ledger.head_path.write_bytes(old[1])
    assert "the head covers 3 of 5 entries" in told(ledger.verify(PUBLIC))
    ledger.path.write_bytes(old[0])
    assert ledger.verify(PUBLIC) == []
    assert ledger.verify(PUBLIC, witnesses=heads[:3]) == []
    assert "the witness of 'kenema' names 5 entries and the ledger has 3" in told(
        ledger.verify(PUBLIC, witnesses=heads[4:])
    )


def test_a_site_cannot_rewrite_its_history_under_the_others(tmp_path):
    """Freetown makes its first entry anew and chains everything behind it: it cannot sign for the others."""
    ledger, heads = filled(tmp_path / "ledger.jsonl", 3)
    forged = Ledger(tmp_path / "forged.jsonl")
    forged.append(entry(3), KEYS["freetown"])
    for number in (1, 2):
        forged.append(entry(number), KEYS["freetown"])
    shutil.copy(forged.path, ledger.path)
    findings = ledger.verify(PUBLIC)
    assert "line 2: the signature is not 'kenema''s" in told(findings)
    assert "line 3: the signature is not 'va''s" in told(findings)
    # With all keys the forgery is whole in itself; a witness still tells.
    forged = Ledger(tmp_path / "whole.jsonl")
    for number in (3, 1, 2):
        forged.append(entry(number), KEYS[entry(number).who])
    assert forged.verify(PUBLIC) == []
    assert "history was rewritten" in told(forged.verify(PUBLIC, witnesses=heads[:1]))


def test_a_witness_that_was_never_signed_is_told(ledger):
    head = ledger.head()
    forged = type(head)(head.entries, head.hash, "freetown", head.signature)
    assert "the witness of 'freetown': the signature is not 'freetown''s" in told(
        ledger.verify(PUBLIC, witnesses=[forged])
    )


def test_a_signature_of_an_entry_is_none_of_a_head(ledger):
    """Both are by the same site over the same hash, under another seal."""
    head = json.loads(ledger.head_path.read_bytes())
    head["signature"] = json.loads(lines(ledger)[-1])["signature"]
    ledger.head_path.write_text(json.dumps(head, sort_keys=True, separators=(",", ":")) + "\n")
    assert where(ledger.verify(PUBLIC)) == {0}


def test_the_wrong_key_and_an_unknown_site_are_found(ledger):
    ledger.append(entry(5), KEYS["freetown"])  # entry 5 is in the name of va
    assert "line 6: the signature is not 'va''s" in told(ledger.verify(PUBLIC))
    without = {site: pem for site, pem in PUBLIC.items() if site != "kenema"}
    assert {2, 5} <= where(ledger.verify(without))
    with pytest.raises(Refusal, match="does not verify: line 6"):
        ledger.entries(PUBLIC)


@pytest.mark.parametrize("entries", [0, 3])
def test_a_torn_line_is_told_and_mended_wherever_it_tore(tmp_path, entries):
    """A crash after any number of bytes of the last line, its end without the newline included."""
    longer, _ = filled(tmp_path / "longer.jsonl", entries + 1)
    last = lines(longer)[-1]
    ledger, _ = filled(tmp_path / "ledger.jsonl", entries)
    whole = ledger.path.read_bytes() if entries else b""
    for length in (1, 2, len(last) // 2, len(last) - 1):
        ledger.path.write_bytes(whole + last[:length])
        assert f"line {entries + 1}: the line is torn" in told(ledger.verify(PUBLIC))
        with pytest.raises(Refusal, match="call mend if a process was interrupted"):
            ledger.append(entry(entries), KEYS["va"])
        assert f"a torn last line of {length} bytes was cut off" in ledger.mend("va", KEYS["va"])[0]
        assert ledger.path.read_bytes() == whole
    ledger.append(entry(entries), KEYS[entry(entries).who])
    assert ledger.verify(PUBLIC) == []
    assert ledger.path.read_bytes() == longer.path.read_bytes(), "as if nothing had happened"
    assert ledger.mend("va", KEYS["va"]) == []


@pytest.mark.parametrize("entries", [1, 4])
def test_a_crash_between_the_line_and_its_head_is_told_and_mended(tmp_path, entries):
    ledger, _ = filled(tmp_path / "ledger.jsonl", entries - 1)
    old = ledger.head_path.read_bytes() if entries > 1 else None
    ledger.append(entry(entries - 1), KEYS[entry(entries - 1).who])
    ledger.head_path.unlink() if old is None else ledger.head_path.write_bytes(old)
    assert where(ledger.verify(PUBLIC)) == {0}
    with pytest.raises(Refusal, match="call mend"):
        ledger.append(entry(entries), KEYS["va"])
    assert f"it now covers entry {entries}" in ledger.mend("va", KEYS["va"])[0]
    assert ledger.verify(PUBLIC) == []
    assert len(ledger.entries(PUBLIC)) == entries


def test_a_full_disk_leaves_the_ledger_as_it_was(ledger):
    """The system refuses to let any file grow past ten more bytes."""
    before = ledger.path.read_bytes(), ledger.head_path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before[0]) + 10, hard))
    try:
        with pytest.raises(Refusal, match=r"could not be written .*the ledger is as it was"):
            ledger.append(entry(5), KEYS["va"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (ledger.path.read_bytes(), ledger.head_path.read_bytes()) == before
    ledger.append(entry(5), KEYS["va"])
    assert ledger.verify(PUBLIC) == []


APPEND_TEN = """
import sys
from pathlib import Path
from wardround.incentives.ledger_entries import LedgerEntry
from wardround.incentives.ledger_keys import read_key
from wardround.incentives.ledger import Ledger
folder, site = Path(sys.argv[1]), sys.argv[2]
key = read_key(folder / f"{site}.key")
sys.stdin.readline()
for number in range(10):
    entry = LedgerEntry(site, "triage", number, "answered", {"rows": number}, "2031-05-01T12:00:00Z")
    Ledger(folder / "ledger.jsonl").append(entry, key)
"""


def test_processes_that_append_at_once_lose_nothing(tmp_path):
    public = {site: make_key(tmp_path / f"{site}.key") for site in SITES}
    command = [sys.executable, "-c", APPEND_TEN, str(tmp_path)]
    workers = [subprocess.Popen([*command, site], stdin=subprocess.PIPE) for site in SITES]
    for worker in workers:  # waiting for this word, so that they are all there when the first begins
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate()
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    entries = Ledger(tmp_path / "ledger.jsonl").entries(public)
    for site in SITES:
        assert [one.phase for one in entries if one.who == site] == list(range(10)), "all, and in order"


@settings(max_examples=examples(40), deadline=None)
@given(rubbish=st.binary(max_size=300), keep=st.integers(0, 2), of_head=st.booleans())
def test_rubbish_is_found_and_never_breaks_the_reader(tmp_path_factory, rubbish, keep, of_head):
    ledger, _ = filled(tmp_path_factory.mktemp("ledger") / "ledger.jsonl", 2)
    path = ledger.head_path if of_head else ledger.path
    whole = path.read_bytes()
    changed = (rubbish if of_head else b"".join(lines(ledger)[:keep])) + rubbish
    path.write_bytes(changed)
    assert bool(ledger.verify(PUBLIC)) == (changed != whole)


def test_a_line_without_end_is_not_read_into_memory(ledger):
    with open(ledger.path, "ab") as file:
        file.write(b"x" * (3 << 20))
    assert "line 6: the line is longer than any entry" in told(ledger.verify(PUBLIC))
    with pytest.raises(Refusal, match="last entry of the ledger is damaged"):
        ledger.append(entry(5), KEYS["va"])


def test_an_entry_too_long_is_refused_and_nothing_is_written(ledger):
    before = ledger.path.read_bytes()
    numbers = {f"site {number}": number for number in range(80_000)}
    long = LedgerEntry("va", "triage", 1, "rewarded", numbers, "2031-05-01T12:00:00Z")
    with pytest.raises(Refusal, match="too long"):
        ledger.append(long, KEYS["va"])
    assert ledger.path.read_bytes() == before


def test_paths_that_are_no_ledger(tmp_path):
    with pytest.raises(Refusal, match="No such file"):
        Ledger(tmp_path / "nowhere.jsonl").verify(PUBLIC)
    with pytest.raises(Refusal, match="is not a file"):
        Ledger(tmp_path).verify(PUBLIC)
    with pytest.raises(Refusal, match="No such file"):
        Ledger(tmp_path / "nowhere" / "ledger.jsonl").append(entry(0), KEYS["va"])
