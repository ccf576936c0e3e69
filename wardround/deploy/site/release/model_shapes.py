"""Shapes of all that goes to and from a site about a model: worked out from the study alone, nothing is trained.

A site derives from them how large an answer of the approved study can get, and refuses models whose arrays are not the
algorithm's before it computes anything with them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.chain import identity
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Algorithm, Message, Model, Params, Shard, Task, Transform
from wardround.core.errors import Refusal
from wardround.data.derived_columns import labels_voted_for
from wardround.engine.split_round import plain_message, row_of
from wardround.study import assemble
from wardround.study.data_rules import is_segmentation
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.transform_chain import transform_of

HUGE = 1e20
"""Larger numbers are a fault, or an attempt to let chosen patients overflow: their squares are not finite any more."""
Given = Callable[[Params], Params]
FOR_AN_ARRAY = 256
"""Bytes that an array's name, shape and place take in a message, at most."""

AS_IT_IS = identity().receive
"""What a site does to a message that no transform has changed."""


class MessageShapes(NamedTuple):
    """The model, what the server says of it, the same as it travels in a round, and an answer as it leaves."""

    params: Params
    said: Message
    sent: Message
    answer: Message
    made: Message
    """An answer before the transforms."""


def one_model(params: Params) -> Params:
    return params


@lru_cache(maxsize=64)
def shapes_for(
    algorithm: Algorithm,
    transform: Transform,
    model: Model,
    task: Task,
    sites: int,
    given: Given = one_model,
    kind: int = 0,
) -> MessageShapes:
    """Of a study with this task and so many sites; `given` makes of one model what a probe begins with.

    `kind` is that of the messages to this site, where there are several. The same words give the same objects, so a
    site that looks at its list of releases again, or is started again in this process, traces nothing twice.
    """
    x, y = row_of(task)
    rows = algorithm.largest_batch

    def go(key: Any) -> MessageShapes:
        params = given(model.init(key))
        server = algorithm.init(params, sites)
        number = jnp.zeros((), jnp.int32)
        xs, ys = (jnp.zeros((rows, *one.shape), one.dtype) for one in (x, y))
        shard = Shard(xs, ys, number, number, number, number, rows)
        own = plain_message(algorithm, server, kind)
        made, _ = algorithm.client(own, algorithm.init_client(params), shard, key)
        sent = transform.down(transform.init(made), own, key)
        # The common model, which an algorithm may make larger than the one that it begins with.
        common = params if given is not one_model else algorithm.params(server)
        return MessageShapes(common, algorithm.broadcast(server), sent, transform.up(sent, made, key), made)

    shapes: MessageShapes = jax.eval_shape(go, jax.random.key(0))
    return shapes


def check_first(arrays: Any, model: Model, given: Given) -> None:
    """Refuse a beginning that is not one model, or as many as the probe is given."""
    check_shapes(arrays, {"first": jax.eval_shape(lambda key: given(model.init(key)), jax.random.key(0))})


def with_some_noise(study: Study) -> Study:
    """How much there will be is not known before the study begins, and does not change what an answer holds."""
    if study.privacy is None:
        return study
    noise = study.privacy.model_copy(update={"noise_multiplier": study.privacy.noise_multiplier or 1.0})
    return study.model_copy(update={"privacy": noise})


def largest_shapes(study: Study, shape: tuple[int, ...], classes: int, sites: Sequence[str]) -> MessageShapes:
    """With rows at most so large, and so many classes; a model that takes no classes predicts a quantity."""
    said = study.algorithm.settings.get("shape")  # an algorithm that is told the shape of a row takes no other
    shape = (int(np.prod(said)),) if isinstance(said, list) and said else shape
    voted = labels_voted_for(study.data.cleaning.rules)
    names = voted or tuple(str(number) for number in range(classes))
    horizons = tuple(study.data.horizons or ())
    tasks = [Task(shape, names, horizons=horizons), *([] if horizons else [Task(shape)])] if classes else [Task(shape)]
    tasks = [Task(shape, segmentation=True)] if is_segmentation(study) else tasks
    transform = transform_of(study, sites)
    refused: Refusal | None = None
    for task in tasks:
        try:
            algorithm = assemble.build(with_some_noise(study), own_method(study), task, sites)
            model, kinds = assemble.model_of(study, task), algorithm.tailoring.kinds if algorithm.tailoring else 1
            each = [
                shapes_for(algorithm, way, model, task, len(sites), kind=kind)
                for kind in range(kinds)
                for way in (transform.choices or (transform,))
            ]
            largest = max(each, key=lambda one: bytes_of(one.answer))
            every = {name: tree for one in each for name, tree in one.answer.arrays.items()}
            return largest._replace(answer=Message({**every, **largest.answer.arrays}, largest.answer.meta))
        except Refusal as refusal:
            refused = refused or refusal
    assert refused is not None
    raise refused


def bytes_of(tree: Any) -> int:
    """On the wire, at most."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize + FOR_AN_ARRAY for leaf in jax.tree.leaves(tree))


def numbers_of(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def check_shapes(found: Any, expected: Any) -> None:
    """Refuse arrays that are not named, shaped and typed as the algorithm's."""
    if not is_alike(found, expected):
        raise Refusal(
            "the model that came does not have the arrays of the approved algorithm", remedy="ask for what was approved"
        )


def check_model(arrays: Any, shapes: MessageShapes, *, in_round: bool) -> bool:
    """Whether the numbers of a model that came can be computed with; refused where it is no model of the study's.

    Looks at what came and at nothing else, so it tells nothing of any patient: numbers that overflow for some
    patients and not for others would.
    """
    check_shapes(arrays, shapes.sent.arrays if in_round else {"sent": shapes.said.arrays, "params": shapes.params})
    bounded = is_bounded(arrays)
    if not in_round and not bounded:
        raise Refusal("the model that came is not finite, or huge", remedy="start the study again")
    return in_round and bounded


def is_alike(found: Any, expected: Any) -> bool:
    # By hand: this is done for every request, and JAX's own way through a tree takes several times as long.
    if isinstance(expected, dict):
        same = isinstance(found, dict) and found.keys() == expected.keys()
        return same and all(is_alike(found[name], one) for name, one in expected.items())
    if isinstance(expected, tuple | list):
        same = isinstance(found, tuple | list) and len(found) == len(expected)
        return same and all(is_alike(one, two) for one, two in zip(found, expected, strict=True))
    return isinstance(found, np.ndarray) and found.shape == expected.shape and found.dtype == expected.dtype


def is_bounded(tree: Any) -> bool:
    """Whether every number is finite and not huge; tells nothing of any patient, since it looks at what came only."""
    if isinstance(tree, dict):
        return all(map(is_bounded, tree.values()))
    if isinstance(tree, tuple | list):
        return all(map(is_bounded, tree))
    array = np.asarray(tree)
    if array.dtype.kind != "f" or not array.size:
        return True
    # One pass as quick as memory: a finite sum of squares has no huge part. Only where it overflows is looked closer.
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        if array.dtype == np.float32 and np.isfinite(np.dot(flat, flat)):
            return True
        return bool(abs(array.min()) <= HUGE and abs(array.max()) <= HUGE)


def opened(transform: Transform, sent: Message) -> Any:
    """What came, as the algorithm will read it: a code of small numbers may stand for huge ones."""
    return sent.arrays if transform.receive is AS_IT_IS else opening_program(transform)(sent).arrays


@lru_cache(maxsize=16)
def opening_program(transform: Transform) -> Callable[[Message], Message]:
    return jax.jit(transform.receive)


def zeros_like(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def tasks_in(recipe: Recipe) -> list[Recipe]:
    """The tasks for which a recipe's components are made."""
    return [recipe] if recipe.kind == "task" else [task for part in recipe.parts for task in tasks_in(part)]
