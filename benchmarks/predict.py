"""Predictions for a long table against scikit-learn: `python -m benchmarks.predict` prints one JSON object.

A Parquet file of 1,000,000 patients and 30 columns (24 numbers and 6 categories, all with gaps) is predicted with a
logistic model, ours with the remarks on every row (missing, outside the range, unknown) and the table of results
written as Parquet. The peer is `pandas.read_parquet` and scikit-learn's pipeline (median imputer and scaler, most
frequent imputer and one-hot encoder, logistic regression), whose results are thrown away. Both were fitted on the first
20,000 rows, and read the file again each time; they take turns, and the quickest of each counts.

Also measured: one patient from the command line, a process of its own each time.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROWS, NUMBERS, WORDS, TRAINED = 1_000_000, 24, 6, 20_000
BAR = 3.0
"""Times the peer's seconds that ours may take."""
ONE_PATIENT_BAR = 1.5
GAPS = 0.05
COMMAND = "from wardround.cli.app import main; main()"

STUDY = """
[study]
name = "long"
seed = 1
rounds = 5
[data]
source = "parquet"
path = "trained.parquet"
site = "site"
target = "outcome"
positive = "yes"
[model]
name = "logistic"
[algorithm]
name = "fed_avg"
batch_size = 64
[evaluation]
resamples = 0
"""


def patients(rows: int) -> pd.DataFrame:
    """Invented, with gaps in every column."""
    generator = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for number in range(NUMBERS):
        values = generator.normal(50, 10, rows).round(1)
        values[generator.random(rows) < GAPS] = np.nan
        columns[f"number_{number}"] = values
    for word in range(WORDS):
        levels = np.array([f"level {level}" for level in range(2 + word)] + [None], dtype=object)
        chances = np.append(np.full(2 + word, (1 - GAPS) / (2 + word)), GAPS)
        columns[f"word_{word}"] = levels[generator.choice(3 + word, rows, p=chances)]
    return pd.DataFrame(columns)


def outcome_of(frame: pd.DataFrame) -> "pd.Series[Any]":
    risk = (frame["number_0"].fillna(50) - 50) / 10 + (frame["word_0"] == "level 1")
    return pd.Series(np.where(risk + np.random.default_rng(1).logistic(size=len(frame)) > 0, "yes", "no"))


def train_ours(place: Path, frame: pd.DataFrame) -> Path:
    from wardround.cli.studies import run_command
    from wardround.study.file import read_study

    table = frame.assign(outcome=outcome_of(frame), site=np.where(np.arange(len(frame)) % 2, "north", "south"))
    table.to_parquet(place / "trained.parquet")
    (place / "study.toml").write_text(STUDY, encoding="utf-8")
    with redirect_stdout(sys.stderr):
        run_command(read_study(place / "study.toml"), kind="run", out=place / "run", resume=False, as_json=False)
    return place / "run"


def train_theirs(frame: pd.DataFrame) -> Any:
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    columns = make_column_transformer(
        (numbers, make_column_selector("number_")), (words, make_column_selector("word_"))
    )
    pipeline = make_pipeline(columns, LogisticRegression())
    pipeline.fit(frame, outcome_of(frame))
    return pipeline


def predict_ours(run: Path, table: Path, out: Path) -> None:
    from wardround.predict.patients import open_patients
    from wardround.predict.predictor import read_predictor
    from wardround.predict.table import predict_table
    from wardround.runs.models import find_model

    predictor = read_predictor(find_model(run))
    predict_table(predictor, open_patients(str(table), predictor.facts)).to_parquet(out, index=False)


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure(rows: int, repeats: int) -> dict[str, Any]:
    """The quickest of both sides, and of a patient alone."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        frame = patients(rows)
        frame.to_parquet(place / "patients.parquet")
        frame.head(1).to_csv(place / "one.csv", index=False)
        run, pipeline = train_ours(place, frame.head(TRAINED)), train_theirs(frame.head(TRAINED))
        table = place / "patients.parquet"
        read, theirs, ours, alone, busy = [], [], [], [], []
        command = [sys.executable, "-c", COMMAND, "predict", str(run), str(place / "one.csv")]
        for _ in range(repeats):
            ours.append(seconds(lambda: predict_ours(run, table, place / "scores.parquet")))
            read.append(seconds(lambda: pd.read_parquet(table)))
            theirs.append(seconds(lambda: pipeline.predict_proba(pd.read_parquet(table))))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            alone.append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        "rows": rows,
        "columns": NUMBERS + WORDS,
        "ours": round(min(ours), 2),
        "theirs": round(min(theirs), 2),
        "of which read_parquet": round(min(read), 2),
        "ratio": round(min(ours) / min(theirs), 2),
        "bar": BAR,
        "one patient from the command line": round(min(alone), 2),
        "of which processor": round(min(busy), 2),
        "bar for one patient": ONE_PATIENT_BAR,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=ROWS)
    arguments.add_argument("--repeats", type=int, default=3)
    given = arguments.parse_args()
    found = measure(given.rows, given.repeats)
    print(json.dumps(found, indent=1))
    sys.exit(found["ratio"] > BAR or found["one patient from the command line"] > ONE_PATIENT_BAR)


if __name__ == "__main__":
    main()
