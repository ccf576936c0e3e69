"""Poisson batches: counts, rows and pairs of rows against the binomial law, and what an algorithm gets to see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from wardround.core.contracts import Shard
from wardround.core.errors import Refusal
from wardround.privacy.sampling import (
    OVERFLOW,
    ExpectedSize,
    PoissonBatch,
    PoissonShard,
    places_for,
    poisson_shard,
    sampled_places,
)

ROWS, RATE, TIMES = 40, 0.3, 20_000


def words(times: int, places: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, (times, places), dtype=np.uint32)


def entered(rate: float, rows: int, times: int, places: int) -> np.ndarray:
    """(times, rows) of 0 and 1: who entered."""
    draw = jax.jit(jax.vmap(lambda w: sampled_places(w, jnp.float32(rate), jnp.int32(rows))))
    found, count = (np.asarray(part) for part in draw(jnp.asarray(words(times, places))))
    table = np.zeros((times, rows), int)
    for number, (own, many) in enumerate(zip(found, count, strict=True)):
        table[number, own[:many]] += 1
        assert (np.diff(own[:many]) > 0).all(), "ascending, so that no row enters twice"
    return table


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return entered(RATE, ROWS, TIMES, ROWS)


def test_batch_sizes_are_binomial(table: np.ndarray) -> None:
    sizes = np.bincount(table.sum(axis=1), minlength=ROWS + 1)
    expected = TIMES * stats.binom.pmf(np.arange(ROWS + 1), ROWS, RATE)
    common = expected >= 10  # sizes that are too rare are put together
    observed = np.append(sizes[common], sizes[~common].sum())
    assert stats.chisquare(observed, np.append(expected[common], expected[~common].sum())).pvalue > 0.001


def test_every_row_enters_with_the_rate_and_independently_of_every_other(table: np.ndarray) -> None:
    spread = np.sqrt(RATE * (1 - RATE) / TIMES)
    assert (np.abs(table.mean(axis=0) - RATE) < 4.5 * spread).all()
    pairs = np.corrcoef(table.T)[np.triu_indices(ROWS, 1)]
    # 780 pairs; a correlation of independent columns has standard deviation 1 / sqrt(TIMES).
    assert np.abs(pairs).max() < 4.5 / np.sqrt(TIMES)
    assert 0.9 < np.std(pairs) * np.sqrt(TIMES) < 1.1


def test_a_small_rate_keeps_its_size() -> None:
    # 64 rows expected of a million: 1,000 batches hold 64,000 rows, give or take 4.5 standard deviations.
    draw = jax.jit(jax.vmap(lambda w: sampled_places(w, jnp.float32(64 / 1e6), jnp.int32(1_000_000))))
    found, count = (np.asarray(part) for part in draw(jnp.asarray(words(1000, places_for(64)))))
    assert abs(count.sum() - 64_000) < 4.5 * np.sqrt(64_000)
    places = np.concatenate([own[:many] for own, many in zip(found, count, strict=True)])
    assert stats.kstest(places / 1e6, "uniform").pvalue > 0.001


def test_rate_one_takes_every_row_and_long_gaps_never_wrap_around() -> None:
    found, count = sampled_places(jnp.asarray(words(1, 50)[0]), jnp.float32(1.0), jnp.int32(37))
    assert int(count) == 37
    np.testing.assert_array_equal(found[:37], np.arange(37))
    # A rate so small that nobody enters: 200 gaps of 2^30 rows would add up to far past 2^31.
    _, count = sampled_places(jnp.asarray(words(1, 200)[0]), jnp.float32(1e-12), jnp.int32(2**30))
    assert int(count) == 0


@pytest.mark.parametrize("expected", [1, 10, 64, 256])
def test_batches_overflow_less_often_than_said(expected: int) -> None:
    places = places_for(expected)
    for rows in (expected, 2 * expected, 10 * expected, 10**6):
        assert stats.binom.sf(places, rows, expected / rows) <= OVERFLOW
    assert places < expected + 8 * np.sqrt(expected) + 20


def shard_of(rows: int = 30, padding: int = 64) -> Shard:
    """Two passes; the second has the rows in reverse order. Labels are the rows' own numbers."""
    order = np.concatenate([np.arange(rows), np.arange(rows)[::-1], np.zeros(padding, int)])
    x = np.stack([order, order + 0.5], axis=1).astype(np.float32)
    number = np.asarray(rows, np.int32)
    return Shard(x, order.astype(np.int32), np.int32(0), number, number, np.int32(0), padding)


def private(seed: int = 0, rows: int = 30) -> PoissonShard:
    return poisson_shard(shard_of(rows), jax.random.bits(jax.random.key(seed), (8,), jnp.uint32))


def taken(batch: PoissonBatch) -> np.ndarray:
    return np.asarray(batch.y)[np.asarray(batch.taken) > 0]


def test_a_batch_holds_rows_of_the_site_and_tells_an_algorithm_nothing_of_who_entered() -> None:
    batch = private().batch(1, 0, ExpectedSize(8))
    assert isinstance(batch, PoissonBatch)
    own = taken(batch)
    assert len(own) == int(batch.entered) == len(np.unique(own))
    np.testing.assert_array_equal(np.asarray(batch.x)[: len(own), 0], own)
    assert own.max() < 30
    # The mask is the same for any batch, so that what is made of it is public.
    np.testing.assert_array_equal(batch.mask, np.ones(places_for(8)))
    assert (float(batch.denominator), float(batch.variance)) == (8.0, 1.0)
    assert float(batch.rate) == pytest.approx(8 / 30)


def test_every_batch_is_drawn_anew_and_the_same_key_draws_the_same() -> None:
    shard = private()
    batches = [shard.batch(visit, index, ExpectedSize(8)) for visit in (0, 1) for index in (0, 1)]
    again = shard.batch(0, 0, ExpectedSize(8))  # asked at another place of the code: another draw
    drawn = [tuple(sorted(taken(batch))) for batch in [*batches, again]]
    assert len(set(drawn)) == 5
    assert len({np.asarray(batch.nonce).tobytes() for batch in [*batches, again]}) == 5
    assert tuple(sorted(taken(private().batch(0, 0, ExpectedSize(8))))) == drawn[0]
    assert tuple(sorted(taken(private(seed=1).batch(0, 0, ExpectedSize(8))))) != drawn[0]


def test_a_site_smaller_than_the_batch_takes_all_its_rows() -> None:
    batch = private(rows=5).batch(0, 0, ExpectedSize(8))
    assert sorted(taken(batch)) == [0, 1, 2, 3, 4]
    assert (float(batch.denominator), float(batch.rate)) == (5.0, 1.0)


def test_chunks_of_all_rows_come_as_they_are_and_share_one_noise() -> None:
    rows = 150
    shard = private(rows=rows)
    chunks = [shard.batch(0, index, 64) for index in range(3)]
    assert np.concatenate([taken(chunk) for chunk in chunks]).tolist() == list(range(rows))
    # ceil(150 / 64) = 3 chunks: a third of the variance each; means over 64, 64 and 22 rows.
    assert [float(chunk.variance) for chunk in chunks] == pytest.approx([1 / 3] * 3)
    assert [float(chunk.denominator) for chunk in chunks] == [64.0, 64.0, 22.0]
    assert {float(chunk.rate) for chunk in chunks} == {1.0}


def test_other_sizes_are_refused() -> None:
    with pytest.raises(Refusal, match="looks at 10 rows"):
        private().batch(0, 0, 10)
