"""Many sites at once give what every site by itself gives: the same bits, the same words, the same refusals."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.assembly import assemble_table
from wardround.data.datasets.adult import adult
from wardround.data.folder import data_folder
from wardround.data.load import load
from wardround.data.partitions.by_label_dirichlet import by_label_dirichlet
from wardround.data.pooled import rows as pooled_rows
from wardround.data.table import SlicedSites

SITES = 16


def rows(seed=0):
    """Sixteen sites of 8 to 39 rows: numbers with gaps, whole numbers, flags, words with gaps, two outcomes."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(8, 40, SITES)
    total = int(sizes.sum())
    frame = pd.DataFrame(
        {
            "ward": np.repeat([f"ward {n}" for n in range(SITES)], sizes),
            "age": generator.integers(20, 90, total),
            "lactate": np.where(generator.random(total) < 0.2, np.nan, generator.normal(2, 1, total)),
            "smokes": generator.random(total) < 0.3,
            "blood": generator.choice(["A", "B", "AB", "0", None], total),
            "outcome": generator.choice(["no", "yes"], total),
        }
    )
    frame.loc[frame["ward"] == "ward 3", "lactate"] = np.nan  # known nowhere at this site
    return frame.sample(frac=1, random_state=1)


def both_ways(monkeypatch, make, **settings):
    """The same table, prepared site by site and at once."""
    monkeypatch.setattr(pooled_rows, "MANY", 10**9)
    alone = load(make(), seed=3, **settings)
    monkeypatch.setattr(pooled_rows, "MANY", 2)
    return alone, load(make(), seed=3, **settings)


def assert_same(alone, together):
    one, other = alone.federation, together.federation
    for name in ("y", "first", "counts"):
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    # Sums of a site's numbers may be added in another order, so the last bits of a mean, and of x, may differ.
    assert one.x.dtype == other.x.dtype
    np.testing.assert_allclose(one.x, other.x, rtol=3e-7, atol=1e-12)
    assert (one.sites, one.task, one.features) == (other.sites, other.task, other.features)
    for first, second in zip(alone.preparation.columns, together.preparation.columns, strict=True):
        for key, value in asdict(first).items():
            expected = pytest.approx(value, rel=1e-12, abs=1e-12) if isinstance(value, float) else value
            assert getattr(second, key) == expected
    assert alone.fingerprint == together.fingerprint
    assert (alone.notes, alone.rows_read) == (together.notes, together.rows_read)
    for first, second in zip(alone.order, together.order, strict=True):
        np.testing.assert_array_equal(first, second)
    for site, frame in alone.table.sites.items():
        pd.testing.assert_frame_equal(frame, together.table.sites[site])


def table_of(frame, **settings):
    return assemble_table(frame, origin="made", site="ward", **{"target": "outcome", "positive": "yes", **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"impute": "mean", "scale": "minmax", "indicators": True},
        {"impute": "most_frequent", "scale": "none", "most_categories": 3000},
        {"fold": 2, "shares": (0.5, 0.0, 0.5)},
    ],
    ids=["usual", "mean", "most frequent", "fold"],
)
def test_classes(settings, monkeypatch):
    assert_same(*both_ways(monkeypatch, lambda: table_of(rows()), **settings))


def test_a_quantity_and_rows_without_one(monkeypatch):
    frame = rows()
    frame.loc[frame.index[:50], "lactate"] = np.nan
    assert_same(
        *both_ways(
            monkeypatch,
            lambda: table_of(frame, target="lactate", positive=None),
            missing_target="drop",
            empty_sites="keep",
        )
    )


def test_outcomes_that_are_missing_and_one_against_the_rest(monkeypatch):
    frame = rows()
    made = both_ways(monkeypatch, lambda: table_of(frame, target="blood", positive="AB"), missing_target="drop")
    assert_same(*made)


@pytest.mark.skipif(not (data_folder() / "uci_adult").is_dir(), reason="the folder uci_adult is not in WARDROUND_DATA")
def test_real_people_dealt_out(monkeypatch):
    census = adult()
    few = {name: frame.iloc[::60].reset_index(drop=True) for name, frame in census.sites.items()}
    part = by_label_dirichlet(sites=20)
    alone, together = both_ways(monkeypatch, lambda: replace(census, sites=few), partition=part, empty_sites="keep")
    assert len(together.federation.sites) == 20
    assert_same(alone, together)


@pytest.mark.parametrize(
    ("spoil", "settings", "told"),
    [
        (lambda f: f.assign(age=np.where(f["ward"] == "ward 5", np.inf, f["age"])), {}, "infinite"),
        (lambda f: f.assign(blood=np.arange(len(f)).astype(str) + "x"), {"most_categories": 20}, "different values"),
        (lambda f: f.assign(outcome=f["outcome"].where(f["ward"] != "ward 7")), {}, "ward 7"),
    ],
    ids=["infinite", "categories", "outcome"],
)
def test_refusals_are_the_same(spoil, settings, told, monkeypatch):
    said = []
    for many in (10**9, 2):
        monkeypatch.setattr(pooled_rows, "MANY", many)
        with pytest.raises(Refusal, match=told) as refused:
            load(table_of(spoil(rows())), seed=3, **settings)
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_sites_of_different_types_are_not_pooled(monkeypatch):
    monkeypatch.setattr(pooled_rows, "MANY", 2)
    frames = {f"s{n}": pd.DataFrame({"a": [n if n else "word"], "y": ["no"]}) for n in range(4)}
    assert pooled_rows.pool_rows(frames) is None
    assert isinstance(table_of(rows()).sites, SlicedSites)
    assert pooled_rows.pool_rows(table_of(rows()).sites) is not None


def test_codes_of_every_site_by_hand():
    pool = pooled_rows.PooledRows(pd.DataFrame({"a": ["x", "y", None, "y", "x", "y"]}), np.array([0, 3, 3, 6]))
    codes = pool.codes("a")
    assert codes.codes.tolist() == [0, 1, -1, 0, 1, 0]  # each site counts from 0, in the order of its own rows
    assert [codes.of(site).tolist() for site in range(3)] == [["x", "y"], [], ["y", "x"]]
    assert pool.kinds("a") == ["text", "empty", "text"]
