"""Whatever trains a model trains one that learns from votes: algorithms, aggregators, [privacy], and it predicts."""

import numpy as np
import pandas as pd
import pytest

import wardround as wr
from wardround.study.file import parse_study

RULES = [
    {"name": "unigram", "column": "note", "word": "pain", "label": "ill"},
    {"name": "threshold", "condition": "pulse > 0.7", "label": "ill"},
    {"name": "unigram", "column": "note", "word": "fine", "label": "well"},
    {"name": "threshold", "condition": "pulse < -0.7", "label": "well"},
]


def patients(rows=60):
    generator = np.random.default_rng(0)
    ill = generator.random(4 * rows) < 0.5
    says = ill ^ (generator.random(4 * rows) < 0.15)
    label = np.where(ill, "ill", "well").astype(object)
    label[generator.random(4 * rows) < 0.7] = None
    return pd.DataFrame(
        {
            "hospital": np.repeat(["a", "b", "c", "d"], rows),
            "note": np.where(says, "has Pain today", "is fine today"),
            "pulse": generator.normal(np.where(ill, 0.8, -0.8)),
            "lactate": generator.normal(np.where(ill, 1.2, -1.2)),
            "state": label,
        }
    )


def study(path, rounds=10, **tables):
    data = {"source": "csv", "path": str(path), "site": "hospital", "target": "state", "positive": "ill"}
    words = {
        "study": {"name": "votes", "seed": 2, "rounds": rounds},
        "data": {**data, "cleaning": {"rules": RULES}, **tables.pop("data", {})},
        "model": {"name": "weasel", "hidden": [4], "end_hidden": [4]},
        "algorithm": {"name": "fed_avg", "learning_rate": 0.1, "batch_size": 16, "local_epochs": 2},
        "evaluation": {"resamples": 0},
    }
    return parse_study({**words, **tables}, where="test")


@pytest.fixture
def table(tmp_path):
    patients().to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def auc(finished):
    scores = finished.scores
    return float(scores[(scores["site"] == "all") & (scores["metric"] == "roc_auc")]["value"].iloc[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"algorithm": {"name": "fed_prox", "mu": 0.01, "learning_rate": 0.1, "batch_size": 16, "local_epochs": 2}},
        {
            "algorithm": {
                "name": "fed_opt", "optimizer": "adam", "server_learning_rate": 0.03, "learning_rate": 0.1,
                "batch_size": 16, "local_epochs": 2,
            }
        },
        {"aggregator": {"name": "geometric_median"}},
        {"transforms": [{"name": "clip", "norm": 5.0}]},
        {
            "privacy": {"epsilon": 50.0, "delta": 1e-5, "clip": 1.0},
            "data": {
                "cleaning": {"rules": RULES},
                "preparation": {
                    "scale": "none",
                    "ranges": {
                        **{f"rule {number}": [0.0, 1.0] for number in range(1, 5)},
                        "pulse": [-5.0, 5.0],
                        "lactate": [-5.0, 5.0],
                    },
                },
            },
        },
    ],
    ids=["fed_avg", "fed_prox", "fed_adam", "geometric_median", "clip", "privacy"],
)  # fmt: skip
def test_every_way_to_train(table, tmp_path, tables):
    finished = wr.run(study(table, **tables), out=tmp_path / "run")
    assert auc(finished) > 0.8


def test_majority_vote_and_predictions_for_a_new_patient(table, tmp_path):
    """Quick: the baseline through the same door, and tomorrow's patient whose note is read like all others."""
    words = study(table, rounds=1, model={"name": "majority_vote"})
    finished = wr.run(words, out=tmp_path / "run")
    assert auc(finished) > 0.7
    tomorrow = pd.DataFrame({"note": ["Pain!", "fine"], "pulse": [2.0, -2.0], "lactate": [0.0, 0.0]})
    told = finished.predict(tomorrow)
    likely = told[next(name for name in told.columns if "ill" in name and "probab" in name)]
    assert (likely > 0.5).tolist() == [True, False]


def test_labels_that_nobody_has(table, tmp_path):
    rows = pd.read_csv(table).drop(columns="state")
    rows.to_csv(table, index=False)
    finished = wr.run(study(table, rounds=1, model={"name": "majority_vote"}), out=tmp_path / "run")
    scores = finished.scores
    assert scores[scores["metric"] == "roc_auc"]["value"].isna().all(), "no label, no figure"
