"""Flattening, and the information of an empty site; the closed forms are those of the probe `information`."""

import jax
import numpy as np

from wardround.core.solvers.fisher import flat, like, mean_information
from wardround.engine.split_round import one_site


def test_flat_and_back(model):
    params = jax.tree.map(lambda a: a + 0.1, model.init(jax.random.key(0)))
    again = like(params, flat(params) * 2)
    assert set(again) == set(params)
    for name, value in params.items():
        np.testing.assert_allclose(again[name], 2 * value)


def test_an_empty_site_says_nothing(model):
    params = model.init(jax.random.key(0))
    empty = one_site(np.zeros((0, 3), np.float32), np.zeros(0, np.int32), np.zeros((1, 0), np.int64))
    for part in mean_information(model, params, empty, jax.random.key(0), flat):
        assert not np.any(part)
