"""Dialysis in Brazil: who dies, at 67 centres.

The set Dialysis of the R package RcmdrPlugin.survival (through SurvSet; GPL): 6,805 patients, of whom 23.6 % died while
they were watched. Needs the folder los_and_multicentre_small. Patients were watched for different times; with `within`
0 the target is death at any time seen, with a number of months it is death within these, and patients who were lost
from sight earlier are left out. `begin` is the month of the study in which treatment began. The time watched is no
feature, since it is known only afterwards.
"""

import numpy as np
import pandas as pd

from wardround.core.bounds import CountOrAll
from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def dialysis(*, within: CountOrAll = 0) -> Table:
    """Death of 6,805 dialysis patients at 67 Brazilian centres (within so many months; 0: at any time)."""
    path = data_file("los_and_multicentre_small", "dialysis.csv.gz")
    read = pd.read_csv(path)
    dead = read["event"] == 1
    if within:
        dead &= read["time"] <= within
        known = dead | (read["time"] >= within)
        read, dead = read[known], dead[known]
    rows = pd.DataFrame(
        {
            "center": read["fac_center"],
            "age": read["num_age"].astype(float),
            "begin": read["num_begin"].astype(float),
            "disease": read["fac_disease"],
            "outcome": np.where(dead, "died", "alive"),
        }
    )
    return Table(
        sites=split_by_site(rows, "center", "center-"),
        target="outcome",
        origin=path.name,
        task="classification",
        positive="died",
    )
