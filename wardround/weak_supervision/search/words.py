"""Words that several sites have, found letter by letter: no site ever sends a word.

The coordinator asks for which beginnings a site has a longer one, and learns how many sites say yes; beginnings that
fewer than `fewest_sites` have are not asked about further. A site speaks of a word only if enough of its documents have
it, not too many of them do, it is made of the study's letters, is not denied, and is no likely name.
"""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from wardround.weak_supervision.tokens import TOKEN, tokens_of

Values = np.ndarray[Any, Any]
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
LONGEST = 20
"""Letters of a word; longer ones are not found."""
CAPITAL = 0.5
"""A word of which more than this share of uses within sentences begins with a capital letter is taken for a name."""


def own_words(
    texts: Sequence[str], low: float, high: float, least: int, letters: str, denied: Iterable[str]
) -> set[str]:
    """The words of which this site may speak; `least` documents must have one, whatever `low` is a share of."""
    documents: dict[str, int] = {}
    for text in texts:
        for token in set(tokens_of(text)):
            documents[token] = documents.get(token, 0) + 1
    known, many = set(letters), len(texts)
    kept = {
        word
        for word, count in documents.items()
        if count >= max(least, low * many) and count <= high * many and set(word) <= known and len(word) <= LONGEST
    }
    return kept - denied_words(kept, denied) - likely_names(texts, kept)


def denied_words(words: Iterable[str], denied: Iterable[str]) -> set[str]:
    """Those that are denied, however a list writes them, and their genitives.

    >>> sorted(denied_words({"hiv", "meyer's", "pain"}, ["HIV", "Dr. Meyer"]))
    ['hiv', "meyer's"]
    """
    listed = {token for one in denied for token in tokens_of(one)}
    return {word for word in words if word in listed or word.removesuffix("'s") in listed}


def without_words(texts: Iterable[str | None], denied: Iterable[str]) -> Values:
    """Texts in which denied words are blank, in whatever case, and their genitives; a missing text stays missing.

    >>> without_words(["Seen by MEYER; Meyer’s pain", None], ["Dr. Meyer"]).tolist()
    ['Seen by  ;   pain', None]
    """
    listed = {token for one in denied for token in tokens_of(one)}

    def blank(found: "re.Match[str]") -> str:
        word = found.group().lower()
        return " " if word in listed or word.removesuffix("'s") in listed else found.group()

    return np.array([None if text is None else TOKEN.sub(blank, text.replace("’", "'")) for text in texts], object)


def likely_names(texts: Sequence[str], words: set[str]) -> set[str]:
    """Words that within sentences are mostly written with a capital letter, or only ever with one.

    Of a text without small letters nothing is learned.

    >>> texts = ["We saw Smith. Pain.", "Then Smith had pain", "Seen for: JONES", "Lee slept. Meals came", "meals"]
    >>> sorted(likely_names(texts, {"smith", "pain", "jones", "lee", "meals"}))
    ['jones', 'lee', 'smith']
    """
    uses = dict.fromkeys(words, 0)
    capitals = dict.fromkeys(words, 0)
    begins = dict.fromkeys(words, 0)
    small: set[str] = set()
    for text in texts:
        end = 0
        if text.isupper():
            continue
        for found in TOKEN.finditer(text.replace("’", "'")):
            word, between = found.group(), text[end : found.start()]
            first, end = end == 0 or any(sign in between for sign in '.!?:\n"'), found.end()
            lowered = word.lower()
            if lowered not in uses:
                continue
            if word[0].islower():
                small.add(lowered)
            if first or (len(word) > 1 and word.isupper()):
                begins[lowered] += 1
            else:
                uses[lowered] += 1
                capitals[lowered] += word[0].isupper()
    return {
        word
        for word in words
        if (capitals[word] > CAPITAL * uses[word] if uses[word] else begins[word] and word not in small)
    }


def to_codes(words: Sequence[str]) -> Values:
    """Words as numbers, a row each, filled up with 0.

    >>> from_codes(to_codes(["a", "bc"]))
    ['a', 'bc']
    """
    codes = np.zeros((len(words), LONGEST))
    for row, word in enumerate(words):
        codes[row, : len(word)] = [ord(letter) for letter in word]
    return codes


def from_codes(codes: Values) -> list[str]:
    found = np.asarray(codes)
    whole = np.where((found > 0) & (found < 0x110000), found, 0).astype(np.uint32)
    if not whole.size:
        return []
    return [word.replace("\0", "") for word in np.ascontiguousarray(whole).view(f"<U{whole.shape[1]}")[:, 0].tolist()]


def longer_ones(words: Iterable[str], beginnings: Mapping[str, int], letters: str) -> set[tuple[int, int]]:
    """(beginning, letter) where a word goes on with the letter; in the column after the last, where it ends there.

    >>> sorted(longer_ones(["bad", "bat", "b"], {"ba": 0, "b": 1}, "abdt"))
    [(0, 2), (0, 3), (1, 0), (1, 4)]
    """
    columns = {letter: column for column, letter in enumerate(letters)}
    lengths = {len(beginning) for beginning in beginnings}
    found = set()
    for word in words:
        for length in lengths:
            row = beginnings.get(word[:length]) if length <= len(word) else None
            if row is not None:
                found.add((row, columns[word[length]] if length < len(word) else len(letters)))
    return found


def most_common(words: Mapping[str, float], most: int) -> list[str]:
    """Those at most sites; among equals by a checksum, so that no letter of the alphabet goes first."""
    return sorted(words, key=lambda word: (-words[word], zlib.crc32(word.encode())))[:most]


def go_on(
    beginnings: Sequence[str], sites: Values, letters: str, fewest: int, most: int
) -> tuple[list[str], dict[str, float]]:
    """The next beginnings to ask about, and the words that end here with how many sites have them, both at enough."""
    enough = np.asarray(sites) >= fewest - 0.5
    words = {one: float(sites[row, -1]) for row, one in enumerate(beginnings) if one and enough[row, -1]}
    longer = {
        beginning + letters[column]: float(sites[row, column])
        for row, beginning in enumerate(beginnings)
        for column in np.flatnonzero(enough[row, :-1])
    }
    return most_common(longer, most), words
