"""The compiled round: sites batched in lanes, blocks of lanes in a scan, devices side by side.

Quick rounds run several a call, server step included, in one program; devices exchange their sums inside it. Rounds
that take longer, or whose cohort is too large to be held at once, are cut: each device sums the answers of its own
sites piece by piece, and the sums are added afterwards on the first device, since a device that waits long for a busy
one inside a program is taken for dead.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from wardround.core import trees
from wardround.core.chain import send_up
from wardround.core.contracts import OWED, Algorithm, Array, Key, Message, Progress, Shard, Transform, Tree
from wardround.core.errors import Refusal
from wardround.engine.flatten import Form, form_of, pack, unpack
from wardround.engine.layout import Seating, Shape
from wardround.engine.machine.devices import AXIS, mesh
from wardround.engine.shared_programs import algorithm_at, representative

SENDING = 2**31 - 1
"""Where a site's number would stand, for the keys of what the server sends."""
PARALLEL = PartitionSpec(AXIS)
WHOLE = PartitionSpec()


class Data(NamedTuple):
    """Rows: as they lie at their source (rows, ...), or dealt to their places (places, lanes, ...)."""

    x: Array
    y: Array


def gather_rows(source: Data, table: Array) -> Data:
    """The rows in their places. One large gather: inside the loop, batch by batch, it costs twenty times as much."""

    def gather(rows: Array) -> Array:
        return jnp.asarray(rows).at[table].get(mode="promise_in_bounds", wrap_negative_indices=False)

    # The barrier keeps the compiler from pulling the gather back into the loop.
    return Data(*jax.lax.optimization_barrier((gather(source.x), gather(source.y))))


def map_lanes(one: Callable[..., Any], lanes: int) -> Callable[..., Any]:
    """`one(data, ...)` for every lane; a single lane is not batched at all, for which large models are quicker."""
    if lanes > 1:

        def batched(data: Data, *arguments: Tree) -> Tree:
            return jax.vmap(one, (1, *(0 for _ in arguments)))(data, *arguments)

        return batched

    def alone(data: Data, *arguments: Tree) -> Tree:
        own: Data = jax.tree.map(lambda a: a[:, 0], data)
        result = one(own, *jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: a[None], result)

    return alone


def train_device_sites(
    algorithm: Algorithm,
    transform: Transform,
    message: Message,
    states: tuple[Tree, Tree],
    key: Key,
    source: Data,
    seating: Seating,
    kept: Tree,
    padding: int,
    kind: int = 0,
) -> tuple[Message, Tree, Array]:
    """Train the blocks of one device; give the sum (or stack) of their answers, what they keep, and who went astray.

    `kept` is what the sites keep for the algorithm, and what they carry on for the transforms. Where messages are
    tailored, `message` is what is broadcast, and all these sites get the same kind of it.
    """
    aggregator = algorithm.aggregator
    data = gather_rows(source, seating.table)

    def block(total: Message | None, inputs: tuple[Any, ...]) -> tuple[Message | None, tuple[Any, ...]]:
        first, longest, rows, site, kept = inputs

        def one(own: Data, rows: Array, site: Array, kept: Tree) -> tuple[Message, Tree, Array]:
            shard = Shard(own.x, own.y, first, rows, longest, site, padding)
            learning_key, leaving_key = jax.random.split(jax.random.fold_in(key, site))
            desk = Desk(message, kind, site, key)
            sent = message if algorithm.tailoring is None else desk.message(algorithm, transform, states[1])
            own_kept, carried = kept
            answer, keeps = algorithm.client(transform.receive(sent), own_kept, shard, learning_key)
            answer, carried = send_up(transform, sent, answer, carried, leaving_key)
            answer, keeps = refuse_owed_noise(answer), (keeps, carried)
            finite = trees.all_finite(answer) & trees.all_finite(keeps)
            answer = receive_answer(algorithm, transform, states, answer, desk)
            present = rows > 0
            # An empty site, or an empty seat, says and keeps nothing, whatever its arithmetic gave.
            answer = trees.choose(present, answer, trees.zeros(answer))
            if "site" in aggregator.needs:
                answer = Message({**answer.arrays, "site": site}, answer.meta)
            return answer, trees.choose(present, keeps, kept), finite | ~present

        answers, keeps, finite = map_lanes(one, rows.shape[0])(data, rows, site, kept)
        if total is None:
            return None, (answers, keeps, finite)
        return trees.add(total, jax.tree.map(lambda a: a.sum(axis=0), answers)), (None, keeps, finite)

    inputs = (seating.first, seating.longest, seating.rows, seating.site, kept)
    if aggregator.linear:
        shapes = jax.eval_shape(lambda: block(None, jax.tree.map(lambda a: a[0], inputs))[1][0])
        start = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), shapes)
        total, (_, keeps, finite) = jax.lax.scan(block, start, inputs)
    else:
        _, (answers, keeps, finite) = jax.lax.scan(block, None, inputs)
        total = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), answers)
    return total, keeps, finite


def refuse_owed_noise(answer: Message) -> Message:
    """An answer as it leaves a site, unless it still owes noise."""
    if OWED in answer.arrays:
        raise Refusal(
            "[privacy] asks for noise in whole numbers, and no transform adds it",
            where="[privacy], [[transforms]]",
            remedy="let secure_sum be the last transform, or take whole_numbers out of [privacy]",
        )
    return answer


class Desk(NamedTuple):
    """Where the server writes to one site and reads its answer, where both differ from site to site."""

    said: Message
    """What is broadcast: nobody is sent it."""
    kind: int
    site: Array | int
    key: Key
    """Of the round."""

    @property
    def keys(self) -> Key:
        """Of the site's cut, and of what transforms do to it."""
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(self.key, SENDING), self.site))

    def message(self, algorithm: Algorithm, transform: Transform, transform_state: Tree) -> Message:
        """What this site is sent."""
        assert algorithm.tailoring is not None
        own, leaving = self.keys
        cut = algorithm.tailoring.cut(self.said, self.kind, jnp.asarray(self.site), own)
        return transform.down(transform_state, cut, leaving)

    def fit(self, algorithm: Algorithm, answer: Message) -> Message:
        """Its answer, as it is added to the others'."""
        assert algorithm.tailoring is not None
        return algorithm.tailoring.fit(self.said, answer, self.kind, jnp.asarray(self.site), self.keys[0])


def receive_answer(
    algorithm: Algorithm, transform: Transform, states: tuple[Tree, Tree], answer: Message, desk: Desk | None = None
) -> Message:
    """What the server makes of a single answer before it is added to the others."""
    aggregator_state, transform_state = states
    if not transform.sum_only:
        answer = transform.release(transform_state, answer)
    if algorithm.tailoring is not None and desk is not None:
        answer = desk.fit(algorithm, answer)
    each = algorithm.aggregator.each
    return answer if each is None else each(aggregator_state, answer)


def server_message(algorithm: Algorithm, transform: Transform, progress: Progress, key: Key) -> Message:
    """What the server sends in this round; what its messages are cut from, where each site gets one of its own."""
    said = algorithm.broadcast(progress.server)
    if algorithm.tailoring is not None:
        return said
    return transform.down(progress.transform, said, jax.random.fold_in(key, SENDING))


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
    """Store what the seated sites keep; what stands in an empty seat is dropped."""
    return jax.tree.map(lambda table, value: table.at[site].set(value, mode="drop"), clients, kept)


def kept_by_sites(progress: Progress) -> tuple[Tree, Tree]:
    """What the sites keep for the algorithm, and what they carry on for the transforms."""
    return progress.clients, progress.carried


def with_kept(progress: Progress, kept: tuple[Tree, Tree]) -> Progress:
    return replace(progress, clients=kept[0], carried=kept[1])


def without_kept(progress: Progress) -> Progress:
    return with_kept(progress, ((), ()))


def round_key(seed: int | Array, number: int | Array) -> Key:
    return jax.random.fold_in(jax.random.key(seed), number)


def fused_rounds(
    algorithm: Algorithm, transform: Transform, devices: int, padding: int
) -> Callable[..., tuple[Progress, Array]]:
    """Rounds in one program: (progress, seed, numbers, rows, seatings of these rounds, dial) to the new progress.

    Several devices add their sums after each round and then all take the server's step, each for itself. Algorithms
    that differ in a number only share a program, which is given `number_of(algorithm)` as its dial.
    """
    return _fused_rounds(representative(algorithm), transform, devices, padding)


@lru_cache(maxsize=64)
def _fused_rounds(
    first: Algorithm, transform: Transform, devices: int, padding: int
) -> Callable[..., tuple[Progress, Array]]:
    def rounds(
        progress: Progress, seed: Array, numbers: Array, source: Data, seatings: Seating, dial: Any
    ) -> tuple[Progress, Array]:
        algorithm = algorithm_at(first, dial)

        def one(progress: Progress, now: tuple[Array, Seating]) -> tuple[Progress, Array]:
            number, seating = now
            seating = jax.tree.map(lambda a: a[0], seating)
            key = round_key(seed, number)
            message = server_message(algorithm, transform, progress, key)
            kept = look_up(kept_by_sites(progress), seating.site)
            states = (progress.aggregator, progress.transform)
            total, kept, finite = train_device_sites(
                algorithm, transform, message, states, key, source, seating, kept, padding
            )
            site = seating.site
            if devices > 1:
                total = (
                    sum_over_devices(total)
                    if algorithm.aggregator.linear
                    else jax.lax.all_gather(total, AXIS, tiled=True)
                )
                if jax.tree.leaves(kept):
                    site, kept = jax.lax.all_gather((site, kept), AXIS)
            after = conclude(algorithm, transform, progress, total)
            return with_kept(after, put_back(kept_by_sites(progress), site, kept)), finite[None]

        return jax.lax.scan(one, progress, (numbers, seatings))

    if devices == 1:
        return jax.jit(rounds, donate_argnums=0)
    by_round = PartitionSpec(None, AXIS)
    specs = (WHOLE, WHOLE, WHOLE, WHOLE, by_round, WHOLE)
    sharded = jax.shard_map(rounds, mesh=mesh(devices), in_specs=specs, out_specs=(WHOLE, by_round), check_vma=False)
    return jax.jit(sharded, donate_argnums=0)


def sum_over_devices(total: Message) -> Message:
    """The sum over the devices, in one exchange."""
    return unpack(jax.lax.psum(pack(total), AXIS), form_of(total))


class RoundPrograms(NamedTuple):
    """The programs of a round that is cut where devices meet or where a cohort is too large for one piece."""

    send: Callable[..., dict[str, Array]]
    train: Callable[..., tuple[Any, Tree, Array]]
    add: Callable[..., Any]
    conclude: Callable[..., tuple[Progress, dict[str, Array]]]
    look_up: Callable[..., Tree]
    put_back: Callable[..., Tree]


@lru_cache(maxsize=64)
def round_programs(
    algorithm: Algorithm,
    transform: Transform,
    shape: Shape,
    padding: int,
    resident: bool,
    sent: Form,
    answer_form: Form,
    kind: int = 0,
) -> RoundPrograms:
    """Every device trains its own sites; their sums (or stacks) are brought together by `add` and `conclude`.

    Rows that are `resident` lie whole where every device can read them, others are split over the devices. `sent` is
    the form of what the server sends, with the states that travel along in simulation; `answer_form` that of an answer;
    `kind` is that of the sites' messages.
    Messages and sums travel packed, since handing them to every device is paid by the array.
    """
    linear = algorithm.aggregator.linear

    def send(progress: Progress, key: Key) -> dict[str, Array]:
        return pack((server_message(algorithm, transform, progress, key), (progress.aggregator, progress.transform)))

    def train(
        packed: dict[str, Array], seed: Array, number: Array, source: Data, seats: Array, kept: Tree
    ) -> tuple[Any, Tree, Array]:
        source = source if resident else jax.tree.map(lambda a: a[0], source)
        seats, kept = jax.tree.map(lambda a: a[0], (seats, kept))
        message, states = unpack(packed, sent)
        seating = unpack_seating(seats, shape)
        total, kept, finite = train_device_sites(
            algorithm, transform, message, states, round_key(seed, number), source, seating, kept, padding, kind
        )
        result = (pack(total) if linear else total, kept, finite)
        return jax.tree.map(lambda a: a[None], result)

    specs = (WHOLE, WHOLE, WHOLE, WHOLE if resident else PARALLEL, PARALLEL, PARALLEL)
    sharded = jax.shard_map(train, mesh=mesh(shape.devices), in_specs=specs, out_specs=PARALLEL, check_vma=False)

    def finish(progress: Progress, pieces: list[list[Any]], seed: Array, following: Array) -> tuple[Progress, Any]:
        """The server's step from the sums (or stacks) of every piece and device, and what it sends next."""
        parts = [own for piece in pieces for own in piece]
        if linear:
            total = unpack(jax.tree.map(lambda *own: sum(own)[0], *parts), answer_form)
        else:
            total = jax.tree.map(lambda *own: jnp.concatenate([a.reshape(-1, *a.shape[2:]) for a in own]), *parts)
        after = conclude(algorithm, transform, progress, total)
        return after, send(after, round_key(seed, following))

    def keep(clients: Tree, site: Array, parts: list[Tree]) -> Tree:
        return put_back(clients, site, jax.tree.map(lambda *own: jnp.concatenate(own), *parts))

    return RoundPrograms(
        send=jax.jit(lambda progress, seed, number: send(progress, round_key(seed, number))),
        train=jax.jit(sharded),
        add=jax.jit(trees.add, donate_argnums=0),
        conclude=jax.jit(finish),
        look_up=jax.jit(look_up),
        put_back=jax.jit(keep, donate_argnums=0),
    )


def pack_seating(seating: Seating) -> np.ndarray[Any, Any]:
    """A seating as one array a device."""
    return np.concatenate([part.reshape(len(part), -1) for part in seating], axis=1, dtype=np.int32)


def unpack_seating(seats: Array, shape: Shape) -> Seating:
    """The seating of one device again."""
    blocks, lanes = shape.blocks, shape.lanes
    ends = [blocks, 2 * blocks, 2 * blocks + blocks * lanes, 2 * blocks + 2 * blocks * lanes]
    first, longest, rows, site, table = jnp.split(seats, ends)
    return Seating(first, longest, rows.reshape(blocks, lanes), site.reshape(blocks, lanes), table.reshape(-1, lanes))
