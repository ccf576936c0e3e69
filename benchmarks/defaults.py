"""Does a study that says nothing but its data end where a well-tuned pooled logistic regression does?

    python -m benchmarks.defaults [--data titanic adult ...] [--folds 5]

Folds beyond the fifth shuffle the patients anew: on small tables twenty tell more than five.

For every shared table with two outcomes: `wardround run` with [study] name and [data] source only, on each fold of a
cross-validation, against scikit-learn's pooled logistic regression on the same, equally prepared training rows: C from
eleven values, chosen by the log loss on the validation patients, by five-fold cross-validated log loss and by
cross-validated AUC; the best of the three over all folds is taken, which favours it. Above 10,000 training rows C is
chosen by the validation patients only, of whom there are thousands. ROC-AUC over all test
patients of a fold, mean over the folds. The interval of the gap (95 %) counts that folds share training patients
(Nadeau and Bengio 2003: a variance of 1 / folds + test rows / training rows times that of the folds, and Student's t).
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV

from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import train
from wardround.workflows.self_adjustment import adjust
from wardround.workflows.training_plan import plan_methods

STRENGTHS = np.logspace(-3, 2, 11)
MANY = 10_000
WAYS = ("validation", "cross-validated area", "cross-validated log loss")
TABLES: dict[str, dict[str, Any]] = {
    "heart_disease": {},
    "adult": {},
    "adult, 16 sites": {"source": "adult", "partition": {"name": "by_label_dirichlet", "sites": 16, "alpha": 0.5}},
    "titanic": {},
    "titanic, 4 sites": {"source": "titanic", "partition": {"name": "iid", "sites": 4}},
    "ebola_kenema": {},
    "medpar, death": {"source": "medpar", "target": "died"},
    "breast_cancer": {},
    "cgd0": {},
    "dialysis": {},
    "indo_rct": {},
    "sepsis": {},
    "triage": {},
}


def study_of(name: str) -> Study:
    return parse_study({"study": {"name": "defaults"}, "data": {"source": name, **TABLES[name]}}, where=name)


def pooled_areas(rows: dict[str, Any], x: Any, y: Any) -> list[float]:
    """On the test rows, with C chosen in three ways."""
    train, validation, test = (rows[part] for part in ("train", "validation", "test"))
    fitted = [LogisticRegression(C=strength, max_iter=3000).fit(x[train], y[train]) for strength in STRENGTHS]
    losses = [log_loss(y[validation], one.predict_proba(x[validation]), labels=one.classes_) for one in fitted]
    chosen: list[Any] = [fitted[int(np.argmin(losses))]]
    for scoring in ("roc_auc", "neg_log_loss") if len(train) <= MANY else ():
        search = GridSearchCV(LogisticRegression(max_iter=3000), {"C": STRENGTHS}, scoring=scoring, cv=5)
        chosen.append(search.fit(x[train], y[train]))
    return [float(roc_auc_score(y[test] == 1, one.predict_proba(x[test])[:, 1])) for one in chosen]


def measure(name: str, folds: int) -> dict[str, Any]:
    study, ours, theirs, rounds, started = study_of(name), [], [], [], time.process_time()
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        setting = assemble.load_repeat(study, 0)
        adjusted = adjust(study, [own_method(study)], plan_methods(study, setting, [own_method(study)], 0), folder)
        for fold in range(folds):
            setting = assemble.load_repeat(study, fold) if fold else setting
            federation = setting.federation
            ((plan,),) = plan_methods(adjusted.study, setting, adjusted.methods, fold)
            model = train(plan, None)
            rows = {part: federation.rows_of(part) for part in ("train", "validation", "test")}
            ill = federation.y[rows["test"]] == 1
            if ill.all() or not ill.any():
                continue
            ours.append(float(roc_auc_score(ill, model.scores.predicted[:, 1])))
            theirs.append(pooled_areas(rows, federation.x, federation.y))
            rounds.append(model.fitted.best_round or model.fitted.rounds)
    means = np.mean(theirs, axis=0)
    best = float(means.max())
    gaps = np.array(ours) - np.array(theirs)[:, int(means.argmax())]
    overlap = len(rows["test"]) / len(rows["train"])
    error = float(gaps.std(ddof=1)) * np.sqrt(1 / len(gaps) + overlap) if len(gaps) > 1 else float("nan")
    width = float(student.ppf(0.975, max(1, len(gaps) - 1))) * error
    return {
        "table": name,
        "sites": len(federation.sites),
        "patients": int(federation.counts.sum()),
        "defaults": round(float(np.mean(ours)), 4),
        "pooled, tuned": round(best, 4),
        "gap": round(float(np.mean(ours)) - best, 4),
        "95 % interval": f"{gaps.mean() - width:.4f} to {gaps.mean() + width:.4f}",
        "C by": ", ".join(f"{way} {value:.4f}" for way, value in zip(WAYS, means, strict=False)),
        "folds": len(gaps),
        "rate": dict(adjusted.methods[0].settings).get("learning_rate"),
        "rounds": f"{min(rounds)} to {max(rounds)}",
        "processor seconds": round(time.process_time() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="*", default=list(TABLES))
    parser.add_argument("--folds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", FutureWarning)
    for number, name in enumerate(given.data):
        row = measure(name, given.folds)
        if not number:
            print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
        print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
