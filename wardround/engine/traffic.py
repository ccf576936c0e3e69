"""What travels in a round between the server and a site, told by tracing: nothing is computed."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core import trees
from wardround.core.chain import ChosenWay, choices_in, choices_told
from wardround.core.contracts import Algorithm, Message, Progress, Transform, Tree
from wardround.engine.flatten import Form, form_of
from wardround.engine.program import server_message, without_kept
from wardround.engine.split_round import added_shapes, answer_shapes, sent_shapes

NAMED = 100
"""Cohorts up to this size are named in the round records."""


class RoundTraffic(NamedTuple):
    """Bytes of one message each way, the form of what the server says (with its states), and of what is summed."""

    bytes_down: int
    bytes_up: int
    said: Form
    added: Form
    choices: dict[str, str]
    """What a transform that chooses by itself has chosen."""


def round_traffic(algorithm: Algorithm, transform: Transform, progress: Progress, row: Any, kind: int) -> RoundTraffic:
    """Of a site that gets this kind of message; `row` has the shapes of x and y of a single row."""
    made = answer_shapes(algorithm, progress.server, one_site_shapes(progress.clients), row, kind)
    states = (progress.aggregator, progress.transform)

    def say(given: Progress) -> Message:
        return server_message(algorithm, transform, given, jax.random.key(0))

    said = jax.eval_shape(say, without_kept(progress))
    sent = sent_shapes(algorithm, transform, progress.server, progress.transform, kind)
    left = jax.eval_shape(lambda sent, made: transform.up(sent, made, jax.random.key(0)), sent, made)
    added = added_shapes(algorithm, transform, progress, left, kind)
    up = (transform.bytes_up or trees.nbytes)(left)
    return RoundTraffic(trees.nbytes(sent), up, form_of((said, states)), form_of(added), choices_in(sent, left))


def bytes_by_site(ways: Mapping[int, RoundTraffic], kinds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bytes of the messages to these sites (first row) and from them, by the kind of message that each gets."""
    each = np.zeros((max(ways, default=0) + 1, 2), np.int64)
    for kind, way in ways.items():
        each[kind] = way.bytes_down, way.bytes_up
    return each[kinds if ways else np.zeros_like(kinds)].T


def choices_of_round(
    choices: Mapping[int, dict[str, str]],
    kinds: np.ndarray[Any, Any],
    sites: Sequence[str],
    cohort: np.ndarray[Any, Any],
) -> dict[str, Any]:
    """What was chosen for the sites of a round, from the choices for each kind of message and every site's kind."""
    if len(choices) < 2:
        return next(iter(choices.values()), {})
    each = {kind: cohort[kinds[cohort] == kind] for kind in choices}
    return choices_told(
        [
            ChosenWay(choices[kind], len(own), [sites[int(site)] for site in own] if len(own) <= NAMED else [])
            for kind, own in each.items()
            if len(own)
        ]
    )


def one_site_shapes(clients: Tree) -> Tree:
    """The shapes of what one site keeps."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), clients)
