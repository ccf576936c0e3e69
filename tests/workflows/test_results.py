"""What result.json says is what was computed, averaged over repeats, with nothing made up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from tests.support import tiny_study as tiny
from tests.support.results import plain
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import parse_study, read_study
from wardround.study.methods import Method, compared_methods, own_method
from wardround.workflows.results import average, data_summary, pairs_of
from wardround.workflows.run import run, train
from wardround.workflows.training_plan import plan_training

LEAST: dict[str, Any] = {"study": {"name": "t"}, "data": {"source": "triage"}}


def test_figures_are_averaged_over_the_repeats_in_which_they_are_defined() -> None:
    blocks = [
        {"auc": {"value": 0.6, "low": 0.5}, "name": "a", "rows": 5, "flag": True},
        {"auc": {"value": 0.8, "low": 0.6}, "name": "a", "rows": 5, "flag": True},
        {"auc": {"value": None, "undefined": "one class"}, "name": "a", "rows": 5, "flag": True},
    ]
    merged = average(blocks)
    assert merged["auc"]["value"] == pytest.approx(0.7)
    assert merged["auc"]["low"] == pytest.approx(0.55)
    assert (merged["name"], merged["rows"], merged["flag"]) == ("a", 5, True)
    assert average(blocks[:1]) is blocks[0]


def test_a_figure_undefined_in_the_first_repeat_only_loses_its_reason() -> None:
    merged = average([{"value": None, "undefined": "one class"}, {"value": 0.8, "low": 0.5, "high": 0.9}])
    assert merged == {"value": 0.8, "low": 0.5, "high": 0.9}
    later = average([{"value": 0.8, "low": 0.5}, {"value": 0.6, "low": None, "no_interval": "few"}])
    assert later == {"value": pytest.approx(0.7), "low": 0.5}
    never = average([{"value": None, "undefined": "one class"}, {"value": None, "undefined": "one class"}])
    assert never == {"value": None, "undefined": "one class"}


def test_few_methods_are_compared_in_all_pairs_many_with_one() -> None:
    def pairs(names: str, **compare: Any) -> list[tuple[str, str]]:
        study = parse_study({**LEAST, "compare": {"methods": list(names), **compare}}, where="")
        return pairs_of(study, [Method(name, name, name, ()) for name in names])

    assert pairs("abc") == [("b", "a"), ("c", "a"), ("c", "b")]
    assert pairs("abc", against="b") == [("a", "b"), ("c", "b")]
    assert pairs("abcde") == [(name, "a") for name in "bcde"]
    assert pairs("a") == []


def test_sites_are_described_by_counts_and_the_share_of_positives(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path))
    setting = assemble.load_setting(study, 1)
    told = data_summary(setting)
    assert told["task"].plain() == {
        "kind": "classification", "target": "outcome", "classes": ("0", "1"),
        "features": ("age", "pulse", "lactate"), "positive": "1",
    }  # fmt: skip
    first, count = setting.federation.part("train")
    for index, site in enumerate(told["sites"]):
        own = setting.federation.y[first[index] : first[index] + count[index]]
        assert site.plain() == {
            "name": tiny.HOSPITALS[index], "train": 18, "validation": 6, "test": 6, "prevalence": own.sum() / 18,
        }  # fmt: skip


def test_a_regression_has_no_classes_and_no_prevalence(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path, data={"target": "age"}, model={"name": "linear"}))
    told = data_summary(assemble.load_setting(study, 1))
    assert (told["task"].kind, told["task"].classes) == ("regression", ())
    assert "positive" not in told["task"].plain()
    assert all(site.prevalence is None for site in told["sites"])


def test_figures_are_those_of_scikit_learn(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path, tiny.patients(rows=60), study={"metric": "accuracy"}))
    methods = [own_method(study)]
    result = plain(run(study, RunFolder.create(tmp_path / "out", resume=False), methods, kind="run"))
    scores = train(plan_training(study, assemble.load_setting(study, 1), methods[0]), None).scores
    assert result["metric"] == "accuracy"
    told = result["methods"][0]["scores"]
    for index, name in enumerate(tiny.HOSPITALS):
        rows = slice(int(scores.first[index]), int(scores.first[index + 1]))
        actual, chance = scores.actual[rows], scores.predicted[rows].astype(np.float64)
        assert told["sites"][name]["roc_auc"]["value"] == pytest.approx(roc_auc_score(actual, chance[:, 1]))
        assert told["sites"][name]["accuracy"]["value"] == accuracy_score(actual, chance.argmax(axis=1))
        expected = log_loss(actual, chance / chance.sum(axis=1, keepdims=True))
        assert told["sites"][name]["log_loss"]["value"] == pytest.approx(expected, rel=1e-5)


def test_comparisons_name_methods_and_sites_and_a_method_equals_itself(tmp_path: Path) -> None:
    """Two names for one algorithm with the same settings: every difference is exactly 0."""
    path = tiny.write_study(tmp_path, compare={"methods": ["global", "fed_avg"], "repeats": 2})
    study = read_study(path)
    folder = RunFolder.create(tmp_path / "out", resume=False)
    result = plain(run(study, folder, compared_methods(study), kind="compare", repeats=2))
    assert [entry["site"] for entry in result["comparison"]] == ["all sites", *tiny.HOSPITALS]
    for entry in result["comparison"]:
        assert (entry["method"], entry["against"], entry["metric"]) == ("fed_avg", "global", "roc_auc")
        assert entry["difference"] == 0
    assert result["repeats"] == 2
    one, two = result["methods"]
    assert one["scores"] == two["scores"]
