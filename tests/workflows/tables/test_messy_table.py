"""A table as it comes: a date among the inputs, bounds among decimal commas, labels of another language."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import tiny_study as tiny

DATE = "%d.%m.%Y"
CLEANING = {
    "kinds": {"laktat": "decimal_comma"},
    "recode": {"laktat": {"<0,5": "0,25"}},
    "days": {"aufnahme": "2024-01-01"},
    "date_formats": {"aufnahme": DATE},
}


def messy() -> pd.DataFrame:
    frame, rng = tiny.patients(rows=60, seed=4), np.random.default_rng(4)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 180, len(frame)), unit="D")
    laktat = (2 + frame.pop("lactate")).round(2).map(lambda one: f"{one:.2f}".replace(".", ","))
    bounded = laktat.where(rng.random(len(frame)) > 0.1, "<0,5")
    outcome = np.where(frame.pop("outcome") == 1, "ja", "nein")
    return frame.assign(laktat=bounded, aufnahme=day.strftime(DATE), outcome=outcome)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("messy")
    data = {"cleaning": CLEANING, "units": {"laktat": "mmol/l"}}
    path = tiny.write_study(folder, messy(), study={"rounds": 2}, data=data)
    from wardround.api.commands import run as train
    from wardround.api.studies import read_study

    train(read_study(path), out=folder / "run")
    return folder


def test_only_what_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = messy()
    said = {**CLEANING, "recode": {}}
    told = tiny.call(capsys, "run", tiny.write_study(tmp_path, frame, data={"cleaning": said}))
    bounds = int((frame["laktat"] == "<0,5").sum())
    assert told.code == 2
    assert f"{bounds} of {len(frame)} values cannot be read so, such as '<0,5'" in told.err
    assert 'recode = {laktat = {"<0,5" = "0,5"}}' in told.err


def test_which_outcome_is_meant_is_said(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = tiny.call(capsys, "check", run / "study.toml", "--json").json
    notes = [one for one in result["notes"] if "which outcome is looked for" in one]
    assert notes == [
        "The study does not say which outcome is looked for: risks are those of outcome = nein. If it is ja, say"
        ' positive = "ja" in [data].'
    ]
    plain = tiny.call(capsys, "check", tiny.write_study(tmp_path), "--json").json  # 0 and 1 need no word
    assert not [one for one in plain["notes"] if "looked for" in one]


def test_units_are_shown_with_the_values(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy().head(1).assign(laktat="9,5").to_csv(run / "one.csv", index=False)
    told = tiny.call(capsys, "predict", run / "run", run / "one.csv", "--explain")
    assert "laktat 9.5 mmol/l (typical:" in told.out, told
    wrong = tiny.write_study(run, messy(), data={"cleaning": CLEANING, "units": {"laktatt": "mmol/l"}})
    refused = tiny.call(capsys, "run", wrong)
    assert refused.code == 2
    assert "[data] units" in refused.err
    assert "laktat" in refused.err


def test_a_date_that_is_an_input_raises_no_alarm_by_itself(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy().to_csv(run / "new.csv", index=False)
    told: Any = tiny.call(capsys, "monitor", run / "run", run / "new.csv", "--by", "aufnahme", "--json")
    assert told.code == 0, told
    assert "aufnahme" not in [one["name"] for one in told.json["columns"]]
    assert not told.json["alarm"]
