"""What becomes of mined rules: `python -m benchmarks.weak_figures [PART...]` prints one JSON object a line.

Figures of Caldas 2022 in form, on fewer data. A part is one of these, and words after colons choose among its runs:

balance (figure 5.6): FedAvg on IMDb with the thesis' words, by how unequal the classes are at the clients (a Dirichlet
concentration from 0, one class a client, to infinity, equal). mined (figures 5.7 and 5.8): rules that an oracle
accepted among 60 by strategy, ROC-AUC of the federated end model after 0, 20, 40 and 60 questions, and accuracy and
coverage of every rule that was shown; of the 3,000 reviews that are mined, about a third are test reviews, whose labels
the oracle sees. oracle (figure D.8): the same after 60 questions, by the accuracy that the oracle asks for.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wardround as wr
from benchmarks.weak_data import imdb_clients
from benchmarks.weak_federated import PLANS, Settings, chosen, follow
from benchmarks.weak_supervision import QUESTIONS, REPEATS, SEEDS, STRATEGIES, mining_study, scores_of
from wardround.api.finished_analysis import FinishedAnalysis
from wardround.weak_supervision.function import LabelingFunction, function_from
from wardround.weak_supervision.rule_text import function_from_text

Lines = Iterator[dict[str, Any]]
FEW = (0, 1, 2)
CONCENTRATIONS = (0.0, 0.1, 1.0, 10.0, np.inf)
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
LOOKS = (0, 20, 40, 60)
GIVEN = Settings(0.3, 3)
"""For FedAvg on reviews: the better of two at 80 rounds."""


def trained(seed: int, rules: Sequence[LabelingFunction] = (), concentration: float = np.inf) -> dict[str, Any]:
    """ROC-AUC on the test reviews at the round that was best on the validation reviews, and after the last."""
    course = follow(imdb_clients(seed, concentration, rules), PLANS["imdb"], "fed_avg", GIVEN, seed)
    return {"test": course.test[course.best], "round": course.rounds[course.best], "last": course.test[-1]}


def measure_balance(runs: Sequence[tuple[float, int]]) -> Lines:
    for concentration, seed in runs:
        found = trained(seed, concentration=concentration)
        yield {"part": "balance", "concentration": str(concentration), "seed": seed, **found}


def seeds() -> list[LabelingFunction]:
    return [function_from_text(one, ("negative", "positive"), "review") for one in SEEDS]


def after(answers: Sequence[tuple[dict[str, Any], str]], asked: int) -> list[LabelingFunction]:
    """The seeds, and what was accepted among the first so many."""
    return [*seeds(), *(function_from(words) for words, answer in answers[:asked] if answer == "yes")]


def shown_rules(finished: FinishedAnalysis) -> list[list[Any]]:
    """[answer, accuracy, coverage] of every rule that was shown, in percent of the reviews that were mined."""
    table = finished.tables["rules"]
    percents = (100 * table[["accuracy", "coverage"]].astype(float)).round(2)
    return [list(one) for one in zip(table["answer"], percents["accuracy"], percents["coverage"], strict=True)]


def measure_mined(folder: Path, runs: Sequence[tuple[str, int]]) -> Lines:
    for strategy, seed in runs:
        started = time.process_time()
        finished = wr.analyse(mining_study("imdb", strategy, seed), out=folder / f"mined-{strategy}-{seed}")
        answers = finished.result.numbers["answers"]
        found = {asked: trained(seed, after(answers, asked))["test"] for asked in LOOKS}
        yield {
            "part": "mined",
            "strategy": strategy,
            "seed": seed,
            **scores_of(finished, "imdb"),
            "test_after_questions": found,
            "rules": shown_rules(finished),
            "cpu_seconds": round(time.process_time() - started, 1),
        }


def measure_oracle(folder: Path, runs: Sequence[tuple[float, int]]) -> Lines:
    for threshold, seed in runs:
        study = mining_study("imdb", "bound", seed, threshold=threshold)
        numbers = wr.analyse(study, out=folder / f"oracle-{threshold}-{seed}").result.numbers
        found = trained(seed, after(numbers["answers"], QUESTIONS))["test"]
        yield {"part": "oracle", "threshold": threshold, "seed": seed, "accepted": numbers["accepted"], "test": found}


def lines_of(part: str, folder: Path) -> Lines:
    name, *said = part.split(":")
    if name == "balance":
        return measure_balance(chosen(said, CONCENTRATIONS, FEW))
    if name == "oracle":
        return measure_oracle(folder, chosen(said, THRESHOLDS, FEW))
    return measure_mined(folder, chosen(said, STRATEGIES, REPEATS))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for part in sys.argv[1:] or ["balance", "mined", "oracle"]:
            for line in lines_of(part, Path(place)):
                print(json.dumps(line), flush=True)
