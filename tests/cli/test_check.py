"""`wardround check` as a new user meets it: badly made tables, each told in one paragraph with its fix."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.cli.studies import OUTPUT

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_columns_and_sites_are_printed(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OUTPUT, "width", 160)  # a terminal on which no cell is wrapped
    frame = tiny.patients().assign(sex=np.tile(["f", "m"], 60))
    frame.loc[:11, "lactate"] = np.nan
    study = tiny.write_study(tmp_path, frame)
    said = tiny.call(capsys, "check", study)
    assert said.code == 0
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]]
        for line in said.out.splitlines()
        if "│" in line
    }
    low, high = frame["age"].min(), frame["age"].max()
    assert rows["age"][:4] == ["number", "all numbers", f"{low:.6g} to {high:.6g}", "0"]
    assert rows["lactate"][3] == "12 (10%)"
    assert rows["sex"] == ["text", "words", "2 levels", "0", "f, m"]
    assert rows["outcome"][1] == "target: all numbers"
    # Prevalence among training rows; the split keeps the classes' shares.
    told = tiny.call(capsys, "check", study, "--json").json
    assert [one["name"] for one in told["site_rows"]] == list(tiny.HOSPITALS)
    for one in told["site_rows"]:
        share = frame[frame["hospital"] == one["name"]]["outcome"].mean()
        assert abs(one["prevalence"] - share) < 1 / 18
        assert rows[one["name"]] == ["30", "18", "6", "6", f"{one['prevalence']:.1%}"]
    assert [one["name"] for one in told["columns"]] == ["age", "pulse", "lactate", "outcome", "sex"]
    assert told["warnings"] == []


def test_a_refused_table_is_shown_before_the_refusal(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients()
    frame["age"] = frame["age"].astype(str).where(frame.index % 30 > 0, "<0.5")
    frame["pulse"] = [f"{value:.0f}%" for value in frame["pulse"] * 10]
    study = tiny.write_study(tmp_path, frame)
    said = tiny.call(capsys, "check", study)
    assert said.code == 2
    assert "│ age" in said.out
    assert 'kinds = {pulse = "percent"}' in words(said.out), "the others are told, too"
    assert len(said.err.strip().splitlines()) == 1
    assert "4 of 120 values cannot be read as such, such as '<0.5'" in said.err
    fixed = {"kinds": {"age": "number", "pulse": "percent"}, "recode": {"age": {"<0.5": "0.25"}}}
    good = tiny.call(capsys, "check", tiny.write_study(tmp_path, frame, data={"cleaning": fixed}))
    assert good.code == 0, good.err
    assert "3 features" in good.out


def test_warnings_are_in_check_in_the_run_and_in_its_report(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients()
    frame["status"] = np.where(frame["outcome"] == 1, "dead", "home")
    frame.loc[[1, 40, 100], "pulse"] = -999
    study = tiny.write_study(tmp_path, frame, study={"rounds": 1})
    told = tiny.call(capsys, "check", study, "--json").json
    assert [(one["kind"], one["column"]) for one in told["warnings"]] == [("outsiders", "pulse"), ("leak", "status")]
    printed = words(tiny.call(capsys, "check", study).out)
    assert "Warning: column 'pulse' has 3 values far outside the rest that look like codes for unknown (-999" in printed
    assert "The study is valid. Read the 2 warnings above." in printed
    result = tiny.call(capsys, "run", study, "--out", tmp_path / "out", "--json").json
    assert sum("'status' alone tells outcome" in note for note in result["notes"]) == 1
    assert sum("'pulse' has 3 values" in note for note in result["notes"]) == 1
    assert "alone tells outcome" in (tmp_path / "out" / "report.html").read_text()
    # What is fixed is not warned about again.
    fixed = {"drop": ["status"], "cleaning": {"missing": {"pulse": [-999]}}}
    again = tiny.call(capsys, "check", tiny.write_study(tmp_path, frame, data=fixed), "--json").json
    assert again["warnings"] == []


def test_exact_figures_of_a_private_study_are_not_in_its_notes(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients()
    frame.loc[[1, 40, 100], "pulse"] = -999
    privacy = {"epsilon": 1.0, "delta": 1e-3, "batch": 18}
    study = tiny.write_study(tmp_path, frame, privacy=privacy)
    told = tiny.call(capsys, "check", study, "--json").json
    assert [one["column"] for one in told["warnings"]] == ["pulse"]
    assert not any("pulse" in note for note in told["notes"])
    dropped = {"cleaning": {"drop_rows": {"pulse": [-999]}}}
    said = tiny.call(capsys, "check", tiny.write_study(tmp_path, frame, privacy=privacy, data=dropped))
    assert said.code == 2
    assert "the number of rows is told exactly" in said.err


REFUSED = {
    "identifiers": (
        lambda frame: frame.assign(mrn=[f"M{row}" for row in frame.index]),
        {},
        ("'mrn'", 'drop = ["mrn"]'),
    ),
    "no site in a row": (
        lambda frame: frame.assign(hospital=frame["hospital"].where(frame.index != 3)),
        {},
        ("1 row without the name of a site", 'missing_site = "drop"'),
    ),
    "many categories over all sites": (
        # 70 at each of four hospitals: below 200 at each, 280 in all.
        lambda frame: tiny.patients(140).assign(code=[f"c{row // 2}" for row in range(560)]),
        {},
        ("'code' has more than 200 different values", "all sites together", "most_categories in [data.preparation]"),
    ),
    "unknown column in cleaning": (
        lambda frame: frame,
        {"cleaning": {"kinds": {"agee": "number"}}},
        ("'agee'", "did you mean 'age'", "[data.cleaning]"),
    ),
    "unknown kind": (lambda frame: frame, {"cleaning": {"kinds": {"age": "numeric"}}}, ("numeric", "number")),
    "unknown key of cleaning": (lambda frame: frame, {"cleaning": {"kind": {}}}, ("nknown key 'kind'", "'kinds'")),
    "a range upside down": (
        lambda frame: frame,
        {"cleaning": {"plausible": {"age": [3.0, 1.0]}}},
        ("two numbers in order",),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_paragraph_and_exit_code_2(name: str, tmp_path: Path, capsys: Capture) -> None:
    change, data, expected = REFUSED[name]
    said = tiny.call(capsys, "check", tiny.write_study(tmp_path, change(tiny.patients()), data=data))
    assert said.code == 2, said
    assert len(said.err.strip().splitlines()) == 1
    assert "Fix: " in said.err
    for word in expected:
        assert word in said.err, said.err


def test_the_key_that_a_refusal_names_exists(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients(140).assign(code=[f"c{row // 2}" for row in range(560)])
    study = tiny.write_study(tmp_path, frame, data={"preparation": {"most_categories": 300}})
    # The categories of the training rows: fewer than all 280, more than 200.
    assert len(tiny.call(capsys, "check", study, "--json").json["features"]) > 203


def test_sites_are_trimmed_and_sorted_as_people_count(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients()
    names = {"bo": "site-10", "freetown": "site-2", "kenema": "site-1", "makeni": "site-2 "}
    frame = frame.replace({"hospital": names})
    frame.loc[0, "hospital"] = None
    study = tiny.write_study(tmp_path, frame, data={"missing_site": "drop"})
    told = tiny.call(capsys, "check", study, "--json").json
    assert [(one["name"], one["rows"]) for one in told["site_rows"]] == [
        ("site-1", 30),
        ("site-2", 60),
        ("site-10", 29),
    ]
    assert "Names of sites that differ only by blanks at their ends are one site: site-2." in told["notes"]
    assert "Left out for want of a hospital: 1 row." in told["notes"]


@pytest.mark.parametrize(("encoding", "named"), [("latin-1", "latin-1"), ("utf-16", "UTF-16"), ("utf-16-le", "UTF-16")])
def test_other_encodings_are_recognised(encoding: str, named: str, tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, tiny.patients())
    frame = tiny.patients().replace({"hospital": {"bo": "Bö"}})
    frame.to_csv(tmp_path / "patients.csv", index=False, encoding=encoding)
    said = tiny.call(capsys, "check", study)
    assert said.code == 2
    assert "incomplete" not in said.err
    assert named in said.err
    guess = re.search(r'encoding = "([^"]+)" to \[data\]', said.err)
    assert guess is not None
    study.write_text(study.read_text().replace("[data]", f'[data]\nencoding = "{guess[1]}"'))
    good = tiny.call(capsys, "check", study)
    assert good.code == 0, good.err
    assert "Bö" in good.out


def test_a_table_without_a_study_is_shown_and_a_study_proposed(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients().assign(mrn=[f"M{row}" for row in range(120)])
    frame.to_csv(tmp_path / "ward data.csv", index=False)
    said = tiny.call(capsys, "check", tmp_path / "ward data.csv")
    assert said.code == 0, said.err
    assert "120 rows, 6 columns" in said.out
    proposed = said.out[said.out.index("[study]") :]
    (tmp_path / "study.toml").write_text(proposed)
    told = tiny.call(capsys, "check", tmp_path / "study.toml", "--json").json
    assert (told["study"], told["sites"], told["rows"], len(told["features"])) == ("ward_data", 4, 120, 3)
    assert tiny.call(capsys, "check", tmp_path / "ward data.csv", "--json").json["study"] == proposed.rstrip() + "\n"
    frame.drop(columns="hospital").to_parquet(tmp_path / "pool.parquet")
    pool = tiny.call(capsys, "check", tmp_path / "pool.parquet", "--json").json["study"]
    assert 'name = "iid"' in pool
    assert tiny.call(capsys, "check", tmp_path / "none.csv").code == 2


@pytest.mark.slow
def test_resuming_beside_a_running_run_is_refused(tmp_path: Path, capsys: Capture) -> None:
    """Two real processes on one folder: the second is refused, and the first ends as if it had been alone."""
    study = tiny.write_study(tmp_path, study={"rounds": 200})
    out = tmp_path / "out"
    with tiny.launch("run", study, "--out", out, "--json") as first:
        while len(tiny.recorded(out)) < 3 and first.poll() is None:
            pass
        assert first.poll() is None
        first.send_signal(signal.SIGSTOP)  # it is at work as long as the other one looks
        said = tiny.call(capsys, "run", study, "--out", out, "--resume")
        first.send_signal(signal.SIGCONT)
        finished, error = first.communicate()
    assert said.code == 2, said
    assert "another process is writing into this run folder" in said.err.lower()
    assert len(said.err.strip().splitlines()) == 1
    assert first.returncode == 0, error
    assert json.loads(finished)["kind"] == "run"
    assert [one["round"] for one in tiny.recorded(out)] == list(range(1, 201))
