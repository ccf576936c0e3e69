"""What the ledger and the audit log share: one way to write, one hash, and where a file ends."""

import hashlib
import os
import re

import pytest

from wardround.core.journals.journal import (
    DIGEST,
    ROOT,
    End,
    Format,
    Journal,
    Violation,
    canonical_json,
    chain_hash,
    numbered_lines,
    parse_object,
    read_tail,
)


def test_the_hash_is_that_of_the_bytes_as_written_by_hand():
    assert canonical_json({"b": 1, "a": "é"}) == b'{"a":"\\u00e9","b":1}'
    assert chain_hash("11" * 32, {"a": 1}) == hashlib.sha256(b"\x11" * 32 + b'{"a":1}').hexdigest()
    assert chain_hash(ROOT, []) == hashlib.sha256(bytes(32) + b"[]").hexdigest()


@pytest.mark.parametrize("length", [10, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 50_000, (1 << 20) - 2])
@pytest.mark.parametrize("torn", [b"", b"x", b"y" * 20_000])
def test_the_last_whole_line_is_found_however_long_it_is(tmp_path, length, torn):
    (tmp_path / "file").write_bytes(b"first\n" + b"a" * length + b"\n" + torn)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert read_tail(file) == (b"a" * length, len(torn))
    finally:
        os.close(file)


@pytest.mark.parametrize(("content", "expected"), [(b"", (None, 0)), (b"torn", (None, 4)), (b"one\n", (b"one", 0))])
def test_a_file_without_a_line_before(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert read_tail(file) == expected
    finally:
        os.close(file)


def test_an_endless_line_is_not_taken_for_an_empty_file(tmp_path):
    (tmp_path / "file").write_bytes(b"first\n" + b"a" * (3 << 20))
    file = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert read_tail(file)[0] == b""
    finally:
        os.close(file)


def test_lines_are_numbered_and_nothing_is_read_past_one_that_does_not_end(tmp_path):
    (tmp_path / "file").write_bytes(b"a\n\nb")
    with open(tmp_path / "file", "rb") as file:
        assert list(numbered_lines(file)) == [
            (1, b"a"),
            (2, b""),
            (3, Violation(3, "the line is torn: it has no end; nothing was read from here on")),
        ]
    (tmp_path / "file").write_bytes(b"a" * (1 << 20) + b"\nb\n")
    with open(tmp_path / "file", "rb") as file:
        ((number, found),) = numbered_lines(file)
    assert number == 1
    assert "longer than any entry" in str(found)


def test_only_the_very_fields_in_their_very_form():
    fields, forms = {"hash": str, "number": int}, {"hash": DIGEST}
    good = canonical_json({"hash": "ab" * 32, "number": 3})
    assert parse_object(good, fields, forms) == {"hash": "ab" * 32, "number": 3}
    for bad in (
        good + b" ",
        good.replace(b":3", b":3.0"),
        good.replace(b":3", b":true"),
        good.replace(b"ab", b"AB"),
        canonical_json({"hash": "ab" * 32}),
        canonical_json({"hash": "ab" * 32, "number": 3, "more": 1}),
    ):
        with pytest.raises(ValueError, match=re.compile("it is not|malformed")):
            parse_object(bad, fields, forms)


def test_a_changed_line_is_found_though_its_hash_still_leads_to_the_next(tmp_path):
    journal = Journal(tmp_path / "file", Format("journal", lambda content: content, "restore it"))
    with journal.lock(write=True) as file:
        journal.append(file, End(0, ROOT, "", 0), {"rows": 10}, {"rows": 20})
    journal.path.write_bytes(journal.path.read_bytes().replace(b'{"rows":10}', b'{"rows":90}'))
    with journal.lock(write=False) as file:
        assert journal.check(file).violations == (Violation(1, "its content was changed: the hash does not fit"),)


def test_a_cut_is_on_the_disk_before_anything_is_added(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "file", Format("journal", lambda content: content, "restore it"))
    journal.path.write_bytes(b"whole\ntorn")
    fsync, sizes = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda file: (sizes.append(os.fstat(file).st_size), fsync(file)))
    with journal.lock(write=True) as file:
        journal.cut_torn_line(file, len(b"torn"))
    assert (journal.path.read_bytes(), sizes) == (b"whole\n", [6])
