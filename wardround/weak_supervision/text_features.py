"""Free text as numbers without a network and without a word leaving: hashed, or counted where words are listed.

Hashing (Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009) needs no vocabulary, so no
site tells which words its patients' notes have: every site computes the same features from its own texts. Counts enter
as 1 + ln(count), and a row is brought to length 1, times `LENGTH` so that its numbers are of the size that networks
like. Listed words with their weights are TF-IDF, where the weights come from document frequencies.
"""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.weak_supervision.tokens import texts_of, tokens_of

Values = np.ndarray[Any, Any]
LENGTH = 3.0
FEATURES = 256


def place_of(token: str, features: int) -> tuple[int, float]:
    """Where a token is counted, and with which sign: of tokens that meet, some cancel instead of adding up."""
    found = zlib.crc32(token.encode())
    return (found >> 1) % features, 1.0 if found & 1 else -1.0


def text_features(
    texts: "pd.Series[Any]", features: int = FEATURES, words: Sequence[str] = (), weights: Sequence[float] = ()
) -> Values:
    """(rows, features): hashed into so many, or one for each of the words; an empty text is 0 throughout."""
    rows: list[int] = []
    places: list[int] = []
    values: list[float] = []
    known: dict[str, tuple[int, float] | None] = {
        word: (place, weights[place] if weights else 1.0) for place, word in enumerate(words)
    }
    width = len(words) or features
    for row, text in enumerate(texts_of(texts)):
        for token, count in Counter(tokens_of(text)).items():
            if token not in known:
                known[token] = None if words else place_of(token, features)
            place = known[token]
            if place is not None:
                rows.append(row)
                places.append(place[0])
                values.append(place[1] * (1.0 + math.log(count)))
    found = np.zeros((len(texts), width), np.float32)
    np.add.at(found, (rows, places), values)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(LENGTH * found / np.where(length > 0, length, 1.0), np.float32)
