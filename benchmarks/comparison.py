"""Are comparisons right as often as they say? Level on data without a difference, power on data with one.

A hospital with 200 patients and five partners' worth of others; logistic regressions, five folds of which three train,
one validates (unused here) and one tests, as `wardround compare` has it. Every setting's true difference is measured on
20,000 further patients. Beside our test stands the yardstick: a paired bootstrap over the patients' pooled out-of-fold
predictions. Run `python -m benchmarks.comparison` (about ten minutes; --datasets 100 for a first look).
"""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.verdicts import wilson
from wardround.core.contracts import Scores, Task
from wardround.data.row_split import split
from wardround.evaluate.comparison import paired_difference
from wardround.evaluate.intervals import resample_counts
from wardround.evaluate.metrics import METRICS
from wardround.evaluate.out_of_fold import Predicted, join_folds
from wardround.evaluate.rows import rows_of

Numbers = np.ndarray[Any, Any]
ILL = Task((10,), ("well", "ill"))
FEATURES, PATIENTS, OTHERS, FOLDS = 10, 200, 1000, 5
STRENGTH = 1.3
NOISE = 0.5


class Kind(NamedTuple):
    """`turned`: the angle between the site's coefficients and the partners'.

    `exchangeable`: both methods are the common model, each with noise of its own on every patient's risk.
    """

    name: str
    turned: float
    sites: int = 1
    exchangeable: bool = False
    metric: str = "roc_auc"


KINDS = (
    Kind("no difference: both methods alike", 0.5, exchangeable=True),
    Kind("no difference: both alike, log loss", 0.5, exchangeable=True, metric="log_loss"),
    Kind("no difference: both alike, accuracy", 0.5, exchangeable=True, metric="accuracy"),
    Kind("no difference: both alike, four sites of 50", 0.5, sites=4, exchangeable=True),
    Kind("no difference: alone against together", 0.51),
    Kind("harm: partners turned by 0.87", 0.87),
    Kind("help: partners alike", 0.0),
)


def coefficients(turned: float) -> tuple[Numbers, Numbers]:
    """Of the asking site and of its partners."""
    random = np.random.default_rng(278)
    own, side = random.normal(size=(2, FEATURES))
    own *= STRENGTH / np.linalg.norm(own)
    side -= side @ own / (own @ own) * own
    side *= STRENGTH / np.linalg.norm(side)
    return own, np.cos(turned) * own + np.sin(turned) * side


def draw(random: np.random.Generator, patients: int, weights: Numbers) -> tuple[Numbers, Numbers]:
    x = random.normal(size=(patients, FEATURES))
    return x, (random.random(patients) < 1 / (1 + np.exp(-(x @ weights)))).astype(np.int64)


def fit(x: Numbers, y: Numbers, ridge: float = 0.01) -> Numbers:
    """Logistic regression by Newton's method."""
    design = np.column_stack([x, np.ones(len(x))])
    weights = np.zeros(design.shape[1])
    for _ in range(12):
        risk = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        information = design.T @ (design * (risk * (1 - risk))[:, None]) + (ridge + 1e-6) * np.eye(len(weights))
        weights = weights - np.linalg.solve(information, design.T @ (risk - y) + ridge * weights)
    return weights


def predict(weights: Numbers, x: Numbers, noise: Numbers | float = 0.0) -> Numbers:
    risk = 1 / (1 + np.exp(-np.clip(x @ weights[:-1] + weights[-1] + noise, -30, 30)))
    return np.stack([1 - risk, risk], axis=1)


class Dataset(NamedTuple):
    """Both methods' predictions fold by fold, whose they are, and the models."""

    one: list[Scores]
    other: list[Scores]
    patients: list[Numbers]
    models: list[tuple[Numbers, Numbers]]


def trained(kind: Kind, seed: int) -> Dataset:
    random = np.random.default_rng((seed, 0xC0))
    own, others = coefficients(kind.turned)
    size = PATIENTS // kind.sites
    sites = [draw(random, size, own) for _ in range(kind.sites)]
    x_other, y_other = draw(random, OTHERS, others)
    data = Dataset([], [], [], [])
    for fold in range(FOLDS):
        parts = [split(size, seed=seed, site=str(n), strata=y, fold=fold) for n, (_, y) in enumerate(sites)]
        x, y = (
            np.concatenate([each[k][train] for each, (train, _, _) in zip(sites, parts, strict=True)]) for k in (0, 1)
        )
        together = fit(np.concatenate([x, x_other]), np.concatenate([y, y_other]))
        models = (together, together) if kind.exchangeable else (together, fit(x, y))
        tested = [(sites[n][0][test], sites[n][1][test], test) for n, (_, _, test) in enumerate(parts)]
        first = np.concatenate([[0], np.cumsum([len(test) for _, _, test in tested])])
        actual = np.concatenate([y for _, y, _ in tested])
        for weights, into in zip(models, (data.one, data.other), strict=True):
            noise = random.normal(size=len(actual)) * NOISE if kind.exchangeable else 0.0
            into.append(Scores(predict(weights, np.concatenate([x for x, _, _ in tested]), noise), actual, first))
        data.patients.append(np.concatenate([test for _, _, test in tested]))
        data.models.append((models[0], models[1]))
    return data


def yardstick(kind: Kind, data: Dataset, seed: int, resamples: int = 500) -> bool:
    """Whether 95 % of the paired bootstrap over pooled out-of-fold predictions leave 0 out."""
    joined = [
        join_folds([Predicted(*one) for one in zip(scores, data.patients, strict=True)])
        for scores in (data.one, data.other)
    ]
    one, other = (rows_of(each.scores, ILL) for each in joined)
    weights = resample_counts(np.random.default_rng((seed, 0xAB)), one.counts, resamples)
    metric = METRICS[kind.metric]
    gap = ((metric.compute(one, weights) - metric.compute(other, weights)) * one.counts).sum(axis=1) / one.counts.sum()
    low, high = np.quantile(gap, [0.025, 0.975])
    return bool(not low <= 0 <= high)


def true_difference(kind: Kind, data: Dataset) -> float:
    """On 20,000 further patients of the asking site, the mean over the folds' models."""
    x, y = draw(np.random.default_rng(99), 20_000, coefficients(kind.turned)[0])
    metric, first = METRICS[kind.metric], np.array([0, len(y)])
    gaps = []
    for models in data.models:
        one, other = (metric.compute(rows_of(Scores(predict(w, x), y, first), ILL), None)[0, 0] for w in models)
        gaps.append(one - other)
    return float(np.mean(gaps))


def share(count: int, total: int) -> str:
    """In per cent, with its 95 % interval from the number of data sets (Wilson)."""
    found, low, high = (100 * one for one in wilson(count, total) or (0.0, 0.0, 100.0))
    return f"{found:.1f} % ({low:.1f} to {high:.1f})"


def measured(kind: Kind, seeds: range, known: int) -> Iterator[tuple[str, Any]]:
    ours, theirs, right = 0, 0, 0
    truth: list[float] = []
    estimates: list[float] = []
    datasets, only_ours, only_theirs = len(seeds), 0, 0
    for seed in seeds:
        data = trained(kind, seed)
        found = paired_difference(data.one, data.other, ILL, kind.metric, patients=data.patients)
        assert found.p_value is not None
        assert found.value is not None
        ours += found.p_value <= 0.05
        right += found.verdict == ("worse" if kind.turned > 0.51 else "better") and not kind.exchangeable
        also = yardstick(kind, data, seed)
        theirs += also
        only_ours += found.p_value <= 0.05 and not also
        only_theirs += also and found.p_value > 0.05
        estimates.append(found.value)
        if len(truth) < known:
            truth.append(true_difference(kind, data))
    yield from {
        "true difference": f"{np.mean(truth):+.4f}",
        "estimated": f"{np.mean(estimates):+.4f}",
        "we say different": share(ours, datasets),
        "rightly": "" if "no difference" in kind.name else f"{100 * right / datasets:.1f} %",
        "yardstick": share(theirs, datasets),
        "one of them only": f"{only_ours} and {only_theirs}",
    }.items()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--datasets", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="*", choices=[kind.name.split(":")[0] for kind in KINDS], default=None)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.datasets)
    head = (
        "true difference",
        "estimated",
        "we say different",
        "rightly",
        "yardstick says different",
        "only we, only it",
    )
    print(f"| {PATIENTS} patients, {len(seeds)} data sets | " + " | ".join(head) + " |")
    print("|---" * (len(head) + 1) + "|")
    for kind in KINDS:
        if given.kinds and kind.name.split(":")[0] not in given.kinds:
            continue
        started = time.perf_counter()
        row = dict(measured(kind, seeds, min(len(seeds), 100)))
        print(f"| {kind.name} | " + " | ".join(row.values()) + " |", flush=True)
        print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
