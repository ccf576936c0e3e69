"""What looks wrong with a table is found and named, and what is sound is left in peace."""

import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from wardround.data.cleanup import Cleanup, clean_table
from wardround.data.inspection.extremes import outsiders
from wardround.data.inspection.findings import Finding, find_in_rows, find_in_table
from wardround.data.inspection.identifiers import identifying_word
from wardround.data.inspection.leaks import auc, correlation, separation, shares_by_word
from wardround.data.inspection.profile import profile_table
from wardround.data.load import load
from wardround.data.sources.frame import frame as frame_source
from wardround.data.table import Table

ROWS = 200


def sound(seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 90, ROWS)
    outcome = generator.random(ROWS) < 1 / (1 + np.exp(-(age - 54) / 15))
    return pd.DataFrame(
        {
            "age": age,
            "lactate": generator.gamma(2, 1, ROWS).round(4),
            "sex": generator.choice(["female", "male"], ROWS),
            "y": np.where(outcome, "yes", "no"),
        }
    )


def table_of(frame: pd.DataFrame, said: Cleanup | None = None, **more: object) -> Table:
    half = {"A": frame[: ROWS // 2], "B": frame[ROWS // 2 :]}
    return clean_table(frame_source(half, target="y", **more), said or Cleanup())  # type: ignore[arg-type]


def kinds_found(found: list[Finding]) -> list[tuple[str, str, bool]]:
    return [(one.kind, one.column, one.stops) for one in found]


def test_a_sound_table_has_no_findings() -> None:
    for seed in range(5):
        table = table_of(sound(seed))
        assert find_in_table(table) == []
        assert find_in_rows(load(table, seed=seed)) == []


def with_text(values: "pd.Series[float]", words: dict[int, str]) -> "pd.Series[str]":
    texts = values.astype(str).astype(object)
    for row, word in words.items():
        texts[row] = word
    return texts


UNREAD = {
    "below the limit": ("lactate", {3: "<0.5"}, '<0.5".*"0.25"'),
    "a word": ("lactate", {150: "unknown"}, 'unreadable = "missing"'),
    "decimal commas": ("lactate", dict.fromkeys(range(0, ROWS, 2), "1,5"), 'kinds = {lactate = "decimal_comma"}'),
    "thousands": ("lactate", dict.fromkeys(range(50), "1,234"), 'kinds = {lactate = "thousands_comma"}'),
    "percent": ("lactate", dict.fromkeys(range(ROWS), "95%"), 'kinds = {lactate = "percent"}'),
    "dates": (
        "lactate",
        {row: f"2024-01-{row % 28 + 1:02d}" for row in range(ROWS)},
        'days = {lactate = "2020-01-01"}',
    ),
    "other dates": ("lactate", dict.fromkeys(range(ROWS), "31.12.2024"), 'date_formats = {lactate = "%d.%m.%Y"}'),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_number_column_that_became_text_is_named_with_the_setting_that_repairs_it(name: str) -> None:
    column, words, remedy = UNREAD[name]
    frame = sound()
    frame[column] = with_text(frame[column], words)
    (found,) = find_in_table(table_of(frame))
    assert found.stops
    assert found.column == column
    assert all(part in found.remedy for part in remedy.split(".*"))
    # Values are for the eyes of whoever has the rows: in the refusal, not in a note.
    first = next(iter(words.values()))
    assert found.examples[0] == first
    assert first in str(found.refusal("here"))
    assert first not in found.what
    if name == "a word":
        assert found.sites == ("B",)
        assert "site B, here" in str(found.refusal("here"))


def test_the_setting_that_a_finding_names_repairs_it() -> None:
    frame = sound()
    frame["lactate"] = with_text(frame["lactate"], {3: "<0.5", 9: "unknown"})
    said = Cleanup(kinds={"lactate": "number"}, recode={"lactate": {"<0.5": "0.25"}}, unreadable="missing")
    table = table_of(frame, said)
    assert find_in_table(table) == []
    assert table.sites["A"]["lactate"].tolist()[3] == 0.25
    assert int(table.sites["A"]["lactate"].isna().sum()) == 1
    assert find_in_table(table_of(frame, Cleanup(kinds={"lactate": "text"}))) == []


def test_settings_for_columns_with_spaces_can_be_copied_into_a_study_file() -> None:
    """A key with a space or a bracket needs quotes in TOML."""
    frame = sound().rename(columns={"lactate": "Lactate (mmol/L)"})
    frame["Lactate (mmol/L)"] = with_text(frame["Lactate (mmol/L)"], {3: "<0.5", 9: "unknown"})
    (found,) = find_in_table(table_of(frame, Cleanup()))
    settings = re.findall(r"(?:kinds|recode) = \{.*?\}+", found.remedy)
    assert len(settings) == 3
    kinds, recode = (tomllib.loads(one) for one in settings[:2])
    assert find_in_table(table_of(frame, Cleanup(**kinds, **recode, unreadable="missing"))) == []
    assert tomllib.loads(settings[2]) == {"kinds": {"Lactate (mmol/L)": "text"}}


def test_identifiers_are_refused_unless_they_are_said_to_be_categories() -> None:
    frame = sound().assign(patient=[f"P{row:04d}" for row in range(ROWS)])
    assert kinds_found(find_in_table(table_of(frame))) == [("identifier", "patient", True)]
    assert find_in_table(table_of(frame, Cleanup(kinds={"patient": "text"}))) == []
    assert find_in_table(table_of(frame, categories=("patient",))) == []
    assert find_in_table(table_of(frame), ["patient"]) == [], "split_by keeps it from the model"
    # Numbers are no categories: warned about, if they run like a list or are named so.
    numbered = sound().assign(number=np.arange(ROWS)[::-1])
    assert kinds_found(find_in_table(table_of(numbered))) == [("identifier", "number", False)]
    scattered = np.random.default_rng(1).choice(10**6, ROWS, replace=False)
    assert find_in_table(table_of(sound().assign(platelets=scattered))) == []
    assert [one.column for one in find_in_table(table_of(sound().assign(patient_id=scattered)))] == ["patient_id"]
    assert identifying_word("PatientID") == "id"
    assert identifying_word("fluid") == ""


@pytest.mark.parametrize(
    ("values", "outside", "rows"),
    [
        ([*range(20, 90), -999, -999], (-999.0,), 2),
        ([*range(20, 90), 1e12], (1e12,), 1),
        ([1, 2, 3, 4, 5, 9999, 9998, 999], (999.0, 9998.0, 9999.0), 3),
        ([*range(30, 120), 998, 999, 999], (), 0),  # 998 is no usual code, and 878 is less than ten times 89
        ([*range(30, 120), 888, 999, 999], (888.0, 999.0), 3),
        ([1, 2, 3, 4, 5, -9, 99], (-9.0, 99.0), 2),
        ([0, 1, 0, 1], (), 0),
        ([0.0, 0.0, 0.0, 1.0, 99.0], (), 0),  # the rest has two values only
        (list(np.random.default_rng(0).lognormal(1, 1, 500)), (), 0),
        ([5.0], (), 0),
        ([], (), 0),
    ],
)
def test_numbers_far_outside_the_rest(values: list[float], outside: tuple[float, ...], rows: int) -> None:
    found = outsiders(np.array(values, np.float64))
    assert (found.values if found else ()) == outside
    assert (found.rows if found else 0) == rows


def test_codes_for_unknown_are_warned_about_with_the_setting_that_takes_them_out() -> None:
    frame = sound()
    frame.loc[[3, 5, 8], "age"] = -999
    (found,) = find_in_table(table_of(frame))
    assert (found.kind, found.stops) == ("outsiders", False)
    assert "3 values far outside the rest that look like codes for unknown" in found.note
    assert "missing = {age = [-999]}" in found.remedy
    assert find_in_table(table_of(frame, Cleanup(missing={"age": [-999]}))) == []
    assert find_in_table(table_of(frame, Cleanup(plausible={"age": [0.0, 120.0]}))) == []


def test_words_that_differ_in_case_are_warned_about_and_in_the_target_refused() -> None:
    frame = sound()
    frame.loc[:20, "sex"] = "Female"
    assert kinds_found(find_in_table(table_of(frame))) == [("alike", "sex", False)]
    frame["y"] = frame["y"].mask(frame.index < 30, frame["y"].str.upper())
    assert ("alike", "y", True) in kinds_found(find_in_table(table_of(frame)))


# ---- with the outcome, and with the split ----


def test_auc_is_scikit_learns() -> None:
    generator = np.random.default_rng(3)
    for _ in range(5):
        outcome = (generator.random(300) < 0.3).astype(float)
        score = (generator.normal(size=300) + outcome).round(1)  # with ties
        np.testing.assert_allclose(auc(score, outcome), roc_auc_score(outcome, score), atol=1e-12)


def test_a_column_that_tells_the_outcome_is_found_whatever_it_holds() -> None:
    generator = np.random.default_rng(4)
    outcome = (generator.random(400) < 0.4).astype(float)
    stay = pd.Series(np.where(outcome > 0, 30.0, 1.0) + generator.random(400))
    assert separation(stay, outcome) == separation(-stay, outcome) == 1.0
    status = pd.Series(np.where(outcome > 0, "dead", generator.choice(["home", "ward"], 400)))
    assert separation(status, outcome) == 1.0
    died_on = pd.Series(generator.random(400)).where(outcome > 0)
    assert separation(died_on, outcome) == 1.0, "that there is a value at all tells it"
    # Words of chance tell nothing, however many there are: the halves are judged by each other.
    names = pd.Series(generator.integers(0, 150, 400).astype(str))
    assert separation(names, outcome) < 0.7
    assert separation(stay[:20], outcome[:20]) is None, "so few rows are separated by chance"
    assert separation(stay, np.r_[np.ones(4), np.zeros(396)]) is None


def test_shares_of_words_by_hand() -> None:
    # Rows 0, 2 and 4 are one half, 1, 3 and 5 the other. Of a at 1 and 3 both are cases; of a at 0 and 2 one of two.
    column = pd.Series(["a", "a", "a", "a", "b", None])
    outcome = np.array([1.0, 1, 0, 1, 0, 1])
    # b and the missing word do not occur in the other half: the mean of all, 4/6.
    np.testing.assert_allclose(shares_by_word(column, outcome), [1, 0.5, 1, 0.5, 4 / 6, 4 / 6])


def test_a_leak_is_warned_about_in_the_notes_of_the_rows() -> None:
    frame = sound()
    frame["discharge"] = np.where(frame["y"] == "yes", "dead", "home")
    table = table_of(frame, positive="yes")
    (found,) = find_in_rows(load(table, seed=1))
    assert (found.kind, found.column, found.stops) == ("leak", "discharge", False)
    assert "ROC-AUC 1.000" in found.note


def test_of_a_quantity_the_rank_correlation_counts() -> None:
    outcome = np.random.default_rng(5).normal(size=100)
    assert correlation(pd.Series(np.exp(outcome)), outcome) == pytest.approx(1)
    assert correlation(pd.Series(-outcome), outcome) == pytest.approx(1)
    assert correlation(pd.Series(["a"] * 100), outcome) is None


def test_copies_are_counted_within_and_across_sites_and_parts() -> None:
    frame = sound()
    tripled = frame_source({"A": pd.concat([frame] * 3)}, target="y")
    (found,) = find_in_rows(load(tripled, seed=0))
    assert "400 of 600 rows are copies of other rows in every column;" in found.what
    assert 'duplicates = "drop"' in found.remedy
    # Of 120 test rows one is no training row only if all of its copies were drawn for validation or test.
    assert int(found.what.split("; ")[1].split(" of ")[0]) > 80
    assert find_in_rows(load(clean_table(tripled, Cleanup(duplicates="drop")), seed=0)) == []
    shared = frame_source({"A": frame, "B": frame[:50]}, target="y")
    (found,) = find_in_rows(load(shared, seed=0))
    assert "50 of 250 rows are copies of other rows in every column at different sites" in found.what
    assert "one site's table" in found.remedy


def test_patients_who_look_alike_by_chance_are_no_copies() -> None:
    generator = np.random.default_rng(6)
    coarse = pd.DataFrame({"a": generator.integers(0, 3, 300), "b": generator.integers(0, 2, 300)})
    coarse["y"] = generator.choice(["yes", "no"], 300)
    assert find_in_rows(load(frame_source({"A": coarse}, target="y"), seed=0)) == []


def test_the_profile_tells_what_every_column_holds_and_why() -> None:
    frame = sound().assign(code=1, empty=None)
    frame.loc[:9, "age"] = np.nan
    table = table_of(frame, Cleanup(kinds={"code": "text"}), groups=("sex",), drop=("sex",))
    told = {one.name: one for one in profile_table(table)}
    age = told["age"]
    assert (age.kind, age.missing, age.rows, age.role) == ("number", 10, 200, "input")
    assert (age.low, age.high) == (frame["age"].min(), frame["age"].max())
    assert (told["code"].kind, told["code"].why, told["code"].levels) == ("text", "declared as text", 1)
    assert (told["sex"].role, told["y"].role, told["empty"].kind) == ("aside", "target", "empty")
    assert told["y"].examples == tuple(frame["y"].value_counts().index)
