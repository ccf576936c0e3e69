"""Unigram: votes where a text has a word as a whole token, whatever its case. "nice" is not in "niceness"."""

from collections.abc import Sequence

import pandas as pd

from wardround.core.components.recipes import recorded
from wardround.core.errors import Refusal
from wardround.weak_supervision.function import KIND, LabelingFunction, Values, settings
from wardround.weak_supervision.tokens import has_words, is_token, texts_of


@recorded(KIND)
def unigram(*, column: str, word: str, label: str) -> LabelingFunction:
    """Votes where the text of a column has this word."""
    if not is_token(word):
        raise Refusal(
            f"{word!r} is not one word in lower case, so no text has it",
            where=f"{KIND} unigram",
            remedy="write one token of letters and digits, without blanks, hyphens or capitals",
        )
    given = settings(column=column, word=word, label=label)
    return LabelingFunction("unigram", label, (column,), given, f'{column} has the word "{word}"', fires)


def fires(functions: Sequence[LabelingFunction], frame: pd.DataFrame) -> Values:
    (column,) = functions[0].columns
    words = [str(dict(one.given)["word"]) for one in functions]
    places = {word: place for place, word in enumerate(dict.fromkeys(words))}
    return has_words(texts_of(frame[column]), list(places))[:, [places[word] for word in words]]
