"""Small hospitals for boosted trees: a number, a number with gaps, a category, and a risk that depends on all three."""

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.engine.analyse import analyse, exchange_in_process

COLUMNS = ("age", "lactate", "ward")
WARDS = ("A", "B", "C", "D")


def patients(rows: int, seed: int, *, noise: float = 1.0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age, lactate = draw.integers(18, 91, rows).astype(float), draw.gamma(2.0, 1.0, rows)
    ward = draw.choice(WARDS, rows)
    gone = draw.random(rows) < 0.2
    score = 0.06 * (age - 55) + np.where(gone, 0.8, 0.9 * (lactate - 2)) + 1.2 * np.isin(ward, ("B", "D")) - 0.8
    dies = score + noise * draw.logistic(size=rows) > 0
    return pd.DataFrame(
        {
            "age": age,
            "lactate": np.where(gone, np.nan, lactate),
            "ward": ward,
            "dies": np.where(dies, "yes", "no"),
            "stay": np.round(3 + 2 * score + draw.normal(size=rows), 2),
            "course": np.where(score < -1, "home", np.where(score < 1, "ward", "unit")),
        }
    )


def agreed(*names: str) -> Agreed:
    kinds = {
        "ward": AgreedColumn("category", WARDS),
        "dies": AgreedColumn("category", ("no", "yes")),
        "course": AgreedColumn("category", ("home", "unit", "ward")),
    }
    return Agreed(
        names, {name: kinds.get(name, AgreedColumn("number")) for name in (*COLUMNS, "dies", "stay", "course")}
    )


def dealt(table: pd.DataFrame, sites: int, seed: int = 0) -> list[Site]:
    """The same patients at so many sites."""
    whose = np.random.default_rng(seed).permutation(len(table)) % sites
    return [Site(f"H{number}", table[whose == number].reset_index(drop=True)) for number in range(sites)]


def names_of(sites: list[Site]) -> tuple[str, ...]:
    return tuple(site.name for site in sites)


def found(analysis, sites: list[Site], exchange=None):
    """What the analysis reports of these sites."""
    public = agreed(*names_of(sites))
    return analyse(analysis, public, exchange or exchange_in_process(analysis, public, sites))


def grown(analysis, sites: list[Site]):
    """The state in which all trees are grown."""
    public = agreed(*names_of(sites))
    exchange, state, number = exchange_in_process(analysis, public, sites), analysis.begin(public), 0
    while (asked := analysis.message(state)) is not None:
        number += 1
        state = analysis.step(state, exchange(number, asked))
    return state
