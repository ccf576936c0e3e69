"""A logistic regression of a million rows and 30 columns: by sums over five sites, and by statsmodels on pooled rows.

    python -m benchmarks.glm_by_sums [ROWS] [COLUMNS]

Both in one process, one after the other, so the ratio says something on a busy machine; times are wall clock.
"""

import sys
import time

import numpy as np
import pandas as pd
import statsmodels.api as sm

from wardround.analyses.glm import glm
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.engine.analyse import analyse, exchange_in_process


def main(rows: int = 1_000_000, columns: int = 30, sites: int = 5) -> dict[str, float]:
    random = np.random.default_rng(0)
    names = [f"x{number}" for number in range(columns)]
    x = random.normal(size=(rows, columns))
    truth = random.normal(size=columns) / columns**0.5
    y = (random.random(rows) < 1 / (1 + np.exp(1 - x @ truth))).astype(np.float64)
    frame = pd.DataFrame(x, columns=names).assign(y=y)
    parts = [frame.iloc[at].reset_index(drop=True) for at in np.array_split(np.arange(rows), sites)]
    agreed = Agreed(
        tuple(f"site-{number}" for number in range(sites)), dict.fromkeys([*names, "y"], AgreedColumn("number"))
    )
    analysis = glm(formula=f"y ~ {' + '.join(names)}", family="binomial")
    tables = [Site(name, part) for name, part in zip(agreed.sites, parts, strict=True)]
    started = time.perf_counter()
    ours = analyse(analysis, agreed, exchange_in_process(analysis, agreed, tables))["numbers"]
    middle = time.perf_counter()
    theirs = sm.GLM(y, sm.add_constant(x), family=sm.families.Binomial()).fit()
    ended = time.perf_counter()
    apart = np.abs(np.array(list(ours["coefficients"].values())) - theirs.params).max()
    found = {
        "ours": middle - started,
        "statsmodels": ended - middle,
        "ratio": (middle - started) / (ended - middle),
        "largest difference": float(apart),
        "steps": float(ours["steps"]),
    }
    print(found)
    return found


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
