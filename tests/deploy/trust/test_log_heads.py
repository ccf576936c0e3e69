"""The other side keeps what it countersigned, and notices who goes back behind it."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.deploy.trust.log_heads import (
    countersign,
    parse_countersigned,
    parse_head_json,
    read_witness,
    sign_head,
    witness,
)

SITE, HUB = (ec.derive_private_key(number, ec.SECP256R1()) for number in (1234567, 7654321))
KEYS = {"freetown": [SITE.public_key()]}
ONE, TWO = "11" * 32, "22" * 32


def test_what_is_countersigned_is_kept_and_read_back(tmp_path):
    path = tmp_path / "heads" / "freetown.json"
    for entries, digest in ((3, ONE), (3, ONE), (7, TWO)):
        seen = witness(path, sign_head(entries, digest, "freetown", SITE), KEYS, "hub", HUB)
        assert read_witness(path) == seen
        assert parse_countersigned(json.loads(json.dumps(seen.content()))) == seen


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (sign_head(2, ONE, "freetown", SITE), "rolled back"),
        (sign_head(3, TWO, "freetown", SITE), "rolled back"),
        (sign_head(4, TWO, "freetown", HUB), "the signature is not"),
        (sign_head(4, TWO, "bo", HUB), "whose key is not known here"),
    ],
)
def test_a_head_that_cannot_be_believed_is_not_countersigned(tmp_path, head, why):
    path = tmp_path / "freetown.json"
    kept = witness(path, sign_head(3, ONE, "freetown", SITE), KEYS, "hub", HUB)
    with pytest.raises(Refusal, match=why):
        witness(path, head, KEYS, "hub", HUB)
    assert read_witness(path) == kept


def test_one_site_cannot_take_another_ones_place(tmp_path):
    path = tmp_path / "freetown.json"
    witness(path, sign_head(3, ONE, "freetown", SITE), KEYS, "hub", HUB)
    both = {**KEYS, "bo": [HUB.public_key()]}
    with pytest.raises(Refusal, match="the one kept here belongs to 'freetown'"):
        witness(path, sign_head(9, TWO, "bo", HUB), both, "hub", HUB)


@pytest.mark.parametrize(
    "content",
    [None, [], "x", {}, {"entries": 1}, {"entries": True, "hash": ONE, "who": "a", "signature": "ab" * 70}],
)
def test_anything_else_is_no_head(content):
    for read in (parse_head_json, parse_countersigned):
        with pytest.raises(ValueError, match="it"):
            read(content)


def test_a_file_that_is_no_witness_is_told(tmp_path):
    for content in (b"", b"{}", b"\xff", b"[" * 100_000):
        (tmp_path / "head.json").write_bytes(content)
        with pytest.raises(Refusal, match="not a countersigned head"):
            read_witness(tmp_path / "head.json")
    with pytest.raises(Refusal, match="cannot be read"):
        read_witness(tmp_path / "absent.json")
    assert countersign(sign_head(1, ONE, "a", SITE), "hub", HUB).by == "hub"
