"""A user's own embeddings: the same rows from every format, and everything that cannot be joined is told."""

import numpy as np
import pandas as pd
import pytest

import wardround as wr
from wardround.core.errors import Refusal
from wardround.data.sources.csv import csv
from wardround.data.sources.parquet import parquet
from wardround.study.file import read_study
from wardround.weak_supervision.embedding_file import read_embeddings, with_embeddings

IDS = ["007", "b", "c"]
VECTORS = np.array([[1.5, 2.0], [3.0, 4.0], [5.0, 6.25]])


def write(folder, form, ids=IDS, vectors=VECTORS):
    path = folder / f"vectors.{form}"
    if form == "npz":
        np.savez(path, ids=np.array(ids), vectors=vectors)
        return path
    frame = pd.DataFrame({"note": ids, "x": vectors[:, 0], "y": vectors[:, 1]})
    if form == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


def patients(folder, ids=("c", "007")):
    path = folder / "patients.csv"
    pd.DataFrame({"note": ids, "age": [60, 70], "ill": ["yes", "no"]}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", ["npz", "parquet", "csv", "csv.gz"])
def test_vectors_take_the_place_of_the_record(tmp_path, form):
    """By identity and not by place; "007" stays what it is in files without types."""
    table = csv(path=patients(tmp_path), target="ill", embeddings=write(tmp_path, form), record="note")
    found = table.sites["all"]
    assert list(found.columns) == ["age", "ill", "embedding 1", "embedding 2"]
    np.testing.assert_array_equal(found[["embedding 1", "embedding 2"]], VECTORS[[2, 0]])


def test_numbers_name_records_and_every_site_has_its_own_table(tmp_path):
    np.savez(tmp_path / "vectors.npz", ids=np.array([10, 11]), vectors=np.array([[1.0], [2.0]], np.float16))
    (tmp_path / "rows").mkdir()
    for name, record in (("a", 11), ("b", 10)):
        pd.DataFrame({"note": [record], "ill": [1]}).to_parquet(tmp_path / "rows" / f"{name}.parquet")
    table = parquet(path=tmp_path / "rows", target="ill", embeddings=tmp_path / "vectors.npz", record="note")
    assert {name: frame["embedding 1"].tolist() for name, frame in table.sites.items()} == {"a": [2.0], "b": [1.0]}


@pytest.mark.parametrize(
    ("ids", "vectors", "expected"),
    [
        (["007", "b"], VECTORS, "2 records and vectors of shape 3 x 2"),
        (IDS, np.ones(3), "3 records and vectors of shape 3"),
        (IDS, np.array([[1, 2], [np.nan, 1], [1, 1]]), "Row 2 has a number that is missing or not finite"),
        (["a", "a", "c"], VECTORS, "Record 'a' has two vectors"),
        (["007", "b", "d"], VECTORS, "has no vector for 1 record: c"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, ids, vectors, expected):
    with pytest.raises(Refusal, match=expected):
        csv(path=patients(tmp_path), target="ill", embeddings=write(tmp_path, "npz", ids, vectors), record="note")


def test_pickled_objects_are_never_loaded(tmp_path):
    ragged = np.array([[1.0], [1.0, 2.0]], dtype=object)
    np.savez(tmp_path / "vectors.npz", ids=np.array(["a", "b"]), vectors=ragged, allow_pickle=True)
    with pytest.raises(Refusal, match="Object arrays cannot be loaded when allow_pickle=False"):
        read_embeddings(tmp_path / "vectors.npz", "note")


def test_what_is_no_file_of_embeddings(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK and nothing else")
    np.savez(tmp_path / "other.npz", ids=np.array(["a"]))
    pd.DataFrame({"note": ["a"], "text": ["words"]}).to_csv(tmp_path / "words.csv", index=False)
    pd.DataFrame({"notes": ["a"], "x": [1.0]}).to_csv(tmp_path / "named.csv", index=False)
    for name, expected in {
        "broken.npz": "cannot be read",
        "other.npz": "array 'vectors' is missing",
        "words.csv": "'text' does not hold numbers alone",
        "named.csv": "Column 'note', which should name the record, is missing",
        "absent.npz": "no such file of embeddings",
        "broken.txt": "no such file",
    }.items():
        with pytest.raises(Refusal, match=expected):
            read_embeddings(tmp_path / name, "note")
    (tmp_path / "vectors.txt").write_text("1 2")
    with pytest.raises(Refusal, match=r"read from \.npz, \.parquet and \.csv files"):
        read_embeddings(tmp_path / "vectors.txt", "note")


def test_a_table_that_cannot_be_joined(tmp_path):
    file = write(tmp_path, "npz")
    rows = pd.DataFrame({"note": ["b", None]})
    for frame, record, expected in (
        (rows, "note", "1 row without a value in column 'note'"),
        (rows, "nota", "Column 'nota', which should name the record, is missing"),
        (rows, "", "Embeddings and record belong together"),
        (pd.DataFrame({"note": ["b"], "embedding 2": [1]}), "note", "already has a column 'embedding 2'"),
    ):
        with pytest.raises(Refusal, match=expected):
            with_embeddings(frame, file, record, "rows")


def test_a_study_trains_on_them(tmp_path):
    """The outcome is in the vectors alone; the file is found beside the study, and the record is no feature."""
    generator = np.random.default_rng(0)
    ill, ids = generator.integers(0, 2, 200), [f"note-{place}" for place in range(200)]
    vectors = generator.normal(size=(200, 3)) + 2.0 * ill[:, None]
    order = generator.permutation(200)
    np.savez(tmp_path / "vectors.npz", ids=np.array(ids)[order], vectors=vectors[order])
    rows = pd.DataFrame({"hospital": np.arange(200) % 2, "note": ids, "ill": ill})
    rows.to_csv(tmp_path / "patients.csv", index=False)
    (tmp_path / "study.toml").write_text(
        '[study]\nname = "embedded"\nrounds = 5\n[data]\nsource = "csv"\npath = "patients.csv"\nsite = "hospital"\n'
        'target = "ill"\ntask = "classification"\nembeddings = "vectors.npz"\nrecord = "note"\n'
        "[evaluation]\nresamples = 0\n"
    )
    finished = wr.run(read_study(tmp_path / "study.toml"), out=tmp_path / "run")
    scores = finished.scores
    value = scores[(scores["site"] == "all") & (scores["metric"] == "roc_auc")]["value"].iloc[0]
    assert value > 0.95
    told = finished.predict(pd.DataFrame(vectors, columns=[f"embedding {number}" for number in (1, 2, 3)]))
    likely = told[next(name for name in told.columns if "probab" in name)]
    assert ((likely > 0.5) == (ill == 1)).mean() > 0.9
