"""Meta-learning: a common model made not to be good as it is, but to become good after a few steps at a site.

`maml` and `maml_first_order`: Fallah et al., "Personalized Federated Learning: A Meta-Learning Approach" (Per-FedAvg),
NeurIPS 2020, after Finn et al. 2017. Sites step along the gradient of f(w - a grad f(w; D); D'), a the inner rate, D
and D' two batches drawn from two shuffles of the rows: (I - a H(w; D)) grad f(w - a grad f(w; D); D'). First order
leaves the Hessian H out. The paper draws a third batch for H; here H is that of D: the gradient of one function.
`reptile`: Nichol et al., "On First-Order Meta-Learning Algorithms", 2018: the common model moves by outer_learning_rate
times the mean of how far the sites' inner steps led.

Traffic as FedAvg's. A step of first order costs two gradients, one of `maml` about four and a model that can be
differentiated twice (no PyTorch module). The site's own model is the common one after personal_epochs passes of inner
steps over its rows; with inner_batch_size 0 that is one step over all rows, which is what `maml` learns for.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Positive
from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import CHUNK, batches, descend, full_gradient, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Personal model (meta-learning)"


def meta(
    model: Model,
    aggregator: Aggregator,
    *,
    kind: Literal["maml_first_order", "maml", "reptile"] = "maml_first_order",
    inner_learning_rate: Positive = 0.05,
    inner_batch_size: CountOrAll = 32,
    outer_learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    personal_epochs: Count = 1,
    weights: Weights = "samples",
) -> Algorithm:
    """A common model that a few steps at a site make personal: MAML (full or first order) or Reptile."""
    inner_optimizer = local_optimizer(inner_learning_rate, 0.0)
    inner_size = inner_batch_size or None

    def slope_at(params: Params, shard: Shard, visit: Array | int, index: Array | int, size: int, key: Key) -> Params:
        """The gradient on one batch of the site, or on all its rows; a short site begins its batches anew."""
        if not size:
            return full_gradient(model.gradient, params, shard, key)
        return model.gradient(params, shard.batch(visit, index % jnp.maximum(1, batches(shard.rows, size)), size), key)

    def outer_gradient(params: Params, shard: Shard, visit: Array | int, index: Array | int, key: Key) -> Params:
        inner_key, outer_key = jax.random.split(key)

        def inner(at: Params) -> Params:
            return slope_at(at, shard, 2 * visit, index, inner_batch_size, inner_key)

        ahead = trees.subtract(params, trees.scale(inner(params), inner_learning_rate))
        slope = slope_at(ahead, shard, 2 * visit + 1, index, batch_size, outer_key)
        if kind == "maml_first_order":
            return slope
        # The Hessian is symmetric, so the derivative of the gradient along `slope` is the Hessian times `slope`.
        try:
            bend = jax.jvp(inner, (params,), (slope,))[1]
        except ValueError as error:
            raise Refusal(
                "this model cannot be differentiated twice, which full MAML needs",
                where="algorithm meta",
                remedy="choose kind = 'maml_first_order' or 'reptile', or bring the model as a Flax module",
            ) from error
        corrected: Params = trees.subtract(slope, trees.scale(bend, inner_learning_rate))
        return corrected

    def outer_steps(common: Params, shard: Shard, key: Key) -> Params:
        """The common model after one outer step a batch, `local_epochs` times through the rows."""
        per_pass = batches(shard.longest, batch_size) if batch_size else 1
        own_steps = batches(shard.rows, batch_size) if batch_size else 1

        def step(visit: Array | int, index: Array | int, params: Params) -> Params:
            slope = outer_gradient(params, shard, visit, index, jax.random.fold_in(key, visit * own_steps + index))
            moved = trees.subtract(params, trees.scale(slope, outer_learning_rate))
            # Steps past the end of the site: it was batched with a longer one.
            stepped: Params = trees.choose(index < jnp.minimum(own_steps, shard.rows), moved, params)
            return stepped

        def one_pass(visit: Array | int, params: Params) -> Params:
            after: Params = jax.lax.fori_loop(0, per_pass, partial(step, visit), params)
            return after

        result: Params = jax.lax.fori_loop(0, local_epochs, one_pass, common)
        return result

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        own = outer_steps(common, shard, key)
        return answer(model, aggregator, common, shard, weights, {"update": trees.subtract(own, common)}), kept

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        common: Params = message.arrays["params"]
        return descend(
            model.gradient, inner_optimizer, common, shard, key, batch_size=inner_size, passes=personal_epochs
        )

    plain = fed_avg(
        model,
        aggregator,
        learning_rate=inner_learning_rate,
        local_epochs=local_epochs,
        batch_size=inner_batch_size,
        weights=weights,
        server_learning_rate=outer_learning_rate if kind == "reptile" else 1.0,
    )._replace(largest_batch=max(batch_size, inner_batch_size, CHUNK), personal=Personal(fit, personal_epochs))
    return plain if kind == "reptile" else plain._replace(client=client, passes=2 * local_epochs)
