"""IID: everybody somewhere, nobody twice, sizes equal, composition that of the pool."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.iid import iid, refuse_empty


def pool(rows: int) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"age": rng.normal(40, 15, rows)}), pd.Series(rng.choice(["ill", "well"], rows), name="y")


def test_every_row_is_at_exactly_one_site_and_sizes_differ_by_at_most_one() -> None:
    parts = iid(sites=7).split(*pool(1003), np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1003))
    assert {len(part) for part in parts} == {143, 144}  # 1003 = 7 · 143 + 2


def test_the_same_seed_gives_the_same_sites_and_another_seed_others() -> None:
    once = iid().split(*pool(100), np.random.default_rng(3))
    again = iid().split(*pool(100), np.random.default_rng(3))
    other = iid().split(*pool(100), np.random.default_rng(4))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not np.array_equal(once[0], other[0])


def test_neighbouring_rows_do_not_stay_together() -> None:
    # An unshuffled cut would put the rows 0..249 at the first site; a random one has a mean position near 499.5
    # with a standard error of 289 / sqrt(250) = 18.
    first = iid().split(*pool(1000), np.random.default_rng(0))[0]
    assert abs(first.mean() - 499.5) < 4 * 18


def test_more_sites_than_rows_is_refused() -> None:
    with pytest.raises(Refusal, match="3 rows cannot be dealt out to 4 sites"):
        iid(sites=4).split(*pool(3), np.random.default_rng(0))


def test_an_empty_site_is_named() -> None:
    with pytest.raises(Refusal, match=r"1 of 2 sites would get no rows \(counted from 0: 1\)"):
        refuse_empty([np.array([0]), np.array([], int)], where="here", remedy="add rows")
