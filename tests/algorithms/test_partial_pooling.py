"""Partial pooling against closed forms of least squares, and its two limits."""

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.partial_pooling import (
    USUAL,
    WIDEST,
    WORTH,
    bounded,
    drawn_together,
    learned_width,
    partial_pooling,
)
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp

TASK = Task((2,), ("no", "yes"))
MODEL = logistic(TASK)
POOLING = partial_pooling(MODEL, weighted_mean())


def federation_of(slopes, rows=400):
    """Sites with logistic outcomes of these slopes of the first feature; the second means nothing."""
    generator = np.random.default_rng(0)
    parts = []
    for number, slope in enumerate(slopes):
        x = generator.normal(size=(rows, 2)).astype(np.float32)
        y = (generator.random(rows) < 1 / (1 + np.exp(-slope * x[:, 0]))).astype(np.int32)
        parts.append((f"site-{number}", [(x, y), (x[:0], y[:0]), (x, y)]))
    return assemble(parts, TASK)


def trained(slopes, rounds=25):
    federation = federation_of(slopes)
    with Simulation(federation, seed=1) as engine:
        progress = engine.begin(POOLING, MODEL.init(jax.random.key(0)))
        progress, _ = engine.train(POOLING, progress, [(n + 1, np.arange(len(slopes))) for n in range(rounds)])
        scores = engine.predict(POOLING, progress, "test")
    logit = np.log(scores.predicted[:, 1] / scores.predicted[:, 0])
    own = []
    for place, first, count in zip(scores.first[:-1], *federation.part("test"), strict=True):
        full = np.concatenate([federation.x[first : first + count], np.ones((count, 1))], axis=1)
        own.append(np.linalg.lstsq(full, logit[place : place + count], rcond=None)[0][0])
    return jax.device_get(progress.server), np.array(own)


def test_sites_alike_get_one_model():
    server, own = trained([1.0] * 6)
    assert own.std() < 0.06  # alone each site's slope has a standard error of about 0.13
    assert np.sqrt(server["variance"]).max() < 0.1


def test_sites_that_differ_in_one_coefficient_keep_it_and_share_the_rest():
    slopes = [2.0, -2.0, 1.0, -1.0, 0.0, 0.5]
    server, own = trained(slopes)
    np.testing.assert_allclose(own, slopes, atol=0.45)
    variance = np.asarray(server["variance"])  # the bias of both classes, then both features' weights
    assert variance[2:4].min() > 5 * variance[4:].max()


def test_a_site_far_from_all_others_is_let_go():
    """Five sites alike and one of the opposite: a normal distribution of that variance would pull it by a fifth."""
    _, own = trained([1.5] * 5 + [-1.5])
    assert own[5] == pytest.approx(-1.5, abs=0.35)
    assert own[:5].std() < 0.25


def test_the_width_of_the_prior_by_hand():
    """Four coefficients of 0.5, of which sites know three times as much as the prior: a quarter is left unknown.

    So three coefficients' worth was told. Where nothing is known, nothing is told, and what is usual is left.
    """
    centre, prior = np.full(4, 0.5, np.float32), np.full(4, 2.0, np.float32)
    width = learned_width(centre, 6 * np.eye(4, dtype=np.float32), prior, np.float32(1))
    expected = (4 * 0.25 + WORTH * USUAL) / (3 + WORTH)
    np.testing.assert_allclose(width, max(expected, 0.25), rtol=1e-5)
    near = learned_width(centre, 6 * np.eye(4, dtype=np.float32), prior, np.float32(0.1))
    np.testing.assert_allclose(near, expected, rtol=1e-5)
    nothing = learned_width(0 * centre, np.zeros((4, 4), np.float32), prior, np.float32(USUAL))
    np.testing.assert_allclose(nothing, USUAL, rtol=1e-5)
    # A site that tells an information that cannot be moves it fourfold at most.
    for lie in (-1e9, 1e9, np.nan):
        moved = float(learned_width(1e9 * centre, np.full((4, 4), lie, np.float32), prior, np.float32(1)))
        assert 0.25 <= moved <= 4


def test_the_step_of_the_server_by_hand():
    """Sums of two sites that know all (known = 1) and lie 1 and 3 prior deviations off: the common one moves by 2.

    With a variance of 4 that is 2 * 2 = 4 coefficients' worth, damped by 1 / (1 + damping) and by the prior, 4 / 9 of a
    site, or 2 / 9 for each of two.
    """
    state = POOLING.init(MODEL.init(jax.random.key(0)), 2)
    width = state["variance"].shape[0]
    state = {**state, "variance": np.full(width, 4.0, np.float32)}
    said = {
        "apart": np.full(width, 2.0), "known": np.eye(width), "square": np.full(width, 5.0), "spread": np.ones(()),
    }  # fmt: skip
    after = POOLING.server(state, Message({**said, "weight": np.float32(2)}))
    np.testing.assert_allclose(after["params"]["dense_0/bias"], 2 * 2 / (1 + 0.2 + 2 / 9), rtol=1e-4)
    # The squares' mean 5 less the squared mean 4 is 1: the variance stays.
    np.testing.assert_allclose(after["variance"], 4, rtol=1e-5)


def test_variances_drawn_together_by_hand():
    """Ten of 1 and one of e³, so many sites tell: the centre is near 0, and the far one keeps nearly its own.

    Belonging at a distance of 3 with lent 4 is 2 / (1 + 18) = 2 / 19 of a usual 2. The centre c solves
    10 w(c) c = w(3 - c) (3 - c) with w(d) = 2 / (1 + 2 d²); the far one's logarithm u solves u (4 + 4 w) = 12 + 4 w c.
    """
    told = np.array([1.0] * 10 + [np.exp(3.0)], np.float32)
    found = np.log(drawn_together(told, np.float32(4), 4.0))
    c = 3 / 190
    for _ in range(50):
        near, far = 2 / (1 + 2 * c * c), 2 / (1 + 2 * (3 - c) ** 2)
        c = 3 * far / (10 * near + far)
    u = 3.0
    for _ in range(50):
        w = 2 / (1 + 2 * (u - c) ** 2)
        u = (12 + 4 * w * c) / (4 + 4 * w)
    assert u > 2.6
    np.testing.assert_allclose(found[-1], u, atol=1e-3)
    # One near the others goes two thirds of the way to them, w being nearly 2: (4 t + 8 c) / 12.
    beside = np.log(drawn_together(np.array([1.0] * 50 + [np.exp(0.03)], np.float32), np.float32(4), 4.0))
    np.testing.assert_allclose(beside[-1], 0.01, atol=1e-3)


def test_limits_of_drawing_variances_together():
    """Nothing lent leaves them as they are; many sites, nearly; one alone, such as an intercept, is its own centre."""
    told = np.array([0.01, 0.1, 0.5, 2.0], np.float32)
    np.testing.assert_allclose(drawn_together(told, np.float32(4), 0.0), told, rtol=1e-5)
    np.testing.assert_allclose(drawn_together(told, np.float32(1e6), 4.0), told, rtol=1e-4)
    np.testing.assert_allclose(drawn_together(told[:1], np.float32(4), 4.0), told[:1], rtol=1e-5)


@pytest.mark.parametrize(
    "lie",
    [
        {"apart": 1e20},  # a site that claims to be far away
        {"known": -3.0},  # information that cannot be
        {"square": 1e20},
        {"square": -1e20},
        {"spread": -1e20},
        {"spread": 1e20},
    ],
)
def test_what_a_lying_site_moves_in_a_round_is_bounded(lie):
    """Sums of many sites that are alike, into which one puts whatever it likes.

    A common coefficient moves by at most LONGEST * FAR deviations times the root of their number (6 here), the variance
    by a factor between (1 / 4)^1.7 and 2^1.7, the residual variance by 100; the next round is again one.
    """
    state = POOLING.init(MODEL.init(jax.random.key(0)), 10)
    width = state["variance"].shape[0]
    honest = {"apart": np.zeros(width), "known": np.eye(width), "square": np.full(width, 0.8), "spread": np.ones(())}
    told = {**honest, **{name: honest[name] + value * np.ones_like(honest[name]) for name, value in lie.items()}}
    after = jax.device_get(POOLING.server(state, Message({**told, "weight": np.float32(10)})))
    deviation = np.sqrt(0.25)
    assert all(np.abs(value).max() <= 5 * 5 * deviation * np.sqrt(width) for value in after["params"].values())
    assert (after["variance"] <= 0.25 * 2**1.7 * 1.0001).all()
    assert (after["variance"] >= 0.25 * 0.25**1.7 * 0.9999).all()
    assert 0.0099 <= float(after["noise"]) <= 100.1
    # No lie makes the round count for nothing.
    assert not np.array_equal(after["variance"], np.asarray(state["variance"]))


def test_where_the_step_does_not_exist_it_is_that_of_em():
    np.testing.assert_array_equal(bounded(np.array([np.inf, np.nan]), np.array([3.0, 4.0])), [3.0, 4.0])
    # Five times the length of (3, 4) at most: 25 of the 50 that were asked for.
    np.testing.assert_allclose(bounded(np.array([30.0, 40.0]), np.array([3.0, 4.0])), [15.0, 20.0])


def test_of_classes_no_residual_variance_is_believed():
    federation = federation_of([1.0], rows=50)
    shard = one_site(federation.x[:50], federation.y[:50], np.arange(50)[None])
    params = MODEL.init(jax.random.key(0))
    state = POOLING.init(params, 2)
    own = [
        POOLING.personal.fit(
            POOLING.broadcast({**state, "noise": np.float32(noise)}),
            POOLING.init_client(params),
            shard,
            jax.random.key(0),
        )
        for noise in (1.0, 1e6)
    ]
    for name in params:
        np.testing.assert_array_equal(own[0][name], own[1][name])


def test_a_site_without_rows_has_the_common_model():
    params = jax.tree.map(lambda a: a + 0.7, MODEL.init(jax.random.key(0)))
    state = POOLING.init(params, 2)
    empty = one_site(np.zeros((0, 2), np.float32), np.zeros(0, np.int32), np.zeros((1, 0), np.int64))
    own = POOLING.personal.fit(POOLING.broadcast(state), POOLING.init_client(params), empty, jax.random.key(0))
    for name, value in params.items():
        np.testing.assert_allclose(own[name], value, atol=1e-6)


def test_a_large_model_is_refused():
    model = mlp(TASK, hidden=(200,))
    params = model.init(jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) > WIDEST
    with pytest.raises(Refusal, match="model_interpolation"):
        partial_pooling(model, weighted_mean()).init(params, 2)
