"""A study of survival from its words to predictions: figures, page, table, ONNX file, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.export.calculator.content import calculator_content
from wardround.export.onnx_model import onnx_bytes, onnx_inputs, run_onnx
from wardround.export.sklearn_model import sklearn_model
from wardround.export.trial_rows import trial_table
from wardround.predict.explanation import explain
from wardround.predict.outcomes import outcomes_of
from wardround.predict.predictor import load_predictor
from wardround.predict.table import predict_frame
from wardround.report.run.page import write_report
from wardround.runs.folder import RunFolder
from wardround.runs.run import read_run
from wardround.study.file import parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import run

FOLLOW_UP = {"time": "months", "event": "relapse", "horizons": [6.0, 24.0]}


def patients(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(60, 10, rows).round(1), rng.choice(["female", "male"], rows)
    came = rng.exponential(20 * np.exp(-(age - 60) / 10))
    lost = rng.uniform(1, 60, rows)
    return pd.DataFrame(
        {
            "hospital": np.where(np.arange(rows) % 2, "Bo", "Kenema"),
            "age": age,
            "sex": sex,
            "months": np.minimum(came, lost),
            "relapse": np.where(came <= lost, "yes", "no"),
        }
    )


def study_of(path, **tables):
    words = {
        "study": {"name": "relapse", "rounds": 5, "seed": 3},
        "data": {"source": "csv", "path": str(path), "site": "hospital", "groups": ["sex"], **FOLLOW_UP},
        "algorithm": {"name": "fed_avg", "learning_rate": 0.2},
        "evaluation": {"resamples": 50, "keep_predictions": True},
    }
    words["data"] |= tables.pop("data", {}) | {"units": {"months": "months"}}
    return parse_study({**words, **tables}, where="test")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    patients().to_csv(folder / "patients.csv", index=False)
    study = study_of(folder / "patients.csv")
    out = RunFolder.create(folder / "run", resume=False)
    run(study, out, [own_method(study)], kind="run")
    return out.path


def test_figures_by_hospital_and_by_group(finished):
    result = read_run(finished)
    assert (result.metric, result.task.kind, result.task.target) == ("c_index", "survival", "relapse")
    scores = result.methods[0].scores
    assert set(scores.sites["Bo"]) == {"c_index", "integrated_brier", "horizon_gap", "log_loss"}
    assert scores.weighted["c_index"].value > 0.6  # age is told, and shortens the time by a factor e in ten years
    groups = result.methods[0].fairness.columns["sex"].groups
    assert set(groups) == {"female", "male"}
    assert groups["female"].metrics["c_index"].value is not None
    assert [one.horizon for one in result.methods[0].clinical.horizons] == [6.0, 24.0]


def test_kept_predictions_have_a_risk_for_each_horizon(finished):
    kept = pd.read_csv(next(finished.glob("predictions.csv")))
    assert {"risk by 6", "risk by 24", "time", "event"} <= set(kept.columns)
    assert (kept["risk by 6"] < kept["risk by 24"]).all()
    rows = patients().groupby("hospital")
    for site, own in kept.groupby("site"):
        table = rows.get_group(site).reset_index(drop=True).iloc[own["row"].to_numpy() - 1]
        np.testing.assert_allclose(own["time"], table["months"])
        expected = (table["relapse"] == "yes") & (table["months"] <= 24)
        assert (own["event"].to_numpy() == expected.to_numpy()).all()


def test_the_page_says_it_in_words(finished):
    page = write_report(finished).read_text(encoding="utf-8")
    assert "that is whether and when it comes (by 6 and 24 months)" in page
    assert "By 24 months the model predicts a risk of" in page
    assert "Kaplan-Meier" in page
    assert "C-index" in page
    assert "How well the model orders patients by risk (C-index, 0.5 is guessing)" in page


def test_new_patients_get_a_risk_for_each_horizon(finished):
    predictor = load_predictor(finished)
    table = predict_frame(predictor, patients(30, seed=9))
    risks = table[["risk of relapse by 6", "risk of relapse by 24"]].to_numpy()
    chances = predictor.predict(patients(30, seed=9))
    np.testing.assert_allclose(risks, np.stack([chances[:, 0], chances[:, 0] + chances[:, 1]], axis=1), rtol=1e-6)
    assert not {"relapse", "months"} & set(table.columns)


def test_an_onnx_file_gives_the_same_risks(finished):
    pytest.importorskip("onnxruntime")
    predictor = load_predictor(finished)
    rows = trial_table(predictor.preparation, 50, seed=4)
    (risks,) = run_onnx(onnx_bytes(predictor), onnx_inputs(predictor.preparation, rows))
    np.testing.assert_allclose(risks, np.cumsum(predictor.predict(rows)[:, :-1], axis=1), atol=1e-5)


def test_what_is_for_classes_is_refused(finished):
    predictor = load_predictor(finished)
    for use in (
        lambda: explain(predictor, patients(5)),
        lambda: calculator_content(predictor),
        lambda: sklearn_model(finished),
        lambda: outcomes_of(patients(5), predictor),
    ):
        with pytest.raises(Refusal, match="survival"):
            use()


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"aggregator": {"name": "class_weighted"}}, "aggregator 'class_weighted' looks at outcomes"),
        ({"algorithm": {"name": "partial_pooling"}}, "algorithm 'partial_pooling' looks at outcomes"),
        ({"study": {"name": "relapse", "metric": "roc_auc"}}, "no metric 'roc_auc' for survival"),
        ({"data": {"drop": ["months"]}}, "months"),
    ],
)
def test_studies_that_cannot_be(tmp_path, tables, words):
    patients(80).to_csv(tmp_path / "patients.csv", index=False)
    study = study_of(tmp_path / "patients.csv", **tables)
    with pytest.raises(Refusal, match=words):
        run(study, RunFolder.create(tmp_path / "run", resume=False), [own_method(study)], kind="run")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"horizons": [24, 6]}, "rising order"),
        ({"horizons": [0, 6]}, "above 0"),
        ({"horizons": None}, "horizons is not said"),
        ({"target": "relapse"}, "remove target"),
        ({"time": "relapse"}, "two columns"),
    ],
)
def test_words_that_do_not_go_together(tmp_path, data, words):
    with pytest.raises(Refusal, match=words):
        study_of(tmp_path / "patients.csv", data=data)
