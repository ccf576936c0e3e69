"""Data interpolation: one model for the asking site, from its own patients and everybody else's in a chosen proportion.

Mansour et al., "Three Approaches for Personalization with Applications to Federated Learning", 2020, section 4
(DAPPER): minimise share * own loss + (1 - share) * loss on the common data. There the site draws rows of the common
data; here no row may travel, so the sites' updates are mixed instead, `own_share` for the asking site and the rest
among the others by their patients. With one step over all rows a round (batch_size 0, one epoch) that is gradient
descent on this very sum; more local steps save rounds and drift as FedAvg does. own_share = 1 is training alone; the
asking site's share of all patients is FedAvg. In the paper the common data include the own rows, so its lambda is
own_share = lambda + (1 - lambda) * own patients / all patients here. Costs FedAvg's traffic for a model that serves one
site; the server sees each answer by itself. A round without the asking site moves nothing, since the proportion would
be another.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights, side_by_side
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive, Share
from wardround.core.contracts import Algorithm, Array, Message, Model, Params, Tree
from wardround.core.errors import Refusal

LABEL = "Own and others' patients in proportion"


def data_interpolation(
    model: Model,
    *,
    user: int = 0,
    own_share: Share = 0.5,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """One model for the asking site: its patients count own_share, all others' the rest (1: it trains alone)."""
    plain = fed_avg(
        model,
        side_by_side(),
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        momentum=momentum,
        weights=weights,
    )

    def server(state: Tree, stack: Message) -> Tree:
        weight, site = stack.arrays["weight"], stack.arrays["site"]
        own = (site == user).astype(jnp.float32)
        asked = jnp.any(site == user)
        mine, theirs = jnp.sum(weight * own), jnp.sum(weight * (1 - own))
        # Where the asking site has no rows, or nobody else is there, the others or it alone count in full.
        share = jnp.where(mine == 0, 0.0, jnp.where(theirs == 0, 1.0, own_share))
        # Updates come multiplied by their weight: what is left is to divide by the sum of their side's weights.
        factor = own * trees.divide_or_zero(share, mine) + (1 - own) * trees.divide_or_zero(1 - share, theirs)
        step = jax.tree.map(lambda u: jnp.tensordot(factor, u, axes=(0, 0)), stack.arrays["update"])
        return {
            "params": trees.choose(asked, trees.add(state["params"], step), state["params"]),
            "common_share": jnp.where(asked, trees.divide_or_zero(mine, mine + theirs), state["common_share"]),
        }

    def tells(state: Tree) -> Mapping[str, Array]:
        """How much the asking site counts here, and how much it would in the common model."""
        return {"own_share": jnp.float32(own_share), "own_share_in_common_model": state["common_share"]}

    def init(params: Params, sites: int) -> Tree:
        if not 0 <= user < sites:
            raise Refusal(
                f"there is no site number {user} to train for",
                where="user",
                remedy=f"give a number from 0 to {sites - 1}, or the site's name as user in [study]",
            )
        return {"params": params, "common_share": jnp.zeros(())}

    return plain._replace(
        init=init,
        broadcast=lambda state: Message({"params": state["params"]}),
        server=server,
        params=lambda state: state["params"],
        tells=tells,
    )
