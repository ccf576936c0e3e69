"""Steps counted by hand against those that the dry run finds, and every way around the noise that it must find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.class_weighted import class_weighted
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core import trees
from wardround.core.answers import answer
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.models.logistic import logistic
from wardround.privacy.dry_run import DryRun
from wardround.privacy.sampling import ExpectedSize

TASK = Task((3,), ("no", "yes"))
ROW = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.int32))


def counted(name: str, rows: int, **settings) -> dict[float, int]:
    """Rounded rate to the number of noised sums."""
    run, model = DryRun(), logistic(TASK)
    component = registry.find("algorithm", name)
    algorithm = component.build(run.model(model), weighted_mean(), **settings)
    found = run.rounds(algorithm, model.init(jax.random.key(0)), ROW, rows, 5)
    return {round(rate, 6): times for rate, times in found}


@pytest.mark.parametrize(
    ("name", "rows", "settings", "expected"),
    [
        # ceil(100 / 32) = 4 batches a pass, each with a rate of 32 / 100.
        ("fed_avg", 100, {}, {0.32: 4}),
        ("fed_avg", 100, {"local_epochs": 3}, {0.32: 12}),
        ("fed_prox", 100, {}, {0.32: 4}),
        ("fed_opt", 100, {}, {0.32: 4}),
        ("fine_tune", 100, {"personal_epochs": 9}, {0.32: 4}),
        # A site smaller than the batch: everybody enters, once a pass.
        ("fed_avg", 20, {"local_epochs": 2}, {1.0: 2}),
        # All rows at once, in two chunks of 64: one sum, and one a pass.
        ("fed_avg", 100, {"batch_size": 0}, {1.0: 1}),
        ("fed_sgd", 100, {"batch_size": 0}, {1.0: 1}),
        ("fed_sgd", 100, {}, {0.32: 1}),
        ("scaffold", 100, {}, {0.32: 4}),
        # Option I takes the full gradient at the received model besides.
        ("scaffold", 100, {"option": "I"}, {0.32: 4, 1.0: 1}),
        ("scaffold", 100, {"option": "I", "batch_size": ExpectedSize(64)}, {0.64: 2, 1.0: 1}),
        # Both models take every step.
        ("ditto", 100, {}, {0.32: 8}),
        ("weight_erosion", 100, {}, {0.32: 1}),
        ("meta", 100, {"kind": "reptile"}, {0.32: 4}),
        # An inner and an outer gradient a batch.
        ("meta", 100, {}, {0.32: 8}),
    ],
)
def test_steps_counted_by_hand(name: str, rows: int, settings: dict, expected: dict[float, int]) -> None:
    sizes = {
        p.name: ExpectedSize(32) for p in registry.find("algorithm", name).parameters if p.name.endswith("batch_size")
    }
    assert counted(name, rows, **{**sizes, **settings}) == expected


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("meta", {"kind": "maml"}, "differentiates gradients"),
        ("cluster", {}, "looks at the losses"),
        ("layer_split", {"fallback": True}, "predicts a site's own rows"),
        # The inner batches begin anew before the outer ones end.
        ("meta", {"inner_batch_size": ExpectedSize(64)}, "several gradients of the same batch"),
        # Five models side by side take gradients of one batch.
        ("model_interpolation", {}, "several gradients of the same batch"),
    ],
)
def test_ways_around_the_noise_are_refused(name: str, settings: dict, why: str) -> None:
    sizes = {
        p.name: ExpectedSize(32) for p in registry.find("algorithm", name).parameters if p.name.endswith("batch_size")
    }
    with pytest.raises(Refusal, match=why):
        counted(name, 100, **{**sizes, **settings})


def test_an_aggregator_that_needs_class_shares_is_refused() -> None:
    run, model = DryRun(), logistic(TASK)
    algorithm = registry.find("algorithm", "fed_avg").build(
        run.model(model), class_weighted(), batch_size=ExpectedSize(32)
    )
    with pytest.raises(Refusal, match="looks at 1 rows"):
        run.rounds(algorithm, model.init(jax.random.key(0)), ROW, 100, 5)


def test_a_client_that_peeps_is_found() -> None:
    """Rows that are asked for and not used for a gradient, and a gradient of rows that were not asked for."""
    run, model = DryRun(), logistic(TASK)
    plain = registry.find("algorithm", "fed_avg").build(run.model(model), weighted_mean(), batch_size=ExpectedSize(32))
    params = model.init(jax.random.key(0))

    def peeping(message, kept, shard, key):
        said, kept = plain.client(message, kept, shard, key)
        seen = jnp.mean(shard.batch(0, 0, ExpectedSize(32)).x)
        return Message({**said.arrays, "seen": seen}), kept

    with pytest.raises(Refusal, match="without taking a gradient"):
        run.rounds(plain._replace(client=peeping), params, ROW, 100, 5)

    def own_batches(message, kept, shard, key):
        slope = run.model(model).gradient(message.arrays["params"], _plain_batch(), key)
        update = {"update": trees.scale(slope, -1.0)}
        return answer(model, weighted_mean(), params, shard, "uniform", update), kept

    with pytest.raises(Refusal, match="batches of its own"):
        run.rounds(plain._replace(client=own_batches), params, ROW, 100, 5)


def _plain_batch():
    from wardround.core.contracts import Batch

    return Batch(jnp.zeros((4, 3)), jnp.zeros(4, jnp.int32), jnp.ones(4))
