"""Advanced lung cancer at the institutions of the North Central Cancer Treatment Group.

The set lung of the R package survival (LGPL), after Loprinzi et al., J Clin Oncol 1994: 228 patients, 165 deaths, 18
institutions; the one patient without an institution is left out. Columns: `days`, `died`, age, sex, scores of daily
activity by physician (ecog, karnofsky) and patient, calories and weight loss. Needs the folder multicentre_small.
"""

import numpy as np
import pandas as pd

from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def lung() -> Table:
    """Death in advanced lung cancer, 227 patients at 18 institutions, with follow-up times."""
    path = data_file("multicentre_small", "lung.csv")
    read = pd.read_csv(path).dropna(subset=["inst"])
    rows = pd.DataFrame(
        {
            "institution": read["inst"].astype(int),
            "days": read["time"].astype(float),
            "died": (read["status"] == 2).astype(int),
            "age": read["age"].astype(float),
            "sex": np.where(read["sex"] == 1, "man", "woman"),
            "ecog": read["ph.ecog"],
            "karnofsky": read["ph.karno"],
            "own_karnofsky": read["pat.karno"],
            "calories": read["meal.cal"],
            "weight_loss": read["wt.loss"],
        }
    )
    return Table(
        sites=split_by_site(rows, "institution", "institution-"),
        target="died",
        origin=path.name,
        task="classification",
        positive="1",
    )
