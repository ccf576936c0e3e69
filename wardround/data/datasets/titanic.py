"""Titanic: who survived, from class, sex, age, family, fare and port; a small set for splits by age or sex.

The full passenger list (titanic3), 1,309 people. Needs the folder titanic. One pool, to be partitioned. Left out: name,
ticket, cabin and home.dest (nearly all different), boat and body (known only afterwards: they tell the outcome). With
target "age" it is a regression among the 1,046 whose age is known, and survival is left out.
"""

from typing import Literal

import numpy as np
import pandas as pd

from wardround.data.folder import data_file
from wardround.data.table import Table

LEFT_OUT = ("name", "ticket", "cabin", "boat", "body", "home.dest")


def titanic(*, target: Literal["survived", "age"] = "survived") -> Table:
    """Survival (or age) of 1,309 Titanic passengers; one pool."""
    path = data_file("titanic", "titanic1309.csv.gz")
    rows = pd.read_csv(path).drop(columns=list(LEFT_OUT))
    rows["pclass"] = rows["pclass"].map({1: "first", 2: "second", 3: "third"})
    if target == "age":
        rows = rows.drop(columns="survived").dropna(subset=["age"]).reset_index(drop=True)
        return Table(sites={"all": rows}, target="age", origin=path.name, task="regression", groups=("sex",))
    rows["survived"] = np.where(rows["survived"] == 1, "survived", "died")
    return Table(
        sites={"all": rows},
        target="survived",
        origin=path.name,
        task="classification",
        positive="survived",
        groups=("sex",),
    )
