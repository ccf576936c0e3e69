"""An ONNX file gives the model's numbers from raw columns, in the runtime that hospitals would use."""

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.export.onnx_model import IR_VERSION, OPSET, onnx_bytes, onnx_inputs, run_onnx
from wardround.export.trial_rows import UNSEEN, largest_difference, refuse_difference, trial_table
from wardround.predict.table import outcome_columns


def differences(predictor, rows):
    table = trial_table(predictor.preparation, rows, seed=7)
    found = run_onnx(onnx_bytes(predictor), onnx_inputs(predictor.preparation, table))
    return largest_difference(found[0], predictor.predict(table)), found, table


def test_a_hundred_thousand_rows_of_mixed_columns(make_saved):
    predictor = make_saved("logistic")
    apart, (_, label), table = differences(predictor, 100_000)
    assert apart <= 1e-5
    assert table.isna().to_numpy().mean() > 0.05
    assert (table["ward"] == UNSEEN).sum() > 1000
    assert (table["lactate"] > 21).sum() > 1000  # beyond the training range
    told = outcome_columns(predictor, predictor.predict(table))["outcome"]
    assert (told == label).mean() > 0.9999  # at the threshold itself a last bit may decide
    assert 0.1 < (label == "yes").mean() < 0.9


@pytest.mark.parametrize(
    ("model", "outcome"),
    [("linear", "value"), ("mlp", "value"), ("mlp", "two"), ("mlp", "three"), ("logistic", "three")],
)
def test_every_model_and_outcome(make_saved, model, outcome):
    settings = {"hidden": (16, 8), "dropout": 0.2} if model == "mlp" else {}
    apart, found, _ = differences(make_saved(model, outcome, **settings), 5000)
    assert apart <= 1e-5
    assert len(found) == (1 if outcome == "value" else 2)
    assert np.ptp(found[0]) > 0.3


@pytest.mark.parametrize("algorithm", ["model_interpolation", "context_features", "fine_tune"])
def test_personal_models(make_saved, algorithm):
    predictor = make_saved("mlp", "three", algorithm, hidden=(8,))
    assert differences(predictor, 5000)[0] <= 1e-5


@pytest.mark.parametrize(("model", "outcome"), [("logistic", "two"), ("linear", "value")])
def test_a_model_adapted_to_a_site(make_saved, make_adapted, model, outcome):
    plain = make_saved(model, outcome)
    predictor = make_adapted(plain)
    apart, found, table = differences(predictor, 5000)
    assert apart <= 1e-5
    assert largest_difference(found[0], plain.predict(table)) > 0.05
    if outcome == "two":
        told = outcome_columns(predictor, predictor.predict(table))["outcome"]
        assert (told == found[1]).mean() > 0.999
        assert (found[1] == np.where(found[0][:, 1] >= 0.3, "yes", "no")).mean() > 0.999


@pytest.mark.parametrize("shape", [(9, 8), pytest.param((10, 7, 3), marks=pytest.mark.slow)])
def test_images(make_saved, shape):
    predictor = make_saved("cnn", "three", shape=shape, channels=(4, 6), kernel=4, dense=12)
    x = np.random.default_rng(3).random((200, *shape), np.float32)
    found, label = run_onnx(onnx_bytes(predictor), {"images": x})
    expected = predictor.predict_prepared(x)
    assert largest_difference(found, expected) <= 1e-5
    assert (label == np.array(predictor.facts.task.classes)[expected.argmax(1)]).all()
    flat = make_saved("mlp", "two", shape=shape)
    assert largest_difference(run_onnx(onnx_bytes(flat), {"images": x})[0], flat.predict_prepared(x)) <= 1e-5


def test_one_patient_by_hand(make_saved):
    # Prepared: (70 - 50) / 10 = 2; lactate missing: fill 1, (1 - 3) / 2 = -1, and the indicator 1; sex unknown: 0, 0.
    columns = Preparation(
        (
            NumberColumn("age", 0.0, 50.0, 10.0),
            NumberColumn("lactate", 1.0, 3.0, 2.0, True),
            TextColumn("sex", ("F", "M")),
        )
    )
    predictor = make_saved(columns=columns)
    kernel = np.array([[0, 0.5], [0, 0.25], [0, 1.0], [0, 9], [0, 9]], np.float32)
    predictor.params.update({"dense_0/kernel": kernel, "dense_0/bias": np.array([0, -1], np.float32)})
    # 2 * 0.5 - 1 * 0.25 + 1 * 1.0 - 1 = 0.75
    found, label = run_onnx(
        onnx_bytes(predictor),
        {
            "age": np.array([[70]], np.float32),
            "lactate": np.array([[np.nan]], np.float32),
            "sex": np.array([["?"]], dtype=object),
        },
    )
    np.testing.assert_allclose(found[0, 1], 1 / (1 + np.exp(-0.75)), atol=1e-6)
    assert label.tolist() == ["yes"]


def test_what_the_file_says(make_saved):
    predictor = make_saved()
    model = onnx.load_from_string(onnx_bytes(predictor))
    told = {one.key: one.value for one in model.metadata_props}
    assert (told["study"], told["target"], told["digest"]) == ("trial", "outcome", "0" * 64)
    assert (json.loads(told["classes"]), told["positive"], json.loads(told["threshold"])) == (
        ["no", "yes"],
        "yes",
        0.35,
    )
    columns = {one["name"]: one for one in json.loads(told["columns"])}
    assert columns["age"]["range"] == [18.0, 97.0]
    assert columns["triage"]["categories"] == ["1", "2", "3", "4", "5"]
    assert ({one.domain: one.version for one in model.opset_import}[""], model.ir_version) == (OPSET, IR_VERSION)
    session = onnxruntime.InferenceSession(onnx_bytes(predictor))
    kinds = {one.name: one.type for one in session.get_inputs()}
    assert [kinds[name] for name in ("age", "sex", "admitted at")] == [
        "tensor(float)",
        "tensor(string)",
        "tensor(double)",
    ]


def test_a_column_may_be_called_like_an_output(make_saved):
    columns = Preparation((NumberColumn("probabilities"), NumberColumn("label"), NumberColumn("constant_0")))
    predictor = make_saved(columns=columns)
    session = onnxruntime.InferenceSession(onnx_bytes(predictor))
    assert [one.name for one in session.get_outputs()] == ["probabilities_", "label_"]


def test_what_cannot_be_exported_is_refused_by_name(make_saved):
    made_in_python = make_saved()
    object.__setattr__(made_in_python, "facts", made_in_python.facts.model_copy(update={"recipe": None}))
    with pytest.raises(Refusal, match="made in Python"):
        onnx_bytes(made_in_python)
    foreign = make_saved()
    recipe = json.loads(json.dumps(foreign.facts.recipe).replace('"logistic"', '"transformer"'))
    object.__setattr__(foreign, "facts", foreign.facts.model_copy(update={"recipe": recipe}))
    with pytest.raises(Refusal, match="'transformer' cannot be exported"):
        onnx_bytes(foreign)
    with pytest.raises(Refusal, match="empty text among its categories"):
        onnx_bytes(make_saved(columns=Preparation((TextColumn("sex", ("", "F")),))))


def test_an_export_with_other_numbers_is_not_handed_out():
    right = np.array([[0.25, 0.75]])
    refuse_difference(right + 9e-6, right, "file")
    for wrong in (right + 2e-5, right * np.nan):
        with pytest.raises(Refusal, match="gives other predictions than the model"):
            refuse_difference(wrong, right, "file")


def test_without_the_extra(make_saved, monkeypatch):
    monkeypatch.setattr("wardround.export.onnx_model.find_spec", lambda name: None if name == "onnxruntime" else 1)
    with pytest.raises(Refusal, match=r"needs the package onnxruntime.*wardround\[export\]"):
        onnx_bytes(make_saved())


def test_missing_values_of_a_table_in_any_type(make_saved):
    frame = pd.DataFrame({"age": pd.array([70, None], "Int64"), "triage": [3.0, np.nan]})
    columns = Preparation((NumberColumn("age", 1.0), TextColumn("triage", ("3", "4"), None, True)))
    predictor = make_saved(columns=columns)
    found = run_onnx(onnx_bytes(predictor), onnx_inputs(columns, frame))[0]
    assert largest_difference(found, predictor.predict(frame)) <= 1e-6
