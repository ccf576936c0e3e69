"""Made survival data with a known effect, the real tables where they are, and the way an analysis is run over sites."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.data.folder import data_folder
from wardround.engine.analyse import analyse, exchange_in_process


def real_table(name: str) -> pd.DataFrame:
    """A real table; the test is skipped where it is not there."""
    path = data_folder() / name
    if not path.exists():
        pytest.skip(f"the table is not at {path} (set WARDROUND_DATA)")
    return pd.read_csv(path)


def made_patients(seed: int = 5, rows: int = 240, *, rounded: bool = True) -> pd.DataFrame:
    """Three sites with baselines of their own; the hazard doubles with `ill` and grows by 3 % a year of `age`."""
    rng = np.random.default_rng(seed)
    site = rng.choice(["A", "B", "C"], rows, p=[0.5, 0.3, 0.2])
    age, ill = rng.normal(60, 10, rows), rng.integers(0, 2, rows)
    stage = rng.choice(["I", "II", "III"], rows)
    scale = pd.Series(site).map({"A": 300.0, "B": 200.0, "C": 400.0}).to_numpy()
    effect = 0.7 * ill + 0.03 * (age - 60) + 0.4 * (stage == "III")
    died, censored = rng.exponential(scale * np.exp(-effect)), rng.uniform(50, 500, rows)
    time = np.minimum(died, censored)
    return pd.DataFrame(
        {
            "site": site,
            "time": np.ceil(time) if rounded else time,
            "event": (died <= censored).astype(int),
            "age": age.round(1),
            "ill": ill,
            "stage": stage,
        }
    )


def sites_of(table: pd.DataFrame, by: str = "site") -> list[Site]:
    return [Site(str(name), rows.reset_index(drop=True)) for name, rows in table.groupby(by)]


def agreed_on(table: pd.DataFrame, sites: list[Site]) -> Agreed:
    """As the sites would agree: numbers, and words in sorted order."""
    kinds = {
        str(name): AgreedColumn("number")
        if pd.api.types.is_numeric_dtype(table[name])
        else AgreedColumn("category", tuple(sorted(table[name].dropna().unique())))
        for name in table.columns
    }
    return Agreed(tuple(site.name for site in sites), kinds)


def found(analysis, table: pd.DataFrame, by: str = "site"):
    """The report of an analysis over the sites of a table."""
    sites = sites_of(table, by)
    agreed = agreed_on(table, sites)
    return analyse(analysis, agreed, exchange_in_process(analysis, agreed, sites))
