"""Medicare stays in Arizona, 1991: length of stay, or death, at 54 hospitals.

The set medpar of the R package COUNT (Hilbe; GPL-2): 1,495 stays of one diagnosis group (DRG 112). Needs the folder
los_and_multicentre_small. What is known only at the end of the stay is left out: `died` when the length of stay is the
target, and the other way round. Hospitals with fewer than `least` stays are left out (1 keeps all).
"""

from typing import Literal

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def medpar(*, target: Literal["los", "died"] = "los", least: Count = 5) -> Table:
    """Length of stay (or death) of Medicare patients at 54 Arizona hospitals, with race for fairness."""
    path = data_file("los_and_multicentre_small", "medpar.csv")
    read = pd.read_csv(path)
    rows = pd.DataFrame(
        {
            "hospital": read["provnum"],
            "hmo": np.where(read["hmo"] == 1, "yes", "no"),
            "race": np.where(read["white"] == 1, "white", "other"),
            "age80": np.where(read["age80"] == 1, "80 or over", "under 80"),
            "admission": read["type"].map({1: "elective", 2: "urgent", 3: "emergency"}),
        }
    )
    rows[target] = read["los"].astype(float) if target == "los" else np.where(read["died"] == 1, "died", "alive")
    return Table(
        sites=split_by_site(rows, "hospital", "hospital-", least),
        target=target,
        origin=path.name,
        task="regression" if target == "los" else "classification",
        positive=None if target == "los" else "died",
        groups=("race",),
    )
