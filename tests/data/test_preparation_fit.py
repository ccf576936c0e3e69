"""The federated fit against scikit-learn on the pooled rows, which is the independent formula."""

from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, TextColumn
from wardround.data.preparation_fit import fit_preparation
from wardround.data.query import Ask, ask_all

NUMBERS = ["age", "pressure", "dose", "grade"]
WORDS = ["ward", "outcome"]
KINDS = {**dict.fromkeys(NUMBERS, "number"), **dict.fromkeys(WORDS, "text")}


def hospital(seed: int, rows: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.normal(40 + 10 * seed, 12, rows),
            "pressure": random.lognormal(4.8, 0.3, rows),
            "dose": 1e6 + random.normal(0, 1e-1, rows),
            "grade": random.integers(seed, 5 + seed, rows).astype(float),
            "ward": random.choice(["a", "b", "c"][: 1 + seed], rows),
            "outcome": random.choice(["x", "y"], rows),
        }
    )
    for name in NUMBERS + WORDS:
        frame.loc[random.random(rows) < 0.2, name] = np.nan
    return frame


# Different sizes, wards that only one hospital has, and an empty hospital.
SITES = [Site("A", hospital(0, 40)), Site("B", hospital(1, 7)), Site("C", hospital(2, 130)), Site("D", hospital(2, 0))]
POOL = pd.concat([site.table for site in SITES[:3]], ignore_index=True)


def asking(sites: list[Site]) -> Ask:
    return lambda query, message: ask_all(query, message, sites)


@pytest.mark.parametrize("impute", ["mean", "median", "most_frequent"])
@pytest.mark.parametrize("scale", ["standard", "minmax", "none"])
def test_equals_scikit_learn_on_the_pooled_rows(
    impute: Literal["mean", "median", "most_frequent"], scale: Literal["standard", "minmax", "none"]
) -> None:
    preparation, notes = fit_preparation(asking(SITES), KINDS, impute=impute, scale=scale)
    scaler = {"standard": [StandardScaler()], "minmax": [MinMaxScaler()], "none": []}[scale]
    numbers = make_pipeline(SimpleImputer(strategy=impute), *scaler).fit(POOL[NUMBERS])
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    ).fit(POOL[WORDS].astype(object))
    expected = np.hstack([numbers.transform(POOL[NUMBERS]), words.transform(POOL[WORDS].astype(object))])
    assert preparation.features == (*NUMBERS, "ward=a", "ward=b", "ward=c", "outcome=x", "outcome=y")
    assert notes == ()
    # float32 holds 24 bits: a relative 6e-8, which for the unscaled dose near 1e6 is 0.06.
    np.testing.assert_allclose(preparation.apply(POOL), expected, rtol=1e-6, atol=1e-6)


def test_parameters_equal_scikit_learn_in_double_precision() -> None:
    preparation, _ = fit_preparation(asking(SITES), KINDS, impute="mean")
    imputer = SimpleImputer().fit(POOL[NUMBERS])
    scaler = StandardScaler().fit(imputer.transform(POOL[NUMBERS]))
    columns = [c for c in preparation.columns if isinstance(c, NumberColumn)]
    np.testing.assert_allclose([c.fill for c in columns], imputer.statistics_, rtol=1e-13)
    np.testing.assert_allclose([c.center for c in columns], scaler.mean_, rtol=1e-13)
    np.testing.assert_allclose([c.scale for c in columns], scaler.scale_, rtol=1e-9)


def test_spread_survives_a_large_offset() -> None:
    # Values 1e9 + (0, 1, 2, 3): variance 1.25. A sum of squares (1e18) would keep no digit of it in 53 bits.
    sites = [Site("A", pd.DataFrame({"v": [1e9, 1e9 + 1]})), Site("B", pd.DataFrame({"v": [1e9 + 2, 1e9 + 3]}))]
    (column,) = fit_preparation(asking(sites), {"v": "number"}, impute="mean")[0].columns
    assert isinstance(column, NumberColumn)
    assert column.center == 1e9 + 1.5
    assert column.scale == pytest.approx(np.sqrt(1.25), rel=1e-12)


def test_filled_rows_count_in_the_spread() -> None:
    # Known 0, 4 (A) and 8 (B); two missing filled with the mean 4. All five: mean 4, squares 16 + 0 + 16 + 0 + 0 = 32,
    # variance 32 / 5 = 6.4.
    sites = [Site("A", pd.DataFrame({"v": [0, 4, None]})), Site("B", pd.DataFrame({"v": [8, None]}))]
    (column,) = fit_preparation(asking(sites), {"v": "number"}, impute="mean", indicators=True)[0].columns
    assert isinstance(column, NumberColumn)
    assert (column.fill, column.center, column.indicator) == (4.0, 4.0, True)
    assert column.scale == pytest.approx(np.sqrt(6.4), rel=1e-15)


def fitted_median(*sites: list[float]) -> float:
    asked = [Site(str(i), pd.DataFrame({"v": np.array(values, float)})) for i, values in enumerate(sites)]
    (column,) = fit_preparation(asking(asked), {"v": "number"}, impute="median")[0].columns
    assert isinstance(column, NumberColumn)
    return column.fill


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(-5000, 100_000), max_size=9), min_size=1, max_size=4).filter(any))
def test_median_of_whole_numbers_is_exact(sites: list[list[float]]) -> None:
    assert fitted_median(*sites) == np.median(np.concatenate(sites))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=9), min_size=1, max_size=4).filter(any))
def test_median_of_measurements_is_within_a_billionth_of_the_range(sites: list[list[float]]) -> None:
    pooled = np.concatenate(sites)
    # 64 ** 5 = 1.07e9 bins over the range, and the rounding of doubles of this size.
    tolerance = 1e-9 * np.ptp(pooled) + 1e-15 * np.abs(pooled).max()
    assert abs(fitted_median(*sites) - np.median(pooled)) <= tolerance


def test_ties_of_the_most_frequent_go_to_the_smallest() -> None:
    # 10 twice, 9 twice: as text "10" would come first.
    sites = [
        Site("A", pd.DataFrame({"v": [10, 9, 1], "t": ["b", "a", "c"]})),
        Site("B", pd.DataFrame({"v": [9, 10, 2], "t": ["a", "b", None]})),
    ]
    number, text = fit_preparation(asking(sites), {"v": "number", "t": "text"}, impute="most_frequent")[0].columns
    assert number.fill == 9.0
    assert isinstance(text, TextColumn)
    assert (text.fill, text.categories) == ("a", ("a", "b", "c"))


def test_flags_are_numbers_also_when_some_are_missing() -> None:
    sites = [Site("A", pd.DataFrame({"v": [True, False]})), Site("B", pd.DataFrame({"v": [True, None]}, dtype=object))]
    for impute in ("mean", "median", "most_frequent"):
        (column,) = fit_preparation(asking(sites), {"v": "number"}, impute=impute)[0].columns
        # Known: 1, 0, 1.
        assert column.fill == pytest.approx({"mean": 2 / 3}.get(impute, 1.0))


def test_constant_column_becomes_zero_and_not_infinite() -> None:
    sites = [Site("A", pd.DataFrame({"v": [0.1] * 3})), Site("B", pd.DataFrame({"v": [0.1] * 7}))]
    for scale in ("standard", "minmax"):
        preparation, _ = fit_preparation(asking(sites), {"v": "number"}, impute="mean", scale=scale)
        np.testing.assert_allclose(preparation.apply(sites[0].table), 0.0, atol=1e-15)
        # A deviation at prediction time is passed on in its own unit.
        np.testing.assert_allclose(preparation.apply(pd.DataFrame({"v": [1.1]})), 1.0, rtol=1e-6)


def test_all_missing_at_one_site_takes_the_others_fill() -> None:
    sites = [Site("A", pd.DataFrame({"v": [1.0, 3.0, 8.0]})), Site("B", pd.DataFrame({"v": [np.nan, np.nan]}))]
    preparation, notes = fit_preparation(asking(sites), {"v": "number"}, scale="none")
    assert preparation.apply(sites[1].table).tolist() == [[3.0], [3.0]]
    assert notes == ()


def test_all_missing_everywhere_is_constant_zero_with_a_note() -> None:
    sites = [Site("A", pd.DataFrame({"v": [np.nan] * 2, "w": [1.0, 2.0]}))]
    for impute in ("mean", "median", "most_frequent"):
        preparation, notes = fit_preparation(asking(sites), {"v": "empty", "w": "number"}, impute=impute)
        assert preparation.apply(pd.DataFrame({"v": [5.0, np.nan], "w": [1.0, 2.0]}))[:, 0].tolist() == [0.0, 0.0]
        assert notes == ("No site knows a training value of v: the model sees 0 there.",)


def test_columns_with_too_many_values_are_refused_at_the_site() -> None:
    rows = pd.DataFrame({"name": [f"patient {i}" for i in range(30)], "v": np.arange(30) / 7})
    with pytest.raises(Refusal, match=r"'name' has more than 29 different values.*site Bo"):
        fit_preparation(asking([Site("Bo", rows)]), {"name": "text"}, most_categories=29)
    fit_preparation(asking([Site("Bo", rows)]), {"name": "text"}, most_categories=30)
    with pytest.raises(Refusal, match="use another imputation"):
        fit_preparation(asking([Site("Bo", rows)]), {"v": "number"}, impute="most_frequent", most_categories=29)


def test_unknown_choices_and_no_columns_are_refused() -> None:
    with pytest.raises(Refusal, match=r"impute = 'middle'.*mean, median"):
        fit_preparation(asking(SITES), KINDS, impute="middle")  # type: ignore[arg-type]
    with pytest.raises(Refusal, match=r"scale = 'big'"):
        fit_preparation(asking(SITES), KINDS, scale="big")  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="no column left"):
        fit_preparation(asking(SITES), {})


def answers_of(sites: list[Site], **options: Any) -> list[Message]:
    """Every message that leaves a site while a preparation is fitted."""
    left: list[Message] = []

    def ask(query: Query, message: Message) -> Report:
        given = [query.ask(message, site) for site in sites]
        left.extend(given)
        return query.combine(given)

    fit_preparation(ask, KINDS, indicators=True, **options)
    return left


@pytest.mark.parametrize("impute", ["mean", "median", "most_frequent"])
def test_answers_are_no_longer_for_more_patients(impute: str) -> None:
    # Only the digits of the category counts may add a few bytes; the rows are 20 times as many. The values are coarse
    # and their range fixed, so that the median takes as many passes and the most frequent value chooses among as many.
    def cut(rows: int) -> list[Site]:
        frame = hospital(2, rows)
        age, pressure = frame["age"].round(-1).clip(40, 80), frame["pressure"].round(-2).clip(100, 200)
        return [Site("A", frame.assign(age=age, pressure=pressure, dose=7.0))]

    small, large = (answers_of(cut(rows), impute=impute) for rows in (200, 4000))
    bytes_of = [sum(np.asarray(a).nbytes for m in left for a in m.arrays.values()) for left in (small, large)]
    assert all(message.meta == () for message in large)
    assert len(small) == len(large)
    assert abs(bytes_of[1] - bytes_of[0]) < 100


@pytest.mark.parametrize("impute", ["mean", "median"])
def test_no_patients_value_is_in_an_answer(impute: str) -> None:
    # Smallest and largest value are told where the median or minmax need them (the module says so); any other value of
    # any patient must be found in no array that leaves.
    site = SITES[2]
    values = site.table[["age", "pressure", "dose"]].to_numpy()
    extreme = {*np.nanmin(values, axis=0), *np.nanmax(values, axis=0)} if impute == "median" else set()
    secret = {float(v) for v in values.ravel() if not np.isnan(v) and v not in extreme}
    assert len(secret) > 200
    for message in answers_of([site], impute=impute):
        for array in message.arrays.values():
            assert not secret & {float(v) for v in np.asarray(array).ravel()}
