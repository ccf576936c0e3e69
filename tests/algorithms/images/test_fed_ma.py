from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.algorithms.images.fed_ma import fed_ma
from wardround.algorithms.images.matched_layers import cut, grow, layers_of
from wardround.algorithms.images.unit_assignment import match_layer
from wardround.core.contracts import Message, Task
from wardround.core.errors import Diverged, Refusal
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.cnn import cnn
from wardround.models.images.all_conv import all_conv
from wardround.models.lstm import lstm
from wardround.models.mlp import mlp
from wardround.models.pain_cnn import pain_cnn

RNG = np.random.default_rng(4)
TASK = Task((3,), ("no", "yes"))
IMAGES = Task((8, 8, 1), TASK.classes)
TOKENS = Task((5,), ("a", "b", "c", "d"))


def permuted(params, rng):
    """The same network with its hidden units in another order, layer by layer.

    A layer's units stand last in its arrays and last but one in the next layer's; four times (one for each gate) in an
    LSTM, whose recurrent weights have them on both sides.
    """
    made = {name: np.asarray(array) for name, array in params.items()}
    groups = {}
    for name in made:
        layer = name.split("/")[0]
        if layer.startswith("norm"):  # normalization has the units of the layer before it
            layer = layer.replace("norm", "conv")
            layer = layer if f"{layer}/kernel" in made else "dense_0"
        groups.setdefault(layer, []).append(name)
    layers = sorted(groups, key=lambda one: (["conv", "embed", "lstm", "dense"].index(one.split("_")[0]), one))
    for layer, after in pairwise(layers):
        gates = 4 if layer.startswith("lstm") else 1
        width = made[groups[layer][0]].shape[-1] // gates
        order = rng.permutation(width)
        for name in groups[layer]:
            split = made[name].reshape(*made[name].shape[:-1], gates, width)[..., order]
            made[name] = split.reshape(made[name].shape)
            if name.endswith("/hidden"):
                made[name] = made[name][order]
        for name in groups[after]:
            if name.split("/")[1] in ("kernel", "input"):
                shape = made[name].shape
                made[name] = made[name].reshape(-1, width, shape[-1])[:, order].reshape(shape)
    return made


MODELS = {
    "dense": (lambda: mlp(TASK, hidden=(5, 4)), TASK),
    "convolutional": (lambda: cnn(IMAGES, channels=(3, 4), kernel=3, dense=5), IMAGES),
    "all_conv": (lambda: all_conv(IMAGES, filters=3), IMAGES),
    "normalized": (lambda: pain_cnn(IMAGES, filters=(3, 4), dense=5), IMAGES),
    "lstm": (lambda: lstm(TOKENS, hidden=(4, 3), embedding=5), TOKENS),
}


CASES = [("dense", 0.0), ("convolutional", 0.0), ("lstm", 0.5)]
LONG = [("dense", 0.5), ("lstm", 0.0), ("convolutional", 0.5), ("all_conv", 0.0), ("normalized", 0.0)]


@pytest.mark.parametrize(("kind", "growth"), [*CASES, *(pytest.param(*one, marks=pytest.mark.slow) for one in LONG)])
def test_a_sweep_over_permuted_networks_gives_their_function(kind, growth):
    """Sites that hold one network in different orders: matched, they are this network; averaged, they are not."""
    make, task = MODELS[kind]
    model = make()
    rng = np.random.default_rng(3)
    truth = jax.device_get(jax.jit(model.init)(jax.random.key(1)))
    # Biases begin at 0, where no order could be seen.
    some = {name: np.abs(rng.normal(0, 0.1, array.shape)).astype(np.float32) for name, array in truth.items()}
    truth = {name: array + some[name] if array.ndim == 1 else array for name, array in truth.items()}
    held = [truth, permuted(truth, rng)]
    x = rng.normal(size=(6, *task.shape)).astype(np.float32)
    x = rng.integers(0, 4, (6, 5)).astype(np.float32) if kind == "lstm" else x
    predict = jax.jit(model.predict)
    expected = predict(truth, x)
    np.testing.assert_allclose(predict(held[1], x), expected, atol=1e-5)
    plain = jax.tree.map(lambda a, b: (a + b) / 2, *held)
    assert np.abs(np.asarray(predict(plain, x)) - expected).max() > 0.002

    algorithm = fed_ma(model, learning_rate=1e-12, growth=growth)
    layers = layers_of(model, growth)
    state = algorithm.init(truth, 2)
    kept = [algorithm.init_client(one) for one in held]
    client, server = jax.jit(algorithm.client), jax.jit(algorithm.server)
    y = np.arange(6) % 2
    for step in range(len(layers.arrays)):
        answers = []
        for site in (0, 1):
            # As after the first training: the sites' own networks, of which step 0 sends the first layer.
            sent = algorithm.broadcast(state if step else {**state, "params": grow(layers, held[site])})
            shard = one_site(x, y.astype(np.int32), np.arange(6)[None], site=site)
            answer, kept[site] = client(sent, kept[site], shard, jax.random.key(2))
            answers.append(answer.arrays)
        stack = jax.tree.map(lambda *one: jnp.stack(one), *answers)
        state = server(state, Message({**stack, "site": jnp.arange(2)}))
    assert int(state["step"]) == len(layers.arrays)
    np.testing.assert_allclose(predict(state["params"], x), expected, atol=1e-4)
    # No place was opened: the same units need no more room than one site's.
    assert sum(int((order >= 0).sum()) for order in state["order"][1]) == sum(layers.own.values())
    # In the next sweep the second site begins with its own order again, and with the network that both have.
    again = cut(layers, state["params"], state["order"][1])
    np.testing.assert_allclose(predict(again, x), expected, atol=1e-4)
    for name, array in grow(layers, held[1]).items():
        np.testing.assert_allclose(again[name], array, atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["dense", *(pytest.param(one, marks=pytest.mark.slow) for one in ("convolutional", "lstm"))]
)
def test_unused_places_change_nothing_and_learn_nothing(kind):
    make, task = MODELS[kind]
    model = make()
    layers = layers_of(model, 1.0)
    params = jax.jit(model.init)(jax.random.key(1))
    wide = grow(layers, params)
    x = np.abs(np.random.default_rng(2).normal(size=(8, *task.shape))).astype(np.float32)
    shard = one_site(x, np.arange(8) % 2, np.arange(8)[None])

    @jax.jit
    def both(one):
        return model.predict(one, x), model.gradient(one, shard.batch(0, 0, 8), jax.random.key(0))

    (expected, small), (found, large) = both(params), both(wide)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for name, array in grow(layers, small).items():
        np.testing.assert_allclose(large[name], array, atol=1e-6)


def test_the_common_network_grows_where_a_site_knows_something_else():
    # Two sites with hidden units (1, 0), (0, 1) and (0, 1), (-4, -4): one of each is the same, so three places are
    # needed of the four there may be. Weights 3 and 1.
    model = mlp(Task((2,), TASK.classes), hidden=(2,))
    algorithm = fed_ma(model, growth=1.0)
    layers = layers_of(model, 1.0)
    assert dict(layers.most) == {"dense_0": 4}
    # A layer of 2 inputs and 2 own units is sent with 6 numbers; the last reads 4 units: 4 * 2 + 2 = 10.
    assert (layers.numbers(0, layers.sent_sizes(0)), layers.longest_sent) == (6, 10)
    state = algorithm.init(jax.jit(model.init)(jax.random.key(0)), 2)
    own = [np.float32([[1, 0], [0, 1]]), np.float32([[0, -4], [1, -4]])]  # columns are units
    rows = np.stack([np.concatenate([kernel.ravel(), np.zeros(6, np.float32)]) for kernel in own])
    weight = np.float32([3, 1])
    stack = {"layer": rows * weight[:, None], "weight": weight, "site": np.arange(2)}
    after = algorithm.server(state, Message(jax.tree.map(jnp.asarray, stack)))
    np.testing.assert_allclose(after["params"]["dense_0/kernel"], [[1, 0, -4, 0], [0, 1, -4, 0]], atol=1e-6)
    assert after["order"][:, 0].tolist() == [[0, 1, -1, -1], [-1, 0, 1, -1]]
    # What the second site's last layer reads from its units now stands where they are, and nothing where none is.
    kept = algorithm.init_client({"dense_0/kernel": own[1], "dense_0/bias": np.zeros(2, np.float32),
                                  "dense_1/kernel": np.float32([[7, 7], [9, 9]]),
                                  "dense_1/bias": np.zeros(2, np.float32)})  # fmt: skip
    kept = {**kept, "step": jnp.zeros((), jnp.int32)}
    shard = one_site(np.zeros((2, 2), np.float32), np.int32([0, 1]), np.arange(2)[None], site=1)
    answer, _ = jax.jit(fed_ma(model, growth=1.0, learning_rate=1e-12).client)(
        algorithm.broadcast(after), kept, shard, jax.random.key(0)
    )
    np.testing.assert_allclose(answer.arrays["layer"] / 2, [0, 0, 7, 7, 9, 9, 0, 0, 0, 0], atol=1e-6)


def test_an_answer_is_as_long_as_the_largest_layer():
    model = mlp(Task((7,), ("a", "b")), hidden=(5, 4))
    layers = layers_of(model)
    # 7 * 5 + 5 = 40, 5 * 4 + 4 = 24, 4 * 2 + 2 = 10.
    assert [layers.numbers(index, layers.most) for index in range(3)] == [40, 24, 10]
    algorithm = fed_ma(model)
    params = model.init(jax.random.key(0))
    shard = one_site(np.zeros((4, 7), np.float32), np.zeros(4, np.int32), np.arange(4)[None])
    sent = algorithm.broadcast(algorithm.init(params, 2))
    answer, _ = jax.eval_shape(algorithm.client, sent, algorithm.init_client(params), shard, jax.random.key(0))
    assert answer.arrays["layer"].shape == (40,)


def test_what_is_no_chain_is_refused():
    broken = mlp(TASK, hidden=(4,))
    broken = broken._replace(init=lambda key: {"a/kernel": jnp.zeros((3, 4)), "b/kernel": jnp.zeros((3, 2))}, units=())
    with pytest.raises(Refusal, match="in a chain"):
        fed_ma(broken)
    with pytest.raises(Refusal, match="one width only"):
        fed_ma(pain_cnn(IMAGES, filters=(2,), dense=3), growth=0.5)


def test_a_site_that_diverges_is_named_and_a_wild_answer_is_matched():
    good, broken = ([(RNG.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2)] * 3 for _ in range(2))
    broken[0][0][2] = np.nan
    model = mlp(TASK, hidden=(4,))
    algorithm = fed_ma(model)
    with Simulation(assemble([("sound", good), ("broken", broken)], TASK), seed=1) as engine:
        progress = engine.begin(algorithm, jax.jit(model.init)(jax.random.key(0)))
        with pytest.raises(Diverged) as told:
            engine.train(algorithm, progress, [(1, np.arange(2))])
    assert told.value.sites == ("broken",)
    # The largest numbers there are: no overflow on the way to a matching.
    layers = layers_of(model)
    rows = np.stack([np.ones(layers.longest), np.full(layers.longest, 3e38)]).astype(np.float32)
    mean, order = match_layer(layers, 0, rows, np.float32([1, 1]), np.arange(2), 2, 1.0)
    assert np.isfinite(mean).all()
    assert sorted(order[1]) == [0, 1, 2, 3]


def test_a_large_layer_does_not_wait_for_itself():
    # 784 x 32 numbers a site: a callback that asked JAX for its arguments hung here, with two devices.
    task = Task((784,), ("no", "yes"))
    model = mlp(task, hidden=(32,))
    rows = [(RNG.normal(size=(8, 784)).astype(np.float32), np.arange(8) % 2) for _ in range(3)]
    federation = assemble([("a", rows), ("b", rows)], task)
    with Simulation(federation, seed=1) as engine:
        algorithm = fed_ma(model)
        progress = engine.begin(algorithm, jax.jit(model.init)(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(1, np.arange(2)), (2, np.arange(2))])
    assert int(progress.server["step"]) == 2
    assert all(np.isfinite(part).all() for part in progress.server["params"].values())
