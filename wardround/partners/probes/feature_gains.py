"""What a site's own model loses or wins when it is given fewer or more inputs, for many sets of inputs at once.

`begin` is given {"params": the model to start from, "keep": (F, D) of 0 and 1}: each of the F rows tells which of the D
prepared inputs a model may see; the others are 0 for it, which is the mean of a scaled number and no category at all.
Row 0 is what the other rows are compared with. Every site cross-validates its own model once a row, on the same folds,
trained as `own_models` does. Sends the model and F * D numbers down and 2 * F numbers up; costs F times `own_models`.
The sets travel, so others need no new program while F stays the same: repeat row 0 to fill up. Needs the answers one by
one, so no secure sum. The standard errors are those of the site's rows; that the folds' models resemble each other is
left out of account, as usual.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.answers import answer, side_by_side
from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import (
    Algorithm,
    Array,
    Batch,
    Key,
    Message,
    Model,
    Params,
    Shard,
    Tree,
)
from wardround.core.descent import CHUNK, batches
from wardround.core.errors import Refusal
from wardround.partners.choice import Numbers
from wardround.partners.probes.losses import standard_error
from wardround.partners.probes.own_models import USUAL, Folds, OwnTraining, fold_models, held_out_losses

TERMS = Terms(
    "how well models of its own do on its patients with some inputs left out",
    lambda of: 2 * of.models + 1,
)


@recorded("probe", TERMS)
def feature_gains(
    model: Model,
    *,
    folds: Folds = USUAL.folds,
    epochs: Count = USUAL.epochs,
    learning_rate: Positive = USUAL.learning_rate,
    batch_size: CountOrAll = USUAL.batch_size,
    decay: NotNegative = USUAL.decay,
    momentum: Momentum = USUAL.momentum,
) -> Algorithm:
    """Every site's cross-validated loss with some inputs left out, for many such sets (batch_size 0: all rows).

    The state holds, for S sites and F sets: "loss" (S, F), "gain_error" (S, F), the standard error of the difference to
    the loss of set 0 on the same rows, and "rows" (S,). All are 0 where a site has not answered or has a single row.
    """
    recipe = OwnTraining(folds, epochs, learning_rate, batch_size, decay, momentum)
    aggregator = side_by_side()

    def init(params: Params, sites: int) -> Tree:
        table = jnp.zeros((sites, jnp.shape(params["keep"])[0]))
        return {**params, "loss": table, "gain_error": trees.copy(table), "rows": jnp.zeros(sites)}

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        params: Params = message.arrays["params"]
        keep: Array = message.arrays["keep"]

        def train(seen: Array) -> Params:
            def gradient(own: Params, batch: Batch, step_key: Key) -> Params:
                return model.gradient(own, mask_inputs(batch, seen), step_key)

            return fold_models(gradient, params, shard, key, recipe)

        models = jax.vmap(train)(keep)

        def body(index: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            batch = shard.batch(0, index, CHUNK)

            def one(own: Params, seen: Array) -> Array:
                return held_out_losses(model, own, mask_inputs(batch, seen), index, folds)

            each = jax.vmap(one)(models, keep)
            apart = each - each[0]
            new = (jnp.sum(each, axis=1), jnp.sum(apart, axis=1), jnp.sum(jnp.square(apart), axis=1))
            return trees.add(sums, new)

        nothing = jnp.zeros(jnp.shape(keep)[0])
        sums = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, (nothing, nothing, nothing))
        rows = jnp.asarray(shard.rows).astype(jnp.float32)
        loss, apart, squares = trees.divide_or_zero(sums, rows)
        found = {"loss": loss, "gain_error": standard_error(apart, squares, rows)}
        # A single row cannot be held out and learned from: such a site has nothing to say.
        said = answer(model, aggregator, params, shard, "samples", found)
        return trees.choose(shard.rows > 1, said, trees.zeros(said)), kept

    def server(state: Tree, stack: Message) -> Tree:
        rows, site = stack.arrays["weight"], stack.arrays["site"]
        arrays = {name: stack.arrays[name] for name in ("loss", "gain_error")}
        found = {**jax.vmap(trees.divide_or_zero)(arrays, rows), "rows": rows}
        return {**state, **{name: state[name].at[site].set(value, mode="drop") for name, value in found.items()}}

    return Algorithm(
        init=init,
        init_client=lambda params: (),
        broadcast=lambda state: Message({"params": state["params"], "keep": state["keep"]}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: {"params": state["params"], "keep": state["keep"]},
        predict=lambda params, x: model.predict(params["params"], x),
        largest_batch=recipe.largest_batch,
    )


def mask_inputs(batch: Batch, seen: Array) -> Batch:
    """The batch with 0 in every input that is not seen."""
    return batch._replace(x=batch.x * seen)


class Plan(NamedTuple):
    """What `feature_gains` is to try for one site: what it records (row 0), and that with one column more."""

    keep: Numbers
    """(1 + most columns that any site lacks, inputs) of 0 and 1: one shape, so one program, for every site."""
    further: tuple[str, ...]
    """The columns added in rows 1, 2, ...; what follows repeats row 0."""


def columns_of(features: Sequence[str]) -> tuple[str, ...]:
    """The raw columns behind prepared inputs, where nothing but the inputs' names is known.

    >>> columns_of(("age", "age missing", "fever=no", "fever=yes"))
    ('age', 'fever')
    """
    names = dict.fromkeys(name.split("=", 1)[0] for name in features)
    return tuple(name for name in names if not (name.endswith(" missing") and name.removesuffix(" missing") in names))


def inputs_of(features: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """For each raw column, the places of the inputs that were made of it.

    >>> inputs_of(("age", "age missing", "fever=no", "fever=yes"), ("age", "fever"))
    {'age': (0, 1), 'fever': (2, 3)}
    """
    found: dict[str, list[int]] = {column: [] for column in columns}
    for place, feature in enumerate(features):
        # A category may hold any sign, so the longest column that fits is meant.
        fits = [c for c in columns if feature in (c, f"{c} missing") or feature.startswith(f"{c}=")]
        if not fits:
            raise Refusal(
                f"the input {feature!r} belongs to none of the columns", remedy="name every column that was prepared"
            )
        found[feature if feature in found else max(fits, key=len)].append(place)
    return {column: tuple(places) for column, places in found.items()}


def plan_trials(features: Sequence[str], columns: Sequence[str], recorded: Numbers, site: int) -> Plan:
    """What to try for a site that lacks columns which others record; `recorded` has a row a site, a place a column."""
    has = check_recorded(recorded, columns)
    groups = inputs_of(features, columns)
    lacking = ~has & has.any(axis=0)
    further = tuple(column for column, lacks in zip(columns, lacking[site], strict=True) if lacks)
    keep = np.zeros((1 + int(lacking.sum(axis=1).max(initial=0)), len(features)), np.float32)
    for column, there in zip(columns, has[site], strict=True):
        keep[:, list(groups[column])] = there
    for row, column in enumerate(further, start=1):
        keep[row, list(groups[column])] = 1.0
    return Plan(keep, further)


def check_recorded(recorded: Numbers, columns: Sequence[str]) -> Numbers:
    has = np.asarray(recorded, bool)
    if has.ndim != 2 or has.shape[1] != len(columns):
        raise Refusal(
            f"the table of recorded columns has {has.shape[-1] if has.ndim else 0} columns, but {len(columns)} were "
            "prepared",
            remedy="ask recorded_columns about exactly the columns that were prepared",
        )
    return has


def pool_gains(gain: Numbers, error: Numbers, rows: Numbers, alike: Numbers) -> tuple[float, float]:
    """The mean of the sites' gains and its standard error."""
    patient = float(np.average(error**2 * rows, weights=rows))
    total = rows.sum()
    beyond = total - (rows**2).sum() / total
    spread = (rows * (gain - np.average(gain, weights=rows)) ** 2).sum()
    by_chance = (rows * error**2).sum() - (rows**2 * error**2).sum() / total
    between = max(0.0, float((spread - by_chance) / beyond)) if beyond > 0 else 0.0
    scale = patient + between * rows
    weight = alike * np.divide(rows, scale, out=np.array(rows, np.float64), where=scale > 0)
    weight /= weight.sum()
    return float(weight @ gain), float(np.sqrt(weight**2 @ (error**2 + between)))
