"""FED-SIM: known numbers found again over sites, what leaves, what the server does with it, both engines, refusals."""

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
from wardround.algorithms.images.fed_sim import fed_sim
from wardround.algorithms.images.simulated_moments import step_towards
from wardround.algorithms.images.style_statistics import heard_statistics
from wardround.core.chain import identity
from wardround.core.contracts import Message, Task
from wardround.core.errors import Diverged, Refusal
from wardround.core.federation import assemble
from wardround.deploy.site.release.answer_size import ARRAYS
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.images.sim_u_net import sim_u_net
from wardround.models.images.simulator import NAMES, Scene, numbers_of, row_of, simulate
from wardround.models.images.u_net import u_net
from wardround.privacy.dry_run import DryRun

TASK = Task((8, 8, 1), (), "mask", segmentation=True)
MODEL = sim_u_net(TASK, filters=2, depth=1, styles=3, structures=2)
TABLE, DESCRIBE = MODEL.generation.style_table, jax.jit(MODEL.generation.describe)
X = np.random.default_rng(0).uniform(0.2, 0.8, (30, 8, 8, 1)).astype(np.float32)
Y = (X[..., 0] > 0.5).astype(np.uint8)
SMALL = {"simulated": 8, "images": 4}


@pytest.fixture(scope="module")
def params():
    return jax.jit(MODEL.init)(jax.random.key(0))


def shard(rows=30, site=1, x=X):
    return one_site(x[:rows], Y[:rows], np.arange(rows)[None], site=site)


def test_steps_solve_what_can_be_solved_by_hand():
    # Statistics that are linear in two numbers, the same chance for all: exact after a few steps.
    matrix = jnp.array([[1.0, 0.5, -1.0], [0.2, -0.7, 0.4]])
    chance = jax.random.normal(jax.random.key(0), (50, 3))
    chance = chance - chance.mean(axis=0)
    truth = jnp.array([0.8, -0.4])
    row = jnp.zeros(2)
    step = jax.jit(lambda row: step_towards(truth @ matrix, row, lambda at: at @ matrix + chance))
    for _ in range(4):
        row, distance = step(row)
    np.testing.assert_allclose(row, truth, atol=1e-3)
    assert distance < 1e-3
    # Nothing is nearer than where one is: it stays.
    np.testing.assert_allclose(step(row)[0], row, atol=1e-4)


def test_a_site_sends_means_of_statistics_in_steps_and_nothing_below_a_cell(params):
    method = fed_sim(MODEL, weighted_mean(), **SMALL, smallest_cell=10)
    state = method.init(params, 2)
    client = jax.jit(method.client)
    answer = client(method.broadcast(state), (), shard(), jax.random.key(1))[0].arrays
    assert set(answer) == {"image_statistics", "told", "weight"} <= set(ARRAYS)
    assert "no picture" in ARRAYS["image_statistics"]
    assert answer["weight"] == 1  # uniform: not how many images there are
    each = np.asarray(DESCRIBE(X, Y), np.float64)
    assert ((each >= 0) & (each <= 1)).all()
    # An image moves a mean over 30 by 1/30 at most: the next power of two above 2/30 is 1/8.
    np.testing.assert_allclose(answer["image_statistics"][1], np.round(each.mean(axis=0) * 8) / 8, atol=1e-6)
    assert not np.asarray(answer["image_statistics"])[[0, 2]].any()
    assert answer["told"].tolist() == [0, 1, 0]
    few = client(method.broadcast(state), (), shard(9), jax.random.key(1))[0].arrays
    assert not few["image_statistics"].any()
    assert not few["told"].any()
    exact = fed_sim(MODEL, weighted_mean(), **SMALL, smallest_cell=1)
    answer = jax.jit(exact.client)(method.broadcast(state), (), shard(9, site=5), jax.random.key(1))[0].arrays
    np.testing.assert_allclose(answer["image_statistics"][2], each[:9].mean(axis=0), atol=1e-5)  # 5 modulo 3 styles


def test_two_studies_over_images_that_differ_by_one_do_not_tell_its_statistics():
    each = np.asarray(DESCRIBE(X, Y))
    wrong = {}
    for cell in (1, 10):
        client = jax.jit(fed_sim(MODEL, weighted_mean(), **SMALL, smallest_cell=cell).client)
        nothing = Message({"simulator": jnp.zeros((3, 12))})
        both = [client(nothing, (), shard(rows), jax.random.key(0))[0].arrays for rows in (30, 29)]
        with_it, without = (np.asarray(one["image_statistics"])[1] for one in both)
        found = 30 * with_it - 29 * without
        wrong[cell] = np.linalg.norm(found - each[29]) / np.linalg.norm(each[29] - each[:29].mean(axis=0))
    assert wrong[1] < 1e-2
    assert wrong[10] > 1


def test_one_patient_of_many_images_is_hidden_as_one_image_is():
    # The last patient has twenty of sixty images, all black. The coordinator asks before and after that patient
    # withdraws: told by images, the difference is the patient's mean; told by patients, a step hides it.
    x = np.random.default_rng(1).uniform(0.2, 0.8, (60, 8, 8, 1)).astype(np.float32)
    y = (x[..., 0] > 0.5).astype(np.uint8)
    x[40:] = 0
    each = np.asarray(DESCRIBE(x, y))
    there = each[40:].mean(axis=0)
    blind = np.linalg.norm(each[:40].mean(axis=0) - there)  # the guess that the patient is as the others are
    wrong = {}
    for images in (1, 20):
        method = fed_sim(MODEL, weighted_mean(), **SMALL, smallest_cell=2, images_each=images)
        client, nothing = jax.jit(method.client), Message({"simulator": jnp.zeros((3, 12))})
        told = {}
        for rows in (60, 40, 39):
            own = one_site(x[:rows], y[:rows], np.arange(rows)[None], site=1)
            told[rows] = client(nothing, (), own, jax.random.key(0))[0].arrays
        with_it, without = (np.asarray(told[rows]["image_statistics"])[1] for rows in (60, 40))
        wrong[images] = np.linalg.norm((60 * with_it - 40 * without) / 20 - there) / blind
        # Of 39 images twenty may be of one patient, and the others of a second, who would be alone in the mean.
        assert told[39]["told"][1] == (images == 1)
    assert wrong[1] < 0.4
    assert wrong[20] > 1


def test_the_server_fits_taught_styles_alone_and_learns_from_what_they_draw(params):
    method = fed_sim(MODEL, weighted_mean(), **SMALL, smallest_cell=1)
    state, server = method.init(params, 2), jax.jit(method.server)
    target = DESCRIBE(X, Y).mean(axis=0)
    place = jnp.array([0.0, 1.0, 0.0])
    after = server(state, Message({"image_statistics": place[:, None] * target, "told": place, "weight": jnp.ones(())}))
    assert after["known"].tolist() == [0, 1, 0]
    np.testing.assert_allclose(after["bank"][1], target, atol=1e-6)
    table = np.asarray(after["params"][TABLE])
    assert table.any(axis=1).tolist() == [False, True, False]
    assert method.tells(after)["simulator_distance"][1] > 0
    moved = {name: bool((after["params"][name] != params[name]).any()) for name in params}
    assert all(moved[name] for name in params if name.startswith("segmenter/") and name.endswith("kernel"))
    # Nobody answers: what is known stays known, and the search goes on from where it was, never farther away.
    silence = {"image_statistics": jnp.zeros((3, len(target))), "told": jnp.zeros(3), "weight": jnp.zeros(())}
    later = server(after, Message(silence))
    assert later["known"].tolist() == [0, 1, 0]
    np.testing.assert_array_equal(later["bank"], after["bank"])
    # Before anybody has told anything, there is nothing to learn from.
    first = server(state, Message(silence))
    assert all(np.array_equal(first["params"][name], params[name]) for name in params)


@pytest.mark.parametrize("lie", [1e30, -1e30])
def test_a_lying_site_s_statistics_stay_between_their_bounds(lie):
    """What others of its style told is not drowned; masks' statistics of `asyn_dgan` are heard by the same lines."""
    place = jnp.array([0.0, 1.0, 0.0])
    arrays = {"image_statistics": place[:, None] * jnp.array([lie, 0.25]), "told": place}
    bank, known = heard_statistics("image_statistics", jnp.zeros((3, 2)), jnp.zeros(3), Message(arrays))
    assert bank.tolist() == [[0, 0], [float(lie > 0), 0.25], [0, 0]]
    assert known.tolist() == [0, 1, 0]


TRUTHS = {
    "bright": (0.25, 0.5, 4.0, 0.3, 1.8, 0.08, 0.4, 0.3, 0.35, 0.25, 0.8, 0.02),
    "few, large, dim and out of focus": (0.125, 0.8, 6.0, 0.2, 1.4, 0.03, 0.6, 0.12, 0.2, 0.15, 1.3, 0.006),
}
"""In the order of `NAMES`: density and its spread, radius and its spread, elongation, ground and its spread, contrast,
spreads of light and of own brightness, blur, noise."""
WITHIN = {True: 1.25, False: 1.2}
"""By which factor a number may be missed: a spread, any other (of elongation, its excess over 1)."""


@pytest.fixture(scope="module")
def fitting():
    """One program for all truths."""
    model = sim_u_net(TASK._replace(shape=(32, 32, 1)), filters=2, depth=2, styles=1, structures=16)
    said = {"simulated": 384, "segmenter_steps": 0, "weights": "samples", "smallest_cell": 1}
    return model, fed_sim(model, weighted_mean(), **said)


def dealt(truth, counts, seed=77):
    """Images of known numbers, dealt out to sites."""
    scene, rows = Scene((32, 32), 16), sum(counts)
    draw = jax.jit(lambda key: simulate(jnp.broadcast_to(row_of(truth), (rows, len(truth))), scene, key))
    images, masks = (np.asarray(one) for one in draw(jax.random.key(seed)))
    x, task = np.round(255 * images[..., None]).astype(np.uint8), TASK._replace(shape=(32, 32, 1))
    ends = np.cumsum([0, *counts])
    pieces = [(x[a:b], masks[a:b]) for a, b in pairwise(ends)]
    nothing = x[:0], masks[:0]
    return assemble([(f"site-{at}", (one, nothing, nothing)) for at, one in enumerate(pieces)], task)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRUTHS))
def test_known_numbers_are_found_again_over_sites(name, fitting):
    model, method = fitting
    truth = dict(zip(NAMES, TRUTHS[name], strict=True))
    with Simulation(dealt(truth, (300, 150, 150)), seed=0) as engine:
        rounds = [(number, np.arange(3)) for number in range(1, 11)]
        progress, _ = engine.train(method, engine.begin(method, model.init(jax.random.key(0))), rounds)
        state = jax.device_get(progress.server)
    found = jax.jit(numbers_of)(state["params"][TABLE][0])
    assert state["distance"][0] < 0.1
    least = {key: float(key == "elongation") for key in truth}
    ratios = {key: (float(found[key]) - least[key]) / (truth[key] - least[key]) for key in truth}
    wrong = {key for key, ratio in ratios.items() if abs(np.log(ratio)) > np.log(WITHIN[key.endswith("spread")])}
    assert not wrong, ratios


def test_with_one_style_a_sum_holds_the_means_over_all_images_and_no_site_s_own(params):
    shared = sim_u_net(TASK, filters=2, depth=1, styles=1, structures=2)
    still = {**SMALL, "search_steps": 0, "segmenter_steps": 0}
    method = fed_sim(shared, weighted_mean(), **still, weights="samples", smallest_cell=1)
    client = jax.jit(method.client)
    nothing = Message({"simulator": jnp.zeros((1, 12))})
    parts = (0, 12), (12, 30)
    shards = [one_site(X[a:b], Y[a:b], np.arange(b - a)[None], site=at) for at, (a, b) in enumerate(parts)]
    total = jax.tree.map(jnp.add, *(client(nothing, (), one, jax.random.key(0))[0].arrays for one in shards))
    combined, _ = weighted_mean().reduce((), Message(total))
    state = method.init({**params, TABLE: jnp.zeros((1, 12))}, 2)
    after = method.server(state, combined)
    np.testing.assert_allclose(after["bank"][0], DESCRIBE(X, Y).mean(axis=0), atol=1e-5)


def test_what_is_refused(params):
    with pytest.raises(Refusal, match="fits a simulator of images, and this model has none"):
        fed_sim(u_net(TASK, filters=2, depth=1), weighted_mean())
    with pytest.raises(Refusal, match="can only be added up"):
        fed_sim(MODEL, median())
    with pytest.raises(Refusal, match="by discriminators, and this model makes none"):
        asyn_dgan(MODEL, weighted_mean())
    # Noise covers gradients of batches only, so [privacy] refuses a site that tells statistics of its images.
    count = DryRun()
    counted = fed_sim(count.model(MODEL), weighted_mean(), **SMALL)
    row = jax.ShapeDtypeStruct((8, 8, 1), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.uint8)
    with pytest.raises(Refusal, match="which noise does not cover"):
        count.rounds(counted, params, row, 12, 2)


@pytest.mark.slow
def test_both_engines_an_empty_site_and_a_broken_one(params):
    method, data = fed_sim(MODEL, weighted_mean(), **SMALL), federation_of()
    # The fit alone: the U-Net learns at the server, the same in both, and Adam makes whole steps of a rounded image.
    fit = fed_sim(MODEL, weighted_mean(), **SMALL, segmenter_steps=0)
    progress, scores = simulated(fit, identity(), data, params)
    other, _, _ = deployed(fit, identity(), data, params)
    assert_same_states(progress.server, other.server, 2e-3)
    assert scores.predicted.shape == (24, 3)

    def trained(counts, x=None):
        data = federation_of(counts)
        with Simulation(data if x is None else data.__class__(**{**vars(data), "x": x}), seed=3) as engine:
            rounds = [(number, np.arange(len(counts))) for number in (1, 2)]
            progress = engine.train(method, engine.begin(method, params), rounds)[0]
            return jax.device_get(method.params(progress.server))

    one, again, without = trained((12, 16)), trained((12, 16)), trained((12, 16, 0))
    for name in one:
        assert np.array_equal(one[name], again[name])
        np.testing.assert_allclose(one[name], without[name], atol=1e-4)
    broken = federation_of((12, 16)).x.astype(np.float32)
    broken[2] = np.nan
    with pytest.raises(Diverged) as told:
        trained((12, 16), x=broken)
    assert told.value.sites == ("site-0",)
