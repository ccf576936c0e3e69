"""Contributions add up, are weights times differences where a model is linear, and are what calculus says elsewhere."""

import itertools
import json
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.context_features import context_features
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.model_interpolation import model_interpolation
from wardround.core.contracts import Model, Task
from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.predict.explanation import (
    affine_shares,
    explain,
    found_shares,
    probabilities_of,
    typical_row,
    waterfall,
)
from wardround.predict.predictor import Predictor
from wardround.runs.model_file import ModelFacts
from wardround.runs.sites import PredictionTask

PREPARATION = Preparation(
    (
        NumberColumn("age", fill=60.0, center=58.0, scale=10.0, indicator=True),
        TextColumn("sex", ("female", "male"), fill="male"),
        NumberColumn("lactate", fill=1.5, center=2.0, scale=0.5),
        NumberColumn("unknown", scale=0.0),
        TextColumn("none", ()),
    )
)
FEATURES = len(PREPARATION.features)
PATIENTS = pd.DataFrame(
    {
        "age": [80.0, None, 60.0, 35.0],
        "sex": ["female", "male", "male", "other"],
        "lactate": [2.5, 4.0, 1.5, 0.5],
        "unknown": [None] * 4,
        "none": [None] * 4,
    }
)


def predictor_of(make, classes=("well", "ill"), params=None, algorithm=fed_avg, **settings):
    task = Task((FEATURES,), classes, "outcome")
    model: Model = make(task, **settings)
    start = jax.device_get(model.init(jax.random.key(3)))
    kind = "classification" if classes else "regression"
    positive = {"positive": "ill"} if len(classes) == 2 else {}
    words = PredictionTask(kind=kind, target="outcome", classes=classes, features=PREPARATION.features, **positive)
    facts = ModelFacts(
        wardround="0", study="s", method="m", label="M", rounds=1, task=words, shape=(FEATURES,), recipe=None,
        preparation=json.loads(PREPARATION.to_json()),
    )  # fmt: skip
    return Predictor(facts, start if params is None else params(start), algorithm(model, weighted_mean()))


def weights(start, seed=0, size=1.0):
    """Anything but zeros."""
    generator = np.random.default_rng(seed)
    return {name: (size * generator.normal(size=array.shape)).astype(np.float32) for name, array in start.items()}


def scores_of(predictor):
    """What the user was told, as log-odds, centred logits or values."""
    predicted = predictor.predict(PATIENTS).astype(np.float64)
    if predicted.ndim == 1:
        return predicted[:, None]
    logs = np.log(predicted)
    if predictor.positive is not None:
        return (logs[:, predictor.positive] - logs[:, 1 - predictor.positive])[:, None]
    return logs - logs.mean(axis=1, keepdims=True)


def test_a_logistic_model_by_hand():
    """Prepared: age (value - 58) / 10, missing age 0.2 with a flag, sex one-hot, lactate (value - 2) / 0.5."""
    kernel = weights({"kernel": np.zeros((FEATURES, 2))})["kernel"]
    predictor = predictor_of(logistic, params=lambda start: {"dense_0/kernel": kernel, "dense_0/bias": np.zeros(2)})
    found = explain(predictor, PATIENTS)
    w = (kernel[:, 1] - kernel[:, 0]).astype(np.float64)
    age, flag, female, male, lactate = w[:5]
    assert found.linear
    assert found.typical == (60.0, "male", 1.5, None, None)
    np.testing.assert_allclose(found.baseline, 0.2 * age + male - lactate, atol=1e-12)
    by_hand = [
        [2.0 * age, female - male, 2 * lactate, 0, 0],
        [flag, 0, 5 * lactate, 0, 0],  # missing: only the flag differs
        [0, 0, 0, 0, 0],
        [-2.5 * age, -male, -2 * lactate, 0, 0],  # a sex never seen is neither
    ]
    np.testing.assert_allclose(found.contributions[:, :, 0], by_hand, atol=1e-6)
    assert found.values[1] == (None, "male", 4.0, None, None)


@pytest.mark.parametrize(
    ("make", "classes"),
    [(logistic, ("well", "ill")), (logistic, ("mild", "none", "severe")), (linear, ()), (mlp, ("well", "ill")),
     (mlp, ("mild", "none", "severe")), (mlp, ())],
    ids=lambda one: one.__name__ if callable(one) else str(len(one)),
)  # fmt: skip
def test_contributions_add_up_to_what_was_predicted(make, classes):
    predictor = predictor_of(make, classes, params=lambda start: weights(start, size=0.5))
    found = explain(predictor, PATIENTS)
    assert found.linear == (make is not mlp)
    np.testing.assert_allclose(found.scores, scores_of(predictor), atol=1e-5)
    if classes:
        told = predictor.predict(PATIENTS)
        shown = probabilities_of(found.scores)
        wanted = told[:, [predictor.positive]] if len(classes) == 2 else told
        np.testing.assert_allclose(shown, wanted, atol=1e-6)


def test_integrated_gradients_of_a_known_function():
    """x**3 y from 0 to (a, b): the path gives 3 a**3 b / 4 to x and a**3 b / 4 to y, by hand."""
    from wardround.predict.explanation import ScoreModel, integrate

    def program(params, x):
        slopes = np.stack([3 * x[:, 0] ** 2 * x[:, 1], x[:, 0] ** 3], axis=1)
        return (x[:, 0] ** 3 * x[:, 1])[:, None], slopes[:, None, :]

    x = np.array([[2.0, 3.0], [-1.0, 4.0], [0.0, 5.0]])
    whole = x[:, 0] ** 3 * x[:, 1]
    found = integrate(ScoreModel({}, program), x, np.zeros(2))[:, :, 0]
    np.testing.assert_allclose(found, np.stack([whole * 0.75, whole * 0.25], axis=1), atol=1e-5)


def test_kinks_are_found():
    """max(0, x - 0.3) y-free: all of it is x's, though the gradient jumps inside a piece of the path."""
    from wardround.predict.explanation import ScoreModel, integrate

    def program(params, x):
        on = (x[:, 0] > 0.3).astype(float)
        return (on * (x[:, 0] - 0.3))[:, None], np.stack([on, 0 * on], axis=1)[:, None, :]

    found = integrate(ScoreModel({}, program), np.array([[1.0, 1.0]]), np.zeros(2))[0, :, 0]
    np.testing.assert_allclose(found, [0.7, 0.0], atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_mixed_models_are_explained_together(share):
    def mixture(start):
        return {"common": weights(start, 1), "own": weights(start, 2), "share": np.float32(share)}

    predictor = predictor_of(logistic, params=mixture, algorithm=model_interpolation)
    found = explain(predictor, PATIENTS)
    np.testing.assert_allclose(found.scores, scores_of(predictor), atol=1e-5)
    # At the ends it is one of the two models, and linear in effect.
    one = {0.0: 1, 1.0: 2}.get(share)
    if one is not None:
        alone = explain(predictor_of(logistic, params=lambda start: weights(start, one)), PATIENTS)
        np.testing.assert_allclose(found.contributions, alone.contributions, atol=1e-6)
    else:
        assert not found.linear


def test_a_site_that_shifts_its_inputs_is_linear():
    shift = np.linspace(-1, 1, FEATURES).astype(np.float32)

    def shifted(start):
        return {**weights(start, 1), "context/shift": shift}

    predictor = predictor_of(logistic, params=shifted, algorithm=context_features)
    plain = explain(predictor_of(logistic, params=lambda start: weights(start, 1)), PATIENTS)
    found = explain(predictor, PATIENTS)
    assert found.linear
    np.testing.assert_allclose(found.contributions, plain.contributions, atol=1e-9)
    # The shift moves every patient alike, so that only the typical one's score differs.
    assert abs(found.baseline[0] - plain.baseline[0]) > 0.01
    np.testing.assert_allclose(found.scores, scores_of(predictor), atol=1e-5)


def test_a_waterfall_begins_with_the_typical_patient_and_ends_with_this_one():
    predictor = predictor_of(logistic, ("mild", "none", "severe"), params=weights)
    found = explain(predictor, PATIENTS)
    told = predictor.predict(PATIENTS)
    typical = predictor.predict(
        pd.DataFrame({"age": [60.0], "sex": ["male"], "lactate": [1.5], "unknown": [None], "none": [None]})
    )
    for row in range(len(PATIENTS)):
        output = int(told[row].argmax())
        steps = waterfall(found, row, output)
        assert abs(steps[0][1] - typical[0, output]) < 1e-6
        assert abs(steps[-1][2] - told[row, output]) < 1e-6
        assert all(now[1] == before[2] for before, now in itertools.pairwise(steps))
        sizes = [abs(found.contributions[row, place, output]) for place, _, _ in steps]
        assert sizes == sorted(sizes, reverse=True)


def test_a_model_without_derivatives_is_refused():
    predictor = predictor_of(logistic, params=weights)

    def opaque(params, x):
        shape = jax.ShapeDtypeStruct((x.shape[0], 2), x.dtype)
        return jax.pure_callback(lambda x: np.full((len(x), 2), 0.5, x.dtype), shape, x, vmap_method="sequential")

    other = Predictor(predictor.facts, predictor.params, predictor.algorithm._replace(predict=opaque))
    with pytest.raises(Refusal, match="no derivatives"):
        explain(other, PATIENTS)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [("well", "ill"), ()], ids=["classes", "regression"])
def test_captum_says_the_same_of_the_same_network(classes):
    torch = pytest.importorskip("torch")
    captum = pytest.importorskip("captum.attr")
    predictor = predictor_of(mlp, classes, params=lambda start: weights(start, size=0.5), hidden=(16, 8))
    layers = []
    for index in range(3):
        kernel, bias = (predictor.params[f"dense_{index}/{name}"] for name in ("kernel", "bias"))
        layer = torch.nn.Linear(*kernel.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(kernel.T))
            layer.bias.copy_(torch.tensor(bias))
        layers += [layer, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1]).double()

    def score(x):
        outputs = network(x)
        return outputs[:, 1] - outputs[:, 0] if classes else outputs[:, 0]

    from wardround.predict.explanation import add_by_column, typical_row

    prepared, typical = PREPARATION.apply(PATIENTS), typical_row(PREPARATION)
    theirs = captum.IntegratedGradients(score).attribute(
        torch.tensor(prepared, dtype=torch.float64), torch.tensor(typical[None]), n_steps=4000
    )
    found = explain(predictor, PATIENTS)
    expected = add_by_column(theirs.detach().numpy()[:, :, None], PREPARATION)
    np.testing.assert_allclose(found.contributions, expected, atol=1e-3)
    assert np.abs(expected).max() > 0.5


@pytest.mark.parametrize(("make", "classes"), [(logistic, ("well", "ill")), (logistic, ("a", "b", "c")), (linear, ())])
def test_known_models_are_explained_without_a_program_as_with_one(make, classes):
    plain = predictor_of(make, classes, params=weights)
    words = {"kind": "model", "name": make.__name__, "settings": {}, "parts": []}
    recipe = {"kind": "algorithm", "name": "fed_avg", "settings": {}, "parts": [words]}
    known = replace(plain, facts=plain.facts.model_copy(update={"recipe": recipe}))
    prepared = np.asarray(PREPARATION.apply(PATIENTS), np.float64)
    typical = typical_row(PREPARATION)
    found, quick = found_shares(plain, prepared, typical), affine_shares(known, prepared, typical)
    assert affine_shares(plain, prepared, typical) is None
    assert quick is not None
    for one, other in zip(found, quick, strict=True):
        assert np.allclose(one, other, atol=1e-12)
    # One that is not its own weights, such as two models and a share, is left to the program.
    mixed = replace(known, params={"common": known.params, "own": known.params, "share": np.float32(0.5)})
    assert affine_shares(mixed, prepared, typical) is None
