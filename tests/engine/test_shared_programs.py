"""Algorithms that differ in one number share a program, and each still is itself."""

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import identity
from wardround.engine import layout
from wardround.engine.program import fused_rounds
from wardround.engine.shared_programs import REMEMBERED, number_of, representative, with_number
from wardround.engine.simulate import Simulation
from wardround.privacy.dp_sgd import private_model, sample_level
from wardround.privacy.sampling import ExpectedSize

ROUNDS = [(number, np.arange(7)) for number in (1, 2)]


def trained(federation, algorithm, model):
    with Simulation(federation, seed=3) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, model.init(jax.random.key(0))), ROUNDS)
        devices = engine.shape(algorithm, algorithm.params(progress.server)).devices
        predicted = engine.predict(algorithm, progress, "test").predicted
    return jax.device_get(algorithm.params(progress.server)), predicted, devices


def private(model, *, constant=None):
    """From a noise to the algorithm; or, with the noise as a constant of the model, the algorithm itself."""
    under = private_model(model, clip=1.0, noise_multiplier=1.0 if constant is None else constant)
    inner = fed_avg(under, weighted_mean(), batch_size=ExpectedSize(8))
    plain = fed_avg(model, weighted_mean(), batch_size=8)
    if constant is not None:
        return sample_level(inner, plain, seeded=True)
    return lambda noise: sample_level(inner, plain, seeded=True, noise=noise)


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_any_noise_in_one_program_is_the_noise_compiled_in(devices, even, model, monkeypatch):
    monkeypatch.setattr(layout, "WORTH_A_DEVICE", 0 if devices == 2 else 10**12)
    make, seen = private(model), []
    for noise in (0.25, 1.0, 7.0):
        algorithm = with_number(make, noise)
        params, predicted, used = trained(even, algorithm, model)
        expected, expected_predicted, _ = trained(even, private(model, constant=noise), model)
        assert used == devices
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), params, expected)
        np.testing.assert_allclose(predicted, expected_predicted, rtol=2e-4, atol=1e-5)
        seen.append((fused_rounds(algorithm, identity(), devices, algorithm.largest_batch), params))
    programs, models = zip(*seen, strict=True)
    assert programs[0] is programs[1] is programs[2]
    assert programs[0]._cache_size() == 1
    # The same seed, so all that differs is how much noise: it does, and by a lot.
    one, other = (np.concatenate([np.ravel(a) for a in jax.tree.leaves(m)]) for m in (models[0], models[2]))
    assert np.abs(one - other).max() > 0.05


def test_no_dial_no_number(model):
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    assert representative(algorithm) is algorithm
    assert number_of(algorithm) == ()


def test_the_oldest_are_forgotten_and_stand_for_themselves(model):
    make = private(model)
    first, second = with_number(make, 1.0), with_number(make, 2.0)
    assert representative(second) is first
    assert (number_of(first), number_of(second)) == (1.0, 2.0)
    other = private(model)
    for number in range(REMEMBERED):
        with_number(other, number)
    assert representative(second) is second
    assert number_of(second) == ()
    # `at` is only ever asked for a first one; one made anew is written down again.
    assert number_of(with_number(make, 3.0)) == 3.0
