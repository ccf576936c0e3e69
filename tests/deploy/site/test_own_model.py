"""A site predicts with the model that a study left there: offline, by its own table's settings, asking nobody."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from tests.support import tiny_study as tiny
from wardround.core.components import recipes
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.schema_agreement import table_without_rows
from wardround.deploy.site.own_model import own_model, own_reading
from wardround.predict.predictor import read_predictor

MIXED = {"name": "model_interpolation", "learning_rate": 0.1}


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def mixed(consortium: Any) -> Any:
    """A study that ended: every site has a model of its own, of two models and a share."""
    study = in_process.study_of("mixed", 1, algorithm=MIXED)
    consortium.conduct(study)
    return study


def predicted(consortium: Any, capsys: pytest.CaptureFixture[str], site: str, *options: str | Path) -> tiny.Said:
    home = consortium.homes[site]
    said = tiny.call(capsys, "site", "predict", "mixed", consortium.tables[site], "--home", home.path, *options)
    assert said.code == 0, said
    return said


def test_a_site_predicts_with_its_own_model(
    consortium: Any, mixed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*given: Any, **words: Any) -> Any:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr("socket.socket.connect", nobody)
    monkeypatch.setattr(consortium, "ask", nobody)
    found = {}
    for site in ("bo", "kenema"):
        table = pd.read_csv(io.StringIO(predicted(consortium, capsys, site).out))
        home = consortium.homes[site]
        predictor = read_predictor(own_model(home.folder(consortium.id(mixed)), "mixed"))
        assert set(predictor.params) == {"common", "own", "share"}
        raw = pd.read_csv(consortium.tables[site])
        assert np.array_equal(table.iloc[:, 1].to_numpy(np.float32), predictor.predict(raw)[:, predictor.positive])
        found[site] = predictor.params["own"]["dense_0/kernel"]
    assert not np.array_equal(found["bo"], found["kenema"])


def test_its_explanation_adds_up(consortium: Any, mixed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = predicted(consortium, capsys, "bo", "--explain", "--json").json["patients"]
    for one in told[:20]:
        parts = [value for name, value in one.items() if name.startswith("contribution of ")]
        chance = one["probability of confirmed"]
        assert abs(one["typical log-odds"] + sum(parts) - np.log(chance / (1 - chance))) < 1e-5


def test_its_table_is_read_as_the_site_registered_it(consortium: Any, mixed: Any) -> None:
    home = consortium.homes["bo"]
    text = home.data_path.read_text()
    try:
        home.data_path.write_text(text + 'separator = ";"\n')
        assert own_reading(home, consortium.id(mixed)) == {"separator": ";"}
    finally:
        home.data_path.write_text(text)


def test_before_a_study_has_ended_there_is_no_model(
    consortium: Any, mixed: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match="left no model here"):
        own_model(tmp_path, "mixed")
    home = consortium.homes["bo"].path
    said = tiny.call(capsys, "site", "predict", "nothing", consortium.tables["bo"], "--home", home)
    assert said.code == 2
    assert "no study called 'nothing' was offered" in said.err.lower()


def test_predictions_of_single_patients_never_leave_sites() -> None:
    study = in_process.study_of("kept", evaluation={"keep_predictions": True})
    with pytest.raises(Refusal, match=r"would have to leave the sites.*keep_predictions.*wardround site predict"):
        table_without_rows(study)


def test_a_site_that_made_much_meanwhile_still_knows_how_its_model_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipes are forgotten, the oldest first; that of a model in use is written down anew."""
    consortium = in_process.Consortium(tmp_path)
    ask, known = consortium.ask, dict(recipes._recipes)

    def forgetful(site: str, topic: str, body: bytes, within: float) -> bytes:
        if topic == "finish":
            known.update(recipes._recipes)
            recipes._recipes.clear()
        return ask(site, topic, body, within)

    consortium.ask = forgetful  # type: ignore[method-assign]
    try:
        consortium.conduct(in_process.study_of("mixed", 1))
        assert predicted(consortium, capsys, "bo").out.count("\n") > 10
    finally:  # what was made meanwhile lives on in caches, so its recipes must
        recipes._recipes.update({**known, **recipes._recipes})
