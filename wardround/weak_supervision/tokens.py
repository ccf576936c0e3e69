"""Free text as whole tokens: runs of letters and digits in lower case, with single apostrophes inside ("don't")."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.queries.columns import as_text

Values = np.ndarray[Any, Any]
TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
BLANKS = str.maketrans({letter: " " for letter in map(chr, range(128)) if not letter.isalnum() and letter != "'"})


def tokens_of(text: str) -> list[str]:
    """The tokens of a text, in order.

    >>> tokens_of("Don't 'wait': the T-wave, again_and again.")
    ["don't", 'wait', 'the', 't', 'wave', 'again', 'and', 'again']
    """
    lowered = text.lower().replace("’", "'")
    if not lowered.isascii():
        return TOKEN.findall(lowered)
    # The same in half the time: what is no token becomes blank, then apostrophes at the ends of tokens.
    spaced = f" {lowered.translate(BLANKS)} ".replace("''", " ").replace(" '", " ").replace("' ", " ")
    return spaced.split()


def is_token(word: str) -> bool:
    """Whether a word is one token as `tokens_of` gives them."""
    return tokens_of(word) == [word]


def texts_of(series: "pd.Series[Any]") -> list[str]:
    """Every row's text; a missing one is empty."""
    return ["" if text is None else str(text) for text in as_text(series)]


def has_words(texts: Iterable[str], words: Sequence[str]) -> Values:
    """A flag for every text and word: whether the text has the word as a whole token."""
    places = {word: place for place, word in enumerate(words)}
    wanted = frozenset(places)
    rows = [wanted.intersection(tokens_of(text)) for text in texts]
    found = np.zeros((len(rows), len(words)), bool)
    found[
        np.repeat(np.arange(len(rows)), np.fromiter(map(len, rows), np.int64, len(rows))),
        [places[word] for row in rows for word in row],
    ] = True
    return found
