"""Learning without labels, in small: `python -m benchmarks.weak_supervision [PART...]` prints one JSON object a line.

A part is wrench, one of its sets, or mining.

wrench: accuracy and F1 on the benchmark's test texts of the majority vote, and of WeaSEL trained with FedAvg over five
equal sites and in one place, on hashed words. mining: the share of useful rules among 40 shown to an oracle (accuracy
0.7 or more), by strategy: IMDb reviews at 40 sites, MIT-BIH beats at 48 recordings.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import wardround as wr
from wardround.api.finished_run import FinishedRun
from wardround.data.datasets.weak_supervision.wrench import vote_rules
from wardround.study.file import Study, parse_study

SETS = ("youtube", "sms", "trec", "semeval")
SEEDS = ["adorable -> positive", "witty -> positive", "stereotypical -> negative", "hated -> negative"]


def wrench_study(name: Any, model: str, algorithm: str, rounds: int) -> Study:
    words = {
        "study": {"name": "wrench", "rounds": rounds, "seed": 1},
        "data": {
            "source": "wrench",
            "name": name,
            "shares": [0.0, 0.0, 1.0],
            "partition": {"name": "iid", "sites": 5},
            "cleaning": {"rules": vote_rules(name), "texts": {"text": {"features": 512}}},
            "preparation": {"scale": "none"},
        },
        "model": {"name": model},
        "algorithm": {"name": algorithm, "learning_rate": 0.3, "batch_size": 64},
        "evaluation": {"resamples": 0},
    }
    return parse_study(words, where="wrench")


def mining_study(data: str, strategy: str, seed: int) -> Study:
    mined = {"name": "rule_mining", "expert": "oracle", "questions": 40, "strategy": strategy, "seed": seed}
    reviews = {"labels": ["negative", "positive"], "column": "review", "outcome": "sentiment", "most": 300}
    reviews |= {"frequency": [0.02, 0.5], "seeds": SEEDS, "participants": 20}
    beats = {"labels": ["normal", "arrhythmia"], "kind": "series", "series": "beat_", "length": 144}
    beats |= {"outcome": "rhythm", "clusters": 64, "fewest_sites": 2, "participants": 20}
    words = {
        "study": {"name": "mining", "seed": seed},
        "data": {"source": "imdb_reviews", "rows": 6000, "partition": {"name": "iid", "sites": 40}}
        if data == "imdb"
        else {"source": "mitbih_beats", "most": 60},
        "analysis": {**mined, **(reviews if data == "imdb" else beats)},
    }
    return parse_study(words, where="mining")


def measure_wrench(folder: Path, sets: Sequence[str] = SETS) -> Iterator[dict[str, Any]]:
    for name in sets:
        for model, algorithm, rounds in (
            ("majority_vote", "fed_avg", 1),
            ("weasel", "fed_avg", 60),
            ("weasel", "centralized", 60),
        ):
            finished = wr.run(wrench_study(name, model, algorithm, rounds), out=folder / f"{name}-{model}-{algorithm}")
            assert isinstance(finished, FinishedRun)
            scores = finished.scores
            whole = scores[scores["site"] == "all"].set_index("metric")["value"]
            found = {
                metric: round(100 * float(whole[metric]), 1)
                for metric in ("accuracy", "f1", "macro_f1")
                if metric in whole
            }
            yield {"part": "wrench", "set": name, "model": model, "algorithm": algorithm, "rounds": rounds, **found}


def measure_mining(folder: Path) -> Iterator[dict[str, Any]]:
    for data in ("imdb", "mitbih"):
        for strategy in ("bound", "greedy", "random"):
            for seed in (0, 1):
                started = time.process_time()
                finished = wr.analyse(mining_study(data, strategy, seed), out=folder / f"{data}-{strategy}-{seed}")
                numbers = finished.result.numbers
                yield {
                    "part": "mining",
                    "data": data,
                    "strategy": strategy,
                    "seed": seed,
                    "useful_percent": round(100 * numbers["share"], 1),
                    "mean_coverage_percent": None
                    if numbers["mean_coverage"] is None
                    else round(100 * numbers["mean_coverage"], 2),
                    "cpu_seconds": round(time.process_time() - started, 1),
                }


if __name__ == "__main__":
    parts = sys.argv[1:] or ["wrench", "mining"]
    with tempfile.TemporaryDirectory() as place:
        for part in parts:
            where = Path(place)
            lines = (
                measure_mining(where) if part == "mining" else measure_wrench(where, (part,) if part in SETS else SETS)
            )
            for line in lines:
                print(json.dumps(line), flush=True)
