"""A run folder is a usable model: what was scored is what is loaded, to the bit."""

import numpy as np
import pytest

from wardround.engine import registry
from wardround.predict.predictor import read_predictor
from wardround.runs.folder import RunFolder
from wardround.runs.models import find_model, model_files
from wardround.study import assemble
from wardround.study.demo import demo_study
from wardround.study.file import parse_study
from wardround.study.methods import compared_methods
from wardround.workflows import run as running
from wardround.workflows.training_plan import plan_methods

METHODS = sorted(set(registry.components("algorithm")))


def study_of(methods, **tables):
    content = demo_study().model_dump(mode="json", exclude_none=True)
    content["study"] |= {"rounds": 2, "user": "Kenema"}
    content["compare"] = {"methods": methods, "repeats": 1, "users": "each"}
    content["evaluation"] = {"resamples": 0}
    return parse_study({**content, **tables}, where="test")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every algorithm, trained once: the folder, the plans, and what was scored."""
    study = study_of(METHODS)
    setting = assemble.load_setting(study, study.study.seed)
    plans = plan_methods(study, setting, compared_methods(study), 0)
    folder = RunFolder.create(tmp_path_factory.mktemp("run") / "all", resume=False)
    scored = {}
    for of_method in plans:
        each = [running.train(plan, None) for plan in of_method]
        running.write_models(folder, of_method, each, alone=False)
        scored[of_method[0].method.name] = each[0] if len(each) == 1 else running.join_askings(each)
    return folder.path, setting, scored


@pytest.mark.parametrize("method", METHODS)
def test_every_model_predicts_the_bits_that_its_run_scored(trained, method):
    folder, setting, scored = trained
    scores, federation = scored[method].scores, setting.federation
    first, count = federation.part("test")
    personal = model_files(folder)[method].personal is not None
    for number, site in enumerate(federation.sites):
        predictor = read_predictor(find_model(folder, method, site if personal else None), site)
        found = predictor.predict_prepared(federation.x[first[number] : first[number] + count[number]])
        assert np.array_equal(found, scores.predicted[scores.first[number] : scores.first[number + 1]])
