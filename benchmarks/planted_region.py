"""A made-up federation of two hospitals, each an expert on other patients; or, for comparison, on the same ones.

Inside the region (lactate above 2 and age at most 68, a third of A's patients) death depends on the pulse, outside on
the sodium. Nearly all patients of B are from inside, and of A from everywhere: B's model knows more about the third of
A's patients that are inside, and about nobody else. Without the region it depends on the sodium everywhere.
"""

import numpy as np
import pandas as pd

LACTATE, AGE = 2.0, 68.0


def planted(patients: int, seed: int, *, region: bool = True) -> dict[str, pd.DataFrame]:
    """The two hospitals' tables; `inside` tells who is in the region and is no column for a model."""
    rng = np.random.default_rng(seed)
    made = {}
    for site, share in (("A", 0.0), ("B", 0.95 if region else 0.0)):
        x = rng.normal(size=(patients, 5))
        lactate, age = np.exp(0.7 + 0.6 * x[:, 0]), 60 + 15 * x[:, 1]
        drawn = rng.random(patients) < share
        lactate = np.where(drawn, LACTATE + 2 * np.abs(x[:, 0]), lactate)
        age = np.where(drawn, AGE - 15 * np.abs(x[:, 1]), age)
        inside = (lactate > LACTATE) & (age <= AGE)
        signal = 5 * np.where(inside & region, x[:, 2], x[:, 3])
        died = rng.random(patients) < 1 / (1 + np.exp(-signal))
        made[site] = pd.DataFrame(
            {
                "lactate": lactate.round(2),
                "age": age.round(1),
                "pulse": (80 + 15 * x[:, 2]).round(1),
                "sodium": (140 + 5 * x[:, 3]).round(1),
                "sex": np.where(x[:, 4] > 0, "f", "m"),
                "died": np.where(died, "yes", "no"),
                "inside": inside,
            }
        )
    return made
