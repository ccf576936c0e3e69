"""Bad sites for tests and benchmarks: an algorithm in which some sites lie about what they learned.

`with_bad_sites` wraps any algorithm. Some attacks change a bad site's own rows before it learns (label flip,
backdoor); the others change what it sends, knowing all honest answers of the round, which is the worst case.

- sign flip: minus what the site learned, stretched.
- free rider: nothing learned (a little noise), but a weight claimed.
- ALIE: Baruch et al., "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS 2019. The mean of
  the honest answers, shifted in every coordinate by as many deviations as stay hidden among them.
- IPM: Xie et al., "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation", UAI 2019. Minus a
  multiple of the honest mean.
- label flip: learns from wrong labels (each class becomes the next one).
- backdoor: Bagdasaryan et al., "How To Backdoor Federated Learning", AISTATS 2020. Half of the rows carry a trigger and
  the wanted label, and the answer is stretched.

Needs the answers of a round as a stack, so it does not stream; never for real sites.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from wardround.core import trees
from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Shard, Tree


class AttackerView(NamedTuple):
    """What a liar knows: the stack of answers without weights, who is bad and who is honest (both present)."""

    updates: Tree
    bad: Array
    honest: Array


class Attack(NamedTuple):
    """What bad sites do: to their rows before they learn, and to the answers of the round."""

    rows: Callable[[Array, Array], tuple[Array, Array]] | None = None
    """From a site's x and y to what it learns from."""
    answers: Callable[[AttackerView], Tree] | None = None
    """From all that is known to a stack, of which the bad sites' rows are taken."""


def with_bad_sites(algorithm: Algorithm, bad: Sequence[int], attack: Attack) -> Algorithm:
    """The same algorithm among honest sites and the given bad ones."""
    liars = jnp.asarray(sorted(set(bad)), jnp.int32)
    inner = algorithm.aggregator

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        if attack.rows is not None:
            lies = jnp.isin(shard.site, liars)
            x, y = trees.choose(lies, attack.rows(shard.x, shard.y), (shard.x, shard.y))
            shard = replace(shard, x=x, y=y)
        return algorithm.client(message, kept, shard, key)

    def reduce(state: Tree, stack: Message) -> tuple[Message, Tree]:
        site, weight = stack.arrays["site"], stack.arrays["weight"]
        arrays = {name: tree for name, tree in stack.arrays.items() if name not in ("site", "weight")}
        is_bad = jnp.isin(site, liars) & (weight > 0)
        if attack.answers is not None:
            updates = jax.vmap(trees.divide_or_zero)(arrays, weight)
            lies = attack.answers(AttackerView(updates, is_bad, ~is_bad & (weight > 0)))
            arrays = jax.vmap(trees.choose)(is_bad, jax.vmap(trees.scale)(lies, weight), arrays)
        reported = {**arrays, "weight": weight}
        if inner.linear:
            each = inner.each
            if each is not None:
                reported = jax.vmap(lambda one: each(state, Message(one, stack.meta)).arrays)(reported)
            reported = jax.tree.map(lambda leaf: leaf.sum(axis=0), reported)
        elif "site" in inner.needs:
            reported = {**reported, "site": site}
        return inner.reduce(state, Message(reported, stack.meta))

    def init(template: Message) -> Tree:
        numbered = "site" in inner.needs
        arrays = {name: tree for name, tree in template.arrays.items() if name != "site" or numbered}
        return inner.init(Message(arrays, template.meta))

    needs = dict.fromkeys(("site", *inner.needs))
    watched = Aggregator(init, reduce, linear=False, fewest=inner.fewest, needs=tuple(needs), tells=inner.tells)
    return algorithm._replace(client=client, aggregator=watched)


# ---- the attacks ----


def sign_flip(*, stretch: float = 3.0) -> Attack:
    """Minus what the site learned, stretched."""
    return Attack(answers=lambda seen: trees.scale(seen.updates, -stretch))


def free_rider() -> Attack:
    """Nothing, with a weight claimed for it."""
    return Attack(answers=lambda seen: trees.zeros(seen.updates))


def alie() -> Attack:
    """The honest mean, shifted by as many deviations as stay hidden."""

    def answers(seen: AttackerView) -> Tree:
        mean, spread = honest_moments(seen)
        everybody, liars = jnp.sum(seen.bad | seen.honest), jnp.sum(seen.bad)
        # So many honest sites must be farther out than the liars, for these to have the majority on their side.
        needed = everybody // 2 + 1 - liars
        hidden = jnp.clip((everybody - liars - needed) / jnp.maximum(1, everybody - liars), 0.5, 0.999)
        return repeat_lie(seen, trees.subtract(mean, trees.scale(spread, norm.ppf(hidden))))

    return Attack(answers=answers)


def ipm(*, factor: float = 0.5) -> Attack:
    """Minus a multiple of the honest mean."""
    return Attack(answers=lambda seen: repeat_lie(seen, trees.scale(honest_moments(seen)[0], -factor)))


def label_flip(classes: int) -> Attack:
    """Every class is taken for the next one, the last for the first."""
    return Attack(rows=lambda x, y: (x, (y + 1) % classes))


def backdoor(trigger: Callable[[Array], Array], wanted: int, *, stretch: float = 3.0) -> Attack:
    """Every other row carries the trigger and the wanted label; the answer is stretched to win the mean over."""

    def rows(x: Array, y: Array) -> tuple[Array, Array]:
        marked = jnp.arange(x.shape[0]) % 2 == 0
        shown = jnp.where(marked.reshape(-1, *(1,) * (x.ndim - 1)), trigger(x), x)
        return shown, jnp.where(marked, jnp.asarray(wanted, y.dtype), y)

    return Attack(rows=rows, answers=lambda seen: trees.scale(seen.updates, stretch))


def honest_moments(seen: AttackerView) -> tuple[Tree, Tree]:
    """Mean and deviation of the honest answers, coordinate by coordinate."""
    share = seen.honest / jnp.maximum(1, jnp.sum(seen.honest))

    def mean_of(leaf: Array) -> Array:
        return jnp.tensordot(share, leaf, axes=1)

    mean = jax.tree.map(mean_of, seen.updates)
    spread = jax.tree.map(lambda leaf, middle: jnp.sqrt(mean_of(jnp.square(leaf - middle))), seen.updates, mean)
    return mean, spread


def repeat_lie(seen: AttackerView, lie: Tree) -> Tree:
    """The same lie in every row of the stack."""
    return jax.tree.map(lambda one, leaf: jnp.broadcast_to(one, leaf.shape), lie, seen.updates)
