"""Trees for hazards of five sites against pooled XGBoost (survival:cox) on the same bins, and Cox regression.

    python -m benchmarks.hazard_trees --xgboost /path/to/python-with-xgboost

Recurrence of breast cancer (Rotterdam and GBSG, 3,668 patients dealt out to five sites) and deaths in six regions
(Fed-TCGA-BRCA, FLamby's test patients). The figure is Harrell's C over all pairs of test patients, by exact times.
Writes one JSON object; `docs/results/boosted_trees.md` has what it gave.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from statsmodels.duration.hazard_regression import PHReg

from benchmarks.survival import agreed_on
from wardround.analyses.boosted_trees import boosted_trees
from wardround.analyses.forests.plan import TreePlan, outcome_of
from wardround.analyses.forests.rows import binned, read_rows
from wardround.analyses.forests.state import TreesState
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.data.datasets.survival.rotterdam_gbsg import rotterdam_gbsg
from wardround.data.datasets.survival.tcga_brca import tcga_brca
from wardround.data.table import Table
from wardround.engine.analyse import combine_answers
from wardround.statistics.survival.concordance import comparable_pairs
from wardround.statistics.trees.course import BinnedRows
from wardround.statistics.trees.forest import scores_of

Numbers = np.ndarray[Any, Any]
PEER = Path(__file__).parent / "peers" / "xgboost_trees.py"
TIME = "days"


class Cohort(NamedTuple):
    """Patients to learn from at each site, patients to test on, and how the trees grow."""

    sites: Table
    test: pd.DataFrame
    columns: tuple[str, ...]
    fit: Mapping[str, Any]


def order(test: pd.DataFrame, event: str, risk: Numbers) -> float | None:
    return comparable_pairs(test[TIME].to_numpy(float), test[event].to_numpy(float), risk).c_index


def grow(cohort: Cohort, sites: Mapping[str, pd.DataFrame], **settings: Any) -> tuple[TreesState, int]:
    """The trees of these sites, and the bytes that one of them sent on average."""
    table = cohort.sites
    words = {**cohort.fit, "validation": 0.0, "test": 0.0, "effects": 0, "fewest_sites": 1, **settings}
    analysis = boosted_trees(target=table.target, time=TIME, columns=cohort.columns, **words)
    agreed = agreed_on(table)._replace(sites=tuple(sites))
    tables, state, up = [Site(name, own) for name, own in sites.items()], analysis.begin(agreed), 0
    while (asked := analysis.message(state)) is not None and dict(asked.meta)["phase"] != "review":
        answers = {site.name: analysis.ask(agreed, asked, site) for site in tables}
        up += sum(np.asarray(part).nbytes for answer in answers.values() for part in answer.arrays.values())
        state = analysis.step(state, combine_answers(analysis, answers))
    return state, up // len(tables)


def binned_rows(cohort: Cohort, state: TreesState, table: pd.DataFrame) -> BinnedRows:
    plan = TreePlan(cohort.sites.target, cohort.columns, time=TIME, validation=0.0, test=0.0)
    assert state.common is not None
    assert state.shape is not None
    agreed = agreed_on(cohort.sites)
    rows = read_rows(plan, agreed, outcome_of(plan, agreed), Site("rows", table))
    return binned(rows, state.common.features, state.shape.layout.width, state.common.time)


def numbered_rows(cohort: Cohort) -> pd.DataFrame:
    """The test rows with their place as the time, all with the event."""
    rows = cohort.test.copy()
    rows[TIME], rows[cohort.sites.target] = np.arange(1.0, len(rows) + 1), 1
    return rows


def score(cohort: Cohort, state: TreesState) -> Numbers:
    plan = TreePlan(cohort.sites.target, cohort.columns, time=TIME, validation=0.0, test=0.0)
    agreed = agreed_on(cohort.sites)
    assert state.common is not None
    assert state.shape is not None
    assert state.forest is not None
    # Rows are read in an order that the seed draws: put the scores back into the table's.
    numbered = numbered_rows(cohort)
    rows = read_rows(plan, agreed, outcome_of(plan, agreed), Site("rows", numbered))
    codes = binned(rows, state.common.features, state.shape.layout.width).codes
    found = scores_of(state.forest, state.common.base, codes, state.shape.layout.width)[0]
    return np.asarray(found[np.argsort(np.abs(rows.y))])


def pooled_xgboost(python: str, cohort: Cohort, state: TreesState, *, exact: bool) -> float | None:
    learn = pd.concat(cohort.sites.sites.values())
    rows = binned_rows(cohort, state, learn)
    assert state.shape is not None
    test = binned_rows(cohort, state, cohort.test.assign(**{cohort.sites.target: 1, TIME: 1.0}))
    y = rows.y
    if exact:
        plan = TreePlan(cohort.sites.target, cohort.columns, time=TIME, validation=0.0, test=0.0)
        agreed = agreed_on(cohort.sites)
        y = read_rows(plan, agreed, outcome_of(plan, agreed), Site("rows", learn)).y
        y = np.where(np.signbit(y), np.minimum(y, -0.5), np.maximum(y, 0.5))
    fit = {"trees": 100, "depth": 4, "learning_rate": 0.2, **cohort.fit}
    words = {"objective": "survival:cox", "max_depth": fit["depth"], "eta": fit["learning_rate"], "reg_lambda": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            given, codes=rows.codes.T, y=y, test=test.codes.T, is_category=state.shape.is_category,
            missing=state.shape.layout.width - 1,
        )  # fmt: skip
        command = [python, str(PEER), str(given), str(found), json.dumps(words), str(fit["trees"])]
        subprocess.run(command, check=True, env={"OMP_NUM_THREADS": "1"})
        scores = np.load(found)["scores"]
    drawn = read_order(cohort)
    return order(cohort.test.iloc[drawn], cohort.sites.target, scores)


def read_order(cohort: Cohort) -> Numbers:
    """In which order the test rows are read."""
    plan = TreePlan(cohort.sites.target, cohort.columns, time=TIME, validation=0.0, test=0.0)
    agreed = agreed_on(cohort.sites)
    numbered = numbered_rows(cohort)
    rows = read_rows(plan, agreed, outcome_of(plan, agreed), Site("rows", numbered))
    return np.asarray(np.abs(rows.y).astype(int) - 1)


def regression(cohort: Cohort) -> float | None:
    """Pooled Cox regression; none where columns say the same (docs/results/survival.md has a ridge fit of those)."""
    if len(cohort.columns) > 20:
        return None
    learn = pd.concat(cohort.sites.sites.values())
    both = pd.get_dummies(pd.concat([learn, cohort.test])[list(cohort.columns)], drop_first=True).astype(float)
    x = ((both - both.mean()) / both.std()).loc[:, both.std() > 0].to_numpy()
    model = PHReg(learn[TIME], x[: len(learn)], learn[cohort.sites.target], ties="efron")
    found = model.fit().params
    return order(cohort.test, cohort.sites.target, x[len(learn) :] @ found)


def recurrence(seed: int) -> Cohort:
    table = rotterdam_gbsg()
    rows = pd.concat(table.sites.values(), ignore_index=True)
    drawn = np.random.default_rng(seed).permutation(len(rows))
    held, learn = len(rows) // 5, rows.iloc[drawn[len(rows) // 5 :]]
    sites = {f"site {n + 1}": learn.iloc[n::5].reset_index(drop=True) for n in range(5)}
    columns = ("age", "menopause", "size", "grade_3", "nodes", "pgr", "er", "hormones")
    fit = {"trees": 60, "depth": 3, "learning_rate": 0.1, "smallest_leaf": 20}
    return Cohort(replace(table, sites=sites), rows.iloc[drawn[:held]].reset_index(drop=True), columns, fit)


def deaths() -> Cohort:
    table = tcga_brca()
    columns = tuple(one for one in next(iter(table.sites.values())).columns if one not in ("days", "died", "split"))
    test = pd.concat([one[one["split"] == "test"] for one in table.sites.values()], ignore_index=True)
    learn = {name: one[one["split"] != "test"].reset_index(drop=True) for name, one in table.sites.items()}
    fit = {"trees": 40, "depth": 2, "learning_rate": 0.1, "smallest_leaf": 20}
    return Cohort(replace(table, sites=learn), test, columns, fit)


def figures(python: str | None, cohort: Cohort) -> dict[str, Any]:
    sites, event = cohort.sites.sites, cohort.sites.target
    state, up = grow(cohort, sites)
    coarse, _ = grow(cohort, sites, time_bins=10)
    alone = []
    for name, own in sites.items():
        try:
            alone.append(order(cohort.test, event, score(cohort, grow(cohort, {name: own})[0])))
        except Refusal:  # too few patients for a single split
            continue
    assert state.common is not None
    assert state.common.time is not None
    found: dict[str, Any] = {
        "intervals": state.common.time.size,
        "all sites": order(cohort.test, event, score(cohort, state)),
        "all sites, 10 intervals": order(cohort.test, event, score(cohort, coarse)),
        "each site alone, mean": float(np.mean([one for one in alone if one is not None])),
        "could not alone": len(sites) - len(alone),
        "Cox regression, pooled": regression(cohort),
        "bytes up a site": up,
    }
    if python:
        found["XGBoost, same intervals"] = pooled_xgboost(python, cohort, state, exact=False)
        found["XGBoost, exact times"] = pooled_xgboost(python, cohort, state, exact=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--xgboost", help="a Python that has xgboost, in an environment of its own")
    words = parser.parse_args()
    found = {f"recurrence, draw {seed + 1}": figures(words.xgboost, recurrence(seed)) for seed in range(3)}
    json.dump({**found, "TCGA": figures(words.xgboost, deaths())}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
