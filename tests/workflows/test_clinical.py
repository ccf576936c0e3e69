"""Clinical figures of a run: the threshold comes from validation patients, and every kind of task has what applies."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, roc_curve

from tests.support import tiny_study as tiny
from wardround.core.errors import Refusal
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.folder import RunFolder
from wardround.runs.model_file import read_facts
from wardround.runs.result import RunResult
from wardround.study import assemble
from wardround.study.file import Study, read_study
from wardround.study.methods import compared_methods, own_method
from wardround.workflows.clinical import predict_copies, validation_rows, validation_scores
from wardround.workflows.run import run, train
from wardround.workflows.training_plan import plan_training


def study_of(folder: Path, frame: pd.DataFrame | None = None, **tables: Any) -> Study:
    return read_study(tiny.write_study(folder, tiny.patients(60) if frame is None else frame, **tables))


def result_of(folder: Path, study: Study) -> RunResult:
    methods = compared_methods(study) if study.compare else [own_method(study)]
    return run(study, RunFolder.create(folder / "out", resume=False), methods, kind="run")


def figures_of(folder: Path, frame: pd.DataFrame | None = None, **tables: Any) -> ClinicalFigures:
    found = result_of(folder, study_of(folder, frame, **tables)).methods[0].clinical
    assert found is not None
    return found


def test_the_threshold_is_youdens_among_validation_patients_and_the_counts_are_of_test_patients(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    point = figures_of(tmp_path).operating_point
    assert point is not None
    assert point.threshold is not None
    assert read_facts(tmp_path / "out" / "model.safetensors").threshold == point.threshold, "predict flags by it"
    plan = plan_training(study, assemble.load_setting(study, 1), own_method(study))
    trained = train(plan, None)
    with plan.engine() as engine:
        look = engine.predict(plan.algorithm, trained.fitted.progress, "validation")
    false, found, _ = roc_curve(look.actual, look.predicted[:, 1], drop_intermediate=False)
    flagged = look.predicted[:, 1] >= point.threshold
    assert flagged[look.actual == 1].mean() - flagged[look.actual == 0].mean() == pytest.approx((found - false).max())
    assert point.validation_rows == len(look.actual) == 48
    test = trained.scores
    (left, wrong), (missed, right) = confusion_matrix(test.actual, test.predicted[:, 1] >= point.threshold)
    told = point.all
    assert (told.true_negatives, told.false_positives) == (left, wrong)
    assert (told.false_negatives, told.true_positives) == (missed, right)
    assert sum(one.true_positives or 0 for one in point.sites.values()) == right


def test_a_study_says_its_operating_point(tmp_path: Path) -> None:
    point = figures_of(tmp_path, evaluation={"operating_point": {"sensitivity": 0.9}}).operating_point
    assert point is not None
    assert (point.rule, point.target) == ("sensitivity", 0.9)
    for wrong in ({}, {"sensitivity": 0.9, "threshold": 0.2}):
        with pytest.raises(Refusal, match="Give one of sensitivity, specificity, net_benefit and threshold"):
            study_of(tmp_path, evaluation={"operating_point": wrong})
    with pytest.raises(Refusal, match="sensitivity"):
        study_of(tmp_path, evaluation={"operating_point": {"sensitivity": 1.2}})


def test_without_validation_patients_a_stand_in_is_said(tmp_path: Path) -> None:
    point = figures_of(tmp_path, data={"shares": [0.8, 0.0, 0.2]}).operating_point
    assert point is not None
    assert (point.threshold, point.fallback) == (0.5, "no validation patients")


def test_a_linear_model_is_explained_by_its_coefficients(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    found = figures_of(tmp_path).importance
    assert found is not None
    assert found.kind == "standardised coefficient"
    plan = plan_training(study, assemble.load_setting(study, 1), own_method(study))
    kernel = np.asarray(train(plan, None).params["dense_0/kernel"], np.float64)
    spread = plan.federation.x[plan.federation.rows_of("train")].std(axis=0, dtype=np.float64)
    expected = dict(zip(("age", "pulse", "lactate"), (kernel[:, 1] - kernel[:, 0]) * spread, strict=True))
    assert {one.column: one.value for one in found.columns} == pytest.approx(expected, rel=1e-5)
    assert [one.column for one in found.columns] == ["age", "pulse", "lactate"], "as the truth has it: 1.5, -1, 0.5"


@pytest.mark.parametrize("algorithm", ["fed_avg", "fine_tune"])
def test_copies_are_predicted_as_the_patients_themselves(tmp_path: Path, algorithm: str) -> None:
    """Without a shuffle, every copy of a site's rows gets what that site's own model predicts for them."""
    study = study_of(tmp_path, algorithm={"name": algorithm})
    plan = plan_training(study, assemble.load_setting(study, 1), own_method(study))
    trained = train(plan, None)
    owner, rows = validation_rows(plan, 1000)
    x = plan.federation.x[rows]
    look = validation_scores([plan], [trained])
    copies = predict_copies(plan, trained, owner, np.concatenate([x, x, x]))
    np.testing.assert_allclose(copies, np.tile(look.predicted, (3, 1)), atol=1e-6)


@pytest.mark.slow
def test_models_of_each_sites_own_are_explained_by_shuffling(tmp_path: Path) -> None:
    study = study_of(tmp_path, compare={"methods": ["local"], "repeats": 1})
    found = result_of(tmp_path, study).methods[0].clinical
    assert found is not None
    assert found.importance is not None
    assert (found.importance.kind, found.importance.metric) == ("permutation", "roc_auc")
    assert found.importance.columns[0].column == "age", "the strongest of the truth"
    assert (found.importance.columns[0].value or 0) > 0.05


def test_three_classes(tmp_path: Path) -> None:
    frame = tiny.patients(60)
    frame["outcome"] = np.array(["mild", "severe", "well"])[np.digitize(frame["age"] - frame["pulse"], [-0.7, 0.7])]
    figures = figures_of(tmp_path, frame)
    assert list(figures.classes) == ["mild", "severe", "well"]
    assert {one.rows for one in figures.classes.values()} == {48}
    assert sum(one.flagged for one in figures.classes.values()) == 48, "each patient is flagged for one class"
    assert figures.decision_curve is None
    assert figures.operating_point is None
    assert figures.calibration is not None
    assert figures.calibration.predicted is not None


def test_a_quantity(tmp_path: Path) -> None:
    frame = tiny.patients(60)
    frame["outcome"] = 3 * frame["age"] + frame["pulse"] + np.random.default_rng(1).normal(0, 0.1, len(frame))
    figures = figures_of(tmp_path, frame, data={"task": "regression"}, model={"name": "linear"})
    assert figures.calibration is not None
    assert figures.calibration.slope.value == pytest.approx(1, abs=0.1)
    assert figures.decision_curve is None
    assert figures.operating_point is None
    assert figures.importance is not None
    assert figures.importance.columns[0].column == "age"


def test_the_main_metric_is_told_of_every_group(tmp_path: Path) -> None:
    frame = tiny.patients(60).assign(sex=["f", "m"] * 120)
    result = result_of(tmp_path, study_of(tmp_path, frame, data={"groups": ["sex"]}, study={"metric": "brier"}))
    groups = result.methods[0].scores.groups["sex"]
    sizes = {name: group.rows or 0 for name, group in groups.items()}
    assert sum(sizes.values()) == 48
    mean = sum((groups[name].metrics["brier"].value or 0) * rows for name, rows in sizes.items()) / 48
    assert mean == pytest.approx(result.methods[0].over_all("brier").value), "groups and sites cut the same patients"
