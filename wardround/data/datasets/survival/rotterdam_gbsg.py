"""Breast cancer at two places: the Rotterdam tumour bank and the German Breast Cancer Study Group.

The sets rotterdam and gbsg of the R package survival (LGPL), prepared as Royston and Altman, BMC Med Res Methodol 2013:
recurrence-free survival (the first of recurrence and death), 2,982 and 686 patients, 1,713 and 299 events. Columns:
`days`, `recurred`, age, menopause, size of the tumour in three classes, grade, exp(-0.12 nodes), the logarithms of the
receptors, hormone treatment. Needs the folder multicentre_small.
"""

import numpy as np
import pandas as pd

from wardround.data.folder import data_file
from wardround.data.table import Table

SIZES = ["<=20", "20-50", ">50"]


def rotterdam_gbsg() -> Table:
    """Recurrence of breast cancer in Rotterdam and in a German trial, 3,668 patients with follow-up times."""
    rotterdam = pd.read_csv(data_file("multicentre_small", "rotterdam.csv.gz"))
    path = data_file("multicentre_small", "gbsg.csv")
    gbsg = pd.read_csv(path)
    again = rotterdam["recur"] == 1
    first = rotterdam.assign(
        days=np.where(again, rotterdam["rtime"], rotterdam["dtime"]),
        recurred=np.maximum(rotterdam["recur"], rotterdam["death"]),
    )
    size = pd.cut(gbsg["size"], [-np.inf, 20, 50, np.inf], labels=SIZES).astype(str)
    second = gbsg.assign(days=gbsg["rfstime"], recurred=gbsg["status"], size=size)
    sites = {name: columns_of(rows) for name, rows in (("rotterdam", first), ("gbsg", second))}
    return Table(sites=sites, target="recurred", origin=path.name, task="classification", positive="1")


def columns_of(rows: pd.DataFrame) -> pd.DataFrame:
    """What both places know, in the same form."""
    return pd.DataFrame(
        {
            "days": rows["days"].astype(float),
            "recurred": rows["recurred"].astype(int),
            "age": rows["age"].astype(float),
            "menopause": rows["meno"].astype(int),
            "size": rows["size"].astype(str),
            "grade_3": (rows["grade"] == 3).astype(int),
            "nodes": np.exp(-0.12 * rows["nodes"]),
            "pgr": np.log1p(rows["pgr"]),
            "er": np.log1p(rows["er"]),
            "hormones": rows["hormon"].astype(int),
        }
    ).reset_index(drop=True)
