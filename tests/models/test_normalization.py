import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.fed_bn import fed_bn
from wardround.core.contracts import Batch, Message, Task
from wardround.core.errors import Refusal
from wardround.engine.split_round import one_site
from wardround.models.normalization import EPSILON, OpenBatchNorm, RowGroupNorm
from wardround.models.pain_cnn import pain_cnn
from wardround.privacy.dp_sgd import refuse_coupled

KEY = jax.random.key(0)
TASK = Task((20, 20, 1), ("no", "yes"))
TINY = {"filters": (2, 2), "dense": 3}
RNG = np.random.default_rng(2)
MODEL = pain_cnn(TASK, **TINY, statistics_rate=4.0)
PARAMS = jax.device_get(jax.jit(MODEL.init)(KEY))
SLOPE = jax.jit(MODEL.gradient)
X = RNG.normal(size=(5, 4, 4, 6)).astype(np.float32)


def test_batch_norm_is_that_of_flax_and_padding_does_not_count():
    layer = OpenBatchNorm()
    params = layer.init(KEY, X, None)
    mask = jnp.array([1.0, 1.0, 1.0, 0.0, 0.0])
    ours, _ = layer.apply(params, X, mask, mutable=["lag"])
    theirs = nn.BatchNorm(use_running_average=False, epsilon=EPSILON)
    expected, _ = theirs.apply(theirs.init(KEY, X[:3]), X[:3], mutable=["batch_stats"])
    np.testing.assert_allclose(ours[:3], expected, atol=1e-5)


def test_group_norm_is_that_of_flax_and_of_one_row():
    layer = RowGroupNorm()
    params = layer.init(KEY, X)
    # Six channels: the largest number up to 8 that divides them is 6.
    theirs = nn.GroupNorm(num_groups=6, epsilon=EPSILON)
    np.testing.assert_allclose(layer.apply(params, X), theirs.apply(theirs.init(KEY, X), X), atol=1e-4)
    np.testing.assert_allclose(layer.apply(params, X)[:1], layer.apply(params, X[:1]), atol=1e-5)


def test_a_step_moves_the_statistics_by_rate_times_learning_rate():
    # With learning rate 0.05 and statistics_rate 4 the mean moves a fifth of the way to the batch's mean.
    x, y = RNG.random((4, 20, 20, 1), np.float32), np.array([0, 1, 0, 1], np.int32)
    slope, params = SLOPE(PARAMS, Batch(x, y, np.ones(4, np.float32)), KEY), PARAMS
    after = {name: params[name] - 0.05 * np.asarray(slope[name]) for name in params}
    conv = nn.Conv(2, (5, 5), 2, padding="SAME").apply(
        {"params": {"kernel": params["conv_0/kernel"], "bias": params["conv_0/bias"]}}, x
    )
    np.testing.assert_allclose(after["norm_0/mean"], 0.2 * conv.mean((0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(after["norm_0/var"], 0.8 + 0.2 * conv.var((0, 1, 2)), atol=1e-5)


def test_whoever_sets_the_rates_reads_the_last_patient_unless_normalization_stays():
    """The attack that an approval warns of: 5 patients in batches of 4, and the fifth's mean leaves exactly."""
    x, y = RNG.random((5, 20, 20, 1), np.float32), np.int32([0, 1, 0, 1, 1])
    model = pain_cnn(TASK, **TINY, statistics_rate=1e6)
    kernel = np.zeros((5, 5, 1, 2), np.float32)
    kernel[2, 2, 0] = 1.0  # the picture itself, every other pixel
    sent = {**PARAMS, "conv_0/kernel": kernel, "conv_0/bias": np.zeros(2, np.float32)}
    algorithm = fed_avg(model, weighted_mean(), learning_rate=1e-6, batch_size=4)
    shard = one_site(x, y, np.arange(5)[None])
    told = jax.jit(algorithm.client)(Message({"params": sent}), (), shard, KEY)[0].arrays
    read = told["update"]["norm_0/mean"][0] / told["weight"] + sent["norm_0/mean"][0]
    wrong = np.abs(x[:, 1::2, 1::2, 0].mean((1, 2)) - read)
    nearest, other = np.sort(wrong)[:2]
    assert nearest < 1e-5
    assert other > 1e-3
    kept = fed_bn(model, weighted_mean(), learning_rate=1e-6, batch_size=4)
    assert not any("norm" in name for name in kept.broadcast(sent).arrays["params"])


def test_an_empty_batch_moves_nothing():
    batch = Batch(np.ones((4, 20, 20, 1), np.float32), np.zeros(4, np.int32), np.zeros(4, np.float32))
    slope = SLOPE(PARAMS, batch, KEY)
    assert all(not np.any(part) for part in slope.values())


def test_batch_norm_is_refused_under_privacy_by_layer_and_group_norm_is_not():
    with pytest.raises(Refusal, match="norm_0, norm_1, norm_2") as found:
        refuse_coupled(pain_cnn(TASK, **TINY))
    assert 'normalization = "group"' in str(found.value)
    refuse_coupled(pain_cnn(TASK, **TINY, normalization="group"))
    assert pain_cnn(TASK, **TINY, architecture="initial").coupled == ("norm_2",)
