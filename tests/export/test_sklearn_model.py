"""The estimator gives the predictor's numbers and works inside scikit-learn's own tools."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from wardround.cli.app import main
from wardround.core.errors import Refusal
from wardround.export.sklearn_model import open_predictor, sklearn_model, write_single
from wardround.export.trial_rows import trial_table
from wardround.predict.adaptation import write_adaptation
from wardround.runs.model_file import read_facts


@pytest.fixture
def written(make_saved, tmp_path):
    def write(*words, **settings):
        predictor = make_saved(*words, **settings)
        path = tmp_path / "model.safetensors"
        write_single(path, predictor)
        return predictor, path, trial_table(predictor.preparation, 400, seed=5)

    return write


def test_it_is_the_predictor(written):
    predictor, path, table = written()
    model = sklearn_model(path)
    check_is_fitted(model)
    assert is_classifier(model)
    assert model.classes_.tolist() == ["no", "yes"]
    assert (model.n_features_in_, model.feature_names_in_.tolist()[:2]) == (8, ["age", "lactate"])
    assert np.array_equal(model.predict_proba(table), predictor.predict(table).astype(np.float64))
    flagged = predictor.predict(table)[:, 1] >= 0.35  # the operating point
    assert 0 < flagged.sum() < len(flagged)
    assert (model.predict(table) == np.where(flagged, "yes", "no")).all()
    # Without names the columns come in their order; a frame may have them in any.
    assert np.array_equal(model.predict_proba(table.to_numpy(object)), model.predict_proba(table))
    assert np.array_equal(model.predict_proba(table[table.columns[::-1]]), model.predict_proba(table))
    assert model.get_params() == {"model": path, "site": None, "method": None}


def test_classes_are_sorted_with_their_probabilities(written):
    predictor, path, table = written("mlp", "three", hidden=(4,))
    model = sklearn_model(path)
    assert predictor.facts.task.classes == ("home", "ward", "dead")
    assert model.classes_.tolist() == ["dead", "home", "ward"]
    assert np.array_equal(model.predict_proba(table), predictor.predict(table).astype(np.float64)[:, [2, 0, 1]])
    assert (model.predict(table) == model.classes_[model.predict_proba(table).argmax(1)]).all()


def test_in_scikit_learns_tools(written):
    _, path, table = written()
    model = sklearn_model(path)
    risk = model.predict_proba(table)[:, 1]
    y = np.where(np.random.default_rng(0).random(len(table)) < risk**2, "yes", "no")  # overestimated
    for copy in (clone(model), make_pipeline(FunctionTransformer(), model)):
        assert np.array_equal(copy.predict_proba(table)[:, 1], risk)
    scores = cross_val_score(model, table, y, scoring="roc_auc", cv=4)
    folds = np.array([roc_auc_score(y == "yes", risk)])
    assert abs(scores.mean() - folds[0]) < 0.05
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(table, y)
    after = calibrated.predict_proba(table)[:, 1]
    assert abs(after.mean() - (y == "yes").mean()) < 0.02 < risk.mean() - (y == "yes").mean()
    assert 0 < model.score(table, y) < 1


def test_a_site_and_a_regression(written):
    predictor, path, table = written("linear", "value", "fine_tune")
    facts = predictor.facts.model_copy(update={"sites": ("Bo", "Kenema")})
    object.__setattr__(predictor, "facts", facts)
    path.unlink()
    write_single(path, predictor)
    model = sklearn_model(path)
    assert is_regressor(model)
    assert model.predictor.site == "Kenema"
    assert np.array_equal(model.fit(table).predict(table), predictor.predict(table).astype(np.float64))
    with pytest.raises(Refusal, match="no personal model of Bo"):
        sklearn_model(path, site="Bo")


def test_an_adapted_model_and_its_exports(written, make_adapted, tmp_path, capsys):
    predictor, path, table = written()
    before = sklearn_model(path).predict_proba(table)
    found = make_adapted(predictor).adaptation.model_copy(update={"model": read_facts(path).digest, "site": None})
    write_adaptation(path, found)
    model = sklearn_model(path)  # read anew, since the adaptation is
    expected = found.apply(predictor.predict(table), 1)
    np.testing.assert_allclose(model.predict_proba(table), expected, atol=1e-12)
    assert np.abs(model.predict_proba(table) - before).max() > 0.05
    assert (model.predict(table) == np.where(expected[:, 1] >= 0.3, "yes", "no")).all()
    # A model file holds no adaptation: it is written without only where that is asked for.
    for words, code in ((), 2), (("--unadapted",), 0):
        with pytest.raises(SystemExit) as ended:
            main(["export", str(path), "--to", "sklearn", "--out", str(tmp_path / "copy.safetensors"), *words])
        assert ended.value.code == code
    assert "adapted to a site's own patients" in capsys.readouterr().err
    assert np.array_equal(sklearn_model(tmp_path / "copy.safetensors").predict_proba(table), before)


def test_it_travels_as_a_path(written):
    """To another process it takes its path, not the model: this is what joblib does for several workers."""
    _, path, table = written()
    model = sklearn_model(path)
    before = model.predict_proba(table)
    held = pickle.dumps(model)
    assert len(held) < 1000
    open_predictor.cache_clear()
    assert np.array_equal(pickle.loads(held).predict_proba(table), before)


def test_other_columns_labels_and_shapes_are_refused(written):
    _, path, table = written()
    model = sklearn_model(path)
    with pytest.raises(Refusal, match="Column 'age' is missing"):
        model.fit(table.drop(columns="age"))
    with pytest.raises(Refusal, match=r"1 is no outcome of this model.*'no', 'yes'"):
        model.fit(table, np.ones(len(table), int))
    with pytest.raises(Refusal, match="takes 8 columns"):
        model.predict(np.zeros((2, 3)))
