import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.algorithms.images.fed_ma import chain_of, fed_ma, match_units
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.cnn import cnn
from wardround.models.mlp import mlp

RNG = np.random.default_rng(4)
TASK = Task((3,), ("no", "yes"))


def permuted(params, orders):
    """The same network with its hidden units in another order, layer by layer."""
    made = dict(params)
    names = (
        ["conv_0", "conv_1", "dense_0", "dense_1"] if "conv_0/kernel" in params else ["dense_0", "dense_1", "dense_2"]
    )
    for layer, after, order in zip(names[:-1], names[1:], orders, strict=True):
        made[f"{layer}/kernel"], made[f"{layer}/bias"] = (
            made[f"{layer}/kernel"][..., order],
            made[f"{layer}/bias"][order],
        )
        kernel = made[f"{after}/kernel"]
        made[f"{after}/kernel"] = kernel.reshape(-1, len(order), kernel.shape[-1])[:, order].reshape(kernel.shape)
    return made


def test_the_slides_example_of_two_permuted_layers():
    # Site B has the units of site A in the order 2, 0, 1: its unit in place 0 is A's 2, and so on.
    a = RNG.normal(size=(3, 4))
    order = np.array([2, 0, 1])
    b = a[order]
    places = match_units(np.stack([a, b]), np.array([2.0, 1.0]))
    assert places[0].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(b[places[1]], a)
    # Plain averaging mixes different units.
    assert np.abs((a + b) / 2 - a).max() > 0.1


def test_noisy_units_of_many_sites_are_found_again():
    units = RNG.normal(size=(6, 20))
    orders = [RNG.permutation(6) for _ in range(5)]
    sites = np.stack([units[order] + 0.1 * RNG.normal(size=units.shape) for order in orders])
    places = match_units(sites, np.arange(1.0, 6.0))
    first = orders[-1]  # the site with most patients gives the places
    for order, place in zip(orders, places, strict=True):
        assert order[place].tolist() == first.tolist()


@pytest.mark.parametrize(
    ("model", "shape", "widths"),
    [
        (mlp(TASK, hidden=(5, 4)), (3,), (5, 4)),
        (cnn(Task((8, 8, 1), TASK.classes), channels=(3, 4), kernel=3, dense=5), (8, 8, 1), (3, 4, 5)),
    ],
    ids=["dense", "convolutional"],
)
def test_a_sweep_over_permuted_networks_gives_their_function(model, shape, widths):
    """Sites that hold one network in different orders: matched, they are this network; averaged, they are not."""
    truth = jax.device_get(jax.jit(model.init)(jax.random.key(1)))
    rng = np.random.default_rng(3)
    held = [truth, permuted(truth, [rng.permutation(width) for width in widths])]
    x = rng.normal(size=(6, *shape)).astype(np.float32)
    predict = jax.jit(model.predict)
    expected = predict(truth, x)
    np.testing.assert_allclose(predict(held[1], x), expected, atol=1e-5)
    plain = jax.tree.map(lambda a, b: (a + b) / 2, *held)
    assert np.abs(np.asarray(predict(plain, x)) - expected).max() > 0.02

    algorithm = fed_ma(model, learning_rate=1e-12)
    layers = len(widths) + 1
    state = algorithm.init(truth, 2)
    # As after the first training: the sites' own networks, of which step 0 sends the first layer.
    kept = [{"params": one, "step": jnp.asarray(-1, jnp.int32)} for one in held]
    client, server = jax.jit(algorithm.client), jax.jit(algorithm.server)
    y = np.arange(6) % 2
    for step in range(layers):
        answers = []
        for site in (0, 1):
            sent = algorithm.broadcast(state if step else {**state, "params": held[site]})
            shard = one_site(x, y.astype(np.int32), np.arange(6)[None], site=site)
            answer, kept[site] = client(sent, kept[site], shard, jax.random.key(2))
            answers.append(answer.arrays)
        stack = jax.tree.map(lambda *one: jnp.stack(one), *answers)
        state = server(state, Message({**stack, "site": jnp.arange(2)}))
    assert int(state["step"]) == layers
    np.testing.assert_allclose(predict(state["params"], x), expected, atol=1e-4)


def test_an_answer_is_as_long_as_the_largest_layer():
    model = mlp(Task((7,), ("a", "b")), hidden=(5, 4))
    # 7 * 5 + 5 = 40, 5 * 4 + 4 = 24, 4 * 2 + 2 = 10.
    assert [layer.size for layer in chain_of(model)] == [40, 24, 10]
    algorithm = fed_ma(model)
    params = model.init(jax.random.key(0))
    shard = one_site(np.zeros((4, 7), np.float32), np.zeros(4, np.int32), np.arange(4)[None])
    sent = algorithm.broadcast(algorithm.init(params, 2))
    answer, _ = jax.eval_shape(algorithm.client, sent, algorithm.init_client(params), shard, jax.random.key(0))
    assert answer.arrays["layer"].shape == (40,)


def test_what_is_no_chain_is_refused():
    broken = mlp(TASK, hidden=(4,))
    broken = broken._replace(init=lambda key: {"a/kernel": jnp.zeros((3, 4)), "b/kernel": jnp.zeros((3, 2))})
    with pytest.raises(Refusal, match="not a chain"):
        fed_ma(broken)


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
