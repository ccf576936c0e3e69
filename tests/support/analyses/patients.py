"""Made-up patients of a few hospitals, and an analysis run over them in process."""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, Analysis
from wardround.core.contracts import Message, Site
from wardround.data.column_agreement import agree_on_columns, columns_of_analysis, rows_of_analysis
from wardround.data.query import ask_all
from wardround.engine.analyse import analyse, exchange_in_process


def patients(rows: int = 600, sites: int = 3, seed: int = 0, missing: float = 0.05) -> dict[str, pd.DataFrame]:
    """Age, dose, sex, ward and outcomes of every family; some values are missing."""
    random = np.random.default_rng(seed)
    age, dose = random.normal(60, 12, rows), random.gamma(2.0, 1.5, rows)
    sex, ward = random.choice(["f", "m"], rows), random.choice(["icu", "low", "mid"], rows, p=[0.2, 0.5, 0.3])
    site = random.integers(0, sites, rows)
    eta = 0.03 * (age - 60) - 0.2 * dose + 0.5 * (sex == "m") + 0.4 * (ward == "icu") + 0.2 * (site == 1)
    frame = pd.DataFrame({"age": age, "dose": dose, "sex": sex, "ward": ward})
    frame["score"] = 2 + eta + random.normal(0, 1, rows)
    frame["death"] = (random.random(rows) < 1 / (1 + np.exp(0.5 - eta))).astype(float)
    frame["days"] = random.uniform(0.5, 3, rows)
    frame["log_days"] = np.log(frame["days"])
    frame["falls"] = random.poisson(frame["days"] * np.exp(0.3 + eta / 2)).astype(float)
    frame["visits"] = random.negative_binomial(2, 1 / (1 + np.exp(0.5 + eta) / 2)).astype(float)
    frame["cost"] = random.gamma(3.0, np.exp(1 + eta / 2) / 3)
    frame["share"] = random.uniform(0.2, 2, rows)
    frame.loc[random.random(rows) < missing, "dose"] = np.nan
    frame.loc[random.random(rows) < missing, "ward"] = None
    return {f"site-{number}": frame[site == number].reset_index(drop=True) for number in range(sites)}


def answer_of(analysis: Analysis, frames: dict[str, pd.DataFrame], cell: int = 1) -> dict[str, Any]:
    """What the analysis reports, each site shown its own table only."""
    sites = [Site(name, columns_of_analysis(frame, analysis.columns, name)) for name, frame in frames.items()]
    columns = agree_on_columns(
        lambda query, message: ask_all(query, message, sites),
        list(frames),
        analysis.columns,
        declared={},
        smallest_cell=cell,
    )
    agreed = Agreed(tuple(frames), columns)
    rows = [rows_of_analysis(site, agreed) for site in sites]
    asked = [0]
    exchange = exchange_in_process(analysis, agreed, rows)

    def counted(number: int, message: Message) -> Message:
        asked[0] = number
        return exchange(number, message)

    return {**analyse(analysis, agreed, counted), "exchanges": asked[0]}
