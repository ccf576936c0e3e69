"""Real patients: what a run kept is what its saved models say of the raw tables, and explanations of it add up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.folder import data_folder
from wardround.engine import registry
from wardround.predict.explanation import explain
from wardround.predict.patients import PatientRows
from wardround.predict.predictor import read_predictor
from wardround.predict.table import MISSING, predict_table
from wardround.runs.folder import RunFolder
from wardround.runs.models import find_model, model_files
from wardround.study.file import parse_study
from wardround.study.methods import compared_methods
from wardround.workflows.run import run

try:
    data_folder()
    LACKING = ""
except Refusal as refusal:
    LACKING = str(refusal)

pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "real data are there")


def trained(folder: Path, source: str, **tables) -> Path:
    words = {
        "study": {"name": source, "seed": 1, "rounds": 2},
        "data": {"source": source},
        "algorithm": {"name": "fed_avg"},
        "compare": {"methods": ["fed_avg", "fine_tune"], "repeats": 1},
        "evaluation": {"resamples": 0, "keep_predictions": True},
        **tables,
    }
    study = parse_study(words, where="test")
    run(study, RunFolder.create(folder, resume=False), compared_methods(study), kind="compare")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"name": "logistic"}, {"name": "mlp", "hidden": [16]}], ids=["logistic", "mlp"])
def test_the_four_heart_disease_hospitals(tmp_path, model):
    folder = trained(tmp_path / "run", "heart_disease", model=model)
    kept = pd.read_csv(folder / "predictions.csv")
    raw = registry.find("dataset", "heart_disease").build()
    for method in ("fed_avg", "fine_tune"):
        for site, frame in raw.sites.items():
            mine = kept[(kept["method"] == method) & (kept["site"] == site)]
            own = frame.iloc[mine["row"] - 1]
            predictor = read_predictor(find_model(folder, method, site if method == "fine_tune" else None), site)
            table = predict_table(predictor, PatientRows.of_frame(own, site))
            name = f"probability of {predictor.facts.task.positive}"
            assert np.array_equal(table[name], mine[name].to_numpy(np.float32)), (method, site)
            assert (table[MISSING] != "").sum() == own[[*predictor_columns(predictor)]].isna().any(axis=1).sum()
            found = explain(predictor, own)
            assert found.linear == (model["name"] == "logistic")
            chance = table[name].to_numpy(np.float64)
            np.testing.assert_allclose(found.scores[:, 0], np.log(chance / (1 - chance)), atol=1e-5)


def predictor_columns(predictor):
    return [column.name for column in predictor.preparation.columns]


@pytest.mark.slow
def test_images_are_kept_and_need_no_table(tmp_path):
    folder = trained(
        tmp_path / "run",
        "pneumonia_mnist",
        model={"name": "logistic"},
        data={"source": "pneumonia_mnist", "partition": {"name": "iid", "sites": 3}},
    )
    kept = pd.read_csv(folder / "predictions.csv")
    assert set(kept["site"]) == {"site-1", "site-2", "site-3"}
    facts = model_files(folder)["fed_avg"].facts
    assert facts.preparation is None
    assert facts.shape == (28, 28, 1)
    predictor = read_predictor(find_model(folder, "fed_avg"))
    with pytest.raises(Refusal, match="takes arrays, such as images"):
        predict_table(predictor, PatientRows.of_frame(pd.DataFrame({"a": [1]}), "test"))
