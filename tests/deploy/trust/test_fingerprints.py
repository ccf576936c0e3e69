"""A key's words: by hand from its SHA-256, and far enough apart to be heard over a telephone."""

import itertools
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.deploy.trust.fingerprints import LENGTH, WORDS, fingerprint, parse_fingerprint

KEY = ec.derive_private_key(1, ec.SECP256R1()).public_key()


def test_the_words_are_the_first_ten_bytes_of_the_keys_sha256() -> None:
    der = KEY.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = subprocess.run(["sha256sum"], input=der, capture_output=True, check=True).stdout.decode()
    expected = [WORDS[int(digits[at : at + 2], 16)] for at in range(0, 2 * LENGTH, 2)]
    assert fingerprint(KEY).split() == expected
    assert LENGTH * 8 >= 80, "bits that another key would have to match"


def distance(one: str, other: str) -> int:
    """Letters to change, add or take away (Levenshtein), by the textbook's table."""
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, row[0] = row[0], at
        for place, mark in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != mark))
    return row[-1]


def test_words_are_told_apart() -> None:
    assert len(set(WORDS)) == 256
    assert len({word[:3] for word in WORDS}) == 256
    assert all(4 <= len(word) <= 8 and word.isascii() and word.isalpha() and word.islower() for word in WORDS)
    assert distance("kitten", "sitting") == 3
    assert [pair for pair in itertools.combinations(WORDS, 2) if distance(*pair) < 3] == []


def test_what_was_heard_is_read_and_what_cannot_be_is_refused() -> None:
    words = fingerprint(KEY)
    assert parse_fingerprint(words.upper().replace(" ", " - ")) == words
    assert parse_fingerprint(words.split()) == words
    with pytest.raises(Refusal, match=r"'bogus' is not a word of a fingerprint.*ask for that word again"):
        parse_fingerprint("zinc bogus")
    with pytest.raises(Refusal, match=r"did you mean 'acorn'\?"):
        parse_fingerprint("acorne " + " ".join(["zinc"] * 9))
    with pytest.raises(Refusal, match="has 10 words, and these are 9"):
        parse_fingerprint(" ".join(words.split()[:9]))
