"""Breast cancer survival in six regions: the clinical table of Fed-TCGA-BRCA.

The Cancer Genome Atlas (Liu et al., Cell 2018), split by region as in FLamby (du Terrail et al., NeurIPS 2022): 1,088
patients, 151 deaths. Columns: `days` of follow-up, `died` (0 or 1), `split` (FLamby's fixed train or test), age and 38
indicators, some of which say the same, so that a Cox regression needs a penalty. Needs the folder tcga_brca.
"""

import pandas as pd

from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table


def tcga_brca() -> Table:
    """Death from breast cancer, 1,088 patients in six regions, with follow-up times and a fixed test split."""
    path = data_file("tcga_brca", "fed_tcga_brca.csv")
    rows = pd.read_csv(path).drop(columns=["center", "tss"]).rename(columns={"E": "died", "T": "days"})
    return Table(
        sites=split_by_site(rows, "region", ""), target="died", origin=path.name, task="classification", positive="1"
    )
