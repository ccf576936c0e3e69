import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.core.errors import Refusal
from wardround.data.row_split import folds, generator, sizes, split


@given(st.integers(0, 400), st.integers(0, 50), st.sampled_from([(0.6, 0.2, 0.2), (0.8, 0.0, 0.2), (1.0, 0.0, 0.0)]))
def test_every_row_is_in_exactly_one_part_of_the_right_size(
    rows: int, seed: int, shares: tuple[float, float, float]
) -> None:
    parts = split(rows, seed=seed, site="Bo", shares=shares)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(rows))
    assert all(abs(len(part) - share * rows) < 1 for part, share in zip(parts, shares, strict=True))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (0, [0, 0, 0]),
        (1, [1, 0, 0]),
        # 1.2, 0.4, 0.4: one row over, the remainders 0.4 tie, test goes before validation.
        (2, [1, 0, 1]),
        # 1.8, 0.6, 0.6: two over, for train (0.8) and test.
        (3, [2, 0, 1]),
        # 2.4, 0.8, 0.8
        (4, [2, 1, 1]),
        # 181.8, 60.6, 60.6
        (303, [182, 60, 61]),
    ],
)
def test_sizes_by_hand(rows: int, expected: list[int]) -> None:
    assert sizes(rows, (0.6, 0.2, 0.2)).tolist() == expected


def test_a_split_depends_on_seed_and_site_name_only() -> None:
    first = split(50, seed=3, site="Bo")
    split(20, seed=3, site="Kenema")
    again = split(50, seed=3, site="Bo")
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], split(50, seed=4, site="Bo")[0])
    assert not np.array_equal(first[0], split(50, seed=3, site="Port Loko")[0])


def test_names_do_not_run_together() -> None:
    assert generator(1, "a", "b").random() != generator(1, "ab").random()


@given(st.integers(0, 1000))
def test_classes_have_the_same_share_in_every_part(seed: int) -> None:
    # 70 of a, 25 of b, 5 of c. A class of m rows at evenly spaced places has m * share rows in a part, give or take
    # one for each of the part's two ends.
    strata = np.random.default_rng(seed).permutation(np.array(["a"] * 70 + ["b"] * 25 + ["c"] * 5))
    parts = split(100, seed=seed, site="Bo", strata=strata)
    assert [len(part) for part in parts] == [60, 20, 20]
    for label, number in (("a", 70), ("b", 25), ("c", 5)):
        for part, share in zip(parts, (0.6, 0.2, 0.2), strict=True):
            assert abs(int((strata[part] == label).sum()) - number * share) <= 2


def test_without_strata_shares_do_vary() -> None:
    # The control for the test above: a plain random split leaves the tolerance that stratification keeps.
    strata = np.array([0] * 70 + [1] * 30)
    counts = [int(strata[split(100, seed=seed, site="Bo")[0]].sum()) for seed in range(200)]
    # Hypergeometric: mean 18, SD sqrt(60 * 0.3 * 0.7 * 40 / 99) = 2.26.
    assert np.mean(counts) == pytest.approx(18, abs=4 * 2.26 / np.sqrt(200))
    assert np.std(counts) == pytest.approx(2.26, rel=0.25)


def test_a_single_row_of_a_class_goes_to_each_part_by_its_share() -> None:
    strata = np.array([1] + [0] * 9)
    parts = [
        next(i for i, part in enumerate(split(10, seed=s, site="Bo", strata=strata)) if 0 in part) for s in range(500)
    ]
    # Binomial, n = 500, p = 0.6: SD of the share is 0.022. The nine others shift the cut by less than half a place.
    assert np.mean(np.array(parts) == 0) == pytest.approx(0.6, abs=0.1)
    assert set(parts) == {0, 1, 2}


@given(st.integers(0, 300), st.integers(1, 60))
def test_no_patient_is_in_two_parts(seed: int, patients: int) -> None:
    by = np.random.default_rng(seed).integers(0, patients, size=120).astype(str)
    strata = np.random.default_rng(seed + 1).integers(0, 2, size=120)
    train, validation, test = (set(by[part]) for part in split(120, seed=seed, site="Bo", strata=strata, by=by))
    assert train
    assert len(train) + len(validation) + len(test) == len(set(by))


def test_patients_with_equal_rows_meet_the_shares_exactly() -> None:
    by = np.repeat(np.arange(50), 4)
    assert [len(part) for part in split(200, seed=1, site="Bo", by=by)] == [120, 40, 40]


def test_one_patient_goes_to_train() -> None:
    assert [len(part) for part in split(7, seed=1, site="Bo", by=np.zeros(7))] == [7, 0, 0]


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.2, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)])
def test_shares_that_cannot_be(shares: tuple[float, ...]) -> None:
    with pytest.raises(Refusal, match="add up to 1"):
        split(10, seed=1, site="Bo", shares=shares)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 27, 200])
@pytest.mark.parametrize("shares", [(0.6, 0.2, 0.2), (0.5, 0.0, 0.5), (0.7, 0.0, 0.3), (0.2, 0.0, 0.8)])
def test_over_all_folds_every_patient_is_tested_once(rows: int, shares: tuple[float, float, float]) -> None:
    labels = np.arange(rows) % 3 == 0
    parts = [split(rows, seed=5, site="a", shares=shares, strata=labels, fold=f) for f in range(folds(shares))]
    tested = np.sort(np.concatenate([test for _, _, test in parts]))
    # A site's only patient is always trained on: a model without patients cannot be tested.
    assert tested.tolist() == (list(range(rows)) if rows > 1 else [])
    for train, validation, test in parts:
        assert len(train) >= 1
        assert np.sort(np.concatenate([train, validation, test])).tolist() == list(range(rows))
        # No fold is larger than the share says, but for whole rows.
        assert len(test) <= shares[2] * rows + 1
    if rows == 200 and shares == (0.6, 0.2, 0.2):
        assert {(len(a), len(b), len(c)) for a, b, c in parts} == {(120, 40, 40)}
        # 67 of 200 have the label: 13 or 14 of them in every fold.
        assert {int(labels[test].sum()) for _, _, test in parts} <= {13, 14}


def test_fold_0_is_the_split_of_a_single_run_and_rows_of_a_patient_stay_together() -> None:
    patients = np.repeat(np.arange(40), [1, 2, 3, 4] * 10)
    plain = split(100, seed=5, site="a", by=patients)
    parts = [split(100, seed=5, site="a", by=patients, fold=fold) for fold in range(5)]
    assert all(np.array_equal(one, other) for one, other in zip(plain, parts[0], strict=True))
    seen = [patient for _, _, test in parts for patient in np.unique(patients[test])]
    assert sorted(seen) == list(range(40))
