"""A site's own report: every figure of its own patients, exact, offline, and equal to what scikit-learn finds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

from tests.support import in_process
from tests.support import tiny_study as tiny
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.site.clinical.own_report import own_report, rows_of, scores_of
from wardround.deploy.site.own_model import own_model
from wardround.predict.predictor import read_predictor

SITE = "bo"


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def study(consortium: Any) -> Any:
    found = in_process.study_of("own_report", 1)
    consortium.conduct(found)
    return found


@pytest.fixture(scope="module")
def predicted(consortium: Any, study: Any) -> tuple[Any, Any]:
    """Risks and outcomes of the site's test patients, by its own rows and the model file."""
    home, name = consortium.homes[SITE], consortium.id(study)
    worker = rows_of(home, read_offer(home, name), study)
    scores = scores_of(read_predictor(own_model(home.folder(name), name)), worker, "test")
    return scores.predicted[:, worker.positive], scores.actual == worker.positive


def test_the_figures_are_exact_and_of_this_site_alone(consortium: Any, study: Any, predicted: tuple[Any, Any]) -> None:
    home = consortium.homes[SITE]
    result = own_report(home, read_offer(home, consortium.id(study)))
    risk, ill = predicted
    raw = pd.read_csv(consortium.tables[SITE])
    assert [one.name for one in result.sites] == [SITE]
    assert result.flow is not None
    assert result.flow.all.read == len(raw) == result.flow.all.used
    method = result.methods[0]
    assert method.at(SITE, "roc_auc").value == pytest.approx(roc_auc_score(ill, risk), abs=1e-12)
    assert method.clinical is not None
    assert method.clinical.operating_point is not None
    point = method.clinical.operating_point
    table = confusion_matrix(ill, risk >= point.threshold)
    told = [
        [point.all.true_negatives, point.all.false_positives],
        [point.all.false_negatives, point.all.true_positives],
    ]
    assert np.array_equal(table, told)
    assert method.clinical.decision_curve is not None
    assert method.clinical.calibration is not None
    assert sum(int(one.rows or 0) for one in method.reliability) == len(ill)
    # Exact also where a group is small: every category of every column is counted.
    assert result.patient_table is not None
    words = [one for one in result.patient_table.columns if one.kind == "text"]
    assert words
    assert all(None not in one.all.counts and one.all.missing is not None for one in words)
    # What stays at the site in figures.json is the same.
    kept = json.loads((home.folder(consortium.id(study)) / "figures.json").read_text())
    assert kept["figures"]["roc_auc"]["value"] == method.at(SITE, "roc_auc").value


def test_the_command_writes_a_page_and_sends_nothing(
    consortium: Any, study: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nobody(*given: Any, **words: Any) -> Any:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr("socket.socket.connect", nobody)
    monkeypatch.setattr(consortium, "ask", nobody)
    home = consortium.homes[SITE]
    before = home.audit_path.read_bytes()
    said = tiny.call(capsys, "site", "report", "own_report", "--out", tmp_path / "own.html", "--home", home.path)
    assert said.code == 0, said
    page = (tmp_path / "own.html").read_text()
    for heading in ("included", "patients", "operating", "calibration", "decisions", "importance"):
        assert f'<section id="{heading}"' in page, heading
    assert "stays at your hospital" in page
    assert home.audit_path.read_bytes() == before
    assert all(other not in page for other in consortium.names if other != SITE)


def test_no_report_before_the_end(consortium: Any, capsys: pytest.CaptureFixture[str]) -> None:
    home = consortium.homes[SITE]
    offered = in_process.study_of("never_begun", 1)
    consortium.deciding.add(SITE)
    handler = consortium.handlers[SITE]
    handler.access.store_offer(consortium.id(offered), offered.model_dump(mode="json"), "researcher")
    said = tiny.call(capsys, "site", "report", "never_begun", "--home", home.path)
    assert said.code == 2
    assert "has left no model here" in said.err
