"""Private gradients: plain ones as limits, the noise's variance, one patient's influence, both engines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy import stats
from sklearn.metrics import roc_auc_score

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_sgd import fed_sgd
from wardround.algorithms.fine_tune import fine_tune
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Batch, Message, Model, Shard, Task
from wardround.core.errors import Refusal
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import (
    OwnRows,
    combine_answers,
    initial_progress,
    message_of_round,
    one_site,
    site_round,
)
from wardround.models.from_flax import cross_entropy, from_flax
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.privacy.dp_sgd import PIECE, private_model, sample_level, sum_of
from wardround.privacy.row_gradients import clipped_sum
from wardround.privacy.sampling import ExpectedSize, poisson_shard

KEY = jax.random.key(0)
TASK = Task((3,), ("no", "yes"))
MODEL = logistic(TASK)
PARAMS = {
    "dense_0/kernel": jnp.asarray([[0.3, -0.1], [0.2, 0.4], [-0.5, 0.1]]),
    "dense_0/bias": jnp.asarray([0.1, -0.2]),
}
INF = float("inf")


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 3)).astype(np.float32), generator.integers(0, 2, count).astype(np.int32)


def shard_of(count: int, seed: int = 0) -> Shard:
    x, y = rows(count, seed)
    return one_site(x, y, np.arange(count)[None])


def private(shard: Shard, seed: int = 1):
    return poisson_shard(shard, jax.random.bits(jax.random.key(seed), (8,), jnp.uint32))


def made(
    factory, noise: float, clip: float, batch: int, *, seeded: bool = True, model: Model = MODEL, **settings
) -> Algorithm:
    size = ExpectedSize(batch) if batch else 0
    under = factory(
        private_model(model, clip=clip, noise_multiplier=noise), weighted_mean(), batch_size=size, **settings
    )
    return sample_level(under, factory(model, weighted_mean(), batch_size=batch, **settings), seeded=seeded)


def answered(algorithm: Algorithm, shard: Shard, key=KEY):
    message = Message({"params": PARAMS})
    return jax.jit(lambda key: algorithm.client(message, (), shard, key)[0])(key).arrays["update"]


@pytest.mark.parametrize("count", [30, 150])
def test_no_noise_and_no_bound_over_all_rows_is_the_plain_gradient(count: int) -> None:
    """Full-batch FedSGD and FedAvg, whose private twins go through the rows in chunks as well."""
    shard = shard_of(count)
    for factory in (fed_sgd, fed_avg):
        plain = factory(MODEL, weighted_mean(), batch_size=0)
        expected, got = answered(plain, shard), answered(made(factory, 0.0, INF, 0), shard)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7 * count), got, expected)


def test_no_noise_and_no_bound_at_rate_one_is_plain_training() -> None:
    # A site of 20 rows and batches of 32: every batch holds all rows, as a plain batch does.
    expected = answered(fed_avg(MODEL, weighted_mean(), batch_size=32), shard_of(20))
    got = answered(made(fed_avg, 0.0, INF, 32), shard_of(20))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


def test_a_poisson_gradient_by_hand() -> None:
    """The clipped sum over those who entered, over the expected number, not over how many did."""
    batch = private(shard_of(200)).batch(0, 0, ExpectedSize(40))
    took = np.asarray(batch.taken) > 0
    assert took.sum() != 40
    logits = np.asarray(batch.x)[took] @ np.asarray(PARAMS["dense_0/kernel"]) + np.asarray(PARAMS["dense_0/bias"])
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    back = chance - np.eye(2)[np.asarray(batch.y)[took]]
    kernel = np.asarray(batch.x)[took][:, :, None] * back[:, None, :]
    length = np.sqrt((kernel**2).sum(axis=(1, 2)) + (back**2).sum(axis=1))
    factor = np.minimum(1, 0.5 / length)
    assert 0 < (factor < 1).sum() < len(factor)
    got = private_model(MODEL, clip=0.5, noise_multiplier=0.0).gradient(PARAMS, batch, KEY)
    np.testing.assert_allclose(got["dense_0/kernel"], (kernel * factor[:, None, None]).sum(axis=0) / 40, atol=1e-6)
    np.testing.assert_allclose(got["dense_0/bias"], (back * factor[:, None]).sum(axis=0) / 40, atol=1e-6)


@pytest.mark.parametrize(("count", "batch"), [(50, 10), (300, 0)])
def test_the_noise_has_the_promised_variance(count: int, batch: int) -> None:
    """1,500 answers of one site that differ in noise and sample; a bound so small that the sample hardly matters."""
    noise, clip = 4.0, 1e-6
    algorithm, shard = made(fed_sgd, noise, clip, batch, learning_rate=1.0), shard_of(count)
    message = Message({"params": PARAMS})
    draws = jax.jit(jax.vmap(lambda key: algorithm.client(message, (), shard, key)[0].arrays["update"]))
    drawn = draws(jax.random.split(KEY, 1500))
    numbers = np.concatenate([np.asarray(a, np.float64).reshape(1500, -1) for a in jax.tree.leaves(drawn)], axis=1)
    # An answer is weight (= count) times the mean; noise clip * noise_multiplier on the sum, over the expected rows
    # (all of them in 5 chunks of 64 where the batch is 0: their noises add up to one).
    spread = count * noise * clip / (batch or count)
    numbers -= numbers.mean(axis=0)
    cut = clip * count / spread  # what the sample itself can add, in units of the noise: under 1.3 % of its variance
    degrees = (1500 - 1) * numbers.shape[1]
    ratio = np.sum(numbers**2) / spread**2 / degrees
    low, high = stats.chi2.ppf([0.001, 0.999], degrees) / degrees
    assert low <= ratio <= high + (cut**2 / 16 if batch else 0)
    assert stats.kstest(numbers[:, 0] / numbers[:, 0].std(), "norm").pvalue > 0.001


def test_one_patient_more_or_less_changes_a_private_sum_by_the_bound_at_most() -> None:
    x, y = rows(60)
    x[7] *= 100  # a patient like no other
    model = private_model(MODEL, clip=0.7, noise_multiplier=0.0)

    # The order puts a patient out without moving anybody else: the places of all others stay the same.
    batch = private(one_site(x, y, np.arange(60)[None])).batch(0, 0, ExpectedSize(60))
    gradient = jax.jit(lambda taken: model.gradient(PARAMS, batch._replace(taken=taken), KEY))

    def summed(kept: np.ndarray) -> np.ndarray:
        slope = gradient(batch.taken * jnp.asarray(kept, jnp.float32)[: len(batch.taken)])
        return 60 * np.concatenate([np.ravel(a) for a in jax.tree.leaves(slope)])

    everyone = summed(np.ones(200))
    changes = [np.linalg.norm(everyone - summed(np.where(np.arange(200) == i, 0, 1))) for i in range(60)]
    assert max(changes) <= 0.7 * (1 + 1e-4)
    assert max(changes) > 0.69


@pytest.mark.slow
def test_pieces_give_what_all_rows_at_once_give() -> None:
    batch = private(shard_of(500)).batch(0, 0, ExpectedSize(100))
    assert len(batch.taken) > 100 + 3 * PIECE
    whole = clipped_sum(MODEL.loss, PARAMS, Batch(batch.x, batch.y, batch.taken), 0.5, KEY)
    for usual in (1, 40, 100):  # more or fewer rows at once, the others in pieces
        got = jax.jit(lambda usual=usual: sum_of(MODEL, PARAMS, batch._replace(usual=usual), 0.5, KEY))()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, whole)
    fuller = batch._replace(taken=jnp.ones_like(batch.taken), entered=jnp.asarray(len(batch.taken)))
    whole = clipped_sum(MODEL.loss, PARAMS, Batch(batch.x, batch.y, fuller.taken), 0.5, KEY)
    got = sum_of(MODEL, PARAMS, fuller, 0.5, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, whole)


def test_both_engines_agree_and_the_seed_decides(even) -> None:
    algorithm, everyone = made(fed_avg, 1.0, 1.0, 16), np.arange(7)

    def simulated(seed: int, devices: int):
        with Simulation(even, seed=seed, device_count=devices) as engine:
            progress = engine.begin(algorithm, MODEL.init(KEY))
            return jax.device_get(engine.train(algorithm, progress, [(1, everyone), (2, everyone)])[0].server)

    row = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.int32))
    progress = initial_progress(algorithm, identity(), MODEL.init(KEY), 7, row)
    for number in (1, 2):
        sent = message_of_round(algorithm, identity(), progress, seed=3, number=number)
        answers = {}
        for site in range(7):
            own = OwnRows(even.x[even.first[site] :][:48], even.y[even.first[site] :][:48], site)
            answers[site], _, finite = site_round(algorithm, identity(), sent, (), own, seed=3, number=number)
            assert finite
        progress = combine_answers(algorithm, identity(), progress, answers, 7, 7)
    first = simulated(3, 1)
    for other in (jax.device_get(progress.server), simulated(3, 2)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), first, other)
    assert not np.allclose(first["dense_0/kernel"], simulated(4, 1)["dense_0/kernel"], atol=1e-3)


def test_noise_of_the_operating_system_is_never_the_same(even) -> None:
    algorithm, everyone = made(fed_avg, 1.0, 1.0, 16, seeded=False), np.arange(7)
    ends = []
    for devices in (1, 2, 2):
        with Simulation(even, seed=3, device_count=devices) as engine:
            progress = engine.begin(algorithm, MODEL.init(KEY))
            ends.append(np.asarray(engine.train(algorithm, progress, [(1, everyone)])[0].server["dense_0/kernel"]))
    assert all(not np.allclose(a, b, atol=1e-3) for a, b in ((ends[0], ends[1]), (ends[1], ends[2])))


def test_a_site_keeps_its_personal_model_without_noise(even) -> None:
    # Noise that drowns everything: the common model is useless, yet each site's own is its plain fine-tuning of it.
    algorithm = made(fine_tune, 1e4, 1.0, 16, personal_epochs=3)
    assert algorithm.personal is not None
    message, shard = Message({"params": PARAMS}), shard_of(48)
    got = algorithm.personal.fit(message, (), shard, KEY)
    plain = fine_tune(MODEL, weighted_mean(), batch_size=16, personal_epochs=3)
    jax.tree.map(np.testing.assert_array_equal, got, plain.personal.fit(message, (), shard, KEY))


def test_batch_normalisation_is_refused_by_the_layer_s_name() -> None:
    """It would mix the rows of a batch, so that no row had a gradient of its own."""

    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nn.BatchNorm(use_running_average=False, name="norm_1")(x))

    with pytest.raises(Refusal, match=r"batch_stats of norm_1.*nn\.GroupNorm or nn\.LayerNorm"):
        from_flax(Normed(), cross_entropy, TASK)


def test_a_plain_batch_is_refused() -> None:
    model = private_model(MODEL, clip=1.0, noise_multiplier=1.0)
    with pytest.raises(Refusal, match="not drawn for a private step"):
        model.gradient(PARAMS, shard_of(20).batch(0, 0, 16), KEY)


@pytest.mark.slow
def test_private_training_learns(make_federation) -> None:
    """About what plain training learns, where there are patients enough and the noise is what is usual."""
    federation = make_federation([400] * 3)
    model = mlp(federation.task, hidden=(8,))
    plain = fed_avg(model, weighted_mean(), batch_size=40, learning_rate=0.5)
    right = []
    for algorithm, rounds in (
        (plain, 0),
        (plain, 10),
        (made(fed_avg, 1.0, 1.0, 40, model=model, learning_rate=0.5), 10),
    ):
        with Simulation(federation, seed=1, device_count=1) as engine:
            progress = engine.begin(algorithm, model.init(KEY))
            if rounds:
                progress, _ = engine.train(algorithm, progress, [(n, np.arange(3)) for n in range(1, rounds + 1)])
            scores = engine.predict(algorithm, progress, "test")
        right.append(float(roc_auc_score(scores.actual, scores.predicted[:, 1])))
    untrained, without, under_noise = right
    assert under_noise > without - 0.04 > untrained + 0.05
