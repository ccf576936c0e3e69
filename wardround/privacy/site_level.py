"""Privacy of whole sites: no one can tell from the model whether a site took part at all.

McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018: what a site sends is cut to the
length `clip`, every site counts the same, and the sum gets Gaussian noise of standard deviation noise_multiplier *
clip. Each of at least `sites` sites adds its share of that noise before anything leaves, so nobody needs to be trusted
with a sum without noise; who sees single answers (no secure sum) sees them under that share only.

The length can adapt: Andrew et al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021. Sites tell,
under noise, whether their answer was shorter than the length C, and the server moves C towards a quantile of the
lengths: C <- C exp(-rate (b - quantile)), b the share that was shorter. The noise of this count and that of the
updates together cost what one noise with noise_multiplier costs. `first_rate` above `rate` begins with larger moves,
for a start that may be far off: the rate falls by a tenth a round until it is `rate`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp

from wardround.core import trees
from wardround.core.chain import drop_array
from wardround.core.contracts import OWED, Algorithm, Array, Key, Message, Params, Shard, Tree
from wardround.core.errors import Refusal
from wardround.privacy.integer_noise import TOGETHER, noise_promise
from wardround.privacy.noise import noise_like, secret_words

SLOWS = 0.9
LEAST, MOST = 1e-6, 1e6
"""How far a length may come to be from the approved one, as a multiple of it."""
CLIP, BELOW = "privacy/clip", "privacy/below"


class AdaptiveClip(NamedTuple):
    """How the length adapts."""

    quantile: float = 0.5
    rate: float = 0.2
    first_rate: float = 0.2
    count_share: float = 0.1
    """How much of the privacy spent goes into the count."""

    def noise_multipliers(self, noise_multiplier: float) -> tuple[float, float]:
        """The noise multipliers of update and count, as large as they must be to cost together what one would.

        Independent Gaussian sums cost as one whose squared inverse multiplier is the sum of theirs.
        """
        return noise_multiplier / (1 - self.count_share) ** 0.5, noise_multiplier / self.count_share**0.5

    def next_clip(self, clip: Array, below: Array, number: Array) -> Array:
        """The next length, after a round in which so large a share of the answers was shorter."""
        rate = jnp.maximum(self.rate, self.first_rate * SLOWS**number)
        # Noise can push the share past its ends; there it says no more than the end does.
        return clip * jnp.exp(-rate * (jnp.clip(below, 0.0, 1.0) - self.quantile))


def within_reach(length: Array, approved: float) -> Array:
    """A length that came in a message, near enough to the approved one: noise of a tiny one would be rounded to 0."""
    known = jnp.where(jnp.isnan(length), approved, length)
    return jnp.clip(known, approved * LEAST, approved * MOST).astype(jnp.float32)


def site_level(
    algorithm: Algorithm,
    *,
    noise_multiplier: float,
    clip: float,
    sites: int,
    seeded: bool,
    adapting: AdaptiveClip | None = None,
    whole: bool = False,
) -> Algorithm:
    """The algorithm whose sites answer in bounded length and under noise; all must count the same (weight 1).

    Where answers become `whole` numbers, the noise is left to whoever makes them so: it is noted in the answer.
    """
    if not algorithm.aggregator.is_plain_sum:
        raise Refusal(
            "the noise of site-level privacy is that of a sum, and this aggregator must see single answers",
            where="[privacy] level",
            remedy="choose the aggregator weighted_mean and an algorithm that uses it",
        )
    if algorithm.tailoring is not None:
        raise Refusal(
            "the noise of site-level privacy is shared out over all sites, and each trains a part of the model of its "
            "own: what few of them hold would have too little of it",
            where="[privacy] level",
            remedy='let all sites train the same part (selection = "rolling", one width), or take level = "sample"',
        )
    update_noise, count_noise = (
        (noise_multiplier, 0.0) if adapting is None else adapting.noise_multipliers(noise_multiplier)
    )

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        bound = jnp.float32(clip) if adapting is None else within_reach(message.arrays[CLIP], clip)
        answer, keeps = algorithm.client(drop_array(message, CLIP), kept, shard, key)
        released = {name: tree for name, tree in answer.arrays.items() if name != "weight"}
        length = jnp.sqrt(trees.squared_norm(released))
        # An answer that is not finite, or whose length is not, counts as zero: that it is not must not show.
        released = trees.choose(jnp.isfinite(length), released, trees.zeros(released))
        released = trees.scale(released, jnp.where(jnp.isfinite(length), bound / jnp.maximum(length, bound), 0.0))
        if adapting is not None:
            # Half less, so that one site changes the sum by a half at most.
            released[BELOW] = (length <= bound).astype(jnp.float32) - 0.5
        if noise_multiplier and whole:
            owed: Tree = {
                "words": secret_words(key, seeded=seeded),
                TOGETHER: noise_promise(bound, update_noise / sites**0.5),
            }
            if adapting is not None:
                owed[BELOW] = noise_promise(0.5, count_noise / sites**0.5)
            released[OWED] = owed
        elif noise_multiplier:
            noise = noise_like(released, secret_words(key, seeded=seeded), jnp.zeros(3, jnp.uint32))
            scales = dict.fromkeys(released, update_noise * bound / sites**0.5)
            if adapting is not None:
                scales[BELOW] = jnp.float32(count_noise * 0.5 / sites**0.5)
            released = {
                name: trees.add(tree, trees.scale(noise[name], scales[name])) for name, tree in released.items()
            }
        if not whole:
            released = trees.finite_or_zero(released)
        return Message({**released, "weight": answer.arrays["weight"]}, answer.meta), trees.finite_or_zero(keeps)

    if adapting is None:
        return algorithm._replace(client=client)
    adaptive: AdaptiveClip = adapting

    def init(params: Params, count: int) -> Tree:
        start = {"clip": jnp.float32(clip), "below": jnp.float32(adaptive.quantile), "round": jnp.float32(0)}
        return {"inner": algorithm.init(params, count), **start}

    def broadcast(state: Tree) -> Message:
        message = algorithm.broadcast(state["inner"])
        return Message({**message.arrays, CLIP: state["clip"]}, message.meta)

    def server(state: Tree, combined: Message) -> Tree:
        heard = combined.arrays["weight"] > 0
        below = combined.arrays[BELOW] + 0.5
        after = {
            "inner": algorithm.server(state["inner"], drop_array(combined, BELOW)),
            "clip": within_reach(adaptive.next_clip(state["clip"], below, state["round"]), clip),
            "below": below,
            "round": state["round"] + 1,
        }
        return {**trees.choose(heard, after, {**state, "inner": after["inner"]})}

    def tells(state: Tree) -> Mapping[str, Array]:
        inner = algorithm.tells(state["inner"]) if algorithm.tells else {}
        return {**inner, "clip": state["clip"], "below_clip": state["below"]}

    personal = algorithm.personal
    if personal is not None:
        fit = personal.fit
        personal = personal._replace(fit=lambda message, *rest: fit(drop_array(message, CLIP), *rest))
    return algorithm._replace(
        init=init,
        broadcast=broadcast,
        client=client,
        server=server,
        params=lambda state: algorithm.params(state["inner"]),
        personal=personal,
        tells=tells,
    )
