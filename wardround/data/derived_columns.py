"""Columns that a study makes of others at every site: votes of its labeling functions, and free text as numbers.

Votes come first, a column `rule 1`, `rule 2`, ... with 1 where the function fires and 0 where it abstains; then the
features of texts, then the other columns. Free text itself is no input of a model: what functions or features are made
from is left out. Where a column that a function reads is withheld or missing, the function abstains, and so a text is
empty.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.components.recipes import hashable
from wardround.weak_supervision.function import LabelingFunction, function_from, votes_of
from wardround.weak_supervision.text_features import FEATURES, text_features

Said = Sequence[Mapping[str, Any]]
WHERE = "[[data.cleaning.rules]]"


def vote_columns(rules: Said) -> tuple[str, ...]:
    """
    >>> vote_columns([{}, {}])
    ('rule 1', 'rule 2')
    """
    return tuple(f"rule {number}" for number in range(1, len(rules) + 1))


def declared_functions(rules: Said) -> tuple[LabelingFunction, ...]:
    """The functions that a study names; refused where one is none. The same words give the same functions."""
    return _functions(tuple(tuple(sorted((key, hashable(value)) for key, value in one.items())) for one in rules))


@lru_cache(maxsize=64)
def _functions(rules: tuple[tuple[tuple[str, Any], ...], ...]) -> tuple[LabelingFunction, ...]:
    return tuple(function_from(dict(one), f"{WHERE}, rule {number}") for number, one in enumerate(rules, 1))


def labels_voted_for(rules: Said) -> tuple[str, ...]:
    return tuple(sorted({one.label for one in declared_functions(rules)}))


def derived_names(texts: Mapping[str, Mapping[str, Any]], rules: Said) -> tuple[str, ...]:
    """The columns that are made, in order."""
    widths = {
        column: len(said.get("words", ())) or int(said.get("features", FEATURES)) for column, said in texts.items()
    }
    made = (f"{column} {number}" for column, width in widths.items() for number in range(1, width + 1))
    return (*vote_columns(rules), *made)


def derive_columns(
    frame: pd.DataFrame, texts: Mapping[str, Mapping[str, Any]], rules: Said, fewest: int = 1
) -> pd.DataFrame:
    """The rows with votes and features of texts in front, and without the texts.

    What fewer than `fewest` rows have is found in none: the weight of a column that one patient has would be hers.
    """
    if not texts and not rules:
        return frame
    functions = declared_functions(rules)
    known = [place for place, one in enumerate(functions) if set(one.columns) <= set(frame.columns)]
    votes = np.zeros((len(frame), len(functions)))
    votes[:, known] = votes_of([functions[place] for place in known], frame)
    votes *= np.count_nonzero(votes, axis=0) >= fewest
    parts = [pd.DataFrame(votes, columns=list(vote_columns(rules)), index=frame.index)]
    for column, said in texts.items():
        read = frame[column] if column in frame.columns else pd.Series(None, frame.index, dtype=object)
        names = list(derived_names({column: said}, ()))
        features = text_features(read, **said)
        if said.get("words"):
            features *= np.count_nonzero(features, axis=0) >= fewest
        parts.append(pd.DataFrame(features, columns=names, index=frame.index))
    free = free_texts(texts, rules)
    return pd.concat([*parts, frame.drop(columns=[name for name in frame.columns if name in free])], axis=1)


def free_texts(texts: Mapping[str, Any], rules: Said) -> frozenset[str]:
    """Columns that are read as free text, and are no inputs themselves."""
    read = (column for one in declared_functions(rules) if one.kind == "unigram" for column in one.columns)
    return frozenset((*texts, *read))
