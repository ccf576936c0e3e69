from typing import Any

import numpy as np
import pandas as pd
import pytest

from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.query import ask_all
from wardround.data.schema import Schema, agree
from wardround.data.sources.frame import frame
from wardround.queries.cards import cards, cards_of

GOOD: dict[str, Any] = {"age": [30.0, 40.0, 50.0], "sex": ["f", "m", "f"], "y": ["no", "yes", "no"]}


def checked(sites: dict[str, dict[str, Any]], target: str = "y", **options: Any) -> Schema:
    policy = {key: options.pop(key) for key in list(options) if key.startswith(("missing_", "empty_"))}
    table = frame({name: pd.DataFrame(columns) for name, columns in sites.items()}, target=target, **options)
    asked = [Site(name, rows) for name, rows in table.sites.items()]
    return agree(cards_of(ask_all(cards(target=target, task=table.task), Message({}), asked)), table, **policy)


def refused(sites: dict[str, dict[str, Any]], *words: str, **options: Any) -> None:
    with pytest.raises(Refusal) as caught:
        checked(sites, **options)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def test_sites_that_agree() -> None:
    schema = checked({"A": GOOD, "B": GOOD})
    assert schema.kinds == {"age": "number", "sex": "text"}
    assert (schema.task, schema.classes, schema.notes) == ("classification", ("no", "yes"), ())


def test_target_missing_everywhere_and_at_one_site() -> None:
    refused({"A": GOOD, "B": GOOD}, "target 'why' is missing", "correct the name", target="why")
    misspelt = {"age": GOOD["age"], "sex": GOOD["sex"], "Y ": GOOD["y"]}
    refused({"A": GOOD, "va": misspelt}, "target 'y' is missing", "did you mean 'Y '?", "site va")


def test_column_missing_at_one_site_is_refused_or_filled() -> None:
    without = {"aeg": GOOD["age"], "sex": GOOD["sex"], "y": GOOD["y"]}
    refused({"A": GOOD, "B": without}, "Column 'age' is missing", "'aeg'", "site B", 'missing_columns = "fill"')
    schema = checked({"A": GOOD, "B": {"sex": GOOD["sex"], "y": GOOD["y"]}}, missing_columns="fill")
    assert schema.kinds["age"] == "number"
    assert "No value of age at B" in schema.notes[0]


def test_text_at_one_site_and_numbers_at_another() -> None:
    refused({"A": GOOD, "B": {**GOOD, "age": ["30", "old", "50"]}}, "'age'", "numbers at A", "text at B")


def test_all_missing_at_one_site_fits_any_kind_and_is_remarked() -> None:
    schema = checked({"A": GOOD, "B": {**GOOD, "sex": [None] * 3, "age": [np.nan] * 3}})
    assert schema.kinds == {"age": "number", "sex": "text"}
    assert [note.split(":")[0] for note in schema.notes] == ["No value of age at B", "No value of sex at B"]


def test_empty_everywhere_is_its_own_kind() -> None:
    assert checked({"A": {**GOOD, "age": [None] * 3}}).kinds["age"] == "empty"


def test_flags_and_numbers_go_together_as_features_but_not_in_the_target() -> None:
    flags = {**GOOD, "age": [True, False, True]}
    assert checked({"A": GOOD, "B": flags}).kinds["age"] == "number"
    refused({"A": {"y": [0, 1]}, "B": {"y": [True, False]}}, "'y'", "numbers at A", "true/false at B")


@pytest.mark.parametrize(("rows", "words"), [(0, "B (no row)"), (1, "B (one row)")])
def test_sites_with_too_few_rows(rows: int, words: str) -> None:
    few = {name: values[:rows] for name, values in GOOD.items()}
    refused({"A": GOOD, "B": few}, words, 'empty_sites = "keep"')
    schema = checked({"A": GOOD, "B": few}, empty_sites="keep")
    assert schema.kinds == {"age": "number", "sex": "text"}
    assert schema.classes == ("no", "yes")
    assert "Fewer than two rows at B" in schema.notes[0]


def test_no_row_anywhere_is_refused_even_if_empty_sites_are_kept() -> None:
    refused({"A": {"y": []}, "B": {"y": []}}, "no site has a row".capitalize(), empty_sites="keep")


def test_unknown_targets_are_counted_or_dropped() -> None:
    holes = {**GOOD, "y": ["no", None, "yes"]}
    refused({"A": GOOD, "B": holes}, "B: 1 of 3", 'missing_target = "drop"')
    assert "1 row without a known y was left out" in checked({"A": GOOD, "B": holes}, missing_target="drop").notes[0]
    # Dropping may leave a site with one row, which is then refused in its turn.
    refused({"A": GOOD, "B": {**GOOD, "y": [None, None, "yes"]}}, "B (one row)", missing_target="drop")


def test_infinite_values_are_refused() -> None:
    refused({"A": GOOD, "B": {**GOOD, "age": [1.0, np.inf, -np.inf]}}, "'age' holds infinite", "site B")


def test_one_class_everywhere_is_refused_but_at_one_site_remarked() -> None:
    single = {**GOOD, "y": ["no", "no", "no"]}
    refused({"A": single, "B": single}, "only one value everywhere (no)")
    assert "Only one outcome at B (no)" in checked({"A": GOOD, "B": single}).notes[0]


def test_dates_and_mixtures_are_refused_as_features() -> None:
    dates = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
    refused({"A": {**GOOD, "age": dates}}, "'age' holds dates", "site A", "days since")
    refused({"A": {**GOOD, "age": [1, "x", 2.5]}}, "'age' holds a mixture", "site A")


@pytest.mark.parametrize(
    ("target", "task", "classes"),
    [
        (["b", "a", "b"] * 10, "classification", ("a", "b")),
        ([True, False, True] * 10, "classification", ("False", "True")),
        # Sorted as numbers, not as text: 10 comes after 2.
        ([10, 2, 1] * 10, "classification", ("1", "2", "10")),
        ([1.0, 0.0, 1.0] * 10, "classification", ("0", "1")),
        (list(range(20)) + list(range(10)), "classification", tuple(map(str, range(20)))),
        (list(range(21)) + list(range(9)), "regression", ()),
        ([0.5, 1.0, 0.0] * 10, "regression", ()),
    ],
)
def test_task_is_told_from_the_target(target: list[Any], task: str, classes: tuple[str, ...]) -> None:
    schema = checked({"A": {"x": np.arange(30.0), "y": target}})
    assert (schema.task, schema.classes) == (task, classes)


def test_whole_numbers_are_counted_over_all_sites() -> None:
    # 11 + 11 different values: each site alone looks like classes, together they are 22 and a quantity.
    sites: dict[str, dict[str, Any]] = {
        "A": {"x": range(11), "y": range(11)},
        "B": {"x": range(11), "y": range(11, 22)},
    }
    assert checked(sites).task == "regression"
    # One value is shared and one left out: 20 different values.
    sites["B"]["y"] = [10, *range(11, 20), 19]
    assert len(checked(sites).classes) == 20


def test_labels_agree_whether_pandas_reads_integers_or_floats() -> None:
    assert checked({"A": {"x": [1, 2], "y": [0, 1]}, "B": {"x": [1, 2], "y": [0.0, 1.0]}}).classes == ("0", "1")


def test_many_numbers_told_to_be_classes_suggest_regression() -> None:
    many = {"x": np.zeros(101), "y": np.arange(101)}
    refused({"A": many}, "more than 100", 'task = "regression"', task="classification")
    assert len(checked({"A": {"x": np.zeros(100), "y": np.arange(100)}}, task="classification").classes) == 100
    names = {"x": np.zeros(101), "y": [f"patient {i}" for i in range(101)]}
    refused({"A": names}, "more than 100", "looks like a name")


def test_text_cannot_be_a_quantity() -> None:
    refused({"A": GOOD}, "the target is text".capitalize(), task="regression")


def test_positive_label_must_exist() -> None:
    refused({"A": GOOD}, "positive label 'yess'", "did you mean 'yes'?", positive="yess")
    refused({"A": {"x": [1.5, 2.5], "y": [0.1, 0.7]}}, "needs classes", positive="1")


def test_columns_kept_aside_are_no_features() -> None:
    schema = checked({"A": GOOD}, drop=("sex",), groups=("sex",))
    assert schema.kinds == {"age": "number"}
