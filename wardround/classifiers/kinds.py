"""Kinds of classifiers that a site can train for itself with scikit-learn; each site chooses its own.

Only kinds whose file holds no patient are here. A support vector machine with a kernel keeps patients' rows as its
support vectors, and so does every method by neighbours: the SVM here is the linear one. HistGradientBoosting cannot be
written as ONNX.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from wardround.core.errors import Refusal

Values = np.ndarray[Any, Any]
ClassifierKind = Literal["ridge", "random_forest", "gradient_boosting", "svm", "mlp"]
KINDS: tuple[str, ...] = get_args(ClassifierKind)
FOLDS = 5
STRENGTHS = tuple(float(one) for one in np.logspace(-4, 2, 7))
"""Inverse ridge penalties that are tried."""
NEWTON_STEPS = 30
LONGEST_STEP = 5.0
FEWEST_IN_A_LEAF = 10
"""Patients in a leaf of a tree at least, so that no leaf is about one."""

LABELS = {
    "ridge": "logistic regression with ridge penalty",
    "random_forest": "random forest",
    "gradient_boosting": "gradient boosting",
    "svm": "linear support vector machine",
    "mlp": "neural network",
    "study": "the study's own model",
}


def fit_kind(kind: str, x: Values, y: Values, patients: Values, seed: int, *, where: str = "") -> Any:
    """A fitted scikit-learn classifier; folds of its tuning never divide a patient."""
    if kind not in KINDS:
        raise Refusal(
            f"there is no classifier of the kind '{kind}'", where=where, remedy=f"choose one of {', '.join(KINDS)}"
        )
    fewest = int(np.bincount(y, minlength=2).min())
    if fewest < FOLDS:
        raise Refusal(
            f"a classifier needs at least {FOLDS} training patients of each outcome, and of one there are {fewest}",
            where=where,
            remedy="leave this site out, or give the training part a larger share",
        )
    fit: Callable[[Values, Values, Values, int], Any] = {
        "ridge": _ridge,
        "random_forest": _random_forest,
        "gradient_boosting": _gradient_boosting,
        "svm": _svm,
        "mlp": _mlp,
    }[kind]
    from threadpoolctl import threadpool_limits

    # Matrices of a few dozen columns: threads would wait for each other far longer than they compute.
    with threadpool_limits(1, user_api="blas"):
        return fit(x, y, patients, seed)


def folds_of(y: Values, patients: Values, seed: int) -> list[tuple[Values, Values]]:
    """Five folds of patients with the outcomes spread as evenly as whole patients allow."""
    codes = np.unique(patients, return_inverse=True)[1]
    label = np.zeros(int(codes.max()) + 1, np.int64)
    np.maximum.at(label, codes, y)
    rng = np.random.default_rng((seed, 0xF01D))
    order = rng.permutation(len(label))
    order = order[np.argsort(label[order], kind="stable")]
    fold = np.empty(len(label), np.int64)
    fold[order] = np.arange(len(label)) % FOLDS
    return [(np.flatnonzero(fold[codes] != one), np.flatnonzero(fold[codes] == one)) for one in range(FOLDS)]


def _ridge(x: Values, y: Values, patients: Values, seed: int) -> Any:
    """Logistic regression; the penalty with the least cross-validated loss."""
    from sklearn.linear_model import LogisticRegression

    x = np.asarray(x, np.float64)
    losses = np.zeros(len(STRENGTHS))
    for train, held in folds_of(y, patients, seed):
        # From the strongest penalty to the weakest: each fit begins where the one before ended.
        for at, weights in enumerate(ridge_path(x[train], y[train])):
            score = x[held] @ weights[:-1] + weights[-1]
            losses[at] += np.logaddexp(0.0, np.where(y[held] == 1, -score, score)).sum()
    best = STRENGTHS[int(np.argmin(losses))]
    return LogisticRegression(solver="newton-cholesky", C=best, max_iter=100, tol=1e-6).fit(x, y)


def ridge_path(x: Values, y: Values) -> list[Values]:
    """Weights, the intercept last, for each of STRENGTHS: sum of losses + |w|^2 / (2 strength), by Newton's method."""
    wide = np.column_stack([x, np.ones(len(x))])
    weights, path = np.zeros(wide.shape[1]), []
    for strength in STRENGTHS:
        penalty = np.full(len(weights), 1 / strength)
        penalty[-1] = 0.0
        for _ in range(NEWTON_STEPS):
            chance = 1 / (1 + np.exp(-np.clip(wide @ weights, -35, 35)))
            slope = wide.T @ (chance - y) + penalty * weights
            weight = np.maximum(chance * (1 - chance), 1e-6)
            curve = (wide * weight[:, None]).T @ wide
            curve.flat[:: len(weights) + 1] += penalty + 1e-9
            step = np.linalg.solve(curve, slope)
            # A step of more than this many units of log-odds has left where the curve was measured.
            step *= min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-300))
            weights = weights - step
            if np.abs(step).max() < 1e-5:
                break
        path.append(weights)
    return path


def _random_forest(x: Values, y: Values, patients: Values, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, min_samples_leaf=FEWEST_IN_A_LEAF, random_state=seed, n_jobs=1).fit(x, y)


def _gradient_boosting(x: Values, y: Values, patients: Values, seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(
        n_estimators=100, max_depth=3, subsample=0.5, min_samples_leaf=FEWEST_IN_A_LEAF, random_state=seed
    ).fit(x, y)


def _svm(x: Values, y: Values, patients: Values, seed: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import LinearSVC

    return CalibratedClassifierCV(
        LinearSVC(dual=False, random_state=seed), ensemble=False, cv=folds_of(y, patients, seed)
    ).fit(x, y)


def _mlp(x: Values, y: Values, patients: Values, seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        (32,), alpha=1e-2, early_stopping=True, n_iter_no_change=10, max_iter=200, random_state=seed
    ).fit(x, y)
