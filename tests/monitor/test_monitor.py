"""`wardround monitor`: what it counts, that no patient counts twice, when it rings, and how it refuses."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from tests.predict.known_model import known_patients, known_value, write_known_model
from tests.support import tiny_study as tiny
from wardround.monitor.state import STATE


@pytest.fixture
def run(tmp_path):
    return write_known_model(tmp_path / "run")


def watch(capsys, run, frame, *arguments, path=None):
    path = path or run.parent / "new.csv"
    frame.to_csv(path, index=False)
    said = tiny.call(capsys, "monitor", run, path, "--by", "date", *arguments)
    return said, json.loads(said.out) if "--json" in arguments else None


def state_of(folder):
    return json.loads((folder / STATE).read_text())


def test_figures_of_a_window_are_those_of_scikit_learn(run, capsys):
    frame = known_patients(480)
    frame.loc[:9, "age"] = None
    frame.loc[130:139, "ill"] = None
    said, told = watch(capsys, run, frame, "--json")
    assert said.code == 0
    assert (told["patients"], told["known"], told["alarm"]) == (480, 470, False)
    # Four patients a day: 124 in January, 112 in February, of whom 10 have no outcome yet.
    february = told["windows"][1]
    assert (february["name"], february["patients"], february["known"]) == ("2025-02", 112, 102)
    own = frame.iloc[124:236].dropna()
    risk, ill = 1 / (1 + np.exp(-known_value(own))), (own["ill"] == "yes").to_numpy()
    assert february["predicted"] == pytest.approx(risk.mean(), abs=1e-6)
    assert february["observed"]["value"] == pytest.approx(ill.mean())
    assert february["error"]["value"] == pytest.approx(brier_score_loss(ill, risk), abs=1e-6)
    assert february["auc"]["value"] == pytest.approx(roc_auc_score(ill, risk), abs=0.01)
    assert february["sensitivity"]["value"] == pytest.approx((risk[ill] >= 0.5).mean())
    assert told["columns"][0]["missing"] == 0


def test_training_is_held_against_the_last_window(run, capsys):
    frame = known_patients(240)
    frame.loc[236:, "age"] = [4.0, -5.0, np.nan, 1.0]  # two outside the range of training, one missing
    frame.loc[239, "sex"] = "x"
    frame["date"] = ["2025-01-01"] * 236 + ["2025-02-01"] * 4
    _, told = watch(capsys, run, frame, "--json")
    columns = {one["name"]: one for one in told["columns"]}
    assert columns["age"]["missing"] == 0.25
    assert columns["age"]["outside"] == pytest.approx(2 / 3)
    assert columns["sex"]["outside"] == 0.25
    # The centre is 0.5 and the scale 1: ((4 - 0.5) + (-5 - 0.5) + (1 - 0.5)) / 3 = -0.5.
    assert columns["age"]["training"]["value"] == pytest.approx(-0.5)


def test_a_job_that_comes_back_counts_nobody_twice(run, tmp_path, capsys):
    frame = known_patients(400)
    once, again = tmp_path / "once", tmp_path / "again"
    watch(capsys, run, frame, "--out", once)
    # Three calls: the rows so far each time, then the same file once more.
    for rows in (150, 400, 400):
        watch(capsys, run, frame[:rows].sample(frac=1, random_state=rows), "--out", again)
    one, other = state_of(once), state_of(again)
    # Patients of one day are taken in the order of the file, so the order of the bets may differ: sums may not.
    for first, second in zip(one["windows"], other["windows"], strict=True):
        assert first["patients"] == second["patients"]
        assert first["outcomes"]["patients"] == second["outcomes"]["patients"]
        assert first["outcomes"]["predicted"] == pytest.approx(second["outcomes"]["predicted"])
    assert sum(window["patients"] for window in other["windows"]) == 400


def test_calls_in_the_order_of_time_give_the_state_of_one_call(run, tmp_path, capsys):
    frame = known_patients(400)
    frame["date"] = pd.date_range("2025-01-01", periods=400, freq="7h").strftime("%Y-%m-%d %H:%M")
    once, again = tmp_path / "once", tmp_path / "again"
    watch(capsys, run, frame, "--out", once)
    for first, last in ((0, 150), (150, 260), (260, 400)):
        watch(capsys, run, frame[first:last], "--out", again)
    one, other = state_of(once), state_of(again)
    assert (one["counted"], one["windows"][0]) == (other["counted"], other["windows"][0])
    for name in ("gains", "stakes"):
        np.testing.assert_allclose(one["calibration"][name], other["calibration"][name], atol=1e-9)
        for mine, theirs in zip(one["columns"], other["columns"], strict=True):
            np.testing.assert_allclose(mine["capital"][name], theirs["capital"][name], atol=1e-9)


def test_outcomes_that_come_later_are_counted_when_they_come(run, capsys):
    frame = known_patients(200)
    _, told = watch(capsys, run, frame.assign(ill=None), "--every", "50", "--json")
    assert (told["patients"], told["known"]) == (200, 0)
    _, told = watch(capsys, run, frame, "--every", "50", "--json")
    assert (told["patients"], told["known"]) == (200, 200)
    assert [window["known"] for window in told["windows"]] == [50] * 4
    assert told["windows"][0]["name"] == "1 to 50"


@pytest.mark.parametrize("what", ["calibration", "input"])
def test_a_real_change_rings_and_stays_rung(run, capsys, what):
    frame, late = known_patients(900), known_patients(900, seed=1, shift=1.5 if what == "calibration" else 0.0)
    changed = pd.concat([frame[:500], late[500:]])
    if what == "input":
        # As ill as the model says, at another age.
        changed = changed.assign(age=changed["age"] + np.where(changed.index >= 500, 1.0, 0.0))
        odds = known_value(changed)
        ill = np.random.default_rng(2).random(900) < 1 / (1 + np.exp(-odds))
        changed = changed.assign(ill=np.where(ill, "yes", "no"))
    assert watch(capsys, run, frame[:500])[0].code == 0
    said, told = watch(capsys, run, changed, "--json")
    assert said.code == 3
    assert {alarm["what"] for alarm in told["alarms"]} == {what}
    assert told["alarms"][0]["window"] in ("2025-05", "2025-06")
    if what == "input":
        assert {alarm["column"] for alarm in told["alarms"]} <= {"age", "(prediction)"}
    said, _ = watch(capsys, run, changed)
    assert said.code == 3
    assert said.out.startswith("Alarm: ")
    page = (run / "monitor" / "monitor.html").read_text()
    assert "Alarm: " in page
    assert "src=" not in page.split("<script>")[0]


def test_a_quantity_is_watched_by_its_errors(tmp_path, capsys):
    run = write_known_model(tmp_path / "run", classes=())
    frame = known_patients(800)
    noise = np.random.default_rng(5).normal(0, 1, 800)
    right = frame.assign(ill=known_value(frame) + noise)
    assert watch(capsys, run, right[:400])[0].code == 0
    wrong = right.assign(ill=right["ill"] + np.where(right.index >= 400, 1.0, 0.0))
    said, told = watch(capsys, run, wrong, "--json")
    assert said.code == 3
    assert [alarm["what"] for alarm in told["alarms"]] == ["calibration"]


def test_errors_that_come_too_few_at_a_time_are_said_not_to_be_watched(tmp_path, capsys):
    run = write_known_model(tmp_path / "run", classes=())
    frame = known_patients(200)
    values = pd.Series(known_value(frame)).where(frame.index % 10 == 0)
    said, _ = watch(capsys, run, frame.assign(ill=values), "--every", "50")
    assert said.code == 0
    assert "They are not watched yet" in said.out


def test_of_several_classes_it_is_watched_how_often_the_predicted_one_is_right(tmp_path, capsys):
    # Log-odds of 0, 0 and v: the confidence is the largest of 1, 1 and exp(v) by their sum, and so often it is right.
    run = write_known_model(tmp_path / "run", classes=("a", "b", "c"))
    frame = known_patients(600)
    odds = np.exp(np.stack([np.zeros(600), np.zeros(600), known_value(frame)], axis=1))
    chances = odds / odds.sum(axis=1, keepdims=True)
    drawn = (np.random.default_rng(3).random((600, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    said, told = watch(capsys, run, frame.assign(ill=np.array(["a", "b", "c"])[drawn]), "--json")
    assert said.code == 0
    january = frame["date"].str.startswith("2025-01").to_numpy()
    assert told["windows"][0]["predicted"] == pytest.approx(chances[january].max(axis=1).mean(), abs=1e-6)
    right = drawn[january] == chances[january].argmax(axis=1)
    assert told["windows"][0]["observed"]["value"] == pytest.approx(right.mean())
    assert tiny.call(capsys, "adapt", run, run.parent / "new.csv").code == 2


def test_a_reference_is_compared_from_the_first_window_on(run, tmp_path, capsys):
    known_patients(400).to_csv(tmp_path / "old.csv", index=False)
    new = known_patients(100, seed=3)
    moved = new.assign(age=new["age"] + 2).drop(columns="ill")
    said, told = watch(capsys, run, moved, "--reference", tmp_path / "old.csv", "--json")
    assert said.code == 3
    assert told["reference_patients"] == 400
    assert {alarm["column"] for alarm in told["alarms"]} == {"age", "(prediction)"}


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda f: f.drop(columns="date"), (), "Column 'date' is missing"),
        (lambda f: f.assign(date="13.04.2025"), (), "cannot be read as dates"),
        (lambda f: f.assign(date=f["date"].where(f.index > 2)), (), "3 of 100 rows have no date"),
        (lambda f: f.drop(columns="age"), (), "column 'age' is missing"),
        (lambda f: f.assign(result=None), ("--outcome", "result"), "is missing in all 100 rows"),
        (lambda f: f, ("--outcome", "result"), "Column 'result' is missing"),
        (lambda f: f, ("--every", "year"), "is no window of time"),
        (lambda f: f[:30], (), "30 patients are too few to compare"),
        (lambda f: f.assign(number=1), ("--id", "number"), "do not tell all rows apart"),
    ],
)
def test_mistakes_write_nothing(run, tmp_path, capsys, change, arguments, words):
    said, _ = watch(capsys, run, change(known_patients(100)), *arguments, "--out", tmp_path / "out")
    assert (said.code, said.out) == (2, "")
    assert words.lower() in said.err.lower()
    assert len(said.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_dates_in_another_form_and_numbers_of_patients(run, capsys):
    frame = known_patients(100)
    other = frame.assign(date=pd.to_datetime(frame["date"]).dt.strftime("%d.%m.%Y"), number=range(100))
    _, told = watch(capsys, run, other, "--date-format", "%d.%m.%Y", "--id", "number", "--json")
    assert [window["name"] for window in told["windows"]] == ["2025-01"]
    # A value that was corrected is still the same patient.
    other.loc[3, "age"] += 1
    _, told = watch(capsys, run, other, "--date-format", "%d.%m.%Y", "--id", "number", "--json")
    assert told["patients"] == 100


def test_a_state_of_another_model_is_refused_and_kept(run, tmp_path, capsys):
    frame, out = known_patients(100), tmp_path / "out"
    watch(capsys, run, frame, "--out", out)
    before = (out / STATE).read_bytes()
    assert (
        "began with --every month, and now it is week"
        in watch(capsys, run, frame, "--every", "week", "--out", out)[0].err
    )
    write_known_model(run, shift=0.3)
    said, _ = watch(capsys, run, frame, "--out", out)
    assert said.code == 2
    assert "another model" in said.err
    assert (out / STATE).read_bytes() == before
    (out / STATE).write_text('{"format": 1}')
    assert "state is damaged" in watch(capsys, run, frame, "--out", out)[0].err
