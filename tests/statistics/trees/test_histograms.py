import numpy as np
import pytest

from wardround.statistics.trees.histograms import histogram_builder, numpy_builder


@pytest.mark.parametrize("constant", [False, True])
def test_both_builders_give_the_sums_of_a_plain_loop(constant):
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 6, (3, 200)).astype(np.uint8)
    gradients = draw.normal(size=200).astype(np.float32)
    hessians = np.ones(200, np.float32) if constant else draw.random(200).astype(np.float32)
    rows = np.sort(draw.choice(200, 70, replace=False)).astype(np.uint32)
    expected = np.zeros((2, 3, 6))
    for row in rows:
        for column in range(3):
            expected[:, column, codes[column, row]] += gradients[row], hessians[row]
    for builder in (
        histogram_builder(codes, 6, gradients, hessians, constant=constant),
        numpy_builder(codes, 6, gradients, hessians),
    ):
        np.testing.assert_allclose(builder(rows), expected, atol=1e-9)


def test_the_compiled_builder_is_the_one_that_is_used():
    """A version of scikit-learn that lost it would only make trees slow: this says so."""
    made = histogram_builder(np.zeros((1, 4), np.uint8), 2, np.zeros(4), np.ones(4), constant=False)
    assert made.__qualname__.startswith("histogram_builder")
