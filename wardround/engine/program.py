"""The compiled round: sites batched in lanes, blocks of lanes in a scan, devices side by side.

On one device whole rounds, server step included, run in one program, several rounds a call. On more, each device sums
the answers of its own sites and the sums are added afterwards on the first device: a collective inside the round
would make an idle device wait for a busy one.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from wardround.core import trees
from wardround.core.contracts import Algorithm, Array, Key, Message, Progress, Shard, Transform, Tree
from wardround.engine.devices import AXIS, mesh
from wardround.engine.layout import Seating

PARALLEL = PartitionSpec(AXIS)
WHOLE = PartitionSpec()


class Data(NamedTuple):
    """Rows as the round sees them: flat, shared by all sites of a device."""

    x: Array
    y: Array


def over_lanes(one: Callable[..., Any], lanes: int) -> Callable[..., Any]:
    """`one` for every lane; a single lane is not batched at all, which large models thank with a third of the time."""
    if lanes > 1:
        return jax.vmap(one)

    def alone(*arguments: Tree) -> Tree:
        result = one(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: a[None], result)

    return alone


def sites_of_a_device(
    algorithm: Algorithm,
    transform: Transform,
    message: Message,
    states: tuple[Tree, Tree],
    key: Key,
    data: Data,
    seating: Seating,
    kept: Tree,
) -> tuple[Message, Tree, Array]:
    """Train the blocks of one device; give the sum (or stack) of their answers, what they keep, and who went astray."""
    aggregator = algorithm.aggregator
    aggregator_state, transform_state = states

    def block(total: Message | None, inputs: tuple[Any, ...]) -> tuple[Message | None, tuple[Any, ...]]:
        first, rows, site, longest, kept = inputs

        def one(first: Array, rows: Array, site: Array, kept: Tree) -> tuple[Message, Tree, Array]:
            shard = Shard(data.x, data.y, seating.order, first, rows, longest, site)
            own_key = jax.random.fold_in(key, site)
            received = transform.receive(message)
            answer, keeps = algorithm.client(received, kept, shard, own_key)
            answer = transform.up(message, answer, jax.random.fold_in(own_key, 1))
            finite = trees.all_finite(answer) & trees.all_finite(keeps)
            if not transform.sum_only:
                answer = transform.release(transform_state, answer)
            if aggregator.each is not None:
                answer = aggregator.each(aggregator_state, answer)
            present = rows > 0
            # An empty site, or an empty seat, says and keeps nothing, whatever its arithmetic gave.
            return (
                trees.choose(present, answer, trees.zeros(answer)),
                trees.choose(present, keeps, kept),
                finite | ~present,
            )

        answers, keeps, finite = over_lanes(one, first.shape[0])(first, rows, site, kept)
        if total is None:
            return None, (answers, keeps, finite)
        return trees.add(total, jax.tree.map(lambda a: a.sum(axis=0), answers)), (None, keeps, finite)

    inputs = (seating.first, seating.rows, seating.site, seating.longest, kept)
    if aggregator.linear:
        shapes = jax.eval_shape(lambda: block(None, jax.tree.map(lambda a: a[0], inputs))[1][0])
        start = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), shapes)
        total, (_, keeps, finite) = jax.lax.scan(block, start, inputs)
    else:
        _, (answers, keeps, finite) = jax.lax.scan(block, None, inputs)
        total = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), answers)
    return total, keeps, finite


def outgoing(algorithm: Algorithm, transform: Transform, progress: Progress, key: Key) -> Message:
    """What the server sends in this round."""
    return transform.down(progress.transform, algorithm.broadcast(progress.server), jax.random.fold_in(key, 2**31 - 1))


def conclude(algorithm: Algorithm, transform: Transform, progress: Progress, total: Message) -> Progress:
    """The server's step: from the sum (or stack) of the answers to the next state."""
    if transform.sum_only:
        total = transform.release(progress.transform, total)
    combined, aggregator_state = algorithm.aggregator.reduce(progress.aggregator, total)
    server = algorithm.server(progress.server, combined)
    return replace(progress, server=server, aggregator=aggregator_state)


def look_up(clients: Tree, site: Array) -> Tree:
    """What the seated sites keep; an empty seat gets some site's, and nothing it does with it is stored."""
    return jax.tree.map(lambda table: table.at[site].get(mode="clip"), clients)


def put_back(clients: Tree, site: Array, kept: Tree) -> Tree:
    return jax.tree.map(lambda table, value: table.at[site].set(value, mode="drop"), clients, kept)


def round_key(seed: int | Array, number: int | Array) -> Key:
    return jax.random.fold_in(jax.random.key(seed), number)


@lru_cache(maxsize=64)
def on_one_device(algorithm: Algorithm, transform: Transform) -> Callable[..., tuple[Progress, Array]]:
    """Rounds in one program: (progress, seed, numbers, data, seatings of all these rounds) to the new progress."""

    @partial(jax.jit, donate_argnums=0)
    def rounds(
        progress: Progress, seed: Array, numbers: Array, data: Data, seatings: Seating
    ) -> tuple[Progress, Array]:
        def one(progress: Progress, now: tuple[Array, Seating]) -> tuple[Progress, Array]:
            number, seating = now
            seating = jax.tree.map(lambda a: a[0], seating)
            key = round_key(seed, number)
            message = outgoing(algorithm, transform, progress, key)
            kept = look_up(progress.clients, seating.site)
            states = (progress.aggregator, progress.transform)
            total, kept, finite = sites_of_a_device(algorithm, transform, message, states, key, data, seating, kept)
            after = conclude(algorithm, transform, progress, total)
            return replace(after, clients=put_back(progress.clients, seating.site, kept)), finite[None]

        return jax.lax.scan(one, progress, (numbers, seatings))

    return rounds


class Pieces(NamedTuple):
    """The programs of a round on several devices."""

    send: Callable[..., Message]
    train: Callable[..., tuple[Message, Tree, Array]]
    conclude: Callable[..., Progress]
    look_up: Callable[..., Tree]
    put_back: Callable[..., Tree]


@lru_cache(maxsize=64)
def on_devices(algorithm: Algorithm, transform: Transform, count: int, resident: bool) -> Pieces:
    """The round cut where devices meet; `resident` data lie whole on every device, others are split."""

    def train(
        message: Message, states: tuple[Tree, Tree], key: Key, data: Data, seating: Seating, kept: Tree
    ) -> tuple[Message, Tree, Array]:
        mine = jax.tree.map(lambda a: a[0], (seating, kept))
        data = data if resident else jax.tree.map(lambda a: a[0], data)
        result = sites_of_a_device(algorithm, transform, message, states, key, data, *mine)
        return jax.tree.map(lambda a: a[None], result)

    specs = (WHOLE, WHOLE, WHOLE, WHOLE if resident else PARALLEL, PARALLEL, PARALLEL)
    sharded = jax.shard_map(train, mesh=mesh(count), in_specs=specs, out_specs=PARALLEL, check_vma=False)

    def finish(progress: Progress, totals: Message) -> Progress:
        if algorithm.aggregator.linear:
            total = jax.tree.map(lambda a: a.sum(axis=0), totals)
        else:
            total = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), totals)
        return conclude(algorithm, transform, progress, total)

    return Pieces(
        send=jax.jit(partial(outgoing, algorithm, transform)),
        train=jax.jit(sharded),
        conclude=jax.jit(finish),
        look_up=jax.jit(look_up),
        put_back=jax.jit(put_back, donate_argnums=0),
    )
