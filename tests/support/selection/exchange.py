"""A small task for tests of classifiers that are exchanged: two numbers and a category, of two hospitals."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from wardround.classifiers.exchange import AskedTask
from wardround.classifiers.local_fit import fit_classifier, local_preparation

ASKED = AskedTask("died", ("no", "yes"), "yes", {"age": "number", "lactate": "number", "sex": "category"})


@dataclass(frozen=True)
class Patients:
    frame: pd.DataFrame
    outcome: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"


def patients(rows: int = 300, seed: int = 0) -> Patients:
    """With gaps in every column."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 12, rows),
            "lactate": rng.normal(2, 1, rows),
            "sex": rng.choice(["f", "m"], rows).astype(object),
        }
    )
    risk = 0.1 * (frame["age"] - 60) + frame["lactate"] - 2
    outcome = (rng.random(rows) < 1 / (1 + np.exp(-2 * risk))).astype(np.int64)
    for column in frame.columns:
        frame.loc[rng.random(rows) < 0.05, column] = None if column == "sex" else np.nan
    return Patients(frame, outcome)


@cache
def classifier(kind: str = "ridge", seed: int = 0, rows: int = 300) -> bytes:
    """The file of a classifier of such patients."""
    own = patients(rows, seed)
    preparation = local_preparation("A", own.frame, ASKED)
    return fit_classifier("A", kind, own.frame, own.outcome, np.arange(rows), ASKED, preparation, seed=seed)
