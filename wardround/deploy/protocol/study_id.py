"""The identity of a study, by which coordinator and sites know that they mean the same words."""

from wardround.runs.folder import digest
from wardround.study.file import Study

DIGITS = 32
"""Hexadecimal digits of the hash: 128 bits, so that nobody finds a second study for an identity by trying."""


def study_id(study: Study) -> str:
    """Name and hash: what is approved is exactly these words."""
    return f"{study.study.name}-{digest(study.model_dump(mode='json'))[:DIGITS]}"


def is_meant(word: str, study: str) -> bool:
    """Whether a person may mean this study: by its name, its whole identity, or the beginning of one.

    A beginning goes past the name and its hyphen: what is typed for `triage` never means `triage-2`.
    """
    name = study.rpartition("-")[0]
    return word in (name, study) or (len(word) > len(name) + 1 and study.startswith(word))
