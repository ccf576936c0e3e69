"""Sites of a table for analyses, what they agree on, and what an analysis finds over them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, AgreedColumn, Analysis
from wardround.core.contracts import Site
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.queries.columns import kind_of

SIZES = {"north": 60, "south": 45, "west": 1, "east": 80}
"""West has one patient."""


def patients(seed: int = 3) -> pd.DataFrame:
    """Sites differ in age, in the shift and spread of measurements, and in who is treated; nothing is missing."""
    generator = np.random.default_rng(seed)
    frames = []
    for place, (name, rows) in enumerate(SIZES.items()):
        age = generator.integers(30, 80, rows) + 2.0 * place
        sex = generator.choice(["female", "male"], rows)
        treated = generator.random(rows) < 1 / (1 + np.exp(-(age - 58) / 15))
        measures = generator.normal(size=(rows, 3)) @ np.array([[1, 0.6, 0], [0, 1, 0.3], [0, 0, 1]])
        measures = (1 + 0.2 * place) * measures + place * np.array([1, -0.5, 0.2])
        measures = measures + np.outer((age - 55) / 10, [1, 0, -0.5]) + np.outer(sex == "male", [0, 1, 0])
        died = generator.random(rows) < 1 / (1 + np.exp(-(0.8 * treated + (age - 60) / 20 - 0.5)))
        frame = pd.DataFrame({"age": age, "sex": sex, "treated": np.where(treated, "yes", "no")})
        frame["died"] = np.where(died, "yes", "no")
        frame["outcome"] = 3.0 * treated + 0.1 * age + generator.normal(size=rows)
        frame[["a", "b", "c"]] = measures * 5 + 100
        frames.append(frame.assign(site=name, ward=generator.choice(["one", "two", "three"], rows)))
    return pd.concat(frames, ignore_index=True)


def sites_of(frame: pd.DataFrame, by: str = "site") -> list[Site]:
    return [
        Site(str(name), part.drop(columns=by).reset_index(drop=True)) for name, part in frame.groupby(by, sort=False)
    ]


def agreed_on(sites: Sequence[Site]) -> Agreed:
    """Words are categories in sorted order, all else is numbers."""
    everything = pd.concat([site.table for site in sites])
    columns = {
        str(name): AgreedColumn("category", tuple(sorted(values.dropna().unique())))
        if kind_of(values) == "text"
        else AgreedColumn("number")
        for name, values in everything.items()
    }
    return Agreed(tuple(site.name for site in sites), columns)


def found(analysis: Analysis, sites: Sequence[Site]) -> Any:
    """The whole report, from the very exchanges that real sites have."""
    agreed = agreed_on(sites)
    return analyse(analysis, agreed, exchange_in_process(analysis, agreed, sites))
