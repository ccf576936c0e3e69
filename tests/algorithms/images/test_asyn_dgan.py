"""AsynDGAN: the chain rule, what leaves and what stays, that noise covers all that touches a row, both engines."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.contracts.test_halves import deployed, simulated
from tests.contracts.test_masks import federation_of
from tests.support.images.algorithms import assert_same_states
from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.images.asyn_dgan import asyn_dgan
from wardround.algorithms.images.mask_search import begin_search
from wardround.core.chain import identity
from wardround.core.components.generation import arrays_of
from wardround.core.contracts import Batch, Message, Task
from wardround.core.errors import Diverged, Refusal
from wardround.deploy.site.release.answer_size import ARRAYS
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.images.gan_u_net import gan_u_net
from wardround.models.images.image_statistics import describe_masks
from wardround.models.images.u_net import u_net
from wardround.privacy.dp_sgd import private_model, sample_level
from wardround.privacy.dry_run import DryRun
from wardround.privacy.sampling import ExpectedSize

TASK = Task((8, 8, 1), (), "mask", segmentation=True)
MODEL = gan_u_net(TASK, filters=2, depth=1, generator_filters=2, discriminator_filters=2, styles=3, radius=2.0)
MADE = MODEL.generation
X = np.random.default_rng(0).uniform(0.2, 0.8, (12, 8, 8, 1)).astype(np.float32)
Y = (X[..., 0] > 0.5).astype(np.uint8)


@pytest.fixture(scope="module")
def params():
    return jax.jit(MODEL.init)(jax.random.key(0))


def shard(rows=12, site=1, x=X):
    return one_site(x[:rows], Y[:rows], np.arange(rows)[None], site=site)


def test_what_leaves_is_the_gradient_in_the_pixels_brought_to_the_generator(params):
    method = asyn_dgan(MODEL, weighted_mean(), learning_rate=1e-12, images=4, batch_size=12, weights="samples")
    kept = method.init_client(params)
    sent, key = method.broadcast(method.init(params, 2)), jax.random.key(7)
    answer, after = jax.jit(method.client)(sent, kept, shard(), key)
    # A site sends two things, in words that its administrator reads, and keeps the discriminator with Adam's state.
    assert set(answer.arrays) == {"generator_slope", "weight"} <= set(ARRAYS)
    assert "no image" in ARRAYS["generator_slope"]
    assert answer.arrays["weight"] == 12
    generator, critic = (arrays_of(params, prefix) for prefix in (MADE.generator, MADE.discriminator))
    assert set(sent.arrays) == {"generator"}
    assert set(sent.arrays["generator"]) == set(answer.arrays["generator_slope"]) == set(generator)
    assert set(after[0]) == set(critic)
    # The paper's exchange: gradients in the pixels of drawn images, which the server brings to its generator.
    style, judging = jnp.full(4, 1), jax.random.split(key)[1]

    @jax.jit
    def by_pixels(generator, critic):
        images, masks = MADE.generate(generator, style, judging)
        pixels = jax.grad(lambda x: MODEL.loss(critic, Batch(x, masks, jnp.ones(4)), key))(images)
        _, back = jax.vjp(lambda arrays: MADE.generate(arrays, style, judging)[0], generator)
        return back(pixels)[0]

    for name, slope in by_pixels(generator, critic).items():
        np.testing.assert_allclose(answer.arrays["generator_slope"][name] / 12, slope, atol=1e-6)
    # Of the styles, the site's own alone.
    rows = np.abs(np.asarray(answer.arrays["generator_slope"][MADE.style_table])).max(axis=1)
    assert rows[1] > 0 == rows[0] == rows[2]


def test_the_server_learns_from_answers_and_hands_out_taught_styles_only(params):
    method = asyn_dgan(MODEL, weighted_mean(), images=4, segmenter_steps=1, averaging=0.5)
    state = method.init(params, 2)
    slope = jax.tree.map(jnp.ones_like, arrays_of(params, MADE.generator))
    slope[MADE.style_table] = slope[MADE.style_table].at[1:].set(0)
    server = jax.jit(method.server)
    after = server(state, Message({"generator_slope": slope, "weight": jnp.float32(2)}))
    # Adam's first step is the rate against the sign; the running mean of one round is that round.
    name = "generator/paint/bias"
    np.testing.assert_allclose(after["learning"][name], params[name] - 0.001, atol=1e-6)
    np.testing.assert_allclose(after["params"][name], params[name] - 0.001, atol=1e-6)
    assert after["known"].tolist() == [1, 0, 0]
    assert after["params"][MADE.style_table].any(axis=1).tolist() == [True, False, False]
    moved = {one: bool((after["params"][one] != params[one]).any()) for one in params}
    assert all(moved[one] for one in params if one.startswith(MADE.segmenter) and one.endswith("kernel"))
    assert not any(moved[one] for one in params if one.startswith(MADE.discriminator))
    # Noise for whole sites reaches every row of the table, also that of a style which no site of the two has.
    noised = server(state, Message({"generator_slope": jax.tree.map(jnp.ones_like, slope), "weight": jnp.float32(2)}))
    assert noised["known"].tolist() == [1, 1, 0]
    # Nobody answers: the generator stays, Adam's momentum notwithstanding; half way to the same place is that place.
    nothing = server(after, Message({"generator_slope": jax.tree.map(jnp.zeros_like, slope), "weight": jnp.zeros(())}))
    for one in after["learning"]:
        np.testing.assert_array_equal(nothing["learning"][one], after["learning"][one])


def private(params, clip, rows, generator):
    """A round of DP-SGD without noise, under a coordinator that sends what it likes."""
    made = private_model(MODEL, clip=clip, noise_multiplier=0.0)
    said = {"images": 4, "batch_size": ExpectedSize(6), "learning_rate": 0.1}
    method = sample_level(asyn_dgan(made, weighted_mean(), **said), asyn_dgan(MODEL, weighted_mean()), seeded=True)
    sent = Message({"generator": generator})
    return jax.jit(method.client)(sent, method.init_client(params), shard(x=rows), jax.random.key(3))


@pytest.mark.slow
def test_rows_enter_through_the_clipped_sum_alone_whatever_generator_is_sent(params):
    # With a clip near 0 all rows together weigh nothing: what leaves, and what stays, is then the same for other rows.
    chosen = {name: 2 * array for name, array in arrays_of(params, MADE.generator).items()}
    one, other = (private(params, 1e-12, rows, chosen) for rows in (X, 1 - X))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
    # The test would see rows: without a clip they show.
    one, other = (private(params, np.inf, rows, chosen) for rows in (X, 1 - X))
    for a, b in ((one[0].arrays["generator_slope"], other[0].arrays["generator_slope"]), (one[1][0], other[1][0])):
        assert max(float(jnp.abs(a[name] - b[name]).max()) for name in a) > 1e-4


def test_every_step_of_the_discriminator_is_counted(params):
    # 12 rows in batches of 4 expected, two passes: 6 noised sums a round at rate 1/3. Drawn images cost nothing.
    count = DryRun()
    method = asyn_dgan(count.model(MODEL), weighted_mean(), images=4, batch_size=ExpectedSize(4), local_epochs=2)
    row = jax.ShapeDtypeStruct((8, 8, 1), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.uint8)
    ((rate, sums),) = count.rounds(method, params, row, 12, 2)
    assert (round(rate, 6), sums) == (round(1 / 3, 6), 6)


def test_a_model_that_draws_no_images_is_refused():
    with pytest.raises(Refusal, match="this model makes none"):
        asyn_dgan(u_net(TASK, filters=2, depth=1), weighted_mean())


def search_with(cell, each=1):
    return begin_search(MADE, weighted_mean(), rounds=2, simulated=16, cell=cell, each=each)


def test_sites_tell_means_of_their_masks_by_the_rules_of_statistics():
    coarse = jax.jit(lambda: search_with(10).tell(shard()))()
    assert set(coarse) == {"mask_statistics", "told"} <= set(ARRAYS)
    assert "no mask" in ARRAYS["mask_statistics"]
    each = np.asarray(jax.jit(describe_masks)(Y), np.float64)
    # One of 12 images makes half a step at most: 2/12 is brought to 1/4.
    np.testing.assert_allclose(coarse["mask_statistics"][1], np.round(each.mean(axis=0) * 4) / 4, atol=1e-6)
    assert coarse["told"].tolist() == [0, 1, 0]
    assert not np.asarray(coarse["mask_statistics"])[[0, 2]].any()
    few = jax.jit(lambda: (search_with(10).tell(shard(9)), search_with(10, each=2).tell(shard())))()
    assert not any(one["told"].any() for one in few)  # of 12 images, one patient may have two: fewer than ten patients


@pytest.mark.slow
def test_the_server_fits_ellipses_in_the_first_rounds(params):
    search, rows = search_with(1), params[MADE.shape_table]
    step = jax.jit(search.step)
    told = jax.jit(lambda: search.tell(shard()))()
    np.testing.assert_allclose(told["mask_statistics"][1], np.asarray(describe_masks(Y)).mean(axis=0), atol=1e-5)
    memory, courses, distances = search.begin(params), [rows], []
    for _ in range(3):
        found, memory = step(memory, courses[-1], Message(told))
        courses.append(found)
        distances.append(float(memory["distance"][1]))
    moved = [np.any(np.asarray(after != before), axis=1).tolist() for before, after in pairwise(courses)]
    assert moved[0] == [False, True, False]
    assert moved[2] == [False, False, False]  # two rounds of search, and no more
    assert 0 < distances[1] <= distances[0]


@pytest.mark.slow
def test_a_round_with_statistics_of_masks(params):
    said = {"images": 4, "batch_size": 12, "simulated": 16, "segmenter_steps": 0}
    method = asyn_dgan(MODEL, weighted_mean(), mask_statistics=True, smallest_cell=1, **said)
    state = method.init(params, 2)
    answer, _ = jax.jit(method.client)(method.broadcast(state), method.init_client(params), shard(), jax.random.key(7))
    assert set(answer.arrays) == {"generator_slope", "mask_statistics", "told", "weight"}
    after = jax.jit(method.server)(state, answer)
    np.testing.assert_array_equal(after["learning"][MADE.shape_table], after["params"][MADE.shape_table])
    assert np.any(np.asarray(after["params"][MADE.shape_table] != params[MADE.shape_table]), axis=1)[1]
    assert method.tells(after)["mask_distance"][1] > 0


def test_noise_does_not_move_the_ellipses(params):
    method = asyn_dgan(MODEL, weighted_mean(), images=4, segmenter_steps=0)
    noise = jax.tree.map(jnp.ones_like, arrays_of(params, MADE.generator))
    after = jax.jit(method.server)(method.init(params, 2), Message({"generator_slope": noise, "weight": jnp.ones(())}))
    np.testing.assert_array_equal(after["params"][MADE.shape_table], params[MADE.shape_table])


def test_what_statistics_of_masks_need(params):
    with pytest.raises(Refusal, match="can only be added up"):
        asyn_dgan(MODEL, median(), mask_statistics=True)
    count = DryRun()
    method = asyn_dgan(count.model(MODEL), weighted_mean(), images=4, batch_size=ExpectedSize(4), mask_statistics=True)
    row = jax.ShapeDtypeStruct((8, 8, 1), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.uint8)
    with pytest.raises(Refusal, match="which noise does not cover"):
        count.rounds(method, params, row, 12, 2)


@pytest.mark.slow
def test_both_engines_an_empty_site_a_broken_one_and_the_same_bits(params):
    method, data = asyn_dgan(MODEL, weighted_mean(), images=4, batch_size=8), federation_of()
    progress, scores = simulated(method, identity(), data, params)
    other, _, seen = deployed(method, identity(), data, params)
    assert_same_states(progress.server, other.server, 2e-4)
    images = np.asarray(data.x[:8])
    drawn = [np.asarray(MODEL.predict(method.params(one.server), images)) for one in (progress, other)]
    np.testing.assert_allclose(drawn[0], drawn[1], atol=1e-3)
    assert scores.predicted.shape == (24, 3)
    assert seen.shape == (24, 8, 8)

    def trained(counts, seed=3, x=None):
        data = federation_of(counts)
        with Simulation(data if x is None else data.__class__(**{**vars(data), "x": x}), seed=seed) as engine:
            rounds = [(number, np.arange(len(counts))) for number in (1, 2)]
            progress = engine.train(method, engine.begin(method, params), rounds)[0]
            return jax.device_get(method.params(progress.server))

    one, again, without = trained((12, 16)), trained((12, 16)), trained((12, 16, 0))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    for name in one:
        np.testing.assert_allclose(one[name], without[name], atol=2e-4)
    broken = federation_of((12, 16)).x.astype(np.float32)
    broken[2] = np.nan
    with pytest.raises(Diverged) as told:
        trained((12, 16), x=broken)
    assert told.value.sites == ("site-0",)
