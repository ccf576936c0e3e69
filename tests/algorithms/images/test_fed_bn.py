import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.fed_bn import fed_bn, kept_arrays
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.logistic import logistic
from wardround.models.pain_cnn import pain_cnn

TASK = Task((8, 8, 1), ("no", "yes"), "pain")
MODEL = pain_cnn(TASK, filters=(2,), dense=3, statistics_rate=5.0)
NORMS = {f"norm_{i}/{part}" for i in (0, 1) for part in ("scale", "bias", "mean", "var")}


def rows(count, seed, light):
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 2
    x = generator.random((count, 8, 8, 1), np.float32) * 0.3 + light
    x[:, 2:6, 2:6] += 0.3 * y[:, None, None, None]
    return x, y


@pytest.fixture(scope="module")
def two_lights():
    """A dark and a bright scanner."""
    dark, bright = ([rows(24, k + 10 * (light > 0), light) for k in range(3)] for light in (0.0, 2.0))
    return assemble([("dark", dark), ("bright", bright)], TASK)


def test_what_leaves_has_no_normalization():
    assert kept_arrays(MODEL, ()) == NORMS
    algorithm = fed_bn(MODEL, weighted_mean())
    params = jax.jit(MODEL.init)(jax.random.key(0))
    x, y = rows(8, 1, 0.0)
    shard = one_site(x, y, np.arange(8)[None])
    answer = jax.eval_shape(
        lambda p: algorithm.client(Message({"params": p}), algorithm.init_client(params), shard, jax.random.key(1))[0],
        algorithm.broadcast(params).arrays["params"],
    )
    assert set(answer.arrays["update"]) == set(params) - NORMS == set(algorithm.broadcast(params).arrays["params"])


def test_every_site_keeps_statistics_of_its_own_light(two_lights):
    params = jax.jit(MODEL.init)(jax.random.key(0))
    algorithm = fed_bn(MODEL, weighted_mean(), learning_rate=0.1, batch_size=8)
    with Simulation(two_lights, seed=1) as engine:
        progress = engine.begin(algorithm, params)
        progress, _ = engine.train(algorithm, progress, [(n, np.arange(2)) for n in range(1, 5)])
        personal = engine.personal_models(algorithm, progress)
    kept, server = jax.device_get((progress.clients, progress.server))
    # The first convolution is linear in the light, so the running means of a bright and a dark site lie apart.
    assert np.abs(kept["norm_0/mean"][0] - kept["norm_0/mean"][1]).max() > 0.2
    for name in NORMS:
        np.testing.assert_array_equal(server[name], params[name])  # the server never learns them
        np.testing.assert_array_equal(np.asarray(personal[name]), kept[name])
    np.testing.assert_array_equal(np.asarray(personal["conv_0/kernel"])[0], np.asarray(personal["conv_0/kernel"])[1])


def test_without_normalization_it_is_fed_avg(even, model):
    def trained(make):
        with Simulation(even, seed=3) as engine:
            algorithm = make(model, weighted_mean())
            progress = engine.begin(algorithm, model.init(jax.random.key(0)))
            return jax.device_get(engine.train(algorithm, progress, [(1, np.arange(7))])[0].server)

    one, other = trained(fed_bn), trained(fed_avg)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(Refusal, match="no layer called 'norm'"):
        fed_bn(logistic(Task((3,), ("a", "b"))), weighted_mean(), local=("norm",))
