"""Layer split against the loop of its algorithm, layers that are drawn, and a fallback that never gets worse."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import linen as nn

from tests.support.by_hand.softmax import START, params_of, rows_at
from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.layer_split import held_out_mask, layer_split, shared_arrays
from wardround.core import trees
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Scores, Shard, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.predictions import PERSONAL_ROUND
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.cnn import cnn
from wardround.models.from_flax import cross_entropy, from_flax
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp

Numbers = np.ndarray[Any, Any]
SEED, RATE, REDUCTION, FITS, EPOCHS, SIZE, MOMENTUM = 11, 0.3, 4.0, 2, 1, 10, 0.5
PLAIN = identity()
ROUNDS = [(1, np.array([0, 1, 3, 5])), (2, np.array([0, 2, 5, 6])), (3, np.array([0, 1, 6]))]
"""Of seven sites; site 2 is empty, site 6 joins in the second round, site 4 never."""
TASK = Task((3,), ("no", "yes"))


def probabilities(w: Numbers, x: Numbers) -> Numbers:
    odds = np.exp(x @ w)
    return odds / odds.sum(axis=1, keepdims=True)


def slope(w: Numbers, x: Numbers, y: Numbers) -> Numbers:
    """The mean gradient of softmax regression: x^T (p - onehot(y)) / n."""
    return x.T @ (probabilities(w, x) - np.eye(2)[y]) / len(y)


OWN = np.array([[0.0], [0.0], [0.0], [1.0]])
"""Kept at the site: the last row, the intercepts."""


def descended(w: Numbers, x: Numbers, y: Numbers, orders: Numbers, rate: float, free: Numbers | float) -> Numbers:
    """Batch after batch with momentum; only what is `free` moves."""
    velocity = np.zeros_like(w)
    for order in orders:
        for begin in range(0, len(y), SIZE):
            batch = order[begin : begin + SIZE]
            velocity = MOMENTUM * velocity + slope(w, x[batch], y[batch]) * free
            w = w - rate * velocity
    return w


def naive(federation: Federation) -> tuple[Numbers, dict[int, Numbers]]:
    """Algorithm 2: train all layers, average the shared ones; a site fits its own to them when it next needs them."""
    common = START[:3]
    own: dict[int, Numbers] = {}
    for number, cohort in ROUNDS:
        sent, counts = [], []
        for site in cohort:
            x, y = rows_at(federation, site)
            if not len(y):
                continue
            orders = visiting_order(SEED, number, np.array([site]), np.array([len(y)]), FITS + EPOCHS)
            w = np.vstack([common, own.get(site, START[3:])])
            if site in own:
                w = descended(w, x, y, orders[:FITS], RATE / REDUCTION, OWN)
            w = descended(w, x, y, orders[FITS:], RATE, 1.0)
            own[site] = w[3:]
            sent.append(w[:3])
            counts.append(len(y))
        common = np.average(sent, axis=0, weights=counts)
    return common, own


def built(model: Model, **settings: Any) -> Algorithm:
    usual = {
        "personal_epochs": FITS,
        "rate_reduction": REDUCTION,
        "learning_rate": RATE,
        "local_epochs": EPOCHS,
        "batch_size": SIZE,
        "momentum": MOMENTUM,
    }
    return layer_split(model, weighted_mean(), **{**usual, **settings})


def test_equals_the_loop_while_sites_come_and_go(ragged: Federation, model: Model) -> None:
    algorithm = built(model)
    with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
        progress, records = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS)
        scores = engine.predict(algorithm, progress, "test")
        server, clients = jax.device_get((progress.server, progress.clients))
    common, own = naive(ragged)
    np.testing.assert_allclose(server["dense_0/kernel"], common, atol=3e-6)
    # What sites keep never reaches the server: it holds the first values. 24 bytes of slopes go down, and up with the
    # weight, 28; four sites in the first round.
    assert np.array_equal(server["dense_0/bias"], START[3].astype(np.float32))
    assert (records[0].bytes_down, records[0].bytes_up) == (4 * 24, 4 * 28)
    first, count = ragged.part("test")
    for site in range(7):
        kept = own.get(site, START[3:])
        np.testing.assert_allclose(clients["own"]["dense_0/bias"][site], kept[0], atol=3e-6)
        x, y = rows_at(ragged, site)
        orders = visiting_order(SEED, PERSONAL_ROUND, np.array([site]), np.array([len(y)]), FITS)
        w = descended(np.vstack([common, kept]), x, y, orders, RATE / REDUCTION, OWN)
        held_out = np.hstack([ragged.x[first[site] : first[site] + count[site]], np.ones((count[site], 1))])
        predicted = scores.predicted[scores.first[site] : scores.first[site + 1]]
        np.testing.assert_allclose(predicted, probabilities(w, held_out), atol=5e-6)


def test_sharing_every_layer_is_fed_avg(ragged: Federation, model: Model) -> None:
    start = params_of(START)
    ends = []
    for algorithm in (
        layer_split(model, weighted_mean(), shared=("dense_0",), batch_size=0, local_epochs=2),
        fed_avg(model, weighted_mean(), batch_size=0, local_epochs=2),
    ):
        with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
            progress, _ = engine.train(algorithm, engine.begin(algorithm, start), ROUNDS)
            ends.append(jax.device_get(algorithm.params(progress.server)))
    for name in start:
        np.testing.assert_allclose(ends[0][name], ends[1][name], atol=1e-6)


def arrays_of(*layers: str) -> set[str]:
    return {f"{layer}/{part}" for layer in layers for part in ("kernel", "bias")}


def test_all_layers_but_the_last_are_shared_unless_named() -> None:
    """In the order of the network: the thirteenth layer, dense_12, is the last, though dense_9 is last by name."""
    deep = mlp(TASK, hidden=(2,) * 12)
    assert shared_arrays(deep, ()) == arrays_of(*(f"dense_{i}" for i in range(12)))
    assert shared_arrays(deep, ("dense_1",)) == arrays_of("dense_1")
    assert shared_arrays(deep, ("dense_1/bias", "dense_12")) == {"dense_1/bias", *arrays_of("dense_12")}
    images = cnn(Task((8, 8, 1), ("no", "yes")), channels=(2,), dense=3)
    assert shared_arrays(images, ()) == arrays_of("conv_0", "dense_0")
    assert shared_arrays(logistic(TASK), ()) == {"dense_0/kernel"}


def test_what_cannot_be_split_is_refused(model: Model) -> None:
    with pytest.raises(Refusal, match=r"no layer called 'dense'.*dense_0/kernel"):
        layer_split(model, weighted_mean(), shared=("dense",))
    with pytest.raises(Refusal, match="weighted_mean"):
        layer_split(model, median(), sample=0.5)
    bare = from_flax(nn.Dense(2, use_bias=False), cross_entropy, TASK)
    with pytest.raises(Refusal, match="nothing to split"):
        layer_split(bare, weighted_mean())


def one_shard(rows: int, seed: int, *, passes: int = 3, order_seed: int = 1) -> Shard:
    generator = np.random.default_rng(seed)
    x = generator.normal(0, 1, (rows, 3)).astype(np.float32)
    y = (generator.random(rows) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.int32)
    return one_site(x, y, visiting_order(order_seed, 1, np.array([0]), np.array([rows]), passes))


def test_each_layer_is_averaged_over_those_who_sent_it() -> None:
    """Two of three shared layers a site; a layer moves by sum(n u) / sum(n) over those who sent it, or not at all."""
    network = mlp(TASK, hidden=(2, 2, 2))
    start = jax.device_get(network.init(jax.random.key(3)))
    drawing = built(network, sample=0.67, momentum=0.0)
    everything = built(network, momentum=0.0)
    shards = [replace(one_shard(30, seed), rows=np.array(rows)) for seed, rows in enumerate((30, 20, 10))]
    draw, tell_all = jax.jit(drawing.client), jax.jit(everything.client)
    message, kept = drawing.broadcast(start), drawing.init_client(start)
    sums: dict[str, Any] = dict.fromkeys(message.arrays["params"], 0.0)
    counts = {f"dense_{layer}": 0.0 for layer in range(3)}
    total = None
    for site, shard in enumerate(shards):
        key = jax.random.key(site)
        said, _ = draw(message, kept, shard, key)
        whole, _ = tell_all(message, kept, shard, key)
        sent = {layer: float(value) / float(shard.rows) for layer, value in said.arrays["sent"].items()}
        assert sorted(sent.values()) == [0, 1, 1]
        for name, told in jax.device_get(said.arrays["update"]).items():
            layer = name.split("/", maxsplit=1)[0]
            np.testing.assert_allclose(told, sent[layer] * np.asarray(whole.arrays["update"][name]), atol=1e-6)
            sums[name] = sums[name] + told
        counts = {layer: counts[layer] + sent[layer] * float(shard.rows) for layer in counts}
        total = said if total is None else trees.add(total, said)
    assert total is not None
    # Not every site sent every layer: a mean over all three sites would be too small.
    assert min(counts.values()) < 60
    combined, _ = weighted_mean().reduce((), total)
    after = drawing.server(start, combined)
    for name, added in sums.items():
        heard = counts[name.split("/", maxsplit=1)[0]]
        wanted = start[name] + (added / heard if heard else 0.0)
        np.testing.assert_allclose(after[name], wanted, atol=1e-6)
    assert np.array_equal(after["dense_3/kernel"], start["dense_3/kernel"])


def test_every_shared_layer_is_drawn_equally_often() -> None:
    """One of three, 300 draws: 100 each, standard deviation sqrt(300 * 1/3 * 2/3) = 8.2, four times that allowed."""
    network = mlp(TASK, hidden=(2, 2, 2))
    algorithm = built(network, sample=0.34, personal_epochs=1)
    start = network.init(jax.random.key(0))
    message, kept, shard = algorithm.broadcast(start), algorithm.init_client(start), one_shard(4, 0)

    def sent(key: Any) -> Any:
        return algorithm.client(message, kept, shard, key)[0].arrays["sent"]

    drawn = jax.jit(jax.vmap(sent))(jax.random.split(jax.random.key(5), 300))
    counts = np.array([np.sum(value) / 4 for value in drawn.values()])
    assert counts.sum() == 300
    assert np.abs(counts - 100).max() < 33


def aside_rows(shard: Shard) -> Numbers:
    """The values of the rows set aside, sorted."""
    batch = shard.batch(0, 0, int(shard.rows))
    return np.sort(np.asarray(batch.x)[np.asarray(held_out_mask(shard, batch)) > 0], axis=0)


def test_a_tenth_of_the_rows_is_set_aside_and_always_the_same_ones() -> None:
    """5000 rows: 500 aside, standard deviation sqrt(5000 * 0.1 * 0.9) = 21; four of them allowed."""
    generator = np.random.default_rng(1)
    x, y = generator.normal(0, 1, (5000, 3)).astype(np.float32), np.zeros(5000, np.int32)
    orders = [generator.permutation(5000)[None] for _ in range(2)]
    first, second = (aside_rows(one_site(x, y, order, padding=5000)) for order in orders)
    assert abs(len(first) - 500) < 85
    assert np.array_equal(first, second)
    whole = one_site(x, y, orders[0], padding=5000)
    batch = whole.batch(0, 0, 5000)
    assert np.sum(held_out_mask(replace(whole, rows=np.array(20)), batch)) > 0
    assert np.sum(held_out_mask(replace(whole, rows=np.array(19)), batch)) == 0


@pytest.mark.parametrize("batch_size", [10, 0])
def test_rows_set_aside_are_never_learned_from(batch_size: int, model: Model) -> None:
    """Turning their labels round changes nothing that is sent; a full step is the mean over all other rows."""
    generator = np.random.default_rng(2)
    x = generator.normal(0, 1, (150, 3)).astype(np.float32)
    y = generator.integers(0, 2, 150).astype(np.int32)
    order = np.tile(generator.permutation(150), (3, 1))
    shard = one_site(x, y, order, padding=150)
    batch = shard.batch(0, 0, 150)
    aside = np.zeros(150, bool)
    aside[order[0]] = np.asarray(held_out_mask(shard, batch)) > 0
    assert 5 < aside.sum() < 30
    algorithm = built(model, fallback=True, batch_size=batch_size, momentum=0.0)
    params = params_of(START)
    kept = {**algorithm.init_client(params), "joined": np.ones((), np.float32)}
    moves, keeps, client = [], [], jax.jit(algorithm.client)
    for labels in (y, np.where(aside, 1 - y, y)):
        said, now = client(
            algorithm.broadcast(params), kept, one_site(x, labels, order, padding=150), jax.random.key(0)
        )
        moves.append(np.asarray(said.arrays["update"]["dense_0/kernel"]) / 150)
        keeps.append(np.asarray(now["own"]["dense_0/bias"]))
    assert np.array_equal(moves[0], moves[1])
    assert np.array_equal(keeps[0], keeps[1])
    if not batch_size:
        learned = np.hstack([x, np.ones((150, 1))])[~aside]
        w = START
        for _ in range(FITS):
            w = w - RATE / REDUCTION * slope(w, learned, y[~aside]) * OWN
        w = w - RATE * slope(w, learned, y[~aside])
        np.testing.assert_allclose(moves[0], w[:3] - START[:3], atol=1e-6)
        np.testing.assert_allclose(keeps[0], w[3], atol=1e-6)


def opposed() -> Federation:
    """Site 0 knows the truth, and four others its opposite: their common slopes can only harm site 0.

    For once the validation rows are the training rows again, so that the test can see how a site judges.
    """
    generator = np.random.default_rng(4)
    parts = []
    for site in range(5):
        pieces = []
        for rows in (200, 200):
            x = generator.normal(0, 1, (rows, 3)).astype(np.float32)
            chance = 1 / (1 + np.exp(-2 * (1.0 if site == 0 else -1.0) * x[:, 0]))
            pieces.append((x, (generator.random(rows) < chance).astype(np.int32)))
        parts.append((f"site-{site}", [pieces[0], pieces[0], pieces[1]]))
    return assemble(parts, TASK)


def losses(scores: Scores) -> Numbers:
    return -np.log(scores.predicted[np.arange(len(scores.actual)), scores.actual]).reshape(5, 200)


class Course(NamedTuple):
    """Site 0's loss on the rows it sets aside, of the first model and of the one it would use after each round."""

    first: float
    later: list[float]
    test: float
    """On site 0's test rows at the end."""
    others: float
    """On the test rows of all other sites at the end."""


def course(model: Model, start: Numbers, fallback: bool) -> Course:
    federation = opposed()
    algorithm = built(model, fallback=fallback, personal_epochs=1, momentum=0.0)
    x, y = rows_at(federation, 0)
    shard = one_site(x[:, :3].astype(np.float32), y, np.arange(200)[None], padding=200)
    aside = np.asarray(held_out_mask(shard, shard.batch(0, 0, 200))) > 0
    later = []
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(start))
        for number in range(1, 9):
            progress, _ = engine.train(algorithm, progress, [(number, np.arange(5))])
            later.append(losses(engine.predict(algorithm, progress, "validation"))[0, aside].mean())
        end = losses(engine.predict(algorithm, progress, "test"))
    first = -np.log(probabilities(start, x)[np.arange(200), y])[aside].mean()
    return Course(first, later, end[0].mean(), end[1:].mean())


@pytest.mark.slow
def test_with_fallback_a_site_never_gets_worse_than_what_it_had_and_others_go_on(model: Model) -> None:
    """The study starts at a good model of site 0, which the others then spoil; for them it is the worst of models.

    log 2 is the loss of a model that knows nothing.
    """
    start = np.zeros((4, 2))
    start[0] = [-1.0, 1.0]
    safe, plain = (course(model, start, fallback) for fallback in (True, False))
    assert all(after <= before + 1e-6 for before, after in pairwise([safe.first, *safe.later]))
    assert min(plain.later) > plain.first
    assert safe.test < np.log(2) < plain.test
    assert max(safe.others, plain.others) < np.log(2)


def own_baselines() -> Federation:
    """Ten sites of 12 patients each: the same slopes everywhere, but a baseline risk of their own."""
    generator = np.random.default_rng(6)
    parts = []
    for site in range(10):
        pieces = []
        for rows in (12, 1, 300):
            x = generator.normal(0, 1, (rows, 3)).astype(np.float32)
            score = 1.5 * x[:, 0] - 1.5 * x[:, 1] + (2.0 if site % 2 else -2.0)
            pieces.append((x, (generator.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int32)))
        parts.append((f"site-{site}", pieces))
    return assemble(parts, TASK)


@pytest.mark.slow
def test_helps_where_sites_share_slopes_but_not_their_baseline(model: Model) -> None:
    errors = []
    for algorithm in (
        layer_split(model, weighted_mean(), learning_rate=0.3, batch_size=0),
        local(model, learning_rate=0.3, batch_size=0),
        fed_avg(model, weighted_mean(), learning_rate=0.3, batch_size=0),
    ):
        with Simulation(own_baselines(), seed=SEED, transform=PLAIN) as engine:
            progress = engine.begin(algorithm, params_of(np.zeros((4, 2))))
            progress, _ = engine.train(algorithm, progress, [(number, np.arange(10)) for number in range(1, 65)])
            scores = engine.predict(algorithm, progress, "test")
        errors.append(-np.log(scores.predicted[np.arange(3000), scores.actual]).mean())
    assert errors[0] < 0.95 * min(errors[1:])
