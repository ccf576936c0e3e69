"""Does it cost anything to end training by the validation loss? `python -m benchmarks.early_end --data indo_rct`.

In plain NumPy, on all rows in one place, so that nothing else differs: gradient descent of a logistic regression,
ended by the loss on the validation patients; with as many steps as a five-fold cross-validation over training and
validation patients says; and the latter fitted on both. Beside them the tuned regressions of `benchmarks.defaults`.
ROC-AUC of the test patients, mean over folds (every five shuffle anew), and the gap to the best of the three tuned
ones with the standard error of Nadeau and Bengio, which counts that folds share patients.
"""

import argparse
import json
import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from benchmarks.defaults import TABLES, pooled_areas, study_of
from wardround.study import assemble

Numbers = np.ndarray[Any, Any]
STEPS, RATE, PARTS = 400, 0.5, 5
NAMES = ("C by validation", "by area", "by log loss", "ended by validation", "steps by folds", "fitted on both")


def with_ones(x: Numbers) -> Numbers:
    return np.column_stack([x, np.ones(len(x))])


def course(x: Numbers, y: Numbers, steps: int = STEPS) -> Numbers:
    """The weights after every step."""
    full = with_ones(x)
    weights, found = np.zeros(full.shape[1]), []
    for _ in range(steps):
        weights = weights - RATE * full.T @ (expit(full @ weights) - y) / len(y)
        found.append(weights)
    return np.array(found)


def losses(weights: Numbers, x: Numbers, y: Numbers) -> Numbers:
    score = with_ones(x) @ weights.T
    return np.asarray((np.logaddexp(0, score) - y[:, None] * score).sum(axis=0))


def areas(name: str, fold: int) -> list[float] | None:
    federation = assemble.load_repeat(study_of(name), fold).federation
    rows = {part: federation.rows_of(part) for part in ("train", "validation", "test")}
    x, y = federation.x.reshape(len(federation.x), -1).astype(np.float64), federation.y.astype(np.float64)
    train, validation, test = rows["train"], rows["validation"], rows["test"]
    if len(set(y[test])) < 2:
        return None

    def area(weights: Numbers) -> float:
        return float(roc_auc_score(y[test], with_ones(x[test]) @ weights))

    way, both = course(x[train], y[train]), np.concatenate([train, validation])
    part = np.random.default_rng(fold).permutation(len(both)) % PARTS
    parts = [(both[part != k], both[part == k]) for k in range(PARTS)]
    total = np.sum([losses(course(x[a], y[a]), x[b], y[b]) for a, b in parts], axis=0)
    steps = int(total.argmin()) + 1
    ended = way[int(losses(way, x[validation], y[validation]).argmin())]
    return [
        *pooled_areas(rows, federation.x, federation.y),
        area(ended),
        area(way[steps - 1]),
        area(course(x[both], y[both], steps)[-1]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether it costs anything to end training by the validation loss.")
    parser.add_argument("--data", nargs="*", choices=list(TABLES), default=["indo_rct", "ebola_kenema", "cgd0"])
    parser.add_argument("--folds", type=int, default=20)
    said = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in said.data:
        table = np.array([row for row in (areas(name, fold) for fold in range(said.folds)) if row is not None])
        gap = table - table[:, [int(table[:, :3].mean(axis=0).argmax())]]
        error = gap.std(axis=0, ddof=1) * np.sqrt(1 / len(table) + 1 / 3)
        told = {
            one: [round(float(value), 4) for value in (table[:, k].mean(), gap[:, k].mean(), error[k])]
            for k, one in enumerate(NAMES)
        }
        print(json.dumps({"table": name, "folds": len(table), "area, gap, error": told}), flush=True)


if __name__ == "__main__":
    main()
