import json
import os

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

from tests.support.selection.exchange import ASKED, classifier, patients
from wardround.classifiers.exchange import AT_ONCE, load_classifier
from wardround.classifiers.kinds import KINDS, STRENGTHS, fit_kind, folds_of, ridge_path
from wardround.classifiers.local_fit import fit_classifier, local_preparation
from wardround.classifiers.onnx_check import MOST_BYTES, check_file, refuse_large
from wardround.classifiers.onnx_file import with_thresholds
from wardround.core.errors import Refusal


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_predicts_what_its_model_predicts(kind):
    own = patients()
    preparation = local_preparation("A", own.frame, ASKED)
    x = preparation.apply(own.frame)
    model = fit_kind(kind, x, own.outcome, np.arange(len(x)), 0)
    loaded = load_classifier(classifier(kind), ASKED, source="A")
    np.testing.assert_allclose(loaded.scores(own.frame), model.predict_proba(x)[:, 1], atol=1e-5)
    assert loaded.kind == kind


def test_the_ridge_path_agrees_with_scikit_learn():
    own = patients()
    x = local_preparation("A", own.frame, ASKED).apply(own.frame).astype(float)
    for strength, weights in zip(STRENGTHS, ridge_path(x, own.outcome), strict=True):
        model = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10).fit(x, own.outcome)
        np.testing.assert_allclose(weights, [*model.coef_[0], model.intercept_[0]], atol=1e-4)


def test_folds_never_divide_a_patient():
    who = np.repeat(np.arange(30), 4)
    outcome = np.repeat(np.arange(30) % 2, 4)
    for train, held in folds_of(outcome, who, 0):
        assert not set(who[train]) & set(who[held])
        assert set(outcome[held]) == {0, 1}


def test_a_forest_keeps_its_patients_in_groups():
    model = onnx.load_model_from_string(classifier("random_forest"))
    (trees,) = [node for node in model.graph.node if node.op_type == "TreeEnsembleClassifier"]
    # The weight of a leaf is its share of the outcome over 100 trees; leaves of one patient would all be 0 or 1.
    weights = {round(100 * one, 6) for a in trees.attribute if a.name == "class_weights" for one in a.floats}
    assert len(weights - {0.0, 1.0}) > 10


def test_thresholds_travel_in_the_file():
    content = with_thresholds(classifier(), {"sensitivity 0.9": 0.25})
    assert load_classifier(content, ASKED, source="A").thresholds == {"sensitivity 0.9": 0.25}


def test_a_matrix_of_numbers_with_names():
    from skl2onnx import to_onnx

    own = patients()
    x = own.frame[["lactate", "age"]].fillna(0).to_numpy(np.float32)
    model = LogisticRegression().fit(x, own.outcome)
    file = to_onnx(model, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    with pytest.raises(Refusal, match="do not say which columns"):
        load_classifier(file.SerializeToString(), ASKED, source="B")
    helper.set_model_props(file, {"columns": json.dumps(["lactate", "age"]), "classes": json.dumps(["no", "yes"])})
    loaded = load_classifier(file.SerializeToString(), ASKED, source="B")
    filled = own.frame.fillna({"lactate": 0, "age": 0})
    np.testing.assert_allclose(loaded.scores(filled), model.predict_proba(x)[:, 1], atol=1e-6)
    plain = to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    with pytest.raises(Refusal, match=r"zipmap=False|not allowed"):
        load_classifier(plain.SerializeToString(), ASKED, source="B")


def changed(change) -> bytes:
    model = onnx.load_model_from_string(classifier())
    change(model)
    content: bytes = model.SerializeToString()
    return content


def add_node(model, operator, domain="", **attributes):
    node = helper.make_node(operator, ["probabilities"], ["further"], domain=domain, **attributes)
    model.graph.node.append(node)


def rename(model, old, new):
    for one in model.graph.input:
        one.name = new if one.name == old else one.name
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


def tell(model, **words):
    kept = {one.key: one.value for one in model.metadata_props} | words
    helper.set_model_props(model, kept)


def loop(model):
    body = helper.make_graph([], "body", [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])])
    add_node(model, "Loop", body=body)


def branch(model):
    inside = helper.make_graph([], "inside", [], [])
    add_node(model, "Identity", hidden=inside)


def external(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"


def wide(model):
    for at in range(20):
        source = "probabilities" if not at else f"wide_{at - 1}"
        model.graph.node.append(helper.make_node("Concat", [source, source], [f"wide_{at}"], axis=1))


def huge(model):
    tensor = numpy_helper.from_array(np.zeros(1, np.float32), "huge")
    tensor.dims[:] = [2**20, 2**20]
    model.graph.initializer.append(tensor)


def scores_beyond_one(model):
    model.graph.node.append(helper.make_node("Identity", ["probabilities"], ["kept"]))
    five = numpy_helper.from_array(np.float32(5), "five")
    model.graph.initializer.append(five)
    model.graph.node.append(helper.make_node("Mul", ["kept", "five"], ["scores"]))
    model.graph.output[0].name = "scores"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: add_node(model, "TopK"), "uses the operator TopK, which is not allowed"),
        (lambda model: add_node(model, "Tile"), "uses the operator Tile"),
        (lambda model: add_node(model, "SVMClassifier", "ai.onnx.ml"), "holds rows of its patients"),
        (lambda model: model.opset_import.append(helper.make_opsetid("com.strange", 1)), "operators of 'com.strange'"),
        (lambda model: setattr(model.opset_import[0], "version", 99), "uses version 99"),
        (loop, "holds a loop or a branch"),
        (branch, "holds a loop or a branch"),
        (external, "keeps data in another file"),
        (wide, "makes a tensor of"),
        (huge, "declares a constant larger"),
        (lambda model: rename(model, "age", "shoe_size"), "needs the column 'shoe_size'"),
        (lambda model: tell(model, target="readmitted"), "predicts 'readmitted', and the study asks for 'died'"),
        (lambda model: tell(model, classes='["alive", "dead"]'), "knows the outcomes alive, dead"),
        (lambda model: tell(model, classes="[1"), "metadata 'classes' cannot be read"),
        (lambda model: tell(model, thresholds='{"sensitivity 0.9": 7}'), "thresholds are no shares"),
        (scores_beyond_one, "no probabilities between 0 and 1"),
        (lambda model: model.graph.output.pop(), "gives no probabilities|no valid ONNX"),
    ],
)
def test_a_strange_file_is_refused_in_words(change, said):
    with pytest.raises(Refusal, match=said) as refusal:
        load_classifier(changed(change), ASKED, source="B")
    assert "\n" not in str(refusal.value)
    assert "B" in refusal.value.where


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x80\x04\x95pickle", os.urandom(500)])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(Refusal, match="ONNX"):
        check_file(content, where="classifier of B")


def test_two_gigabytes_are_refused_before_they_are_read():
    with pytest.raises(Refusal, match="has 2,048 MB, and at most 64 MB are read"):
        refuse_large(2**31, "classifier of B")
    assert len(classifier("random_forest")) < MOST_BYTES


def test_a_column_of_another_kind_is_refused():
    other = ASKED._replace(columns={**ASKED.columns, "sex": "number"})
    with pytest.raises(Refusal, match="takes 'sex' as a category, and in the study it is a number"):
        load_classifier(classifier(), other, source="B")


def test_training_on_one_outcome_or_few_patients_is_refused():
    own = patients(100)
    preparation = local_preparation("A", own.frame, ASKED)
    for outcome, said in ((np.zeros(100, np.int64), "same outcome"), (np.arange(100) < 3, "at least 5 training")):
        with pytest.raises(Refusal, match=said):
            fit_classifier(
                "A", "ridge", own.frame, outcome.astype(np.int64), np.arange(100), ASKED, preparation, seed=0
            )
    with pytest.raises(Refusal, match="no classifier of the kind 'oracle'"):
        fit_kind("oracle", np.zeros((10, 1)), np.arange(10) % 2, np.arange(10), 0)


def test_a_model_that_cannot_be_written_is_refused():
    from sklearn.ensemble import HistGradientBoostingClassifier

    from wardround.classifiers.onnx_file import classifier_bytes

    own = patients()
    preparation = local_preparation("A", own.frame, ASKED)
    model = HistGradientBoostingClassifier(max_iter=3).fit(preparation.apply(own.frame), own.outcome)
    with pytest.raises(Refusal, match="HistGradientBoostingClassifier cannot be written as ONNX"):
        classifier_bytes(
            model, preparation, target="died", classes=("no", "yes"), positive="yes", kind="own", thresholds={}
        )


def test_the_names_of_columns_may_be_those_of_the_graph():
    frame = pd.DataFrame({"probabilities": np.arange(60.0), "x": np.arange(60.0)[::-1]})
    asked = ASKED._replace(columns={"probabilities": "number", "x": "number"})
    outcome = (np.arange(60) > 25).astype(np.int64)
    preparation = local_preparation("A", frame, asked)
    content = fit_classifier("A", "ridge", frame, outcome, np.arange(60), asked, preparation, seed=0)
    scores = load_classifier(content, asked, source="A").scores(frame)
    assert (scores[30:] > scores[:20].max()).all()


def add_to_risks(model, *nodes, constants=(), name="added"):
    """The risks with something added that the further nodes compute and call `name`."""
    for key, value in constants:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), key))
    model.graph.node.extend(helper.make_node(*one[:3], **one[3]) for one in nodes)
    model.graph.node.append(helper.make_node("Add", ["probabilities", name], ["risks"]))
    model.graph.output[0].name = "risks"


def rows_by_rows(model):
    """Every patient times every other: 20,000 patients would take 1.6 GB."""
    add_to_risks(
        model,
        ("Transpose", ["age"], ["turned"], {"perm": [1, 0]}),
        ("MatMul", ["age", "turned"], ["square"], {}),
        ("ReduceMax", ["square"], ["largest"], {"axes": [1], "keepdims": 1}),
        ("Clip", ["largest", "nil", "nil"], ["added"], {}),
        constants=[("nil", np.float32(0))],
    )


def rows_picked_by_rows(model):
    model.graph.node.append(helper.make_node("Cast", ["age"], ["place"], to=TensorProto.INT64))
    picked = helper.make_node("ArrayFeatureExtractor", ["probabilities", "place"], ["picked"], domain="ai.onnx.ml")
    model.graph.node.append(picked)
    model.graph.node.append(helper.make_node("Add", ["probabilities", "picked"], ["risks"]))
    model.graph.output[0].name = "risks"


def rows_beside_rows(model):
    add_to_risks(
        model,
        ("Reshape", ["age", "flat"], ["line"], {}),
        ("Sub", ["age", "line"], ["square"], {}),
        ("ReduceMax", ["square"], ["largest"], {"axes": [1], "keepdims": 1}),
        ("Clip", ["largest", "nil", "nil"], ["added"], {}),
        constants=[("nil", np.float32(0)), ("flat", np.array([1, -1]))],
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rows_by_rows, "width grows with the number of patients"),
        (rows_beside_rows, "width grows with the number of patients"),
        (rows_picked_by_rows, "picks columns by what it computed|shapes do not fit"),
    ],
)
def test_a_file_computes_every_patient_by_itself(change, said):
    with pytest.raises(Refusal, match=said):
        load_classifier(changed(change), ASKED, source="B")


def test_a_wide_file_is_computed_in_small_blocks():
    """2^16 numbers a row are allowed; of 20,000 patients at once they would take 5 GB."""

    def widen(model):
        doubled = [("Concat", [f"w{at}"] * 2, [f"w{at + 1}"], {"axis": 1}) for at in range(16)]
        add_to_risks(
            model,
            ("Identity", ["age"], ["w0"], {}),
            *doubled,
            ("ReduceMax", ["w16"], ["largest"], {"axes": [1], "keepdims": 1}),
            ("Clip", ["largest", "nil", "nil"], ["added"], {}),
            constants=[("nil", np.float32(0))],
        )

    loaded = load_classifier(changed(widen), ASKED, source="B")
    assert loaded.width == 2**16
    assert AT_ONCE // loaded.width * loaded.width * 4 <= 32_000_000
    own = patients().frame.dropna().head(300)
    plain = load_classifier(classifier(), ASKED, source="A")
    np.testing.assert_allclose(loaded.scores(own), plain.scores(own), atol=1e-6)


def test_what_no_risk_depends_on_is_not_computed():
    """A label beside the risks, as skl2onnx writes it, is cut away: only what is asked for runs."""

    def label(model):
        model.graph.node.append(helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1))
        model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["rows", 1]))

    loaded = load_classifier(changed(label), ASKED, source="B")
    assert [one.name for one in loaded.session.get_outputs()] == ["probabilities"]


def test_one_column_of_risks_is_refused_and_not_an_error():
    def first_only(model):
        model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first"))
        model.graph.node.append(helper.make_node("Gather", ["probabilities", "first"], ["one"], axis=1))
        model.graph.output[0].name = "one"
        model.graph.output[0].type.tensor_type.shape.dim[1].Clear()

    with pytest.raises(Refusal):
        load_classifier(changed(first_only), ASKED, source="B")
