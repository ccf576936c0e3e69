"""Whose each image is: columns that tell it, and what headers of DICOM files tell against them.

A patient with several images must lie in one part of a study, and counts once; so it must be known whose an image is.
Numbers of patients in headers are compared as digests while a folder is read, and are kept nowhere.
"""

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from wardround.core.text import counted

WORD = re.compile(r"(subject|patient|person)([ _-]?(id|no|nr|number|code|name))?", re.IGNORECASE)


def patient_column(columns: Iterable[str]) -> str:
    """The first column that says whose an image is; "" where none does.

    >>> patient_column(["file", "Patient ID", "Patient Age"])
    'Patient ID'
    """
    return next((one for one in columns if WORD.fullmatch(str(one).strip())), "")


def header_remarks(frame: pd.DataFrame, patients: Sequence[str]) -> list[str]:
    """What digests of header numbers (one a row, "" where there is none) tell beside the rows' own column."""
    told = pd.Series(list(patients), index=frame.index, dtype=object)
    told = told[told != ""]
    if told.nunique() < 2:  # nobody, or the one word that stands for everybody in files made nameless
        return []
    column = patient_column(frame.columns)
    if not column:
        return (
            []
            if told.is_unique
            else [
                f"Headers tell {told.nunique()} patients for {counted(len(told), 'DICOM file')}, and nothing here says"
                " whose each is: let a level of the folders or a column of the labels be called subject, and set"
                " split_by to it, or a patient is both trained on and tested."
            ]
        )
    names = frame.loc[told.index, column].astype(str).groupby(told).nunique()
    several = int((names > 1).sum())
    return (
        [
            f"By their headers {counted(several, 'patient')} {'lies' if several == 1 else 'lie'} under several names of"
            f" {column}: they may be both trained on and tested."
        ]
        if several
        else []
    )
