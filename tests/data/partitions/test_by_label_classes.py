"""A few classes a site: exactly so many, all classes held, no row lost."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.by_label_classes import by_label_classes

FEATURES = pd.DataFrame({"x": np.arange(1000)})
DIGITS = pd.Series(np.arange(1000) % 10, name="digit")


@pytest.mark.parametrize(("sites", "classes"), [(5, 2), (10, 2), (7, 3), (4, 10)])
def test_every_site_has_exactly_so_many_classes_and_no_row_is_lost(sites: int, classes: int) -> None:
    parts = by_label_classes(sites=sites, classes=classes).split(FEATURES, DIGITS, np.random.default_rng(0))
    assert [DIGITS.iloc[part].nunique() for part in parts] == [classes] * sites
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))


def test_holders_share_a_class_evenly_and_classes_have_as_many_holders() -> None:
    parts = by_label_classes(sites=10, classes=2).split(FEATURES, DIGITS, np.random.default_rng(0))
    # 10 sites · 2 places / 10 classes = 2 holders a class, 100 rows / 2 = 50 rows of each class held.
    assert all(set(DIGITS.iloc[part].value_counts()) == {50} for part in parts)


def test_all_classes_at_every_site_is_balanced() -> None:
    parts = by_label_classes(sites=4, classes=10).split(FEATURES, DIGITS, np.random.default_rng(0))
    assert all(set(DIGITS.iloc[part].value_counts()) == {25} for part in parts)


@pytest.mark.parametrize(
    ("sites", "classes", "target", "message"),
    [
        (4, 2, DIGITS, "cannot hold 10 classes"),
        (4, 11, DIGITS, "there are only 10"),
        (40, 10, DIGITS.iloc[:100], "cannot be dealt out"),
        (4, 2, DIGITS + 0.5, "is a measurement"),
        (4, 2, pd.Series(np.arange(1000), name="id"), "is a measurement"),
        (4, 2, pd.Series(["a", None] * 500, name="y"), "500 rows have no value of the target 'y'"),
    ],
)
def test_what_cannot_be_done_is_refused(sites: int, classes: int, target: "pd.Series[int]", message: str) -> None:
    with pytest.raises(Refusal, match=message):
        by_label_classes(sites=sites, classes=classes).split(
            FEATURES.iloc[: len(target)], target, np.random.default_rng(0)
        )
