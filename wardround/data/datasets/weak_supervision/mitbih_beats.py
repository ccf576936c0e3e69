"""Heart beats of 48 recordings, normal or not: the MIT-BIH Arrhythmia Database, each recording a site.

Moody and Mark 2001, Goldberger et al. 2000 (Open Data Commons Attribution 1.0). Needs the folder mitbih_beats: 144
samples around each beat at 180 a second, lead MLII, in the columns beat_0, beat_1, ... The target "rhythm" is normal
for the annotation N and arrhythmia for every other. Most recordings are nearly all of one class, so at most `most`
beats of each class are taken from a recording, at even distances.
"""

import lzma
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import CountOrAll
from wardround.data.folder import data_file
from wardround.data.table import Table
from wardround.weak_supervision.series import sample_columns

Rows = np.ndarray[Any, Any]
SERIES, SAMPLES = "beat_", 144


def mitbih_beats(*, most: CountOrAll = 300, recordings: tuple[int, ...] = ()) -> Table:
    """Heart beats of 48 patients as time series, normal or not (most: of each class and recording; 0 for all)."""
    path = data_file("mitbih_beats", "beats.npy.xz")
    with lzma.open(path) as file:
        beats = np.lib.format.read_array(file, allow_pickle=False)
    index = pd.read_csv(data_file("mitbih_beats", "beats_index.csv.gz"), usecols=["record", "symbol"])
    rhythm = np.where(index["symbol"] == "N", "normal", "arrhythmia")
    sites = {}
    for record in recordings or sorted(index["record"].unique()):
        own = (index["record"] == record).to_numpy()
        rows = np.concatenate([spread(np.flatnonzero(own & (rhythm == label)), most) for label in np.unique(rhythm)])
        rows.sort()
        frame = pd.DataFrame(beats[rows].astype(np.float32), columns=list(sample_columns(SERIES, SAMPLES)))
        sites[f"patient-{record}"] = frame.assign(rhythm=rhythm[rows].astype(object))
    return Table(sites, "rhythm", path.name, task="classification", positive="arrhythmia")


def spread(rows: Rows, most: int) -> Rows:
    """At most so many, at even distances; 0 for all."""
    if not most or len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
