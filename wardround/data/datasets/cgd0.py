"""Chronic granulomatous disease: who has a serious infection in the trial of gamma interferon, at 13 centres.

The set cgd0 of the R package survival (LGPL), after Fleming and Harrington, "Counting Processes and Survival Analysis",
1991. 128 patients, 44 with at least one infection while they were watched (for different times). Needs the folder
los_and_multicentre_small. Left out: the number, the date, the times, and the kind of hospital, which the centre tells.
"""

import numpy as np
import pandas as pd

from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def cgd0() -> Table:
    """Serious infection in a trial of gamma interferon, 128 patients at 13 centres."""
    path = data_file("los_and_multicentre_small", "cgd0.csv")
    read = pd.read_csv(path)
    rows = pd.DataFrame(
        {
            "center": read["center"],
            "treatment": np.where(read["treat"] == 1, "interferon", "placebo"),
            "sex": np.where(read["sex"] == 1, "male", "female"),
            "age": read["age"].astype(float),
            "height": read["height"],
            "weight": read["weight"],
            "inheritance": np.where(read["inherit"] == 1, "X-linked", "autosomal"),
            "steroids": np.where(read["steroids"] == 1, "yes", "no"),
            "antibiotics": np.where(read["propylac"] == 1, "yes", "no"),
            "infection": np.where(read["etime1"].notna(), "infection", "none"),
        }
    )
    return Table(
        sites=split_by_site(rows, "center", "center-"),
        target="infection",
        origin=path.name,
        task="classification",
        positive="infection",
    )
