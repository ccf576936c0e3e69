"""Columns that name patients: by their names, or because nearly every row has another value."""

import re
from typing import Any

import numpy as np
import pandas as pd

from wardround.queries.columns import as_codes, as_numbers

# fmt: off
IDENTIFYING = frozenset((
    "id", "identifier", "mrn", "ssn", "nhs", "name", "names", "surname", "forename", "firstname", "lastname",
    "initials", "phone", "telephone", "mobile", "fax", "email", "mail", "address", "street", "zip", "zipcode",
    "postcode", "postal", "dob", "birth", "birthdate", "birthday", "passport", "insurance", "account", "licence",
    "license", "url", "ip",
))
# fmt: on
"""Words in a column's name that tell of a person rather than of an illness."""
FEW = 20
"""Rows up to which different values in every row mean nothing."""
NEARLY_ALL = 0.9
"""The share of different values from which on words name patients and are no categories."""


def identifying_word(column: str) -> str:
    """The word in a column's name that tells of a person, or nothing."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", column)
    return next((word.lower() for word in words if word.lower() in IDENTIFYING), "")


def are_words_of_patients(known: "pd.Series[Any]") -> bool:
    """Whether nearly every row has a word of its own."""
    if len(known) <= FEW:
        return False
    return len(as_codes(known)[1]) >= NEARLY_ALL * len(known)


def is_numbered(name: str, known: "pd.Series[Any]") -> bool:
    """Whether every row has a whole number of its own, which are named or run like a list of patients."""
    if len(known) <= FEW:
        return False
    values = as_numbers(known)
    if not np.isfinite(values).all() or bool(np.any(values % 1)) or len(np.unique(values)) < len(values):
        return False
    return bool(identifying_word(name)) or float(values.max() - values.min()) < 1.5 * len(values)
