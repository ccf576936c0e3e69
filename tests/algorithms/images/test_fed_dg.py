"""FedDG: limiting cases of the interpolation, what leaves a site, the gradient of an episode, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.images.boundary import bands_of, boundary_loss
from wardround.algorithms.images.fed_dg import coarse_amplitudes, fed_dg, seen_elsewhere
from wardround.algorithms.images.spectrum import interpolated, low_amplitudes
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.deploy.site.release.answer_size import ARRAYS
from wardround.engine.split_round import one_site
from wardround.models.images.u_net import u_net
from wardround.models.mlp import mlp
from wardround.privacy.dry_run import DryRun

TASK = Task((8, 8, 1), (), "mask", segmentation=True)
X = np.random.default_rng(0).uniform(0.2, 0.8, (12, 8, 8, 1)).astype(np.float32)
Y = (X[..., 0] > 0.5).astype(np.uint8)


def shard(rows=12, site=0):
    return one_site(X[:rows], Y[:rows], np.arange(rows)[None], site=site)


def small():
    return u_net(TASK, filters=2, depth=1)


def test_limits_of_the_interpolation():
    x = np.random.default_rng(1).uniform(0.3, 0.7, (3, 16, 12, 2)).astype(np.float32)
    own = low_amplitudes(x, 2)
    assert own.shape == (3, 5, 5, 2)
    np.testing.assert_allclose(own[:, 0, 0], x.mean(axis=(1, 2)), atol=1e-6)  # frequency 0 is the mean intensity
    other = own[::-1]
    # A share of 0, and another site that is like this one, leave the image alone.
    np.testing.assert_allclose(interpolated(x, other, jnp.zeros(3), 2), x, atol=1e-6)
    np.testing.assert_allclose(interpolated(x, own, jnp.ones(3), 2), x, atol=1e-6)
    # A share of 1 gives the other's low amplitudes; phases, and all higher frequencies, stay.
    moved = interpolated(x, other, jnp.ones(3), 2)
    np.testing.assert_allclose(low_amplitudes(moved, 2), other, atol=1e-6)
    before, after = (np.fft.fft2(one, axes=(1, 2)) for one in (x, np.asarray(moved)))
    np.testing.assert_allclose(np.angle(before[:, 1, 2]), np.angle(after[:, 1, 2]), atol=1e-3)
    np.testing.assert_allclose(before[:, 3:-3, 3:-3], after[:, 3:-3, 3:-3], atol=1e-4)
    # Half way is half way.
    half = low_amplitudes(interpolated(x, other, jnp.full(3, 0.5), 2), 2)
    np.testing.assert_allclose(half, (own + other) / 2, atol=1e-6)
    with pytest.raises(Refusal, match="have no frequencies up to 6"):
        low_amplitudes(x, 6)


def test_an_image_is_moved_towards_another_known_site_only():
    bank = jnp.stack([jnp.full((7, 7, 3), 0.5), jnp.full((7, 7, 3), jnp.nan), jnp.full((7, 7, 3), 0.9)])
    alone = seen_elsewhere(X, jax.random.key(0), bank, jnp.array([1.0, 0.0, 0.0]), 0, 3)
    np.testing.assert_allclose(alone, X, atol=1e-6)  # nobody else is known
    moved = seen_elsewhere(X, jax.random.key(0), bank, jnp.array([1.0, 0.0, 1.0]), 0, 3)
    assert np.isfinite(moved).all()  # the unknown site, whose numbers would show, is never drawn
    assert float(jnp.abs(moved - X).mean(axis=(1, 2, 3)).min()) > 0


def test_a_site_sends_a_mean_over_all_its_images_and_nothing_below_a_cell():
    model = small()
    method = fed_dg(model, weighted_mean(), smallest_cell=10, second_order=False, boundary_weight=0.0)
    state = method.init(jax.jit(model.init)(jax.random.key(0)), 3)
    sent = method.broadcast(state)
    client = jax.jit(method.client)
    answer = client(sent, (), shard(12, site=1), jax.random.key(1))[0].arrays
    assert set(answer) == {"update", "spectra", "told", "weight"}
    assert set(answer) <= set(ARRAYS)  # whoever approves a study reads what each of them tells
    assert "no picture; all sites get them, and a secure sum does not hide them" in ARRAYS["spectra"]
    # Padded to three channels, in the place of site 1, not times 12 images; nothing in other places.
    expected = by_hand(X, 10)
    np.testing.assert_allclose(answer["spectra"][1][..., :1], expected, rtol=1e-4)
    assert not np.asarray(answer["spectra"])[[0, 2]].any()
    assert not answer["spectra"][..., 1:].any()
    np.testing.assert_allclose(answer["told"], [0, 1, 0], rtol=1e-6)
    few = client(sent, (), shard(9, site=1), jax.random.key(1))[0].arrays
    assert not few["spectra"].any()
    assert not few["told"].any()
    # The server divides by the weight: every site's own mean, whatever the others weigh; who is absent stays known.
    total = {name: answer[name] for name in ("spectra", "told", "weight")}
    combined, _ = weighted_mean().reduce((), Message({**total, "update": answer["update"]}))
    state = method.server(state, combined)
    np.testing.assert_allclose(state["bank"][1][..., :1], expected, rtol=1e-4)
    assert state["known"].tolist() == [0, 1, 0]
    nothing = Message({name: jax.tree.map(jnp.zeros_like, one) for name, one in combined.arrays.items()})
    assert method.server(state, nothing)["known"].tolist() == [0, 1, 0]
    exact = coarse_amplitudes(shard(12), 3, 1)[..., :1]  # with a cell of 1
    np.testing.assert_allclose(exact, low_amplitudes(X, 3).mean(axis=0), rtol=1e-4)


def test_a_lying_site_s_amplitudes_do_not_blind_the_others():
    method = fed_dg(small(), weighted_mean(), smallest_cell=1, second_order=False)
    state = method.init(jax.eval_shape(small().init, jax.random.key(0)), 2)
    told = jnp.array([0.0, 1.0])
    lie = {"spectra": told[:, None, None, None] * jnp.full(state["bank"].shape, 1e30), "told": told}
    bank = method.server({**state, "params": {}}, Message({**lie, "update": {}, "weight": jnp.ones(())}))["bank"]
    assert (float(bank[1].max()), float(bank[0].max())) == (1.0, 0.0)


def by_hand(x, cell):
    """Cut at the tenth largest, rounded to the power of two of which an image makes half at most."""
    each = np.sort(np.asarray(low_amplitudes(x, 3), np.float64), axis=0)
    highest = each[-cell]
    step = 2.0 ** np.ceil(np.log2(2 * highest / len(x)))
    return np.round(np.minimum(each, highest).mean(axis=0) / step) * step


def test_two_studies_over_images_that_differ_by_one_do_not_tell_its_amplitudes():
    # The difference of two means, times the images, is exactly the image; with steps, what sets it apart from others is
    # hidden by an error as large as that.
    each = np.asarray(low_amplitudes(X, 3))[..., 0]
    one, others, wrong = each[11], each[:11].mean(axis=0), {}
    for cell in (1, 10):
        told = jax.jit(lambda rows, cell=cell: coarse_amplitudes(rows, 3, cell)[..., 0])
        with_it, without = told(shard(12)), told(shard(11))
        found = 12 * with_it - 11 * without
        wrong[cell] = np.linalg.norm(found - one) / np.linalg.norm(one - others)
    assert wrong[1] < 1e-3
    assert wrong[10] > 1
    # No image moves what is told by more than a step.
    assert (np.abs(with_it - without) <= 2.0 ** np.ceil(np.log2(2 / 11))).all()


@pytest.mark.slow
def test_an_episode_is_the_gradient_of_its_own_objective():
    # One batch of all rows, plain descent, one step: the update is - rate times the gradient. Nobody else is known, so
    # the moved images are the images, and the objective is L(w) + L(w - a grad L(w)) + b B(w - a grad L(w)).
    model, rate, inner, weight = small(), 0.5, 0.3, 0.2
    params = model.init(jax.random.key(3))
    batch = shard().batch(0, 0, 12)

    def objective(at, second_order):
        slope = model.gradient(at, batch, jax.random.key(0))
        after = {name: at[name] - inner * slope[name] for name in at}
        after = after if second_order else jax.lax.stop_gradient(jax.tree.map(jnp.subtract, after, at))
        after = after if second_order else {name: at[name] + after[name] for name in at}
        seen = model.features(after, batch.x)
        edges = boundary_loss((seen, seen), batch.y, batch.mask, 1, 0.1)
        return model.loss(at, batch, None) + model.loss(after, batch, None) + weight * edges

    for second_order in (True, False):
        said = {"inner_learning_rate": inner, "boundary_weight": weight, "second_order": second_order}
        method = fed_dg(model, weighted_mean(), learning_rate=rate, batch_size=12, **said)
        answer, _ = jax.jit(method.client)(method.broadcast(method.init(params, 2)), (), shard(), jax.random.key(1))
        slope = jax.jit(jax.grad(objective), static_argnums=1)(params, second_order)
        for name, update in answer.arrays["update"].items():
            np.testing.assert_allclose(update / 12, -rate * slope[name], atol=3e-5)


def test_bands_and_boundary_by_hand():
    mask = np.zeros((1, 9, 9), np.uint8)
    mask[0, 3:6, 3:6] = 1
    edge, beside = bands_of(mask, 1)
    # The square of 3 x 3 widened by 1 is 5 x 5, shrunk by 1 one pixel: 25 - 1. Widened by 3 it is 9 x 9: 81 - 25.
    assert (int(edge.sum()), int(beside.sum())) == (24, 56)
    assert float((edge * beside).sum()) == 0
    # Features that are alike within a kind (cosine 1) and opposite between kinds (cosine -1), temperature 1, two views:
    # of four means each has one other of its kind; -log(e / (e + 2 / e)) = log(1 + 2 exp(-2)) = 0.2395.
    features = jnp.where(edge[..., None] > 0, 1.0, -1.0)
    np.testing.assert_allclose(
        boundary_loss((features, features), mask, jnp.ones(1), 1, 1.0), np.log(1 + 2 * np.exp(-2)), rtol=1e-5
    )
    # Without an edge, or in rows that do not count, there is nothing to tell apart, and no slope that is not a number.
    for masks, counts in ((np.zeros_like(mask), jnp.ones(1)), (mask, jnp.zeros(1))):
        value, slope = jax.value_and_grad(lambda one, m=masks, c=counts: boundary_loss((one, one), m, c, 1, 1.0))(
            features
        )
        assert float(value) == 0
        assert np.isfinite(slope).all()


def test_what_is_refused():
    with pytest.raises(Refusal, match="shows no features of pixels"):
        fed_dg(mlp(Task((3,), ("no", "yes"))), weighted_mean())
    with pytest.raises(Refusal, match="can only be added up"):
        fed_dg(small(), median())
    # Noise covers gradients of batches only, so [privacy] refuses a site that tells amplitudes of its images.
    model, count = small(), DryRun()
    counted = fed_dg(count.model(model), weighted_mean())
    row = jax.ShapeDtypeStruct((8, 8, 1), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.uint8)
    with pytest.raises(Refusal):
        count.trace(counted, model.init(jax.random.key(0)), row, 2)
