"""A finished run in Python: explaining, adapting and monitoring read a frame as training did."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import wardround as wr
from tests.predict.known_model import known_patients, write_known_model
from tests.support import tiny_study as tiny
from wardround.api.finished_run import FinishedRun


def messy_patients(rows: int = 240, seed: int = 4) -> pd.DataFrame:
    """Numbers with a decimal comma, dates, and a code for unknown; clean, it is age, sex and days."""
    generator = np.random.default_rng(seed)
    age, days = generator.normal(60, 15, rows).round(1), generator.integers(0, 300, rows)
    ill = generator.random(rows) < 1 / (1 + np.exp(-(age - 60) / 8))
    return pd.DataFrame(
        {
            "ward": generator.choice(["A", "B"], rows),
            "age": [f"{value}".replace(".", ",") for value in age],
            "sex": generator.choice(["F", "weiblich", "M"], rows),
            "admitted": (pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d"),
            "died": np.where(ill, "ja", "nein"),
        }
    )


CLEANING: dict[str, Any] = {
    "kinds": {"age": "decimal_comma"},
    "recode": {"sex": {"weiblich": "F"}, "died": {"ja": "yes", "nein": "no"}},
    "days": {"admitted": "2020-01-01"},
}


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    study = wr.build_study(
        messy_patients(),
        name="messy",
        site="ward",
        target="died",
        positive="yes",
        data_cleaning=CLEANING,
        rounds=5,
        evaluation={"resamples": 0},
    )
    return wr.run(study, out=tmp_path_factory.mktemp("messy") / "run")


def test_explanations_are_of_the_values_as_the_study_means_them(messy: FinishedRun) -> None:
    patients = messy_patients(20, seed=5)
    why = messy.explain(patients)
    log_odds = why.baseline[0] + why.contributions[:, :, 0].sum(axis=1)
    chance = messy.predict(patients)["probability of yes"].to_numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-log_odds)), chance, atol=1e-5)
    place = why.columns.index("age")
    assert [row[place] for row in why.values] == [float(age.replace(",", ".")) for age in patients["age"]]


def test_adapting_reads_the_outcome_as_the_study_means_it(messy: FinishedRun) -> None:
    adapted = messy.adapt(messy_patients(200, seed=6).assign(ward="A"), site="A")
    assert adapted.patients == 200


def test_monitoring_takes_dates_as_they_are_written_though_the_model_counts_days(messy: FinishedRun) -> None:
    """In days since 2020 the first of them would be the year 1461."""
    report = messy.monitor(messy_patients(600, seed=7), by="admitted")
    assert report.windows.index[0] == "2024-01"
    assert report.summary.known == 600
    assert report.page.exists()


# ---- the same as the command ----


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return write_known_model(tmp_path / "run")


def patients_of(shift: float) -> pd.DataFrame:
    then, now = known_patients(400, seed=1), known_patients(400, seed=2, shift=shift)
    frame = pd.concat([then, now], ignore_index=True)
    return frame.assign(came=["2025-01-15"] * 400 + ["2025-02-15"] * 400)


@pytest.mark.parametrize(("shift", "alarm"), [(0.0, False), (1.5, True)])
def test_a_monitor_in_python_is_that_of_the_command_line(
    known: Path, tmp_path: Path, shift: float, alarm: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = patients_of(shift)
    report = FinishedRun(known).monitor(frame, by="came", out=tmp_path / "python")
    frame.to_csv(tmp_path / "new.csv", index=False)
    said = tiny.call(
        capsys, "monitor", known, tmp_path / "new.csv", "--by", "came", "--out", tmp_path / "shell", "--json"
    )
    assert (said.code == 3) is alarm is report.alarm
    states = [json.loads((tmp_path / place / "monitor.json").read_bytes()) for place in ("python", "shell")]
    for state in states:
        state.pop("counted")  # marks by a file's text and by numbers are apart
    assert states[0] == states[1]
    assert report.sentences[0].startswith("Alarm" if alarm else "No alarm")
    assert report.windows["patients"].tolist() == [400, 400]
    assert set(report.inputs.index) == {"age", "sex", "(prediction)"}
    assert "<table" in report._repr_html_()


def test_a_reference_in_memory_and_a_second_call(known: Path) -> None:
    frame, run = patients_of(0.0), FinishedRun(known)
    before = run.monitor(frame[:200], by="came", reference=frame[400:])
    again = run.monitor(frame[:400], by="came", reference=frame[400:])
    assert (before.summary.patients, again.summary.patients) == (200, 400)
    assert again.summary.reference_patients == 400
    with pytest.raises(wr.Refusal, match="another folder"):
        run.monitor(frame, by="came")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"by": "cane"}, "'cane' is missing; did you mean 'came'"),
        ({"by": "age"}, "cannot be read as dates"),
        ({"by": "came", "outcome": "sick"}, "'sick' is missing"),
        ({"by": "came", "every": "decade"}, "no window of time"),
        ({"by": "came", "every": 3}, "no window of time"),
        ({"by": "came", "false_alarms": 2.0}, "False_alarms is a chance"),
        ({"by": "came", "site": "Nowhere"}, "Nowhere"),
    ],
)
def test_mistakes_leave_nothing_behind(known: Path, words: dict[str, Any], match: str) -> None:
    with pytest.raises(wr.Refusal, match=match):
        FinishedRun(known).monitor(patients_of(0.0), **words)
    assert [path.name for path in known.iterdir()] == ["model.safetensors"]


def test_frames_without_rows_or_inputs(known: Path) -> None:
    run, frame = FinishedRun(known), patients_of(0.0)
    with pytest.raises(wr.Refusal, match="no rows"):
        run.monitor(frame[:0], by="came")
    for act in (lambda rows: run.monitor(rows, by="came"), run.explain):
        with pytest.raises(wr.Refusal, match="'age' is missing"):
            act(frame.drop(columns="age"))
