"""One way to write an entry, and none to smuggle in what JSON cannot give back."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.core.journals.journal import ROOT, canonical_json, chain_hash
from wardround.incentives.ledger_entries import FORMAT, LedgerEntry, read_head

TIME = "2031-05-01T12:00:00+00:00"
NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))


def read_line(raw):
    return FORMAT.read_line(raw, 1)


def entry(**changes):
    return LedgerEntry(
        **{"who": "va", "study": "triage", "phase": 3, "kind": "answered", "numbers": {}, "time": TIME, **changes}
    )


def test_the_hash_is_that_of_the_bytes_as_written_by_hand():
    text = (
        '{"kind":"answered","numbers":{"loss":0.25,"rows":200},"phase":3,"study":"triage","time":"'
        + TIME
        + '","who":"va"}'
    )
    written = entry(numbers={"rows": np.int64(200), "loss": np.float32(0.25)})
    assert canonical_json(written.content()) == text.encode()
    assert chain_hash(ROOT, written.content()) == hashlib.sha256(bytes(32) + text.encode()).hexdigest()
    assert chain_hash("11" * 32, written.content()) == hashlib.sha256(b"\x11" * 32 + text.encode()).hexdigest()


@settings(max_examples=examples(100), deadline=None)
@given(st.text(min_size=1).filter(str.strip), st.dictionaries(st.text(), NUMBERS, max_size=4))
def test_a_line_is_read_back_as_it_was(who, numbers):
    one = entry(who=who, numbers=numbers)
    line = {"entry": one.content(), "hash": ROOT, "number": 1, "previous": ROOT, "signature": "0" * 128}
    assert read_line(canonical_json(line)).entry == one
    backwards = entry(who=who, numbers=dict(reversed(numbers.items())))
    assert canonical_json(backwards.content()) == canonical_json(one.content())


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_called_wrong(raw):
    for read in (read_line, read_head):
        with pytest.raises(ValueError, match="it is not"):
            read(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b"1" * 5000,
        b'{"a":NaN}',
        b'{"a":1,"a":1}',
        b"null",
        '{"é":1}'.encode(),
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_traps_for_a_decoder(raw):
    with pytest.raises(ValueError, match="it is not"):
        read_line(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {"who": ""},
        {"who": 7},
        {"study": "  "},
        {"phase": -1},
        {"phase": True},
        {"phase": ""},
        {"phase": 1.5},
        {"kind": "paid"},
        {"kind": []},
        {"time": "yesterday"},
        {"time": "2031-05-01T12:00:00"},
        {"time": 0},
        {"numbers": {"loss": math.nan}},
        {"numbers": {"loss": math.inf}},
        {"numbers": {"chosen": True}},
        {"numbers": {"rows": "7"}},
        {"numbers": {"rows": 2**63}},
        {"numbers": {7: 1}},
        {"numbers": [1, 2]},
    ],
)
def test_entries_that_cannot_be(changes):
    with pytest.raises(Refusal):
        entry(**changes)


def test_an_entry_does_not_change_with_what_it_was_made_of():
    numbers = {"rows": 1}
    made = entry(numbers=numbers)
    numbers["rows"] = 2
    assert made.numbers == {"rows": 1}
    with pytest.raises(TypeError):
        made.numbers["rows"] = 3
