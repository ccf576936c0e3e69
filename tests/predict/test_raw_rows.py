"""A raw table gives the bits of the run's own evaluation, however it is written, and whatever stands beside it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import wardround
from tests.support.mixed_patients import FEATURES, HOSPITALS, patients, study_of, train
from wardround.predict.patients import PatientRows, open_patients
from wardround.predict.predictor import read_predictor
from wardround.predict.table import MISSING, OUTSIDE, UNKNOWN, predict_table
from wardround.runs.models import find_model
from wardround.study import assemble

METHODS = ["local", "fed_avg", "fine_tune"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison that kept its predictions: folder, study, and the rows as they were given."""
    place = tmp_path_factory.mktemp("mixed")
    frame = patients()
    frame.to_csv(place / "patients.csv", index=False)
    study = study_of(
        place / "patients.csv",
        compare={"methods": METHODS, "repeats": 1},
        evaluation={"resamples": 0, "keep_predictions": True},
    )
    return train(study, place / "run"), study, frame


@pytest.fixture(scope="module")
def common(compared):
    folder, _, frame = compared
    return read_predictor(find_model(folder, "fed_avg")), frame


def predicted(predictor, frame):
    """By the table that a user gets, not by inner functions."""
    table = predict_table(predictor, PatientRows.of_frame(frame, "test"))
    return table["probability of ill"].to_numpy()


@pytest.mark.parametrize("method", METHODS)
def test_raw_test_patients_get_the_bits_that_the_run_kept(compared, method):
    folder, _, frame = compared
    kept = pd.read_csv(folder / "predictions.csv")
    kept = kept[kept["method"] == method]
    assert set(kept["part"]) == {"test"}
    assert set(kept["site"]) == set(HOSPITALS)
    personal = method != "fed_avg"
    for site, mine in kept.groupby("site"):
        predictor = read_predictor(find_model(folder, method, site if personal else None), site)
        own = frame[frame["hospital"] == site].iloc[mine["row"].to_numpy() - 1]
        assert list(own["outcome"]) == list(mine["actual"])
        found = predicted(predictor, own)
        assert np.array_equal(found, mine["probability of ill"].to_numpy(np.float32))


def test_what_was_kept_is_what_was_scored(compared):
    folder, study, _ = compared
    kept = pd.read_csv(folder / "predictions.csv")
    setting = assemble.load_setting(study, study.study.seed)
    counts = kept[kept["method"] == "local"].groupby("site").size()
    assert list(counts) == list(setting.federation.counts[:, 2])
    assert kept.groupby("method").size().nunique() == 1


def test_order_of_columns_and_further_columns_do_not_matter(common):
    predictor, frame = common
    usual = predicted(predictor, frame)
    other = frame[list(reversed(FEATURES))].assign(more="x", again=1.0)
    assert np.array_equal(predicted(predictor, other), usual)
    # A neighbour changes nothing: alone, a patient gets the same bits.
    assert np.array_equal(
        np.concatenate([predicted(predictor, frame.iloc[[row]]) for row in (0, 7, 80)]), usual[[0, 7, 80]]
    )


def test_every_file_format_gives_the_same(common, tmp_path):
    predictor, frame = common
    usual = predicted(predictor, frame)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    other = {"separator": ";", "decimal": ",", "encoding": "utf-16"}
    for name, settings in (("a.parquet", {}), ("a.csv", {}), ("a.csv.gz", {}), ("b.csv", other)):
        found = open_patients(str(tmp_path / name), predictor.facts, settings=settings)
        assert np.array_equal(predict_table(predictor, found)["probability of ill"], usual), name
    # What the training table was read by is in the file, and is the default.
    there = predictor.read_by(other)
    assert np.array_equal(
        predict_table(there, open_patients(str(tmp_path / "b.csv"), there.facts))["probability of ill"], usual
    )


def test_how_the_training_table_was_read_is_kept(tmp_path):
    frame = patients(12)
    frame.to_csv(tmp_path / "patients.csv", index=False, sep=";", decimal=",", encoding="latin-1", na_rep="unbekannt")
    reading = {"separator": ";", "decimal": ",", "encoding": "latin-1", "missing_words": ["unbekannt"]}
    plain = study_of(tmp_path / "patients.csv")
    study = study_of(
        tmp_path / "patients.csv",
        study={"name": "mixed", "seed": 3, "rounds": 1},
        data={**plain.data.model_dump(exclude_none=True), **reading},
    )
    predictor = read_predictor(find_model(train(study, tmp_path / "run")))
    table = predict_table(predictor, open_patients(str(tmp_path / "patients.csv"), predictor.facts))
    assert np.array_equal(table["probability of ill"], predicted(predictor, frame))
    assert (table[MISSING] != "").sum() == frame[list(FEATURES)].isna().any(axis=1).sum()


def test_the_same_from_python(compared):
    folder, _, frame = compared
    run = wardround.load(folder)
    table = run.predict(frame, method="fine_tune", site="south")
    found = run.explain(frame, method="fine_tune", site="south")
    chance = table["probability of ill"].to_numpy(np.float64)
    np.testing.assert_allclose(found.scores[:, 0], np.log(chance / (1 - chance)), atol=1e-5)


def test_parquet_is_read_in_pieces_and_without_what_is_not_needed(common, tmp_path, monkeypatch):
    predictor, frame = common
    frame.assign(large="x" * 100).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("wardround.predict.patients.PIECE", 32)
    found = open_patients(str(tmp_path / "a.parquet"), predictor.facts)
    pieces = list(found.pieces([*FEATURES, "patient"]))
    assert [len(piece) for piece in pieces] == [32, 32, 26]
    assert set(pieces[0].columns) == {*FEATURES, "patient"}
    done = []
    table = predict_table(predictor, found, keep=["patient"], on_rows=done.append)
    assert done == [32, 64, 90]
    assert list(table["patient"]) == list(frame["patient"])
    assert np.array_equal(table["probability of ill"], predicted(predictor, frame))


def test_codes_are_known_however_they_were_read(common, tmp_path):
    """A file in which only codes such as 01 stand is read as numbers: 1 is still ward 01."""
    predictor, frame = common
    some = frame[frame["ward"] == "01"].head(5)
    some.to_csv(tmp_path / "a.csv", index=False)
    read = open_patients(str(tmp_path / "a.csv"), predictor.facts)
    assert next(read.pieces([]))["ward"].dtype.kind == "i"
    table = predict_table(predictor, read)
    assert set(table[UNKNOWN]) == {""}
    assert np.array_equal(table["probability of ill"], predicted(predictor, some))


def test_gaps_are_filled_as_in_training_and_named(common):
    predictor, frame = common
    row = frame.dropna().head(1)
    table = predict_table(predictor, PatientRows.of_frame(row.assign(age=None, ward=np.nan), "test"))
    assert table[MISSING].tolist() == ["age, ward"]
    columns = {column.name: column for column in predictor.preparation.columns}
    filled = row.assign(age=columns["age"].fill, ward=columns["ward"].fill)
    by_hand = predictor.preparation.apply(filled)
    by_hand[:, [predictor.preparation.features.index(f"{name} missing") for name in ("age", "ward")]] = 1
    assert np.array_equal(table["probability of ill"], predictor.predict_prepared(by_hand)[:, 0])


def test_unknown_categories_and_odd_values_are_flagged(common):
    predictor, frame = common
    low, high = next(column.seen for column in predictor.preparation.columns if column.name == "age")
    whole = frame.dropna().head(4)
    odd = whole.assign(age=[50.0, high + 1, low - 11 * (high - low), 50.0], sex=["male", "male", "male", "intersex"])
    table = predict_table(predictor, PatientRows.of_frame(odd, "test"))
    usual = f"age ({low:g} to {high:g})"
    assert table[OUTSIDE].tolist() == ["", usual, f"age ({low:g} to {high:g}; far outside, check the unit)", ""]
    assert table[UNKNOWN].tolist() == ["", "", "", "sex=intersex"]
    # An unknown category is none of the known ones.
    by_hand = predictor.preparation.apply(odd.iloc[[3]].assign(sex="male"))
    by_hand[:, predictor.preparation.features.index("sex=male")] = 0
    assert table["probability of ill"].iloc[3] == predictor.predict_prepared(by_hand)[0, 0]


def test_many_columns_with_gaps_are_all_named():
    """More than one whole number has bits."""
    from wardround.predict.table import Remarks

    remarks = Remarks(3)
    for number in range(130):
        remarks.add(f"c{number}", np.array([number % 2 == 0, number == 129, False]))
    even, last, none = remarks.text()
    assert even.split(", ") == [f"c{number}" for number in range(0, 130, 2)]
    assert (last, none) == ("c129", "")


@pytest.mark.parametrize("target", ["days", "grade"])
def test_regression_and_three_classes(tmp_path: Path, target):
    frame = patients(20)
    frame.to_csv(tmp_path / "patients.csv", index=False)
    study = study_of(tmp_path / "patients.csv", target=target, evaluation={"resamples": 0, "keep_predictions": True})
    folder = train(study, tmp_path / "run")
    predictor = read_predictor(find_model(folder))
    kept = pd.read_csv(folder / "predictions.csv")
    rows = pd.concat([frame[frame["hospital"] == site] for site in HOSPITALS])
    own = pd.concat([rows[rows["hospital"] == site].iloc[mine["row"] - 1] for site, mine in kept.groupby("site")])
    table = predict_table(predictor, PatientRows.of_frame(own, "test"))
    if target == "days":
        assert np.array_equal(table["days"], kept["predicted"].to_numpy(np.float32))
        return
    for name in ("mild", "none", "severe"):
        assert np.array_equal(table[f"probability of {name}"], kept[f"probability of {name}"].to_numpy(np.float32))
    assert list(table["grade"]) == list(kept["predicted"])
