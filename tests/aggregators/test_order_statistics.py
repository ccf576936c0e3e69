import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.order_statistics import network, sort_rows


@pytest.mark.parametrize("rows", range(1, 11))
def test_the_network_sorts_every_column_of_zeros_and_ones(rows: int) -> None:
    # Knuth's zero-one principle: a network that sorts all 2^n columns of zeros and ones sorts anything.
    columns = (np.arange(2**rows)[None, :] >> np.arange(rows)[:, None]) & 1
    ordered = columns.copy()
    for layer in network(rows):
        touched = [row for exchange in layer for row in exchange]
        assert len(touched) == len(set(touched))
        for low, high in layer:
            ordered[low], ordered[high] = (
                np.minimum(ordered[low], ordered[high]),
                np.maximum(ordered[low], ordered[high]),
            )
    np.testing.assert_array_equal(ordered, np.sort(columns, axis=0))


def test_the_network_has_the_known_number_of_exchanges() -> None:
    # Batcher: (p² - p + 4) 2^(p - 2) - 1 exchanges for 2^p numbers: 5, 19, 63, 191.
    assert [sum(map(len, network(2**p))) for p in (2, 3, 4, 5)] == [5, 19, 63, 191]


@pytest.mark.parametrize("rows", [1, 2, 7, 33, 200])
def test_rows_come_out_as_numpy_sorts_them(rows: int) -> None:
    block = np.random.default_rng(rows).normal(size=(rows, 50)).astype(np.float32)
    block[::3] = np.inf
    block[1::5] = block[0]
    np.testing.assert_array_equal(jax.jit(sort_rows)(jnp.asarray(block)), np.sort(block, axis=0))
