"""Federated dropout: every site trains a smaller model, cut out of the common one; the server puts the parts together.

Caldas, Konecny, McMahan, Talwalkar, "Expanding the Reach of Federated Learning by Reducing Client Resource
Requirements", 2018: a fixed number of units (or filters) of every layer, drawn anew for every site and round; the
inputs of the next layer shrink with them, the model's own inputs and outputs stay. `selection = "ordered"` takes the
first units of each layer, as in FjORD (Horvath et al., NeurIPS 2021); `"rolling"` takes a window that moves on by one
unit a round, as in FedRolex (Alam et al., NeurIPS 2022).

`width` is the share of units that a site is sent; `widths` says it for single sites, by their names, such as one whose
computer is slow. `merge = "holders"` averages each number over the sites that held it; `"zeros"` over all of them, as
if the others had learned nothing there. Width 1 is FedAvg. With `rescale` a layer that comes behind n of N units takes
what they send N / n times (as dropout does, Srivastava et al., JMLR 2014), so that a part computes about what the whole
would, and the whole what its parts have learned to; updates are added as they are. The papers' parts are not rescaled.
`rescale_to = "sums"` keeps a sum's mean so; `"spread"` takes the root of N / n, which keeps its square: with weights of
both signs, as a deep network begins with, the first makes a part louder than the whole, layer after layer.

Sends, trains and holds about width² of a dense model's numbers. A site never sees the whole model in a round; to judge
or use it, it is sent whole. Where all sites hold the same units (rolling or ordered with one width) it works under a
secure sum; else the server has to see single answers. A model trained narrow needs more rounds.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights
from wardround.core.bounds import Bound, BySite, Count, CountOrAll, Momentum, Positive, refuse_more_sites
from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Model, Params, Tailoring, Tree
from wardround.core.errors import Refusal
from wardround.core.sub_models import cut_out, held, mean_of_holders, put_in, scale_inputs, unit_counts

LABEL = "Common model (dropout)"

Width = Annotated[float, Bound(low=0, high=1, open_low=True)]
Selection = Literal["random", "ordered", "rolling"]
POWERS = {"sums": 1.0, "spread": 0.5}
"""Of N / n."""


def federated_dropout(
    model: Model,
    aggregator: Aggregator,
    *,
    width: Width = 0.75,
    widths: BySite = (),
    selection: Selection = "random",
    merge: Literal["holders", "zeros"] = "holders",
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
    server_learning_rate: Positive = 1.0,
    rescale: bool = False,
    rescale_to: Literal["sums", "spread"] = "sums",
) -> Algorithm:
    """FedAvg on sub-models: each site trains a share (width) of every layer's units, drawn anew in every round."""
    plain = fed_avg(
        model,
        aggregator,
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        momentum=momentum,
        weights=weights,
    )
    units = model.units
    counts = unit_counts(units, jax.eval_shape(model.init, jax.random.key(0))) if units else {}
    kinds = tuple(sorted({width, *(own for own in widths if own)}))
    refuse_unfit(counts, kinds, aggregator)
    sizes = [{layer: units_kept(count, share) for layer, count in counts.items()} for share in kinds]
    kind_at = np.array([kinds.index(own or width) for own in widths], np.int64)

    def choose(turn: Array, kind: int, key: Key | None) -> Mapping[str, Array]:
        return {
            layer: choose_units(selection, count, sizes[kind][layer], turn, key, place)
            for place, (layer, count) in enumerate(sorted(counts.items()))
        }

    def part_of(params: Params, kept: Mapping[str, Array]) -> Params:
        part = cut_out(units, params, kept)
        return scale_inputs(units, part, counts, kept, POWERS[rescale_to]) if rescale else part

    def widen(answer: Message, whole: Params, kept: Mapping[str, Array]) -> Message:
        """The answer with its update among zeros, and with how much it counts where."""
        arrays = {**answer.arrays, "update": put_in(units, whole, answer.arrays["update"], kept)}
        if merge == "holders":
            arrays["held"] = held(units, whole, kept, answer.arrays["weight"])
        return Message(arrays, answer.meta)

    def kind_of(sites: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if not widths:
            return np.full(np.shape(sites), kinds.index(width))
        refuse_more_sites("widths", len(widths), int(np.max(sites, initial=0)) + 1, "algorithm federated_dropout")
        return kind_at[sites]

    def cut(said: Message, kind: int, site: Array, key: Key) -> Message:
        rest = {name: tree for name, tree in said.arrays.items() if name not in ("params", "turn")}
        kept = choose(said.arrays["turn"], kind, key)
        return Message({**rest, "params": part_of(said.arrays["params"], kept)}, said.meta)

    def fit(said: Message, answer: Message, kind: int, site: Array, key: Key) -> Message:
        return widen(answer, said.arrays["params"], choose(said.arrays["turn"], kind, key))

    def step(state: Tree, update: Params) -> Tree:
        params = trees.add(state["params"], trees.scale(update, server_learning_rate))
        return {"params": params, "turn": state["turn"] + 1}

    def server(state: Tree, combined: Message) -> Tree:
        update = combined.arrays["update"]
        return step(state, mean_of_holders(units, update, combined.arrays["held"]) if merge == "holders" else update)

    def init(params: Params, sites: int) -> Tree:
        return {"params": params, "turn": jnp.zeros((), jnp.int32)}

    own = plain._replace(init=init, params=lambda state: state["params"])
    if selection == "random" or len(kinds) > 1:
        tailoring = Tailoring(len(kinds), kind_of, cut, fit)
        return own._replace(broadcast=lambda state: Message(dict(state)), server=server, tailoring=tailoring)

    # All sites hold the same units: one message for all, and the sum of the answers is all the server needs.
    def broadcast(state: Tree) -> Message:
        return Message({"params": part_of(state["params"], choose(state["turn"], 0, None))})

    def server_of_all(state: Tree, combined: Message) -> Tree:
        return step(state, put_in(units, state["params"], combined.arrays["update"], choose(state["turn"], 0, None)))

    return own._replace(broadcast=broadcast, server=server_of_all)


def units_kept(count: int, width: float) -> int:
    """The share of a layer's units, to the nearest whole number."""
    return int(np.floor(width * count + 0.5))


def choose_units(selection: Selection, count: int, kept: int, turn: Array, key: Key | None, place: int) -> Array:
    """The numbers of the units of one layer that a sub-model has."""
    if kept == count or selection == "ordered":
        return jnp.arange(kept)
    if selection == "rolling":
        return (turn % count + jnp.arange(kept)) % count
    assert key is not None
    # One sort of random bits: a permutation would sort them several times.
    drawn = jnp.argsort(jax.random.bits(jax.random.fold_in(key, place), (count,)))
    return jnp.sort(drawn[:kept])


def refuse_unfit(counts: Mapping[str, int], kinds: tuple[float, ...], aggregator: Aggregator) -> None:
    """Refuse models without layers to narrow, widths that leave nothing of one, and aggregators that do not add."""
    where = "algorithm federated_dropout"
    if not counts:
        raise Refusal(
            "the model has no hidden units that could be left out",
            where=where,
            remedy="take the model mlp, cnn, all_conv or lstm, or the algorithm fed_avg",
        )
    if any(not 0 < share <= 1 for share in kinds):
        told = f"widths must be greater than 0 and at most 1, not {list(kinds)}"
        raise Refusal(told, where=where, remedy="give a share of the units, such as 0.5")
    for layer, count in sorted(counts.items()):
        if not units_kept(count, kinds[0]):
            raise Refusal(
                f"a width of {kinds[0]:g} leaves none of the {count} units of the layer {layer}",
                where=where,
                remedy=f"choose a width of at least {1 / count:.2g}, or a model with more units",
            )
    if not aggregator.is_plain_sum:
        raise Refusal(
            "sub-models are averaged entry by entry over those who held it, which this aggregator cannot do",
            where=where,
            remedy="choose the aggregator weighted_mean",
        )
