"""A run folder is a usable model: what was scored is what is loaded, to the bit."""

import numpy as np
import pytest

from tests.support.images.algorithms import OF_TABLES
from tests.support.mixed_patients import HOSPITALS, patients, study_of
from wardround.core.errors import Refusal
from wardround.predict.predictor import read_predictor
from wardround.runs.folder import RunFolder
from wardround.runs.models import find_model, model_files
from wardround.study import assemble
from wardround.study.methods import compared_methods
from wardround.workflows import run as running
from wardround.workflows.training_plan import plan_methods

QUICK = ["local", "weight_erosion"]
METHODS = list(OF_TABLES)


def train_all(place, methods, **tables):
    """The folder, the data, and what was scored, by method."""
    patients(12).to_csv(place / "patients.csv", index=False)
    compare = {"methods": methods, "repeats": 1, "users": "each"}
    words = {"name": "mixed", "seed": 3, "rounds": 1, "user": "south"}
    study = study_of(place / "patients.csv", study=words, compare=compare, **tables)
    setting = assemble.load_setting(study, study.study.seed)
    folder = RunFolder.create(place / "run", resume=False)
    scored = {}
    for plans in plan_methods(study, setting, compared_methods(study), 0):
        each = [running.train(plan, None) for plan in plans]
        running.write_models(folder, plans, each, alone=False)
        scored[plans[0].method.name] = each[0] if len(each) == 1 else running.join_askings(each)
    return folder.path, setting.federation, scored


def check_bits(folder, federation, scored):
    first, count = federation.part("test")
    for method, trained in scored.items():
        scores = trained.scores
        personal = model_files(folder)[method].personal is not None
        for number, site in enumerate(federation.sites):
            predictor = read_predictor(find_model(folder, method, site if personal else None), site)
            found = predictor.predict_prepared(federation.x[first[number] : first[number] + count[number]])
            assert np.array_equal(found, scores.predicted[scores.first[number] : scores.first[number + 1]]), method


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_all(tmp_path_factory.mktemp("quick"), QUICK)


def test_models_predict_the_bits_that_their_run_scored(trained):
    check_bits(*trained)


@pytest.mark.slow
def test_every_algorithm_predicts_the_bits_that_its_run_scored(tmp_path):
    logistic = [name for name in METHODS if name != "federated_dropout"]  # which leaves hidden units out
    check_bits(*train_all(tmp_path, logistic))


@pytest.mark.slow
def test_a_model_trained_with_dropout_predicts_the_bits_that_its_run_scored(tmp_path):
    check_bits(*train_all(tmp_path, ["federated_dropout"], model={"name": "mlp"}))


def test_a_private_model_loads(tmp_path):
    ranges = {"age": [0.0, 100.0], "lactate": [0.0, 10.0], "smoker": [0.0, 1.0]}
    categories = {"sex": ["female", "male"], "ward": ["01", "02", "x3"]}
    folder, federation, scored = train_all(
        tmp_path,
        ["fed_avg"],
        privacy={"noise_multiplier": 1.0, "delta": 1e-3},
        data={
            "source": "csv",
            "path": str(tmp_path / "patients.csv"),
            "site": "hospital",
            "target": "outcome",
            "positive": "ill",
            "drop": ["patient", "grade", "days"],
            "categories": ["ward"],
            "preparation": {"ranges": ranges, "categories": categories, "scale": "none"},
        },
    )
    assert model_files(folder)["fed_avg"].facts.recipe["kind"] == "private"
    check_bits(folder, federation, scored)


def test_sites_that_ask_in_turn_each_have_their_model(trained):
    files = model_files(trained[0])["weight_erosion"]
    assert files.common is None
    assert files.facts.sites == HOSPITALS
    params = [read_predictor(files.personal, site).params["dense_0/kernel"] for site in HOSPITALS]
    assert not np.array_equal(params[0], params[1])


def test_a_model_trained_alone_is_not_the_start(trained):
    """It used to be saved as the model that nobody had trained: all zeros."""
    params = read_predictor(find_model(trained[0], "local", "south"), "south").params
    assert np.abs(params["dense_0/kernel"]).max() > 0


def test_which_model_is_meant(trained):
    folder = trained[0]
    for site, method, words in (
        (None, None, r"several methods.*--method: local, weight_erosion"),
        (None, "fed_avg", r"no model of a method called 'fed_avg'.*there are local, weight_erosion"),
        (None, "local", r"Every site has a model of its own.*--site: north, south, west"),
        ("noth", "local", r"no personal model of noth.*did you mean 'north'\?"),
    ):
        with pytest.raises(Refusal, match=words):
            read_predictor(find_model(folder, method, site), site)
