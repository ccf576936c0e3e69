"""Heart procedures in Arizona, 1991: length of stay at 17 hospitals.

The set azpro of the R package COUNT (Hilbe; GPL-2): 3,589 patients with a bypass or an angioplasty. Needs the folder
los_and_multicentre_small. A regression of the days in hospital.
"""

import numpy as np
import pandas as pd

from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def azpro() -> Table:
    """Length of stay after 3,589 heart procedures at 17 Arizona hospitals."""
    path = data_file("los_and_multicentre_small", "azpro.csv")
    read = pd.read_csv(path)
    rows = pd.DataFrame(
        {
            "hospital": read["hospital"],
            "procedure": np.where(read["procedure"] == 1, "bypass", "angioplasty"),
            "sex": np.where(read["sex"] == 1, "male", "female"),
            "age75": np.where(read["age75"] == 1, "over 75", "75 or under"),
            "admission": np.where(read["admit"] == 1, "urgent", "elective"),
            "los": read["los"].astype(float),
        }
    )
    return Table(
        sites=split_by_site(rows, "hospital", "hospital-"),
        target="los",
        origin=path.name,
        task="regression",
        groups=("sex",),
    )
