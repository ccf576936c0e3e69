"""Adult: who earns more than 50,000 dollars a year; the usual set for fairness by race and sex.

Becker and Kohavi, UCI 1996 (CC BY 4.0): 48,842 people of the US census survey of 1994. Needs the folder uci_adult. One
pool, to be partitioned. Left out: fnlwgt (a survey weight), education (education_num says the same as a number) and the
mark of the official split.
"""

import pandas as pd

from wardround.data.folder import data_file
from wardround.data.table import Table

LEFT_OUT = ("fnlwgt", "education", "split")


def adult(*, complete_rows: bool = False) -> Table:
    """Income above 50K among 48,842 people, with race and sex for fairness; one pool (UCI)."""
    path = data_file("uci_adult", "adult.csv.gz")
    rows = pd.read_csv(path)
    if complete_rows:
        rows = rows.dropna().reset_index(drop=True)
    return Table(
        sites={"all": rows.drop(columns=list(LEFT_OUT))},
        target="income",
        origin=path.name,
        task="classification",
        positive=">50K",
        groups=("race", "sex"),
    )
