"""Mining rules, in small: `python -m benchmarks.weak_supervision [PART...]` prints one JSON object a line.

The share of useful rules among 60 shown to an oracle (accuracy 0.7 or more), by strategy: 3,000 IMDb reviews at 100
sites, MIT-BIH beats at 48 recordings, up to 512 shapes of any recording (mitbih) or of two at least (mitbih_shared);
of reviews also how often the majority of the accepted rules is right on 3,000 others. A part is mining, or one of its
runs: mining:imdb:bound:0; or whole: 100 questions on all 18,000 reviews at 600 sites; or pool: how many shapes of heart
beats are candidates, and useful for some label, by clusters and how many recordings must have one. What becomes of the
rules is in `weak_figures`, training on given votes in `weak_training`.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wardround as wr
from wardround.api.finished_analysis import FinishedAnalysis
from wardround.core.contracts import Site
from wardround.data.datasets.weak_supervision.mitbih_beats import SAMPLES, SERIES, mitbih_beats
from wardround.data.folder import data_file
from wardround.study.file import Study, parse_study
from wardround.weak_supervision.function import function_from, votes_of
from wardround.weak_supervision.rule_text import function_from_text
from wardround.weak_supervision.search.kinds import shape_search

DATA, STRATEGIES = ("imdb", "mitbih", "mitbih_shared"), ("bound", "greedy", "random")
REPEATS = tuple(range(7))
ROWS, QUESTIONS, OF_SITE, BEATS = 3000, 60, 30, 60
WHOLE, MANY = 18_000, 100
SEEDS = ["adorable -> positive", "witty -> positive", "stereotypical -> negative", "hated -> negative"]


def mining_study(
    data: str, strategy: str, seed: int, *, rows: int = ROWS, questions: int = QUESTIONS, threshold: float = 0.7
) -> Study:
    mined = {"name": "rule_mining", "expert": "oracle", "questions": questions, "strategy": strategy, "seed": seed}
    mined |= {"threshold": threshold}
    reviews = {"labels": ["negative", "positive"], "column": "review", "outcome": "sentiment", "most": 2000}
    reviews |= {"frequency": [0.0, 0.5], "seeds": SEEDS}
    beats = {"labels": ["normal", "arrhythmia"], "kind": "series", "series": "beat_", "length": 144}
    beats |= {"outcome": "rhythm", "clusters": 512, "fewest_sites": 2 if data == "mitbih_shared" else 1}
    words = {
        "study": {"name": "mining", "seed": seed},
        "data": {"source": "imdb_reviews", "rows": rows, "partition": {"name": "iid", "sites": rows // OF_SITE}}
        if data == "imdb"
        else {"source": "mitbih_beats", "most": BEATS},
        "analysis": {**mined, **(reviews if data == "imdb" else beats)},
    }
    return parse_study(words, where="mining")


def majority_accuracy(answers: Sequence[Any]) -> dict[int, float]:
    """Percent right, after so many questions, on reviews that no site had; a tie is half right (figure 5.4)."""
    held = pd.read_parquet(data_file("imdb_reviews", "imdb_18k.parquet"), columns=["text", "label"])
    held = held.drop(held.sample(ROWS, random_state=0).index).sample(3000, random_state=1)
    frame, truth = held.rename(columns={"text": "review"})[["review"]], held["label"].to_numpy()
    accepted = [(place, words) for place, (words, answer) in enumerate(answers, 1) if answer == "yes"]
    seeds = [function_from_text(one, ("negative", "positive"), "review") for one in SEEDS]
    rules = [*seeds, *(function_from(words) for _, words in accepted)]
    signs = np.array([1 if one.label == "positive" else -1 for one in rules])
    since = np.array([0] * len(seeds) + [place for place, _ in accepted])
    fired = votes_of(rules, frame).astype(int) * signs
    found = {}
    for asked in (0, 20, 40, 60):
        lead = fired[:, since <= asked].sum(axis=1)
        found[asked] = round(100 * float(np.where(lead == 0, 0.5, (lead > 0) == truth).mean()), 1)
    return found


def measure_mining(folder: Path, chosen: Sequence[tuple[str, str, int]]) -> Iterator[dict[str, Any]]:
    for data, strategy, seed in chosen:
        started = time.process_time()
        finished = wr.analyse(mining_study(data, strategy, seed), out=folder / f"{data}-{strategy}-{seed}")
        taken = round(time.process_time() - started, 1)
        words = {"part": "mining", "data": data, "strategy": strategy, "seed": seed}
        yield {**words, **scores_of(finished, data), "cpu_seconds": taken}


def scores_of(finished: FinishedAnalysis, data: str) -> dict[str, Any]:
    """Of the rules shown, how many are useful after so many questions; what they cover, and how they vote together."""
    numbers = finished.result.numbers
    useful = np.array([answer == "yes" for _, answer in numbers["answers"]])
    coverage = numbers["mean_coverage"]
    return {
        "useful_percent": {
            asked: round(100 * float(useful[:asked].mean()), 1) for asked in (20, 40, 60) if asked <= len(useful)
        },
        "shown": len(useful),
        "mean_coverage_percent": None if coverage is None else round(100 * coverage, 2),
        "majority_accuracy": majority_accuracy(numbers["answers"]) if data == "imdb" else None,
    }


def measure_whole(folder: Path, chosen: Sequence[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    """The whole dialogue of an oracle, everything included but loading the program."""
    for strategy, seed in chosen:
        started = time.process_time()
        study = mining_study("imdb", strategy, seed, rows=WHOLE, questions=MANY)
        numbers = wr.analyse(study, out=folder / f"whole-{strategy}-{seed}").result.numbers
        yield {
            "part": "whole",
            "strategy": strategy,
            "seed": seed,
            "questions": numbers["shown"],
            "useful_percent": round(100 * numbers["share"], 1),
            "cpu_seconds": round(time.process_time() - started, 1),
        }


def measure_pool() -> Iterator[dict[str, Any]]:
    """Of the shapes that could be shown, those that are right in 70 % of their beats for one label or the other."""
    sites = [Site(name, frame) for name, frame in mitbih_beats(most=BEATS).sites.items()]
    frame = pd.concat([site.table for site in sites], ignore_index=True)
    abnormal = (frame["rhythm"] == "arrhythmia").to_numpy()
    for clusters, fewest in ((64, 2), (64, 1), (512, 2), (512, 1)):
        search = shape_search(SERIES, SAMPLES, 1, fewest, clusters, 0.2, 0)
        state = search.begin()
        while (asked := search.question(state)) is not None:
            state = search.step(state, search.answers(asked, sites))
        fired = votes_of(search.functions(search.pool(state), "arrhythmia"), frame)
        right = (fired & abnormal[:, None]).sum(axis=0) / np.maximum(fired.sum(axis=0), 1)
        yield {
            "part": "pool",
            "clusters": clusters,
            "fewest_sites": fewest,
            "shapes": len(right),
            "useful_for_arrhythmia": int((right >= 0.7).sum()),
            "useful_for_normal": int(((right <= 0.3) & fired.any(axis=0)).sum()),
        }


def lines_of(part: str, folder: Path) -> Iterator[dict[str, Any]]:
    name, *said = part.split(":")
    if name == "pool":
        return measure_pool()
    if name == "whole":
        wanted = [(strategy, seed) for seed in REPEATS for strategy in STRATEGIES]
        return measure_whole(folder, [one for one in wanted if all(word in map(str, one) for word in said)])
    every = [(data, strategy, seed) for data in DATA for seed in REPEATS for strategy in STRATEGIES]
    return measure_mining(folder, [one for one in every if all(word in map(str, one) for word in said)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for part in sys.argv[1:] or ["mining"]:
            for line in lines_of(part, Path(place)):
                print(json.dumps(line), flush=True)
