"""Training on votes: `python -m benchmarks.weak_training [PART...]` prints one JSON object a line.

A part is one of these, and words after colons choose among its runs: votes:trec, wrench:youtube:fed_avg:1.

votes: the majority vote with random ties on WRENCH's test texts, and Snorkel's label model where `--install` made its
environment; where neither says anything a class is drawn. choice: WeaSEL by `scale` and `temperature`, all rows in one
place, on WRENCH's validation texts. wrench: WeaSEL on the test texts, in one place and with FedAvg over five equal
sites. Scores are of all texts together, not the mean over sites.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, f1_score

import wardround as wr
from benchmarks.environments import ROOT, Environment
from benchmarks.install import install
from wardround.api.finished_run import FinishedRun
from wardround.data.datasets.weak_supervision.wrench import CLASSES, vote_rules
from wardround.data.folder import data_file
from wardround.study.file import parse_study

SETS = ("youtube", "sms", "trec", "semeval")
SNORKEL = Environment("snorkel", ("snorkel==0.10.0",))
SEEDS, DRAWS, ROUNDS = (1, 2, 3), 20, 60
Lines = Iterator[dict[str, Any]]


def trained(folder: Path, seed: int, rounds: int, words: dict[str, Any]) -> FinishedRun:
    study = {"study": {"name": "votes", "rounds": rounds, "seed": seed}, "evaluation": {"resamples": 0}, **words}
    finished = wr.run(parse_study(study, where="votes"), out=Path(tempfile.mkdtemp(dir=folder)))
    assert isinstance(finished, FinishedRun)
    return finished


def percent(value: float) -> float:
    return round(100 * float(value), 1)


def wrench_rows(name: str, split: str) -> pd.DataFrame:
    """The texts of a split with their labels."""
    read = pd.read_parquet(data_file("wrench_small", f"{name}.parquet"))
    read = read[(read["split"] == split) & ~read["dev_row"].fillna(False).astype(bool)]
    words = np.array(CLASSES[name], dtype=object)
    votes = np.stack(read["votes"].to_list()).astype(np.int64)
    return pd.DataFrame({"text": read["text"], "label": words[read["label"].to_numpy(np.int64)], "votes": list(votes)})


def agreement(name: str, truth: Any, said: Any) -> tuple[float, float]:
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
            scores = []
            for seed in range(DRAWS):
                lot = np.random.default_rng(seed).random(believed.shape)
                best = np.where(np.isclose(believed, believed.max(axis=1, keepdims=True)), lot, -1).argmax(axis=1)
                scores.append(agreement(name, truth, classes[best]))
            accuracy, f1 = np.mean(scores, axis=0).round(1)
            yield {"part": "votes", "set": name, "method": method, "accuracy": accuracy, "f1": f1}


def wrench_run(folder: Path, name: Any, seed: int, algorithm: str, model: dict[str, Any]) -> FinishedRun:
    words = {
        "data": {
            "source": "wrench",
            "name": name,
            "shares": [0.0, 0.0, 1.0],
            "partition": {"name": "iid", "sites": 5},
            "cleaning": {"rules": vote_rules(name), "texts": {"text": {"features": 512}}},
            "preparation": {"scale": "none"},
        },
        "model": {"name": "weasel", **model},
        "algorithm": {"name": algorithm, "learning_rate": 0.3, "batch_size": 64},
    }
    return trained(folder, seed, ROUNDS, words)


def wrench_scores(finished: FinishedRun, name: str, split: str) -> dict[str, float]:
    """Of the end model, which sees the text alone."""
    rows = wrench_rows(name, split)
    frame = rows[["text"]].assign(**{f"vote_{place}": None for place in range(len(rows["votes"].iloc[0]))})
    accuracy, f1 = agreement(name, rows["label"].to_numpy(), finished.predict(frame)["label"].to_numpy())
    return {"accuracy": accuracy, "f1": f1}


def measure_choice(folder: Path, sets: Sequence[str]) -> Lines:
    for name in sets:
        for scale in ("count", "root"):
            for temperature in (1.0, 3.0, 10.0):
                model = {"scale": scale, "temperature": temperature}
                finished = wrench_run(folder, name, 1, "centralized", model)
                yield {"part": "choice", "set": name, **model, **wrench_scores(finished, name, "valid")}


def measure_wrench(folder: Path, runs: Sequence[tuple[str, str, int]]) -> Lines:
    for name, algorithm, seed in runs:
        started = time.process_time()
        scores = wrench_scores(wrench_run(folder, name, seed, algorithm, {}), name, "test")
        taken = round(time.process_time() - started, 1)
        yield {"part": "wrench", "set": name, "algorithm": algorithm, "seed": seed, **scores, "cpu_seconds": taken}


def chosen(said: Sequence[str], *words: Sequence[Any]) -> list[Any]:
    """Of all combinations those that have every word said."""
    return [one for one in product(*words) if all(word in map(str, one) for word in said)]


def lines_of(part: str, folder: Path) -> Lines:
    name, *said = part.split(":")
    if name in ("votes", "choice"):
        sets = [one for (one,) in chosen(said, SETS)]
        return (measure_votes if name == "votes" else measure_choice)(folder, sets)
    return measure_wrench(folder, chosen(said, SETS, ("centralized", "fed_avg"), SEEDS))


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        install(SNORKEL)
        sys.exit()
    with tempfile.TemporaryDirectory() as place:
        for part in sys.argv[1:] or ["votes", "choice", "wrench"]:
            for line in lines_of(part, Path(place)):
                print(json.dumps(line), flush=True)
