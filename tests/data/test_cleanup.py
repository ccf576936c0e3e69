"""Values become what the study says they mean, and columns that were meant to hold numbers are noticed."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.cleanup import Cleanup, clean_frame, clean_table, repeated_rows, restrict
from wardround.data.load import fingerprint_of, load
from wardround.data.sources.frame import frame as frame_source
from wardround.data.table import Table
from wardround.data.value_forms import form_of, read_number
from wardround.queries.columns import kind_of


def kinds(frame: pd.DataFrame) -> dict[str, str]:
    return {str(column): str(kind_of(frame[column])) for column in frame.columns}


@pytest.mark.parametrize(
    ("text", "form", "kind", "number"),
    [
        ("12", "number", "number", 12.0),
        ("-1.5e3", "number", "percent", -1500.0),
        ("1,5", "comma", "decimal_comma", 1.5),
        ("1.234,56", "comma", "decimal_comma", 1234.56),
        ("1,234", "thousands", "thousands_comma", 1234.0),
        ("1,234", "thousands", "decimal_comma", 1.234),
        ("12,345,678.9", "thousands", "thousands_comma", 12345678.9),
        ("95%", "percent", "percent", 95.0),
        ("97,5 %", "percent", "percent", 97.5),
        ("<0.5", "bound", "number", None),
        ("≥ 90", "bound", "number", None),
        ("2024-02-29", "date", "number", None),
        ("29.02.2024 10:30", "date", "number", None),
        ("unknown", "other", "number", None),
        ("10-20", "other", "number", None),
        ("1,23,4", "other", "decimal_comma", None),
        ("", "other", "number", None),
    ],
)
def test_forms_of_numbers(text: str, form: str, kind: str, number: float | None) -> None:
    assert form_of(text) == form
    assert read_number(text, kind) == number  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2", "<0.5"], "mixed"),
        (["1,5", "2,5", "3,5"], "mixed"),
        (["95%", "90%", None], "mixed"),
        (["2024-01-01", "2024-01-02", None], "date"),
        (["01.02.2024", "28.02.2024"], "mixed"),
        (["1", "a", "b"], "text"),  # a third reads as a number: words
        (["a", "b", None], "text"),
        (["1", "2", "3"], "text"),  # all plain numbers in a column of words: meant so, and warned about
    ],
)
def test_a_column_that_was_meant_to_hold_numbers_is_a_mixture(values: list[str | None], expected: str) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    assert kinds(clean_frame(frame, Cleanup()))["x"] == expected
    # As Arrow holds text, too; and a column that is declared stays words.
    assert kinds(clean_frame(frame.astype("str"), Cleanup()))["x"] == expected
    assert kinds(clean_frame(frame, Cleanup(), words=["x"]))["x"] == "text"


def test_every_setting_by_hand() -> None:
    frame = pd.DataFrame(
        {
            "crp": ["1.5", "<0.5", "unknown", "3"],
            "oxygen": ["95%", "90", None, "92 %"],
            "age": [40, -999, 50, 260],
            "sex": ["M", "F ", " M", "?"],
            "admitted": ["2024-02-28", "2024-03-01", "2024-01-01", None],
            "left": ["01.03.2024", "02.03.2024", "01.01.2024", "05.05.2024"],
            "ward": [1, 2, 2, 3],
        }
    )
    said = Cleanup(
        kinds={"crp": "number", "oxygen": "percent", "ward": "text"},
        recode={"crp": {"<0.5": "0.25"}, "sex": {"M": "male", "F": "female", "?": ""}},
        missing={"age": [-999]},
        plausible={"age": [0.0, 120.0]},
        days={"left": "admitted", "admitted": "2024-01-01"},
        date_formats={"left": "%d.%m.%Y"},
        unreadable="missing",
    )
    made = clean_frame(frame, said)
    np.testing.assert_array_equal(made["crp"], [1.5, 0.25, np.nan, 3])
    np.testing.assert_array_equal(made["oxygen"], [95, 90, np.nan, 92])
    np.testing.assert_array_equal(made["age"], [40, np.nan, 50, np.nan])
    assert made["sex"].tolist() == ["male", "female", "male", None]
    # 2024 has a 29th of February: 58 days to the 28th, 60 to the 1st of March; and from the one to the other 2.
    np.testing.assert_array_equal(made["admitted"], [58, 60, 0, np.nan])
    np.testing.assert_array_equal(made["left"], [2, 1, 0, np.nan])
    assert made["ward"].tolist() == ["1", "2", "2", "3"]
    assert frame["age"].tolist() == [40, -999, 50, 260], "the given rows are left as they are"


def test_a_recoded_column_of_numbers_holds_numbers_again() -> None:
    frame = pd.DataFrame({"x": ["1", "2", "<0.5"], "y": ["1", "2", "?"]})
    made = clean_frame(frame, Cleanup(recode={"x": {"<0.5": "0.25"}}, missing={"y": ["?"]}))
    assert kinds(made) == {"x": "number", "y": "number"}
    # Numbers recoded to words are words; a code is told by its value, however it is written.
    coded = clean_frame(pd.DataFrame({"x": [0, 1, 1]}), Cleanup(recode={"x": {"0": "no", "1": "yes"}}))
    assert coded["x"].tolist() == ["no", "yes", "yes"]
    assert clean_frame(pd.DataFrame({"x": ["-999.0", "a", "b"]}), Cleanup(missing={"x": [-999]}))["x"].isna().sum() == 1


def test_what_cannot_be_read_stays_text_unless_it_may_be_missing() -> None:
    frame = pd.DataFrame({"x": ["1", "2", "much"], "d": ["2024-01-01", "soon", "2024-01-03"]})
    said = Cleanup(kinds={"x": "number"}, days={"d": "2024-01-01"})
    assert kinds(clean_frame(frame, said)) == {"x": "mixed", "d": "mixed"}
    made = clean_frame(frame, Cleanup(kinds={"x": "number"}, days={"d": "2024-01-01"}, unreadable="missing"))
    np.testing.assert_array_equal(made["x"], [1, 2, np.nan])
    np.testing.assert_array_equal(made["d"], [0, np.nan, 2])


def test_rows_are_left_out() -> None:
    frame = pd.DataFrame({"status": ["open", "cancelled", "open", "open"], "x": [1, 2, 1, 3], "y": [0, 1, 0, 1]})
    table = frame_source({"A": frame, "B": frame}, target="y")
    made = clean_table(table, Cleanup(drop_rows={"status": ["cancelled"]}, duplicates="drop"), drop=["status"])
    # Of four rows one is cancelled and one a copy; the copies at the other site are not known to this one.
    assert {name: rows["x"].tolist() for name, rows in made.sites.items()} == {"A": [1, 3], "B": [1, 3]}
    assert list(made.sites["A"].columns) == ["x", "y"]
    assert made.notes == ("Left out by drop_rows and duplicates in [data.cleaning]: 4 rows.",)


def test_copies_are_told_by_their_values_not_by_their_types() -> None:
    frame = pd.DataFrame({"a": [1.0, 1.0, np.nan, np.nan], "b": ["x", "x", None, None], "c": [1, 1, 2, 3]})
    assert repeated_rows(frame).tolist() == [False, True, False, False]
    assert repeated_rows(frame.astype({"a": object, "c": float})).tolist() == [False, True, False, False]
    # Columns must not cancel one another: (1, 2) is not (2, 1).
    assert not repeated_rows(pd.DataFrame({"a": [1, 2], "b": [2, 1]})).any()


def test_blanks_are_told_and_nothing_else_is_changed() -> None:
    frame = pd.DataFrame({"s": ["a ", "a", " b", "  "], "y": ["yes", "yes ", "no", "no"]})
    table = frame_source({"A": frame}, target="y")
    made = clean_table(table, Cleanup())
    assert made.sites["A"]["s"].tolist() == ["a", "a", "b", None]
    assert made.notes == ("Blanks around words were removed in s, y (4 values).",)
    kept = clean_table(table, Cleanup(trim=False))
    assert kept.sites["A"].equals(frame)
    assert fingerprint_of(kept) == fingerprint_of(table) != fingerprint_of(made)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Cleanup(kinds={"agee": "number"}), r"column 'agee' is missing; did you mean 'age'\?.*\[data.cleaning\]"),
        (Cleanup(days={"age": "birth"}), "counted from 'birth', which is neither a column nor a day"),
        (Cleanup(days={"age": "2024-13-01"}), "neither a column nor a day"),
    ],
)
def test_names_that_do_not_exist_are_refused(said: Cleanup, words: str) -> None:
    with pytest.raises(Refusal, match=f"(?i){words}"):
        clean_table(frame_source({"A": pd.DataFrame({"age": [1], "y": [1]})}, target="y"), said)


def test_a_site_applies_what_is_said_about_its_own_columns() -> None:
    said = Cleanup(kinds={"a": "number", "b": "text"}, days={"d": "b", "e": "2024-01-01"}, drop_rows={"z": [1]})
    assert restrict(said, ["a", "d", "e"]) == Cleanup(kinds={"a": "number"}, days={"e": "2024-01-01"})


# ---- one label against the rest ----


def three() -> Table:
    frames = {
        "A": pd.DataFrame({"x": range(12), "y": ["died", "home", "moved"] * 4}),
        "B": pd.DataFrame({"x": range(12), "y": ["died", "home"] * 6}),
    }
    return frame_source(frames, target="y", positive="died")


def test_a_positive_label_among_three_asks_for_it_against_the_rest() -> None:
    loaded = load(three(), seed=0)
    assert loaded.federation.task.classes == ("not died", "died")
    # 4 of 12 at A and 6 of 12 at B, in all parts together.
    assert int(loaded.federation.y.sum()) == 10
    assert "The question is y = died against the rest: home, moved." in loaded.notes
    assert set(loaded.table.sites["B"]["y"]) == {"died", "not died"}, "also where only two labels occur"
    every = load(Table(three().sites, "y", "here"), seed=0)
    assert every.federation.task.classes == ("died", "home", "moved")


def test_two_labels_stay_what_they_are() -> None:
    table = Table({"B": three().sites["B"]}, "y", "here", positive="died")
    assert load(table, seed=0).federation.task.classes == ("died", "home")
    assert load(table, seed=0).notes == ()


def test_labels_that_differ_only_in_case_are_refused_unless_recoded() -> None:
    frame = pd.DataFrame({"x": range(12), "y": ["yes", "YES", "no"] * 4})
    table = frame_source({"A": frame}, target="y", positive="yes")
    with pytest.raises(Refusal, match=r'YES / yes.*recode = \{y = \{"YES" = "yes"\}\}'):
        load(table, seed=0)
    merged = clean_table(table, Cleanup(recode={"y": {"YES": "yes"}}))
    assert load(merged, seed=0).federation.task.classes == ("no", "yes")
    meant = clean_table(table, Cleanup(recode={"y": {"YES": "YES"}}))
    assert load(meant, seed=0).federation.task.classes == ("not yes", "yes")


def test_a_declared_column_that_cannot_be_read_is_refused_by_name() -> None:
    frame = pd.DataFrame({"x": ["a", "b", "c", "1"] * 3, "y": [0, 1] * 6})
    table = clean_table(frame_source({"A": frame}, target="y"), Cleanup(kinds={"x": "number"}))
    with pytest.raises(Refusal, match=r"'x' is declared to hold numbers.*site A"):
        load(table, seed=0)
