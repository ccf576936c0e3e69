"""`wardround adapt`: what it writes is what `predict` uses; mistakes write nothing."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit

from tests.predict.known_model import known_patients, known_value, write_known_model
from tests.support import tiny_study as tiny
from wardround.api.finished_run import FinishedRun
from wardround.predict.adaptation import Adaptation
from wardround.predict.explanation import explain
from wardround.predict.predictor import load_predictor
from wardround.predict.recalibration import fit_map
from wardround.runs.file_names import adaptation_file


@pytest.fixture
def run(tmp_path):
    return write_known_model(tmp_path / "run")


def call(capsys, *arguments):
    return tiny.call(capsys, *map(str, arguments))


def write(path, frame):
    frame.to_csv(path, index=False)
    return path


def test_adapt_then_predict(run, tmp_path, capsys):
    own = write(tmp_path / "own.csv", known_patients(1500, shift=1.0))
    said = call(capsys, "adapt", run, own, "--site", "North", "--by", "sensitivity=0.9", "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert found["risk_map"]["kind"] == "in_the_large"
    # The truth is a shift of 1; its standard error is about 1 / sqrt(1500 * 0.2) = 0.06.
    assert found["risk_map"]["intercept"] == pytest.approx(1.0, abs=0.2)
    assert found["flagged"]["sensitivity"]["value"] == pytest.approx(0.9, abs=0.04)

    new = known_patients(50, seed=1)
    table = write(tmp_path / "new.csv", new.drop(columns=["ill", "date"]))
    said = call(capsys, "predict", run, table, "--site", "North", "--out", tmp_path / "scores.csv")
    assert "adapted for North on 1,500 patients" in said.out
    scores = pd.read_csv(tmp_path / "scores.csv")
    risk = 1 / (1 + np.exp(-known_value(new) - found["risk_map"]["intercept"]))
    np.testing.assert_allclose(scores["probability of yes"], risk, atol=1e-6)
    assert ((scores["ill"] == "yes") == (risk >= found["threshold"])).all()


def test_predict_unadapted_is_the_model_as_it_was(run, tmp_path, capsys):
    new = write(tmp_path / "new.csv", known_patients(30))
    before = call(capsys, "predict", run, new).out
    call(capsys, "adapt", run, write(tmp_path / "own.csv", known_patients(1000, shift=2.0)))
    assert call(capsys, "predict", run, new).out != before
    assert call(capsys, "predict", run, new, "--unadapted").out == before
    # Another site was not adapted to, and has no model of its own.
    assert call(capsys, "predict", run, new, "--site", "South").code == 2


def test_patients_of_other_sites_are_refused(run, tmp_path, capsys):
    everybody = known_patients(400).assign(ward=["North", "South ", " North", None] * 100)
    own = write(tmp_path / "own.csv", everybody)
    words = "100 of 400 rows are patients of South, and 200 of North"
    said = call(capsys, "adapt", run, own, "--site", "North")
    assert (said.code, words in said.err) == (2, True)
    assert not list(run.glob("*adaptation*"))
    # Rows of the site itself, and of nobody in particular, are its own; without --site everybody counts.
    alone = write(tmp_path / "alone.csv", everybody[everybody["ward"] != "South "])
    assert json.loads(call(capsys, "adapt", run, alone, "--site", "North", "--json").out)["patients"] == 300
    assert json.loads(call(capsys, "adapt", run, own, "--json").out)["patients"] == 400
    said = call(capsys, "monitor", run, own, "--by", "date", "--site", "North")
    assert (said.code, words in said.err) == (2, True)
    assert not list(run.glob("monitor*"))


def test_in_words(run, tmp_path, capsys):
    own = write(tmp_path / "own.csv", known_patients(400))
    said = call(capsys, "adapt", run, own, "--by", "cost=1:4")
    assert "the model's risks are left alone" in said.out
    assert "to those who would act from a risk of 0.2 on" in said.out
    assert "Of 100 patients like yours, " in said.out


def test_a_quantity(tmp_path, capsys):
    run = write_known_model(tmp_path / "run", classes=())
    frame = known_patients(200)
    noise = np.random.default_rng(7).normal(0, 0.1, 200)
    own = write(tmp_path / "own.csv", frame.assign(ill=known_value(frame) + 5 + noise))
    found = json.loads(call(capsys, "adapt", run, own, "--json").out)
    assert (found["risk_map"]["kind"], found["threshold"]) == ("in_the_large", None)
    assert found["risk_map"]["intercept"] == pytest.approx(5, abs=0.03)
    assert "nobody is flagged" in call(capsys, "adapt", run, own, "--by", "youden").err


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda f: f.assign(ill="no"), (), "have the same outcome, too few to adapt"),
        (lambda f: f.assign(ill=np.where(f.index < 5, "yes", "no")), (), "5 of 100 patients whose outcome is known"),
        (lambda f: f.assign(ill=None), (), "is missing in all 100 rows"),
        (lambda f: f.assign(ill="maybe"), (), "holds 'maybe'; the model knows no, yes"),
        (lambda f: f.drop(columns="age"), (), "column 'age' is missing"),
        (lambda f: f, ("--outcome", "died"), "column 'died' is missing"),
        (lambda f: f, ("--by", "auc=1"), "is no rule for an operating point"),
        (lambda f: f.iloc[:0], (), "the table has no rows"),
    ],
)
def test_mistakes_write_nothing(run, tmp_path, capsys, change, arguments, words):
    own = write(tmp_path / "own.csv", change(known_patients(100)))
    before = sorted(run.iterdir())
    said = call(capsys, "adapt", run, own, *arguments)
    assert said.code == 2
    assert words.lower() in said.err.lower()
    assert len(said.err.splitlines()) == 1
    assert sorted(run.iterdir()) == before


def test_an_adaptation_of_another_model_is_refused(run, tmp_path, capsys):
    own = write(tmp_path / "own.csv", known_patients(200))
    assert call(capsys, "adapt", run, own).code == 0
    write_known_model(run, shift=0.5)
    said = call(capsys, "predict", run, own)
    assert (said.code, said.out) == (2, "")
    assert "made for another model" in said.err
    assert call(capsys, "predict", run, own, "--unadapted").code == 0
    path = run / adaptation_file("model.safetensors")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "format": 2}))
    assert "has format 2" in call(capsys, "predict", run, own).err
    path.write_text(json.dumps({**content, "patients": "many"}))
    assert "damaged (patients" in call(capsys, "predict", run, own).err


def test_from_python(tmp_path):
    run = FinishedRun(write_known_model(tmp_path / "run"))
    found = run.adapt(known_patients(1000, shift=1.0), by="sensitivity=0.8")
    assert found.risk_map.kind == "in_the_large"
    new = known_patients(20, seed=1)
    by_hand = 1 / (1 + np.exp(-known_value(new)))
    np.testing.assert_allclose(run.model(adapted=False).predict(new)[:, 1], by_hand, atol=1e-6)
    np.testing.assert_allclose(run.predict(new)["probability of yes"], found.risk_map.apply(by_hand), atol=1e-6)


@pytest.mark.parametrize("kind", ["in_the_large", "slope", "isotonic"])
def test_an_adapted_prediction_is_explained(tmp_path, kind):
    # Contributions of an adapted model add up to the log-odds of the adapted risk; a slope multiplies each of them.
    own = known_patients(500, shift=0.5, stretch=0.6)
    plain = load_predictor(write_known_model(tmp_path / "run"))
    risk = plain.predict(own)[:, 1]
    risk_map = fit_map(kind, risk, (own["ill"] == "yes").to_numpy(float))
    adaptation = Adaptation(
        model=plain.facts.digest, site=None, outcome="ill", patients=500, with_outcome=1, risk_map=risk_map, losses={}
    )
    predictor = replace(plain, adaptation=adaptation)
    new = known_patients(40, seed=1)
    before, after = explain(plain, new), explain(predictor, new)
    np.testing.assert_allclose(after.scores[:, 0], logit(predictor.predict(new)[:, 1]), atol=1e-5)
    if kind != "isotonic":
        np.testing.assert_allclose(after.contributions, risk_map.slope * before.contributions, atol=1e-9)
        np.testing.assert_allclose(after.baseline, risk_map.slope * before.baseline + risk_map.intercept, atol=1e-9)


def test_a_model_file_by_itself_as_a_site_keeps_it(run, tmp_path, capsys):
    path = run / "model.safetensors"
    own = write(tmp_path / "own.csv", known_patients(1000, shift=1.5))
    assert call(capsys, "adapt", path, own).code == 0
    adapted, plain = load_predictor(path), load_predictor(path, adapted=False)
    assert (adapted.predict(known_patients(20))[:, 1] > plain.predict(known_patients(20))[:, 1]).all()
