import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.data.load import fingerprint_of, load
from wardround.data.preparation import Preparation
from wardround.data.sources.csv import csv
from wardround.data.sources.frame import frame
from wardround.data.table import Partition, Table

DATA = Path(os.environ.get("WARDROUND_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
HEART = DATA / "uci_heart_disease" / "heart_disease_4_hospitals.csv"
ADULT = DATA / "uci_adult" / "adult.csv.gz"


def rows(number: int, seed: int = 0, **columns: Any) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    made = {"age": random.normal(50, 10, number), "sex": random.choice(["f", "m"], number)}
    return pd.DataFrame({**made, "y": np.arange(number) % 2, "id": np.arange(number) // 2, **columns})


def two_sites(**options: Any) -> Table:
    return frame({"Bo": rows(20, 1), "Kenema": rows(30, 2)}, target="y", drop=("id",), **options)


def part_rows(loaded: Any, site: int, part: int) -> np.ndarray[Any, Any]:
    start = int(loaded.federation.counts[site, :part].sum())
    return np.asarray(loaded.order[site][start : start + int(loaded.federation.counts[site, part])])


def test_federation_holds_the_prepared_rows_in_the_order_it_says() -> None:
    loaded = load(two_sites(groups=("sex",)), seed=5)
    federation = loaded.federation
    assert tuple(federation.sites) == ("Bo", "Kenema")
    assert federation.counts.tolist() == [[12, 4, 4], [18, 6, 6]]
    assert federation.first.tolist() == [0, 20]
    assert (federation.x.dtype, federation.y.dtype) == (np.float32, np.int32)
    assert federation.task == Task((3,), ("0", "1"), "y")
    assert federation.features == loaded.preparation.features == ("age", "sex=f", "sex=m")
    for index, name in enumerate(federation.sites):
        mine = slice(int(federation.first[index]), int(federation.first[index] + federation.counts[index].sum()))
        raw = loaded.table.sites[name].iloc[loaded.order[index]]
        np.testing.assert_array_equal(federation.y[mine], raw["y"])
        np.testing.assert_array_equal(federation.groups["sex"][mine], raw["sex"].to_numpy(dtype=str))
        np.testing.assert_array_equal(federation.x[mine], loaded.preparation.apply(raw))
    assert (loaded.table.task, loaded.table.positive) == ("classification", "1")


def test_preparation_is_fitted_on_training_rows_only() -> None:
    loaded = load(two_sites(), seed=5, impute="mean")
    train = np.concatenate(
        [loaded.table.sites[n]["age"].to_numpy()[part_rows(loaded, i, 0)] for i, n in enumerate(("Bo", "Kenema"))]
    )
    column = loaded.preparation.columns[0]
    assert column.fill == pytest.approx(train.mean(), rel=1e-12)
    everyone = np.concatenate([site["age"] for site in loaded.table.sites.values()])
    assert column.fill != pytest.approx(everyone.mean(), rel=1e-6)


def test_a_sites_split_does_not_depend_on_other_sites() -> None:
    both = load(two_sites(), seed=5)
    alone = load(frame({"Kenema": rows(30, 2)}, target="y", drop=("id",)), seed=5)
    np.testing.assert_array_equal(both.order[1], alone.order[0])


def test_same_seed_same_bits_and_another_seed_another_split() -> None:
    a, b, c = load(two_sites(), seed=5), load(two_sites(), seed=5), load(two_sites(), seed=6)
    assert a.federation.x.tobytes() == b.federation.x.tobytes()
    assert a.preparation == b.preparation
    assert not np.array_equal(a.order[0], c.order[0])
    assert a.fingerprint == b.fingerprint == c.fingerprint


def test_input_is_left_unchanged() -> None:
    table = two_sites()
    before = {name: site.copy() for name, site in table.sites.items()}
    load(table, seed=5)
    for name, site in table.sites.items():
        pd.testing.assert_frame_equal(site, before[name])


def test_fingerprint_sees_values_names_and_sites_but_not_types_of_storage() -> None:
    def of(columns: dict[str, Any], site: str = "A") -> str:
        return fingerprint_of(frame({site: pd.DataFrame(columns)}, target="y"))

    first = of({"a": [1, 2], "t": ["x", None], "y": [0, 1]})
    assert first == of({"a": [1.0, 2.0], "t": pd.Categorical(["x", None]), "y": pd.array([0, 1], "Int64")})
    others = [
        of({"a": [1, 3], "t": ["x", None], "y": [0, 1]}),
        of({"a": [2, 1], "t": ["x", None], "y": [0, 1]}),
        of({"a": [1, 2], "t": ["z", None], "y": [0, 1]}),
        of({"a": [1, 2], "t": [None, "x"], "y": [0, 1]}),
        of({"b": [1, 2], "t": ["x", None], "y": [0, 1]}),
        of({"a": [1, 2], "t": ["x", None], "y": [0, 1]}, site="B"),
    ]
    assert len({first, *others}) == 7


def test_patients_stay_in_one_part_and_are_no_feature() -> None:
    table = frame({"Bo": rows(40, 1), "Kenema": rows(30, 2)}, target="y")
    loaded = load(table, seed=5, by="id")
    assert "id" not in loaded.federation.features
    for site, name in enumerate(("Bo", "Kenema")):
        patients = [set(loaded.table.sites[name]["id"].iloc[part_rows(loaded, site, part)]) for part in range(3)]
        assert all(patients)
        assert sum(map(len, patients)) == loaded.table.sites[name]["id"].nunique()
    # Patients 0 to 19 in Bo, 0 to 14 in Kenema: 15 in both.
    assert any(note.startswith("15 patients (id) occur at more than one site") for note in loaded.notes)


def test_patient_column_must_exist_and_be_filled() -> None:
    with pytest.raises(Refusal, match=r"'id'.*missing.*must not be in drop"):
        load(two_sites(), seed=5, by="id")
    holes = rows(20, 1, id=[None] * 3 + list(range(17)))
    with pytest.raises(Refusal, match=r"3 rows do not say which patient.*site Bo"):
        load(frame({"Bo": holes}, target="y"), seed=5, by="id")


def halves(x: pd.DataFrame, y: "pd.Series[Any]", random: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    assert "y" not in x.columns
    return list(np.array_split(random.permutation(len(y)), 2))


def test_partition_divides_a_pool_and_alters_each_site() -> None:
    def alter(
        index: int, sites: int, x: pd.DataFrame, y: "pd.Series[Any]", random: np.random.Generator
    ) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        assert sites == 2
        return x.assign(age=x["age"] + 1000 * index), 1 - y if index else y

    table = frame(rows(50), target="y", drop=("id",))
    plain = load(table, seed=5, partition=Partition(halves))
    altered = load(table, seed=5, partition=Partition(halves, alter))
    assert tuple(plain.federation.sites) == ("site-1", "site-2")
    both = pd.concat(plain.table.sites.values())
    assert sorted(both["age"]) == sorted(table.sites["all"]["age"])
    pd.testing.assert_frame_equal(altered.table.sites["site-1"], plain.table.sites["site-1"])
    second, was = altered.table.sites["site-2"], plain.table.sites["site-2"]
    np.testing.assert_allclose(second["age"], was["age"] + 1000)
    assert (second["y"] == 1 - was["y"]).all()
    assert altered.fingerprint == plain.fingerprint == fingerprint_of(table)


def test_partition_of_several_sites_pools_them_and_says_so() -> None:
    loaded = load(two_sites(), seed=5, partition=Partition(halves))
    assert loaded.federation.counts.sum() == 50
    assert "2 sites were pooled" in loaded.notes[0]


def test_partition_that_uses_a_row_twice_is_refused() -> None:
    with pytest.raises(Refusal, match="a row at two sites"):
        load(two_sites(), seed=5, partition=Partition(lambda x, y, random: [np.arange(10), np.arange(9, 20)]))


def test_partition_with_an_empty_site_is_refused_by_name_or_kept() -> None:
    partition = Partition(lambda x, y, random: [np.arange(len(y)), np.arange(0)])
    with pytest.raises(Refusal, match=r"site-2 \(no row\)"):
        load(two_sites(), seed=5, partition=partition)
    kept = load(two_sites(), seed=5, partition=partition, empty_sites="keep")
    assert kept.federation.counts.tolist() == [[30, 10, 10], [0, 0, 0]]


def test_empty_and_one_row_sites_are_kept_when_asked() -> None:
    table = frame({"Bo": rows(20), "none": rows(0), "one": rows(1)}, target="y", drop=("id",), groups=("sex",))
    with pytest.raises(Refusal, match=r"none \(no row\), one \(one row\)"):
        load(table, seed=5)
    loaded = load(table, seed=5, empty_sites="keep")
    assert loaded.federation.counts.tolist() == [[12, 4, 4], [0, 0, 0], [1, 0, 0]]
    assert loaded.federation.first.tolist() == [0, 20, 20]
    assert loaded.federation.x.shape == (21, 3)
    assert len(loaded.federation.groups["sex"]) == 21


def test_missing_column_is_filled_when_asked() -> None:
    table = frame({"Bo": rows(20, 1), "Kenema": rows(30, 2).drop(columns="age")}, target="y", drop=("id",))
    with pytest.raises(Refusal, match=r"'age' is missing.*site Kenema"):
        load(table, seed=5)
    loaded = load(table, seed=5, missing_columns="fill", scale="none", indicators=True)
    known = loaded.table.sites["Bo"]["age"].iloc[part_rows(loaded, 0, 0)]
    kenema = loaded.federation.x[20:]
    assert loaded.federation.features[:2] == ("age", "age missing")
    np.testing.assert_allclose(kenema[:, 0], np.median(known), rtol=1e-6)
    assert (kenema[:, 1] == 1).all()
    assert not loaded.federation.x[:20, 1].any()


def test_rows_without_a_target_are_dropped_when_asked() -> None:
    holes = rows(20, 1, y=[None, None] + [0, 1] * 9)
    table = frame({"Bo": holes, "Kenema": rows(30, 2)}, target="y", drop=("id",))
    with pytest.raises(Refusal, match="Bo: 2 of 20"):
        load(table, seed=5)
    loaded = load(table, seed=5, missing_target="drop")
    assert loaded.federation.counts.sum(axis=1).tolist() == [18, 30]
    assert loaded.federation.task.classes == ("0", "1")
    assert np.bincount(loaded.federation.y[:18]).tolist() == [9, 9]


def test_regression_keeps_the_target_as_it_is() -> None:
    table = frame({"Bo": rows(20, 1), "Kenema": rows(30, 2)}, target="age", drop=("id",))
    loaded = load(table, seed=5)
    assert loaded.federation.task.regression
    assert loaded.federation.y.dtype == np.float32
    np.testing.assert_allclose(
        loaded.federation.y[:20], loaded.table.sites["Bo"]["age"].iloc[loaded.order[0]], rtol=1e-6
    )


def test_group_kept_aside_and_missing_group() -> None:
    site = rows(20, 1)
    site.loc[3, "sex"] = None
    loaded = load(frame({"Bo": site}, target="y", drop=("id", "sex"), groups=("sex",)), seed=5)
    assert loaded.federation.features == ("age",)
    where = int(np.flatnonzero(loaded.order[0] == 3)[0])
    assert loaded.federation.groups["sex"][where] == "missing"
    assert (loaded.federation.groups["sex"] == "missing").sum() == 1


@pytest.mark.parametrize(
    "options", [{"shares": (0.5, 0.4, 0.2)}, {"missing_columns": "x"}, {"missing_target": "x"}, {"empty_sites": "x"}]
)
def test_unknown_choices_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        load(two_sites(), seed=5, **options)


@pytest.mark.skipif(not HEART.exists(), reason="needs uci_heart_disease in WARDROUND_DATA")
def test_four_hospitals_as_scikit_learn_would_prepare_their_pooled_training_rows() -> None:
    table = csv(path=HEART, site="hospital", target="num")
    assert {name: len(site) for name, site in table.sites.items()} == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    loaded = load(table, seed=1)
    assert loaded.federation.task.classes == ("0", "1", "2", "3", "4")
    # Stratified: the share of healthy patients in every part is the hospital's own, to the two rows a cut may move.
    for site, name in enumerate(loaded.federation.sites):
        healthy = (loaded.table.sites[name]["num"] == 0).to_numpy()
        for part in range(3):
            mine = part_rows(loaded, site, part)
            assert abs(healthy[mine].sum() - healthy.mean() * len(mine)) <= 2
    raw = [loaded.table.sites[n].drop(columns="num") for n in loaded.federation.sites]
    train = pd.concat([r.iloc[part_rows(loaded, i, 0)] for i, r in enumerate(raw)])
    everyone = pd.concat([r.iloc[loaded.order[i]] for i, r in enumerate(raw)])
    pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler()).fit(train)
    np.testing.assert_allclose(loaded.federation.x, pipeline.transform(everyone), atol=2e-6)
    assert np.array_equal(Preparation.from_json(loaded.preparation.to_json()).apply(everyone), loaded.federation.x)


@pytest.mark.skipif(not ADULT.exists(), reason="needs uci_adult in WARDROUND_DATA")
def test_adult_with_protected_groups_dealt_to_five_sites() -> None:
    table = csv(
        path=ADULT,
        target="income",
        drop=("fnlwgt", "education", "split", "race"),
        groups=("race", "sex"),
        positive=">50K",
    )
    partition = Partition(lambda x, y, random: list(np.array_split(random.permutation(len(y)), 5)))
    loaded = load(table, seed=1, partition=partition)
    federation = loaded.federation
    assert federation.counts.sum() == 48_842
    assert federation.task.classes == ("<=50K", ">50K")
    # Published: 23.93 % above 50K; 16,192 women; 470 Amer-Indian-Eskimo.
    assert federation.y.mean() == pytest.approx(0.2393, abs=5e-5)
    assert (federation.groups["sex"] == "Female").sum() == 16_192
    assert (federation.groups["race"] == "Amer-Indian-Eskimo").sum() == 470
    women = federation.x[:, federation.features.index("sex=Female")] == 1
    np.testing.assert_array_equal(women, federation.groups["sex"] == "Female")
    assert not any(name.startswith("race") for name in federation.features)
    assert np.isfinite(federation.x).all()
