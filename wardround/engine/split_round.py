"""A round cut where the network is: the server's half and one site's half, each on its own machine.

Together they do what the compiled simulation does in one program, with the same order of rows and the same random
keys, so a deployed study gives the model that its simulation gave (up to the order in which floats are added).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.chain import send_up
from wardround.core.contracts import (
    Algorithm,
    Array,
    Key,
    Message,
    Params,
    Progress,
    Shard,
    Task,
    Transform,
    Tree,
)
from wardround.core.order import visiting_order
from wardround.engine.predictions import PERSONAL_ROUND
from wardround.engine.program import (
    Desk,
    conclude,
    kept_by_sites,
    receive_answer,
    refuse_owed_noise,
    round_key,
    server_message,
    with_kept,
    without_kept,
)
from wardround.engine.shared_programs import representative

Rows = np.ndarray[Any, Any]
KEPT = "kept"
"""Beside an opened mean: the server's state without the model, where the server's own choice made it."""


class OwnRows(NamedTuple):
    """A site's rows of one part, and its number in the study."""

    x: Rows
    y: Rows
    site: int


def row_of(task: Task) -> tuple[Any, Any]:
    """The shapes of a single row's x and y."""
    label = jax.ShapeDtypeStruct(task.label_shape, task.label_type)
    return jax.ShapeDtypeStruct(task.shape, np.float32), label


# ---- the site's half ----


def one_site(x: Rows, y: Rows, order: Rows, *, site: int = 0, padding: int = 64) -> Shard:
    """A site on its own, as in deployment: `order` of shape (passes, rows) tells in which order it visits its rows."""
    visits = np.concatenate([order.ravel(), np.zeros(padding, order.dtype)]) if len(x) else np.zeros(0, np.int64)
    rows, zero = np.asarray(order.shape[1], np.int32), np.zeros((), np.int32)
    if not len(x):  # an empty site: nothing but padding
        x, y = np.zeros((padding, *x.shape[1:]), x.dtype), np.zeros((padding, *y.shape[1:]), y.dtype)
        visits = np.arange(padding)
    return Shard(x[visits], y[visits], zero, rows, rows, np.asarray(site, np.int32), padding)


def shard_of(algorithm: Algorithm, own: OwnRows, seed: int, number: int, passes: int) -> Shard:
    """The site's rows in the order of this round: the same that the simulation would deal it."""
    rows = len(own.y)
    order = visiting_order(seed, number, np.array([own.site]), np.array([rows]), passes)
    return one_site(own.x, own.y, order.reshape(passes, rows), site=own.site, padding=algorithm.largest_batch)


@lru_cache(maxsize=64)
def client_program(algorithm: Algorithm, transform: Transform) -> Any:
    @jax.jit
    def program(sent: Message, kept: tuple[Tree, Tree], shard: Shard, key: Array) -> tuple[Message, Tree, Array]:
        learning_key, leaving_key = jax.random.split(key)
        own_kept, carried = kept
        answer, keeps = algorithm.client(transform.receive(sent), own_kept, shard, learning_key)
        answer, carried = send_up(transform, sent, answer, carried, leaving_key, really=True)
        answer, keeps = refuse_owed_noise(answer), (keeps, carried)
        finite = trees.all_finite(answer) & trees.all_finite(keeps)
        present = jnp.asarray(shard.rows) > 0
        answer = trees.choose(present, answer, trees.zeros(answer))
        return answer, trees.choose(present, keeps, kept), finite | ~present

    return program


@jax.jit
def site_key(seed: Array, number: Array, site: Array) -> Array:
    """A site's random key of a round; compiled, since step by step it takes longer than a small site's training."""
    return jax.random.fold_in(round_key(seed, number), site)


def site_round(
    algorithm: Algorithm, transform: Transform, sent: Message, kept: Tree, own: OwnRows, *, seed: int, number: int
) -> tuple[Message, Tree, bool]:
    """The site's answer as it leaves, what the site keeps, and whether all of it is finite; nothing is carried."""
    both = (kept, ())
    answer, (keeps, _), finite = carried_round(algorithm, transform, sent, both, own, seed=seed, number=number)
    return answer, keeps, finite


def carried_round(
    algorithm: Algorithm,
    transform: Transform,
    sent: Message,
    kept: tuple[Tree, Tree],
    own: OwnRows,
    *,
    seed: int,
    number: int,
) -> tuple[Message, tuple[Tree, Tree], bool]:
    """The same with what the site carries on for the transforms, beside what it keeps for the algorithm."""
    shard = shard_of(algorithm, own, seed, number, algorithm.passes)
    key = site_key(np.uint32(seed), np.int32(number), np.int32(own.site))
    answer, keeps, finite = client_program(algorithm, transform)(sent, kept, shard, key)
    return answer, keeps, bool(finite)


@lru_cache(maxsize=64)
def personal_program(algorithm: Algorithm) -> Any:
    personal = algorithm.personal
    assert personal is not None
    return jax.jit(personal.fit)


def own_params(
    algorithm: Algorithm, message: Message, params: Params, kept: Tree, own: OwnRows, *, seed: int
) -> Params:
    """The parameters of the model that this site would use: the common ones, or its personal ones."""
    personal = algorithm.personal
    if personal is None:
        return params
    shard = shard_of(algorithm, own, seed, PERSONAL_ROUND, personal.passes)
    key = jax.random.fold_in(round_key(seed, PERSONAL_ROUND), own.site)
    fitted: Params = personal_program(algorithm)(message, kept, shard, key)
    return fitted


# ---- the server's half ----

server_key = jax.jit(round_key)


@lru_cache(maxsize=64)
def arriving_program(algorithm: Algorithm, transform: Transform, kind: int) -> Any:
    def arrive(states: Tree, answer: Message, said: Message, site: Array, key: Key) -> Message:
        return receive_answer(algorithm, transform, states, answer, Desk(said, kind, site, key))

    return jax.jit(arrive)


def kind_at(algorithm: Algorithm, site: int) -> int:
    """Which kind of message this site gets; there is one where all get the same."""
    return 0 if algorithm.tailoring is None else int(algorithm.tailoring.kind_of(np.array([site]))[0])


def message_of_round(
    algorithm: Algorithm, transform: Transform, progress: Progress, *, seed: int, number: int, site: int | None = None
) -> Message:
    """What the server sends in this round: the same to every site, or to `site` where each gets one of its own.

    For no site where these differ: what they are all cut from, and nobody is sent.
    """
    key = server_key(np.uint32(seed), np.int32(number))
    with jax.disable_jit():  # for the same bits on every processor, as in `conclude_round`
        message = server_message(algorithm, transform, without_kept(progress), key)
        if algorithm.tailoring is not None and site is not None:
            desk = Desk(message, kind_at(algorithm, site), site, key)
            message = desk.message(algorithm, transform, progress.transform)
    found: Message = jax.device_get(message)
    return found


def combine_answers(
    algorithm: Algorithm,
    transform: Transform,
    progress: Progress,
    answers: Mapping[int, Message],
    slots: int,
    population: int,
    *,
    seed: int = 0,
    number: int = 0,
) -> Progress:
    """The server's step from the answers by site number."""
    total = combined_answer(algorithm, transform, progress, answers, slots, population, seed=seed, number=number)
    return conclude_round(algorithm, transform, progress, total)


def combined_answer(
    algorithm: Algorithm,
    transform: Transform,
    progress: Progress,
    answers: Mapping[int, Message],
    slots: int,
    population: int,
    *,
    seed: int = 0,
    number: int = 0,
) -> Message:
    """What the server's step takes: the sum of the answers, always in the order of sites, so that it has the same bits.

    For an aggregator that sees each answer it is their stack, and `slots` fixes its height: empty slots have weight 0.
    Seed and round number matter where messages are tailored.
    """
    given = (algorithm, transform, progress)
    each = {site: arrived_answer(*given, answers[site], site, seed=seed, number=number) for site in sorted(answers)}
    if algorithm.aggregator.linear:
        parts = iter(each.values())
        total = next(parts)
        for part in parts:
            total = trees.add(total, part)
        return total
    return stack_answers(each, slots, population, numbered="site" in algorithm.aggregator.needs)


def arrived_answer(
    algorithm: Algorithm,
    transform: Transform,
    progress: Progress,
    answer: Message,
    site: int,
    *,
    seed: int,
    number: int,
) -> Message:
    """What the server makes of a site's answer before it is added to the others."""
    states = (progress.aggregator, progress.transform)
    said = Message({}) if algorithm.tailoring is None else algorithm.broadcast(progress.server)
    key = server_key(np.uint32(seed), np.int32(number))
    found: Message = arriving_program(algorithm, transform, kind_at(algorithm, site))(
        states, answer, said, np.int32(site), key
    )
    return found


def conclude_round(algorithm: Algorithm, transform: Transform, progress: Progress, total: Message) -> Progress:
    """The server's step from the combined answer, of which nobody needs to know the parts.

    Done operation by operation: a compiler that makes one instruction of a product and a sum rounds otherwise than one
    that does not, so the bits would depend on the processor, and nobody else could compute them again.
    """
    with jax.disable_jit():
        after = conclude(algorithm, transform, without_kept(progress), total)
    return with_kept(after, kept_by_sites(progress))


def conclude_opened(algorithm: Algorithm, progress: Progress, opened: Message) -> Progress:
    """The server's step from the one weighted mean that two servers opened: nothing is left to choose.

    An algorithm whose own server chooses finds beside it, under `KEPT`, what the choice leaves for the next round.
    """
    arrays = {name: tree for name, tree in opened.arrays.items() if name != KEPT}
    with jax.disable_jit():  # for the same bits on every processor, as in `conclude_round`
        if KEPT in opened.arrays:
            kept = {name: jnp.asarray(array) for name, array in opened.arrays[KEPT].items()}
            params = trees.add(progress.server["params"], arrays["update"])
            server = {**progress.server, **kept, "params": params}
        else:
            server = algorithm.server(progress.server, Message(arrays))
    return replace(progress, server=server)


def stack_answers(answers: Mapping[int, Message], slots: int, population: int, *, numbered: bool) -> Message:
    """Answers along a first axis, nothing (and the site's number `population`) in the slots that stay empty."""
    first: Message = next(iter(answers.values()))
    empty = jax.tree.map(jnp.zeros_like, first)
    filled: Sequence[Message] = [*answers.values(), *[empty] * (slots - len(answers))]
    arrays = jax.tree.map(lambda *parts: jnp.stack(parts), *[one.arrays for one in filled])
    if numbered:
        numbers = [*answers, *[population] * (slots - len(answers))]
        arrays = {**arrays, "site": jnp.array(numbers, jnp.int32)}
    return Message(arrays, first.meta)


def combined_shapes(
    algorithm: Algorithm, transform: Transform, progress: Progress, sent: Message, params: Params, row: Any, slots: int
) -> Message:
    """The shapes of a round's combined answer; `params` are those before the first round, `slots` of a stack."""
    made, key = answer_shapes(algorithm, progress.server, algorithm.init_client(params), row), jax.random.key(0)
    leaving: Message = jax.eval_shape(lambda sent, made: transform.up(sent, made, key), sent, made)
    if transform.sum_only or transform.products_only:
        return leaving
    arrived = added_shapes(algorithm, transform, progress, leaving)
    if algorithm.aggregator.linear:
        return arrived
    arrays = jax.tree.map(lambda one: jax.ShapeDtypeStruct((slots, *one.shape), one.dtype), arrived.arrays)
    if "site" in algorithm.aggregator.needs:
        arrays = {**arrays, "site": jax.ShapeDtypeStruct((slots,), jnp.int32)}
    return Message(arrays, arrived.meta)


def initial_progress(algorithm: Algorithm, transform: Transform, params: Params, population: int, row: Any) -> Progress:
    """The server's state before the first round; `row` has the shape and type of x and y of a single row."""
    server = algorithm.init(trees.copy(params), population)
    return begin_states(algorithm, transform, server, algorithm.init_client(params), row, population)


def begin_states(
    algorithm: Algorithm, transform: Transform, server: Tree, kept: Tree, row: Any, population: int
) -> Progress:
    """The states of all that the server has before the first round; what the sites keep is still to be put in."""
    answer = fitted = empty_answer(algorithm, server, kept, row)
    if algorithm.tailoring is not None:
        desk = Desk(algorithm.broadcast(server), 0, 0, jax.random.key(0))
        fitted = jax.tree.map(jnp.zeros_like, desk.fit(algorithm, answer))
    if "site" in algorithm.aggregator.needs:
        fitted = Message({**fitted.arrays, "site": jnp.arange(population)}, fitted.meta)
    return Progress(
        server=trees.copy(server),
        aggregator=algorithm.aggregator.init(fitted),
        transform=transform.init(answer),
        clients=(),
    )


def empty_answer(algorithm: Algorithm, server: Tree, kept: Tree, row: Any) -> Message:
    """An answer of zeros."""
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), answer_shapes(algorithm, server, kept, row))


def added_shapes(
    algorithm: Algorithm, transform: Transform, progress: Progress, leaving: Message, kind: int = 0
) -> Message:
    """The shapes of an answer as it is added to the others, from those with which it leaves its site."""

    def arrive(server: Tree, states: tuple[Tree, Tree], one: Message) -> Message:
        said = Message({}) if algorithm.tailoring is None else algorithm.broadcast(server)
        return receive_answer(algorithm, transform, states, one, Desk(said, kind, 0, jax.random.key(0)))

    return jax.eval_shape(arrive, progress.server, (progress.aggregator, progress.transform), leaving)


def sent_shapes(
    algorithm: Algorithm, transform: Transform, server: Tree, transform_state: Tree, kind: int = 0
) -> Message:
    """The shapes of what a site is sent, of its own kind where there are several."""

    def send(server: Tree, state: Tree) -> Message:
        said, key = algorithm.broadcast(server), jax.random.key(0)
        if algorithm.tailoring is None:
            return transform.down(state, said, key)
        return Desk(said, kind, 0, key).message(algorithm, transform, state)

    return jax.eval_shape(send, server, transform_state)


def answer_shapes(algorithm: Algorithm, server: Tree, kept: Tree, row: Any, kind: int = 0) -> Message:
    """The shapes of an answer as the client function gives it, without training anything; found out once."""
    leaves, structure = jax.tree.flatten((server, kept, row))
    shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return traced_answer(representative(algorithm), structure, shapes, kind)


@lru_cache(maxsize=256)
def traced_answer(algorithm: Algorithm, structure: Any, shapes: tuple[Any, ...], kind: int) -> Message:
    server, kept, row = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    places = algorithm.largest_batch
    x, y = (jax.ShapeDtypeStruct((places, *part.shape), part.dtype) for part in row)

    def answer(server: Tree, kept: Tree, x: Any, y: Any) -> Message:
        number = jnp.zeros((), jnp.int32)
        shard = Shard(x, y, number, number, number, number, algorithm.largest_batch)
        return algorithm.client(plain_message(algorithm, server, kind), kept, shard, jax.random.key(0))[0]

    return jax.eval_shape(answer, server, kept, x, y)


def plain_message(algorithm: Algorithm, server: Tree, kind: int = 0) -> Message:
    """What a site's client is given, before any transform: what is broadcast, or a cut of this kind."""
    said, key = algorithm.broadcast(server), jax.random.key(0)
    tailoring = algorithm.tailoring
    return said if tailoring is None else tailoring.cut(said, kind, jnp.zeros((), jnp.int32), key)
