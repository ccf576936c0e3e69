"""The Python API does what the commands do, with the same bits, and takes one's own parts."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from flax import linen as nn
from safetensors.numpy import load_file

import wardround as wr
from wardround.algorithms.fed_avg import fed_avg
from wardround.cli.app import main
from wardround.core.contracts import Aggregator, Algorithm, Model

STUDY = """
[study]
name = "own"
rounds = 3
seed = 5
[data]
source = "csv"
path = "patients.csv"
site = "ward"
target = "died"
positive = "yes"
[algorithm]
name = "fed_avg"
learning_rate = 0.2
[evaluation]
resamples = 0
"""


@pytest.fixture(scope="module")
def patients() -> pd.DataFrame:
    generator = np.random.default_rng(4)
    age, sex = generator.normal(60, 15, 240).round(), generator.choice(["f", "m"], 240)
    risk = 1 / (1 + np.exp(-(age - 60) / 10 - (sex == "m")))
    frame = pd.DataFrame({"ward": generator.choice(["A", "B", "C"], 240), "age": age, "sex": sex})
    frame["died"] = np.where(generator.random(240) < risk, "yes", "no")
    frame.loc[::17, "age"] = np.nan
    return frame


def study_of(patients, **more):
    words = {"rounds": 3, "seed": 5, "algorithm": wr.fed_avg(learning_rate=0.2), "evaluation": {"resamples": 0}, **more}
    return wr.build_study(patients, name="own", site="ward", target="died", positive="yes", **words)


@pytest.fixture(scope="module")
def finished(patients, tmp_path_factory):
    return wr.run(study_of(patients), out=tmp_path_factory.mktemp("run") / "run")


def test_frames_give_the_bits_of_the_command_line(patients, finished, tmp_path, capsys):
    patients.to_csv(tmp_path / "patients.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(SystemExit) as left:
        main(["run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "run"), "--json"])
    assert left.value.code == 0
    capsys.readouterr()
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (finished.folder, tmp_path / "run"))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert (
        json.loads((tmp_path / "run/result.json").read_text())["methods"][0]["scores"]
        == json.loads((finished.folder / "result.json").read_text())["methods"][0]["scores"]
    )


def test_scores_are_those_of_the_result_and_rounds_are_counted(finished):
    scores = finished.scores.set_index(["site", "metric"])["value"]
    told = json.loads((finished.folder / "result.json").read_text())["methods"][0]["scores"]
    assert scores["B", "roc_auc"] == told["sites"]["B"]["roc_auc"]["value"]
    assert scores["all", "roc_auc"] == told["weighted"]["roc_auc"]["value"]
    assert finished.rounds["round"].tolist() == [1, 2, 3]
    assert finished.rounds["loss"].is_monotonic_decreasing
    assert "fed_avg" in finished._repr_html_()


def test_a_loaded_run_predicts_new_patients(patients, finished):
    tomorrow = pd.DataFrame({"sex": ["m", "f"], "age": [80.0, np.nan], "shoe": [1, 2]}, index=["x", "y"])
    found = wr.load(finished.folder).predict(tomorrow)
    assert list(found.index) == ["x", "y"]
    assert found.loc["x", "probability of yes"] > found.loc["y", "probability of yes"]
    assert found.loc["y", "missing"] == "age"
    params = load_file(finished.folder / "model.safetensors")
    column = json.loads(finished.model().preparation.to_json())["columns"]
    age = (80.0 - column[0]["center"]) / column[0]["scale"]
    row = np.array([age, *(float(level == "m") for level in column[1]["categories"])])
    logits = row @ params["dense_0/kernel"].astype(float) + params["dense_0/bias"]
    assert found.loc["x", "probability of yes"] == pytest.approx(1 / (1 + np.exp(logits[0] - logits[1])), abs=1e-6)


def test_methods_are_compared_and_every_round_is_told(patients, tmp_path):
    told = []
    finished = wr.compare(
        study_of(patients),
        [wr.local(learning_rate=0.5), "fed_avg"],
        repeats=2,
        out=tmp_path / "run",
        on_round=lambda method, repeat, record: told.append((method.name, repeat, record.round)),
    )
    names = ("local", "fed_avg")
    assert told == [(name, repeat, number) for repeat in (0, 1) for name in names for number in (1, 2, 3)]
    assert set(finished.scores["method"]) == {"local", "fed_avg"}
    assert {"method", "against", "p_value"} <= set(finished.differences.columns)
    one = finished.predict(patients[["age", "sex"]].head(3), site="B", method="local")
    other = finished.predict(patients[["age", "sex"]].head(3), site="A", method="local")
    assert not np.allclose(one["probability of yes"], other["probability of yes"])


class Narrow(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(nn.tanh(nn.Dense(3)(x)))


def test_a_module_and_an_algorithm_of_ones_own_are_passed_in_as_they_are(patients, tmp_path):
    def standing_still(model: Model, aggregator: Aggregator, *, learning_rate: float = 0.1) -> Algorithm:
        """FedAvg whose server does nothing."""
        return fed_avg(model, aggregator, learning_rate=learning_rate)._replace(server=lambda params, combined: params)

    study = study_of(patients, model=Narrow(2), algorithm=standing_still)
    finished = wr.run(study, out=tmp_path / "run")
    params = load_file(finished.folder / "model.safetensors")
    assert params["Dense_1/kernel"].shape == (3, 3)
    assert finished.rounds["loss"].nunique() == 1, "the server moved"
    with pytest.raises(wr.Refusal, match="made in Python"):
        wr.load(finished.folder).predict(patients.head(1))
    again = wr.load(finished.folder, study).predict(patients.head(9))
    assert again.equals(finished.predict(patients.head(9)))
    assert again["probability of yes"].between(0, 1, inclusive="neither").all()


def test_mistakes_are_refused_in_words(patients):
    with pytest.raises(wr.Refusal, match="learnig_rate"):
        wr.fed_avg(learnig_rate=1)
    with pytest.raises(AttributeError, match="did you mean 'fed_avg'"):
        wr.fed_avgg  # noqa: B018
    with pytest.raises(wr.Refusal, match="kind aggregator, not algorithm"):
        study_of(patients, algorithm=wr.median())
    with pytest.raises(wr.Refusal, match="what to predict"):
        wr.build_study(patients)
    with pytest.raises(wr.Refusal, match="n object of type int is no model"):
        study_of(patients, model=3)


def test_importing_is_light():
    code = "import sys, wardround; print(sorted(set(sys.modules) & {'jax', 'numpy', 'pandas', 'sklearn'}))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_everything_that_is_promised_is_there():
    assert all(getattr(wr, name).__doc__ for name in wr.__all__)
    assert wr.__all__ == sorted(wr.__all__)
