"""DataSHIELD's made-up survival studies, with which it tests itself: three studies, one row a person.

The SURVIVAL files of dsBaseClient 6.3.4 (GPL-3), collapsed and without missing values: 2,712 simulated people, 1,304
events. Columns: `years`, `failed`, age less 60, female, noise less 56, pm10 less 16, bmi less 26. Needs the folder
datashield_cnsim.
"""

import pandas as pd

from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table

NAMES = {
    "SURVTIME": "years",
    "CENS": "failed",
    "age.60": "age",
    "female": "female",
    "noise.56": "noise",
    "pm10.16": "pm10",
    "bmi.26": "bmi",
}


def datashield_survival() -> Table:
    """Simulated failure times of 2,712 people in three studies (DataSHIELD's test data)."""
    path = data_file("datashield_cnsim", "survival_collapse_no_missing.csv.gz")
    rows = pd.read_csv(path)[["study", *NAMES]].rename(columns=NAMES)
    return Table(
        sites=split_by_site(rows, "study", "study-"),
        target="failed",
        origin=path.name,
        task="classification",
        positive="1",
    )
