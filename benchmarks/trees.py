"""Boosted trees of five sites against pooled XGBoost on the same bins, sites alone, logistic regression and networks.

    python benchmarks/trees.py --xgboost /path/to/python-with-xgboost

Writes one JSON object; `docs/results/boosted_trees.md` has what it gave. Times are CPU seconds of one thread each, so
that a busy machine disturbs them little. Bytes are those of the arrays that travel.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from wardround.analyses.boosted_trees import boosted_trees
from wardround.analyses.forests.plan import TreePlan, outcome_of
from wardround.analyses.forests.rows import binned, read_rows
from wardround.analyses.forests.state import TreesState
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.datasets.adult import adult
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.datasets.sepsis import sepsis
from wardround.engine.analyse import combine_answers
from wardround.statistics.trees.forest import scores_of

Numbers = np.ndarray[Any, Any]
PEER = Path(__file__).parent / "peers" / "xgboost_trees.py"
FIT: Mapping[str, Any] = {"trees": 100, "depth": 4, "learning_rate": 0.2, "smallest_leaf": 10}


class Patients(NamedTuple):
    """Rows to learn from at each site, rows to test on, and what is predicted."""

    sites: Mapping[str, pd.DataFrame]
    test: Mapping[str, pd.DataFrame]
    target: str
    positive: str

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in next(iter(self.sites.values())).columns if name != self.target)

    @property
    def agreed(self) -> Agreed:
        whole = pd.concat([*self.sites.values(), *self.test.values()])
        kinds = {
            name: AgreedColumn("number")
            if pd.api.types.is_numeric_dtype(whole[name])
            else AgreedColumn("category", tuple(sorted(whole[name].dropna().unique())))
            for name in whole.columns
        }
        return Agreed(tuple(self.sites), kinds)


class Fitted(NamedTuple):
    """Grown trees and what they took."""

    state: TreesState
    cpu: float
    up: int
    """Bytes that one site sent, on average."""
    down: int
    exchanges: int


def fit(patients: Patients, sites: Sequence[str], **settings: Any) -> Fitted:
    """Trees of these sites, without a look at them at the end."""
    agreed = patients.agreed._replace(sites=tuple(sites))
    words = {"validation": 0.0, "test": 0.0, "effects": 0, "fewest_sites": 1, **settings}
    analysis = boosted_trees(target=patients.target, positive=patients.positive, columns=patients.columns, **words)
    tables = [Site(name, patients.sites[name]) for name in sites]
    state, up, down, number = analysis.begin(agreed), 0, 0, 0
    began = time.process_time()
    while (asked := analysis.message(state)) is not None and dict(asked.meta)["phase"] != "review":
        answers = {site.name: analysis.ask(agreed, asked, site) for site in tables}
        up, down, number = up + sum(map(bytes_of, answers.values())), down + bytes_of(asked), number + 1
        state = analysis.step(state, combine_answers(analysis, answers))
    return Fitted(state, time.process_time() - began, up // len(tables), down, number)


def bytes_of(message: Message) -> int:
    return sum(np.asarray(array).nbytes for array in message.arrays.values())


def codes_of(patients: Patients, state: TreesState, table: pd.DataFrame) -> tuple[Numbers, Numbers]:
    plan = TreePlan(patients.target, patients.columns, positive=patients.positive, validation=0.0, test=0.0)
    assert state.common is not None
    assert state.shape is not None
    rows = read_rows(plan, patients.agreed, outcome_of(plan, patients.agreed), Site("rows", table))
    return binned(rows, state.common.features, state.shape.layout.width).codes, rows.y


def score(patients: Patients, state: TreesState, table: pd.DataFrame) -> tuple[Numbers, Numbers]:
    codes, y = codes_of(patients, state, table)
    assert state.common is not None
    assert state.forest is not None
    assert state.shape is not None
    return scores_of(state.forest, state.common.base, codes, state.shape.layout.width)[0], y


def area(patients: Patients, state: TreesState, table: pd.DataFrame | None = None) -> float:
    scores, y = score(patients, state, pd.concat(patients.test.values()) if table is None else table)
    return float(roc_auc_score(y, scores))


def pooled_xgboost(python: str, patients: Patients, state: TreesState, settings: Mapping[str, Any]) -> dict[str, Any]:
    codes, y = codes_of(patients, state, pd.concat(patients.sites.values()))
    test, truth = codes_of(patients, state, pd.concat(patients.test.values()))
    assert state.shape is not None
    words = {
        "objective": "binary:logistic", "max_depth": settings["depth"], "eta": settings["learning_rate"],
        "min_child_weight": settings["smallest_leaf"] / 4, "reg_lambda": 1.0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            given, codes=codes.T, y=y, test=test.T, is_category=state.shape.is_category,
            missing=state.shape.layout.width - 1,
        )  # fmt: skip
        command = [python, str(PEER), str(given), str(found), json.dumps(words), str(settings["trees"])]
        subprocess.run(command, check=True, env={"OMP_NUM_THREADS": "1"})
        out = np.load(found)
        auc = float(roc_auc_score(truth, out["scores"]))
        return {"auc": auc, "cpu": float(out["seconds"]), "version": str(out["version"])}


def others(patients: Patients) -> dict[str, float]:
    """Logistic regression and a network on all rows in one place: what a federation of them could reach."""
    learn, test = pd.concat(patients.sites.values()), pd.concat(patients.test.values())
    learn, test = (one[one[patients.target].notna()] for one in (learn, test))
    numbers = [name for name in patients.columns if patients.agreed.columns[name].kind == "number"]
    words = [name for name in patients.columns if name not in numbers]
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=5), words),
    )
    truth = (test[patients.target].astype(str) == patients.positive).to_numpy()
    label = (learn[patients.target].astype(str) == patients.positive).to_numpy()
    models = {
        "logistic, pooled": LogisticRegression(max_iter=500),
        "network, pooled": MLPClassifier((32,), early_stopping=True, max_iter=60, random_state=0),
    }
    found = {}
    for name, model in models.items():
        whole = make_pipeline(prepare, model).fit(learn[list(patients.columns)], label)
        found[name] = float(roc_auc_score(truth, whole.predict_proba(test[list(patients.columns)])[:, 1]))
    return found


def dealt(table: pd.DataFrame, target: str, positive: str, sites: int, seed: int) -> Patients:
    order = np.random.default_rng(seed).permutation(len(table))
    held = len(table) // 5
    whose = np.arange(len(table) - held) % sites
    learn = table.iloc[order[held:]]
    parts = {f"site {n + 1}": learn[whose == n].reset_index(drop=True) for n in range(sites)}
    return Patients(parts, {"all": table.iloc[order[:held]].reset_index(drop=True)}, target, positive)


def split_sites(tables: Mapping[str, pd.DataFrame], target: str, positive: str, seed: int) -> Patients:
    learn, test = {}, {}
    for name, table in tables.items():
        order = np.random.default_rng(seed).permutation(len(table))
        held = len(table) // 5
        learn[name] = table.iloc[order[held:]].reset_index(drop=True)
        test[name] = table.iloc[order[:held]].reset_index(drop=True)
    return Patients(learn, test, target, positive)


def adult_study(python: str | None, repeats: int) -> dict[str, Any]:
    table = adult().sites["all"]
    found: list[dict[str, Any]] = []
    for seed in range(repeats):
        patients = dealt(table, "income", ">50K", 5, seed)
        together = fit(patients, list(patients.sites), **FIT)
        alone = [fit(patients, [name], **FIT).state for name in patients.sites]
        test = pd.concat(patients.test.values())
        scores = [score(patients, state, test) for state in alone]
        mean = np.mean([1 / (1 + np.exp(-one)) for one, _ in scores], axis=0)
        row: dict[str, Any] = {
            "five sites": area(patients, together.state),
            "sites alone": float(np.mean([roc_auc_score(y, one) for one, y in scores])),
            "averaged scores": float(roc_auc_score(scores[0][1], mean)),
            "cpu": min(together.cpu, fit(patients, list(patients.sites), **FIT).cpu),
            "bytes": traffic(patients, together),
        }
        if python:
            row["pooled XGBoost"] = pooled_xgboost(python, patients, together.state, FIT)
        if seed == 0:
            row |= others(patients)
        found.append(row)
    return {"runs": found}


def traffic(patients: Patients, fitted: Fitted) -> dict[str, Any]:
    """What a site sends and gets, beside its rows in double precision and as text."""
    table = next(iter(patients.sites.values()))
    return {
        "exchanges": fitted.exchanges,
        "up": fitted.up,
        "down": fitted.down,
        "rows": len(table),
        "rows as numbers": table.size * 8,
        "rows as text": len(table.to_csv(index=False)),
    }


def size_study(python: str | None) -> list[dict[str, Any]]:
    """Adult's rows again and again: the sums stay as large, the rows do not."""
    table = adult().sites["all"]
    found = []
    for times in (1, 5, 20):
        patients = dealt(pd.concat([table] * times), "income", ">50K", 5, 0)
        settings = {**FIT, "trees": 30}
        one = fit(patients, list(patients.sites), **settings)
        row = {"bytes": traffic(patients, one), "cpu": one.cpu}
        if python:
            row["xgboost cpu"] = pooled_xgboost(python, patients, one.state, settings)["cpu"]
        found.append(row)
    return found


def small_study(patients: Patients, repeats: Sequence[Patients], **settings: Any) -> dict[str, Any]:
    """Trees of all sites together and of each alone, beside pooled logistic regression and networks."""
    rows = []
    for one in (patients, *repeats):
        together = fit(one, list(one.sites), **settings).state
        alone = []
        for name in one.sites:
            try:
                alone.append(area(one, fit(one, [name], **settings).state, one.test[name]))
            except (ValueError, Refusal):  # test patients of one class, or too few patients for a single split
                continue
        by_site = {}
        for name, table in one.test.items():
            scores, y = score(one, together, table)
            by_site[name] = float(roc_auc_score(y, scores)) if len(set(y)) > 1 else None
        ours = {"trees, all sites": area(one, together), "sites alone, at home": float(np.mean(alone))}
        rows.append({**ours, **others(one), "by site": by_site, "could not alone": len(one.sites) - len(alone)})
    names = [name for name in rows[0] if name not in ("by site", "could not alone")]
    return {"mean": {name: float(np.mean([row[name] for row in rows])) for name in names}, "runs": rows}


def heart_study() -> dict[str, Any]:
    made = heart_disease()
    positive = str(made.positive)
    tables = {name: frame.assign(**{made.target: frame[made.target].astype(str)}) for name, frame in made.sites.items()}
    draws = [split_sites(tables, made.target, positive, seed) for seed in range(5)]
    return small_study(draws[0], draws[1:], trees=60, depth=2, learning_rate=0.1, smallest_leaf=10)


def sepsis_study() -> dict[str, Any]:
    """One row a patient, the last value of every column; two hospital systems."""
    made = sepsis()
    patients = split_sites(made.sites, made.target, str(made.positive), 0)
    return small_study(patients, [], trees=100, depth=4, learning_rate=0.1, smallest_leaf=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--xgboost", help="a Python that has xgboost, in an environment of its own")
    parser.add_argument("--only", choices=("adult", "size", "heart", "sepsis"))
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    studies: dict[str, Callable[[], Any]] = {
        "adult": lambda: adult_study(words.xgboost, words.repeats),
        "size": lambda: size_study(words.xgboost),
        "heart": heart_study,
        "sepsis": sepsis_study,
    }
    json.dump({name: run() for name, run in studies.items() if words.only in (None, name)}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
