"""What a site does to have a classifier that it can send: prepare its own rows, fit, write the file."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.classifiers.exchange import AskedTask
from wardround.classifiers.kinds import fit_kind
from wardround.classifiers.onnx_file import classifier_bytes
from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.data.preparation_fit import fit_preparation
from wardround.data.query import ask_all

Values = np.ndarray[Any, Any]


def local_preparation(name: str, frame: pd.DataFrame, asked: AskedTask, *, smallest_cell: int = 1) -> Preparation:
    """Fills, centers and scales from the site's own training rows: the mean of numbers, the most frequent category."""
    site = Site(name, frame[list(asked.columns)])

    def ask(query: Query, message: Message) -> Report:
        return ask_all(query, message, [site])

    kinds = {column: "text" if kind == "category" else "number" for column, kind in asked.columns.items()}
    return fit_preparation(ask, kinds, impute="mean", scale="standard", smallest_cell=smallest_cell)[0]


def fit_classifier(
    name: str,
    kind: str,
    frame: pd.DataFrame,
    outcome: Values,
    patients: Values,
    asked: AskedTask,
    preparation: Preparation,
    *,
    seed: int,
) -> bytes:
    """The file of a classifier that was fitted on these training rows; `outcome` is 1 for the positive class."""
    if len(np.unique(outcome)) < 2:
        raise Refusal(
            "all training patients have the same outcome, so there is nothing to learn",
            where=f"site {name}",
            remedy="leave this site out: name the others in [explain] sites",
        )
    x = preparation.apply(frame, where=f"site {name}")
    model = fit_kind(kind, x, outcome, patients, seed, where=f"site {name}")
    return classifier_bytes(
        model,
        preparation,
        target=asked.target,
        classes=_negative_first(asked.classes, asked.positive),
        positive=asked.positive,
        kind=kind,
        thresholds={},
    )


def _negative_first(classes: Sequence[str], positive: str) -> tuple[str, ...]:
    return (*(one for one in classes if one != positive), positive)


def thresholds_words(thresholds: Mapping[str, float]) -> str:
    """
    >>> thresholds_words({"sensitivity 0.9": 0.31})
    'sensitivity 0.9 from a risk of 0.31'
    """
    return ", ".join(f"{name} from a risk of {value:.2g}" for name, value in thresholds.items())
