"""Whether the recommended method keeps up with the better of local and common: `python -m benchmarks.pooling`.

Prints one JSON object. For every federation and site, the mean over the seeds of the log loss on held-out patients (40
% of each site's) of partial pooling with its defaults less that of the better of two others, where the better is told
with hindsight: the model of the site's own patients and the common model, each trained by this platform (50 rounds,
once plainly and once held back by `l2 = 0.01`) and fitted to convergence in plain NumPy, with a slight pull towards 0.
`worst_shortfall` is that of the worst site, with a 95 % interval over the seeds (the same patients are in many of them,
so it is too narrow); `ahead` is the mean over sites against each of them, also with one. `hierarchy` is made up:
sites' coefficients are normal draws, so that the Bayes model (the posterior mode with the true centre and variance) is
known; `behind_bayes` is how much is lost against it. With `--kept FILE` every seed's losses are written down there, and
those that are there already are not computed again.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.advice import fitted, loss
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.partial_pooling import partial_pooling
from wardround.core.contracts import Algorithm, Model, Scores, Task
from wardround.core.federation import Federation, assemble
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.study.assemble import load_setting
from wardround.study.file import parse_study

Numbers = np.ndarray[Any, Any]
SHARES = [0.6, 0.0, 0.4]
DATA: dict[str, dict[str, Any]] = {
    "heart_disease": {"source": "heart_disease"},
    "titanic": {"source": "titanic", "partition": {"name": "by_feature", "column": "sex", "sites": 4, "degree": 0.6}},
    "triage": {"source": "triage", "hospitals": 6},
    "adult_by_column": {
        "source": "adult",
        "partition": {"name": "by_column", "column": "age", "edges": [25, 35, 45, 55]},
    },
}
PATIENTS, FRESH, SITES, COLUMNS = 100, 4000, 40, 8
CENTRE = np.array([0.9, -0.7, 0.5, 0.8, -0.4, 0.3, 0.0, 0.0, -0.3])
SPREAD = np.array([0.8, 0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0, 0.5])
"""Standard deviations of the sites' coefficients, the intercept last: they differ in two of eight and in that."""


def made_up(seed: int) -> tuple[Federation, list[float]]:
    """Sites whose coefficients are normal draws, and the loss of each site's Bayes model on its fresh patients."""
    generator = np.random.default_rng([7, seed])
    pieces, bayes = [], []
    for site in range(SITES):
        own = CENTRE + SPREAD * generator.normal(size=COLUMNS + 1)
        parts = []
        for count in (PATIENTS, FRESH):
            x = generator.normal(size=(count, COLUMNS)).astype(np.float32)
            risk = 1 / (1 + np.exp(-(x @ own[:-1] + own[-1])))
            parts.append((x, (generator.random(count) < risk).astype(np.int32)))
        bayes.append(loss(posterior_mode(*parts[0]), *parts[1]))
        pieces.append((f"site-{site}", [parts[0], (x[:0], parts[1][1][:0]), parts[1]]))
    return assemble(pieces, Task((COLUMNS,), ("no", "yes"))), bayes


def posterior_mode(x: Numbers, y: Numbers) -> Numbers:
    """With the true centre and variance of the sites' coefficients (a variance of 0 being a very small one)."""
    full = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float64)
    precision, weights = 1 / np.maximum(SPREAD, 1e-3) ** 2, CENTRE.copy()
    for _ in range(50):
        risk = 1 / (1 + np.exp(-full @ weights))
        slope = full.T @ (risk - y) + precision * (weights - CENTRE)
        weights -= np.linalg.solve((full * (risk * (1 - risk))[:, None]).T @ full + np.diag(precision), slope)
    return weights


def federation_of(name: str, seed: int) -> tuple[Federation, list[float] | None]:
    if name == "hierarchy":
        return made_up(seed)
    words = {"study": {"name": name, "rounds": 1, "seed": seed}, "data": {**DATA[name], "shares": SHARES}}
    study = parse_study(words, where="benchmarks.pooling")
    return load_setting(study, seed).federation, None


def site_losses(scores: Scores) -> list[float]:
    risk = np.clip(scores.predicted[np.arange(len(scores.actual)), scores.actual], 1e-7, 1.0)
    return [float(-np.log(risk[a:b]).mean()) for a, b in zip(scores.first[:-1], scores.first[1:], strict=True)]


MODELS: dict[Task, dict[str, tuple[Model, Algorithm, int]]] = {}


def losses(federation: Federation, seed: int) -> dict[str, list[float]]:
    """Of every site and way."""
    if federation.task not in MODELS:
        plain, held = logistic(federation.task), logistic(federation.task, l2=0.01)
        MODELS[federation.task] = {
            "local": (plain, local(plain), 50),
            "common": (plain, fed_avg(plain, weighted_mean()), 50),
            "local_held": (held, local(held), 50),
            "common_held": (held, fed_avg(held, weighted_mean()), 50),
            "partial_pooling": (plain, partial_pooling(plain, weighted_mean()), 25),
        }
    found = {}
    cohort = np.arange(len(federation.sites))
    with Simulation(federation, seed=seed) as engine:
        for name, (model, algorithm, rounds) in MODELS[federation.task].items():
            progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
            progress, _ = engine.train(algorithm, progress, [(number + 1, cohort) for number in range(rounds)])
            found[name] = site_losses(engine.predict(algorithm, progress, "test"))
    parts = {part: [slice(a, a + b) for a, b in zip(*federation.part(part), strict=True)] for part in ("train", "test")}
    x, y, rows = federation.x, federation.y, federation.rows_of("train")
    everybody = fitted(x[rows], y[rows])
    found["common_fitted"] = [loss(everybody, x[part], y[part]) for part in parts["test"]]
    found["local_fitted"] = [
        loss(fitted(x[own], y[own]), x[part], y[part]) for own, part in zip(parts["train"], parts["test"], strict=True)
    ]
    return found


def measure(name: str, seed: int, kept: Path | None) -> dict[str, Any]:
    """One seed: the losses, the sites, and those of the Bayes model where it is known; from the file if it is there."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else []
    for known in map(json.loads, lines):
        if (known["case"], known["seed"]) == (name, seed):
            return dict(known)
    federation, bayes = federation_of(name, seed)
    found = {"case": name, "seed": seed, "sites": list(federation.sites), "bayes": bayes}
    found["losses"] = losses(federation, seed)
    if kept is not None:
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
    return found


def summary(rows: list[dict[str, list[float]]], sites: list[str], bayes: list[list[float]]) -> dict[str, Any]:
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    own = table.pop("partial_pooling")
    best = np.min([values.mean(axis=0) for values in table.values()], axis=0)
    short = own.mean(axis=0) - best
    worst = int(short.argmax())
    rival = min(table.values(), key=lambda values: float(values[:, worst].mean()))
    told: dict[str, Any] = {
        "seeds": len(rows),
        "shortfall": {site: round(float(value), 4) for site, value in zip(sites, short, strict=True)},
        "worst_shortfall": interval(own[:, worst] - rival[:, worst]),
        "ahead": {name: interval(values.mean(axis=1) - own.mean(axis=1)) for name, values in table.items()},
    }
    if bayes:
        told["behind_bayes"] = interval(own.mean(axis=1) - np.array(bayes).mean(axis=1))
    return told


def interval(values: Numbers) -> list[float]:
    """The mean over the seeds, and its 95 % interval."""
    width = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return [
        round(float(values.mean()), 4),
        round(float(values.mean() - width), 4),
        round(float(values.mean() + width), 4),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="How far partial pooling falls short of the better of local and common."
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", nargs="*", choices=["hierarchy", *DATA], default=["hierarchy", *DATA])
    parser.add_argument("--kept", type=Path, help="a file for every seed's losses")
    said = parser.parse_args()
    report = {}
    for name in said.cases:
        begun = time.perf_counter()
        found = [measure(name, seed, said.kept) for seed in range(said.first, said.first + said.seeds)]
        bayes = [one["bayes"] for one in found if one["bayes"] is not None]
        report[name] = summary([one["losses"] for one in found], found[0]["sites"], bayes)
        print(f"{name}: {time.perf_counter() - begun:.0f} s, {json.dumps(report[name])}", file=sys.stderr, flush=True)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
