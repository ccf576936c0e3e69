"""A PyTorch module as a model: the same steps as plain PyTorch, under every way the compiled round may call it."""

import faulthandler
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

from wardround.core.contracts import Batch, Model, Params, Shard, Task
from wardround.core.descent import descend
from wardround.core.errors import Refusal
from wardround.models.from_torch import from_torch

if find_spec("torch") is None:
    pytest.skip("the extra wardround[torch] is not installed", allow_module_level=True)


class Later:
    """A library of two hundred megabytes: imported when the first of these tests begins, and not by every worker."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, what: str) -> Any:
        return getattr(importlib.import_module(self.name), what)


torch, nn = Later("torch"), Later("torch.nn")
KEY = jax.random.key(0)
CLASSES = Task((3,), ("no", "yes"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Spinning threads of PyTorch and XLA side by side make small tests slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small_network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.GroupNorm(2, 8), nn.Tanh(), nn.Linear(8, 2))


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 3)).astype(np.float32), generator.integers(0, 2, count).astype(np.int32)


def plain_sgd(x: np.ndarray, y: np.ndarray, orders: list[list[int]]) -> dict[str, np.ndarray]:
    """Batches of four, learning rate 0.1, momentum 0.9, written the way PyTorch's tutorials do."""
    module = small_network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for order in orders:
        for start in range(0, len(order), 4):
            chosen = order[start : start + 4]
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(torch.tensor(x[chosen])), torch.tensor(y[chosen]).long()).backward()
            optimizer.step()
    return {name.replace(".", "/"): value.detach().numpy() for name, value in module.named_parameters()}


def descended(model: Model, params: Params, shard: Shard) -> Params:
    optimizer = optax.sgd(0.1, momentum=0.9)
    return descend(model.gradient, optimizer, params, shard, KEY, batch_size=4, passes=2)


def test_two_sites_batched_together_take_the_steps_of_plain_pytorch() -> None:
    # Ten and six rows in batches of four: masked rows in both, and a whole masked batch for the shorter site.
    model = from_torch(small_network(), nn.CrossEntropyLoss(), CLASSES)
    x, y = rows(10)
    orders = [[np.random.default_rng(seed).permutation(count).tolist() for seed in (1, 2)] for count in (10, 6)]
    # Rows in the order of their visit; a pass takes as many places as the longer site has rows.
    table = np.zeros((2, 2, 10), np.int64)
    for site, order in enumerate(orders):
        table[site, :, : len(order[0])] = order
    table = np.concatenate([table.reshape(2, 20), np.zeros((2, 64), np.int64)], axis=1)
    # `longest` is common to a batch of sites: it bounds the loop.
    axes = Shard(0, 0, None, 0, None, 0)  # type: ignore[arg-type]
    stacked = Shard(
        x[table], y[table], jnp.int32(0), jnp.array([10, 6], jnp.int32), jnp.int32(10), jnp.arange(2), padding=64
    )
    together = jax.jit(jax.vmap(lambda p, shard: descended(model, p, shard), in_axes=(None, axes)))
    both = together(model.init(KEY), stacked)
    start = model.init(KEY)
    for site, order in enumerate(orders):
        for name, expected in plain_sgd(x, y, order).items():
            np.testing.assert_allclose(both[name][site], expected, atol=1e-5)
            assert np.abs(expected - start[name]).max() > 1e-2


def test_parameters_carry_pytorchs_names_and_start_at_its_values() -> None:
    module = small_network()
    params = from_torch(module, nn.CrossEntropyLoss(), CLASSES).init(KEY)
    assert sorted(params) == ["0/bias", "0/weight", "1/bias", "1/weight", "3/bias", "3/weight"]
    np.testing.assert_array_equal(params["3/weight"], module[3].weight.detach().numpy())


def test_loss_gradient_and_the_derivative_of_the_loss_agree_with_autograd() -> None:
    module = small_network()
    model = from_torch(module, nn.functional.cross_entropy, CLASSES)
    params = model.init(KEY)
    x, y = rows(5)
    # The padded rows hold what would spoil any mean: the largest float, and a class that does not exist.
    junk = np.full((2, 3), np.finfo(np.float32).max, np.float32)
    batch = Batch(np.concatenate([x, junk]), np.append(y, [99, 99]), np.array([1] * 5 + [0] * 2, np.float32))
    mean = nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y).long())
    mean.backward()
    value, derived = jax.jit(jax.value_and_grad(lambda p: 3 * model.loss(p, batch, KEY)))(params)
    np.testing.assert_allclose(value, 3 * mean.item(), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(model.loss)(params, batch, KEY), mean.item(), rtol=1e-5)
    slope = jax.jit(model.gradient)(params, batch, KEY)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(slope[name.replace(".", "/")], parameter.grad.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(derived[name.replace(".", "/")], 3 * parameter.grad.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        jax.jit(model.predict)(params, x), torch.softmax(module(torch.tensor(x)), 1).detach().numpy(), rtol=1e-5
    )


def test_one_forward_pass_a_gradient_and_one_a_derivative_of_the_loss() -> None:
    passes = []

    class Counting(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            passes.append(len(x))
            return self.layer(x)

    model = from_torch(Counting(), nn.CrossEntropyLoss(), CLASSES)
    x, y = rows(4)
    batch = Batch(x, y, np.ones(4, np.float32))
    for function in (model.gradient, jax.value_and_grad(model.loss)):
        compiled = jax.jit(function).lower(model.init(KEY), batch, KEY).compile()
        passes.clear()
        jax.block_until_ready(compiled(model.init(KEY), batch, KEY))
        assert passes == [4]


def test_an_empty_batch_has_no_loss_and_no_gradient() -> None:
    model = from_torch(small_network(), nn.CrossEntropyLoss(), CLASSES)
    x, y = rows(4)
    batch = Batch(x, y, np.zeros(4, np.float32))
    assert float(model.loss(model.init(KEY), batch, KEY)) == 0.0
    for slope in model.gradient(model.init(KEY), batch, KEY).values():
        np.testing.assert_array_equal(slope, np.zeros_like(slope))


def test_a_regression_compares_row_by_row() -> None:
    # w = (1, 2, 3), bias 0: outputs 1 and 5 against targets 3 and 5, so the mean squared error is (4 + 0) / 2 = 2.
    # A column against a row would broadcast to (4 + 16 + 4 + 0) / 4 = 6.
    module = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
    model = from_torch(module, nn.MSELoss(), Task((3,)))
    batch = Batch(np.array([[1, 0, 0], [0, 1, 1]], np.float32), np.array([3, 5], np.float32), np.ones(2, np.float32))
    params = model.init(KEY)
    assert float(model.loss(params, batch, KEY)) == 2.0
    # Half of 2 (1 - 3) (1, 0, 0), the other row being right.
    np.testing.assert_allclose(model.gradient(params, batch, KEY)["weight"], [[-2.0, 0.0, 0.0]])
    np.testing.assert_allclose(model.predict(params, batch.x), [1.0, 5.0])


def test_dropout_follows_the_key_while_learning_and_rests_in_predictions() -> None:
    module = nn.Sequential(nn.Linear(3, 32), nn.Dropout(0.5), nn.Linear(32, 2))
    model = from_torch(module, nn.CrossEntropyLoss(), CLASSES)
    params = model.init(KEY)
    x, y = rows(6)
    batch = Batch(x, y, np.ones(6, np.float32))
    before = torch.get_rng_state()
    gradient = jax.jit(model.gradient)
    one, again, other = (gradient(params, batch, key)["2/weight"] for key in (KEY, KEY, jax.random.key(1)))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-3
    module.eval()
    expected = torch.softmax(module(torch.tensor(x)), 1).detach().numpy()
    np.testing.assert_allclose(model.predict(params, x), expected, rtol=1e-5)
    assert torch.equal(before, torch.get_rng_state())


def test_frozen_parameters_stay_at_home_and_the_users_module_untouched() -> None:
    module = small_network()
    module[0].requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = from_torch(module, nn.CrossEntropyLoss(), CLASSES)
    params = model.init(KEY)
    assert sorted(params) == ["1/bias", "1/weight", "3/bias", "3/weight"]
    x, y = rows(4)
    model.gradient(jax.tree.map(lambda array: array + 1, params), Batch(x, y, np.ones(4, np.float32)), KEY)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_large_models_on_several_devices_do_not_hang() -> None:
    # Arguments of megabytes, callbacks from several threads at once: `pure_callback` stood still here for ever.
    width = 1500
    model = from_torch(
        nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)),
        nn.CrossEntropyLoss(),
        CLASSES,
    )
    x, y = rows(8)
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("sites",))
    sites = 2 * mesh.size

    def site(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        batch = Batch(x, y, jnp.ones(len(y)))

        def step(_: int, params: Params) -> Params:
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, model.gradient(params, batch, KEY))

        return jax.lax.fori_loop(0, 3, step, params)["4/bias"]

    def block(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.vmap(site, in_axes=(None, 0, 0))(params, x, y)

    split, whole = PartitionSpec("sites"), PartitionSpec()
    spread = jax.jit(jax.shard_map(block, mesh=mesh, in_specs=(whole, split, split), out_specs=split, check_vma=False))
    faulthandler.dump_traceback_later(300, exit=True)
    try:
        result = np.asarray(spread(model.init(KEY), np.stack([x] * sites), np.stack([y] * sites)))
    finally:
        faulthandler.cancel_dump_traceback_later()
    alone = np.asarray(jax.jit(site)(model.init(KEY), x, y))
    np.testing.assert_allclose(result, np.stack([alone] * sites), rtol=1e-5)


def test_derivatives_by_the_rows_are_refused_not_guessed() -> None:
    model = from_torch(small_network(), nn.CrossEntropyLoss(), CLASSES)
    x, y = rows(4)
    with pytest.raises(Refusal, match="no derivatives with respect to its input rows"):
        jax.grad(lambda x: model.loss(model.init(KEY), Batch(x, y, np.ones(4, np.float32)), KEY))(jnp.array(x))


def with_batch_norm() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def frozen() -> Any:
    return nn.Linear(3, 2).requires_grad_(False)


def remembering() -> Any:
    class Remembering(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.seen += len(x)
            return self.layer(x)

    return Remembering()


def entropy() -> Any:
    return nn.CrossEntropyLoss()


def divergence() -> Any:
    return nn.KLDivLoss()


def reduced() -> Any:
    return lambda outputs, y: outputs.mean()


@pytest.mark.parametrize(
    ("make", "loss", "told"),
    [
        (with_batch_norm, entropy, r"layer '1' \(BatchNorm1d\).*GroupNorm or torch.nn.LayerNorm"),
        (remembering, entropy, "changes its buffer 'seen'"),
        (frozen, entropy, "no parameters to learn"),
        (lambda: nn.Linear(3, 7), entropy, r"\(2, 7\) for two rows, not \(2, 2\)"),
        (lambda: nn.Linear(5, 2), entropy, r"does not take rows of shape \(3,\)"),
        (
            lambda: nn.Linear(3, 2),
            lambda: lambda outputs, y: outputs.mean(),
            r"gives \(\) for two rows.*CrossEntropyLoss",
        ),
        (lambda: nn.Linear(3, 2), divergence, "The loss cannot be computed: kl_div"),
    ],
    ids=["batch norm", "buffer", "frozen", "outputs", "shape", "reduced loss", "wrong loss"],
)
def test_what_cannot_be_trained_is_refused_in_words(
    make: Callable[[], Any], loss: Callable[[], Any], told: str
) -> None:
    with pytest.raises(Refusal, match=told) as caught:
        from_torch(make(), loss(), CLASSES)
    assert "\n" not in str(caught.value)


def test_without_pytorch_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    module = small_network()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Refusal, match=r"pip install wardround\[torch\]"):
        from_torch(module, lambda outputs, y: outputs, CLASSES)
