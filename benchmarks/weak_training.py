"""Training on votes: `python -m benchmarks.weak_training [PART...]` prints one JSON object a line.

WRENCH's sets. A part is one of these, and words after colons choose among its runs: votes:trec, wrench:sms:fed_avg:1.

votes: the majority vote with random ties on the test texts, and Snorkel's label model where `--install` made its
environment; where neither says anything a class is drawn. features: what hashed words can tell at all, a logistic
regression that sees the labels of the training texts, on the validation texts. choice: WeaSEL by settings on the
validation texts, seed 1. wrench: WeaSEL with the settings that are best there, in one place and with FedAvg over five
equal sites, on the test texts, at the look that was best on the validation texts and after the last: the end model,
which sees the text; the label model, which sees the votes as Snorkel's does (a class is drawn where nobody votes); and
both, the label model where somebody votes and else the end model.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from benchmarks.environments import ROOT, TORCH, Environment
from benchmarks.install import install
from benchmarks.weak_data import Clients, Rows, together
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Algorithm, Model, Params, Task
from wardround.data.datasets.weak_supervision.wrench import CLASSES, vote_rules
from wardround.data.folder import data_file
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.weasel import weasel
from wardround.weak_supervision.text_features import text_features

SETS = ("youtube", "sms", "trec", "semeval")
SNORKEL = Environment("snorkel", (TORCH, "snorkel==0.10.0"))
SEEDS, DRAWS, SITES = (1, 2, 3, 4, 5), 20, 5
ROUNDS, EVERY = 120, 10
ALGORITHMS = ("centralized", "fed_avg")
Lines = Iterator[dict[str, Any]]
Scores = tuple[float, float]
"""Accuracy and F1."""


class Settings(NamedTuple):
    """What the validation texts choose, for each set."""

    features: int
    temperature: float
    learning_rate: float
    local_epochs: int = 1


CENTRAL = tuple(Settings(features, heat, 0.3) for features, heat in product((512, 2048), (3.0, 10.0)))
FEDERATED = ((0.3, 1), (1.0, 1), (0.3, 3))
"""Rates and local epochs of FedAvg; features and temperature are those chosen for one place."""


def percent(value: float) -> float:
    return round(100 * float(value), 1)


def wrench_rows(name: str, split: str) -> pd.DataFrame:
    """The texts of a split with their labels."""
    read = pd.read_parquet(data_file("wrench_small", f"{name}.parquet"))
    read = read[(read["split"] == split) & ~read["dev_row"].fillna(False).astype(bool)]
    words = np.array(CLASSES[name], dtype=object)
    votes = np.stack(read["votes"].to_list()).astype(np.int64)
    return pd.DataFrame({"text": read["text"], "label": words[read["label"].to_numpy(np.int64)], "votes": list(votes)})


def agreement(name: str, truth: Any, said: Any) -> Scores:
    """Accuracy, and the F1 of spam or the mean of all classes' F1."""
    two = len(CLASSES[name]) == 2
    f1 = f1_score(truth, said, pos_label="spam") if two else f1_score(truth, said, average="macro")
    return percent(accuracy_score(truth, said)), percent(f1)


def measure_votes(folder: Path, sets: Sequence[str]) -> Lines:
    for name in sets:
        splits = {split: wrench_rows(name, split) for split in ("train", "valid", "test")}
        votes = {split: np.stack(rows["votes"].to_list()) for split, rows in splits.items()}
        truth, classes = splits["test"]["label"].to_numpy(), np.array(CLASSES[name], dtype=object)
        counts = np.stack([(votes["test"] == place).sum(axis=1) for place in range(len(classes))], axis=1)
        beliefs = {"majority vote": counts.astype(float)}
        if SNORKEL.ready:
            np.savez(folder / "votes.npz", train=np.concatenate([votes["train"], votes["valid"]]), test=votes["test"])
            asked = [
                str(SNORKEL.python),
                "-m",
                "benchmarks.peers.with_snorkel",
                f"{folder}/votes.npz",
                str(len(classes)),
            ]
            subprocess.run(asked, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            beliefs["snorkel"] = np.load(folder / "beliefs.npy")
        for method, believed in beliefs.items():
            accuracy, f1 = drawn_scores(name, truth, believed)
            yield {"part": "votes", "set": name, "method": method, "accuracy": accuracy, "f1": f1}


def drawn_scores(name: str, truth: Any, beliefs: Any) -> Scores:
    """Of the class that is believed in most, a lot among equals; the mean of the draws."""
    classes, scores = np.array(CLASSES[name], dtype=object), []
    equal = np.isclose(beliefs, beliefs.max(axis=1, keepdims=True))
    for seed in range(DRAWS if equal.sum() > len(equal) else 1):
        best = np.where(equal, np.random.default_rng(seed).random(beliefs.shape), -1).argmax(axis=1)
        scores.append(agreement(name, truth, classes[best]))
    accuracy, f1 = np.mean(scores, axis=0).round(1)
    return float(accuracy), float(f1)


@cache
def texts_of(name: str, features: int) -> dict[str, Rows]:
    """Votes and hashed words of every text, by split."""
    found = {}
    for split in ("train", "valid", "test"):
        rows = wrench_rows(name, split)
        cast = np.stack(rows["votes"].to_list()) >= 0
        x = np.concatenate([cast, text_features(rows["text"], features=features)], axis=1).astype(np.float32)
        found[split] = Rows(x, np.array([CLASSES[name].index(one) for one in rows["label"]], np.int32))
    return found


def wrench_clients(name: str, features: int, seed: int) -> Clients:
    """Training and validation texts, none with its label, dealt to five equal sites."""
    own = texts_of(name, features)
    x = np.concatenate([own["train"].x, own["valid"].x])
    dealt = np.array_split(np.random.default_rng(seed).permutation(len(x)), SITES)
    parts = {f"site-{place}": Rows(x[rows], np.full(len(rows), -1, np.int32)) for place, rows in enumerate(dealt)}
    votes = tuple(one["label"] for one in vote_rules(name))  # type: ignore[arg-type]
    return Clients(together(parts, CLASSES[name]), own["valid"], own["test"], votes)


class Look(NamedTuple):
    """Of the end model, the label model and both: accuracy on the validation texts, accuracy and F1 on the test's."""

    round: int
    validation: dict[str, float]
    test: dict[str, Scores]


def judge(name: str, clients: Clients, params: Params, predictors: Sequence[Any], done: int) -> Look:
    found: list[dict[str, Scores]] = []
    for rows in (clients.validation, clients.test):
        by_text, by_votes = (np.asarray(predict(params, rows.x)) for predict in predictors)
        voted = (rows.x[:, : len(clients.votes)] > 0).any(axis=1, keepdims=True)
        beliefs = {"end": by_text, "label": np.where(voted, by_votes, 0.0), "both": by_votes}
        truth = np.array(CLASSES[name], dtype=object)[rows.y]
        found.append({kind: drawn_scores(name, truth, one) for kind, one in beliefs.items()})
    return Look(done, {kind: one[0] for kind, one in found[0].items()}, found[1])


class Trained(NamedTuple):
    """A model and how it is trained; made once, so that all seeds share its compiled programs."""

    model: Model
    algorithm: Algorithm
    predictors: tuple[Any, Any]


@cache
def trained_by(task: Task, votes: tuple[str, ...], algorithm: str, given: Settings) -> Trained:
    model, by_votes = (
        weasel(task, votes=votes, temperature=given.temperature, predict_from=one) for one in ("features", "votes")
    )
    said: dict[str, Any] = {"learning_rate": given.learning_rate, "local_epochs": given.local_epochs, "batch_size": 64}
    made = centralized(model, **said) if algorithm == "centralized" else fed_avg(model, weighted_mean(), **said)
    return Trained(model, made, (jax.jit(model.predict), jax.jit(by_votes.predict)))


@cache
def looks_of(name: str, algorithm: str, given: Settings, seed: int) -> tuple[list[Look], dict[str, float], float]:
    """Every look, how far two guesses of the classes' shares are from the true ones, and CPU seconds."""
    started, clients = time.process_time(), wrench_clients(name, given.features, seed)
    model, made, predictors = trained_by(clients.federation.task, clients.votes, algorithm, given)
    draw, looks = random_cohort(SITES, SITES, seed), []
    with Simulation(clients.federation, seed=seed, largest_cohort=draw.largest) as engine:
        progress = engine.begin(made, model.init(jax.random.key(seed)))
        for done in range(0, ROUNDS, EVERY):
            rounds = [(number, draw.cohort(number)) for number in range(done + 1, done + EVERY + 1)]
            progress, _ = engine.train(made, progress, rounds)
            looks.append(judge(name, clients, made.params(progress.server), predictors, done + EVERY))
    by_text = np.asarray(predictors[0](made.params(progress.server), clients.test.x))
    return looks, balances_off(clients, by_text), round(time.process_time() - started, 1)


def balances_off(clients: Clients, by_text: Any) -> dict[str, float]:
    """Total variation in percent from the test texts' shares: the end model's mean prediction, and the majority."""
    classes, rows = clients.federation.task.classes, clients.test
    shares = np.bincount(rows.y, minlength=len(classes)) / len(rows.y)
    places = np.array([[vote == one for one in classes] for vote in clients.votes], float)
    counts = rows.x[:, : len(clients.votes)] @ places
    first = (counts == counts.max(axis=1, keepdims=True)) & (counts > 0)
    leads = (first / np.maximum(first.sum(axis=1, keepdims=True), 1)).sum(axis=0)
    guesses = {"end model": by_text.mean(axis=0), "majority": leads / leads.sum()}
    return {kind: percent(np.abs(guess - shares).sum() / 2) for kind, guess in guesses.items()}


@cache
def choice_of(name: str, algorithm: str) -> tuple[Settings, tuple[dict[str, Any], ...]]:
    """The settings whose end model is best on the validation texts with seed 1, and what was tried."""
    grid = CENTRAL
    if algorithm == "fed_avg":
        grid = tuple(
            choice_of(name, "centralized")[0]._replace(learning_rate=rate, local_epochs=epochs)
            for rate, epochs in FEDERATED
        )
    tried = []
    for given in grid:
        looks, _, taken = looks_of(name, algorithm, given, 1)
        best = best_look(looks, "end")
        said = {"part": "choice", "set": name, "algorithm": algorithm, **given._asdict()}
        tried.append({**said, "validation": best.validation, "round": best.round, "cpu_seconds": taken})
    place = int(np.argmax([one["validation"]["end"] for one in tried]))
    return grid[place], tuple(tried)


def best_look(looks: Sequence[Look], kind: str) -> Look:
    return max(looks, key=lambda look: look.validation[kind])


def measure_features(sets: Sequence[str]) -> Lines:
    for name, features in product(sets, (512, 2048, 8192)):
        own = texts_of(name, features)
        many = len(vote_rules(name))  # type: ignore[arg-type]
        made = LogisticRegression(max_iter=200).fit(own["train"].x[:, many:], own["train"].y)
        found = percent(made.score(own["valid"].x[:, many:], own["valid"].y))
        yield {"part": "features", "set": name, "features": features, "accuracy": found}


def measure_choice(runs: Sequence[tuple[str, str]]) -> Lines:
    for name, algorithm in runs:
        yield from choice_of(name, algorithm)[1]


def measure_wrench(runs: Sequence[tuple[str, str, int]]) -> Lines:
    for name, algorithm, seed in runs:
        given = choice_of(name, algorithm)[0]
        looks, apart, taken = looks_of(name, algorithm, given, seed)
        words = {"part": "wrench", "set": name, "algorithm": algorithm, "seed": seed, **given._asdict()}
        best = {kind: best_look(looks, kind).test[kind] for kind in ("end", "label", "both")}
        yield {**words, "test": best, "last": looks[-1].test, "balance_off": apart, "cpu_seconds": taken}


def chosen(said: Sequence[str], *words: Sequence[Any]) -> list[Any]:
    """Of all combinations those that have every word said."""
    return [one for one in product(*words) if all(word in map(str, one) for word in said)]


def lines_of(part: str, folder: Path) -> Lines:
    name, *said = part.split(":")
    if name == "votes":
        return measure_votes(folder, [one for (one,) in chosen(said, SETS)])
    if name == "features":
        return measure_features([one for (one,) in chosen(said, SETS)])
    if name == "choice":
        return measure_choice(chosen(said, SETS, ALGORITHMS))
    return measure_wrench(chosen(said, SETS, ALGORITHMS, SEEDS))


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        install(SNORKEL)
        sys.exit()
    with tempfile.TemporaryDirectory() as place:
        for part in sys.argv[1:] or ["votes", "features", "choice", "wrench"]:
            for line in lines_of(part, Path(place)):
                print(json.dumps(line), flush=True)
