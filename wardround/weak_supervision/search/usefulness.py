"""How useful functions seem to sites: at each, a small network from a function's votes to the expert's answer.

Caldas 2022, algorithm 1 (h_k): two hidden layers of 10, Adam, trained on the functions that the expert has judged,
stopped when the loss no longer falls. One compiled program trains the networks of many sites side by side; a real site
runs the same program for itself. Records, functions and sites are filled up to round numbers, so a dialogue needs few
programs; what is filled in votes for nothing, and a site's first weights do not depend on it.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from wardround.core.contracts import Array, Key, Tree

Values = np.ndarray[Any, Any]
HIDDEN, STEPS, RATE, PATIENCE = 10, 60, 0.03, 5
SMALLEST_GAIN = 1e-4
BATCH = 1 << 25
"""Votes on candidates that are held at a time."""
TOGETHER = 64
"""Sites that are computed at a time at most."""


class SiteVotes(NamedTuple):
    """What the network of one site sees: who fires on which of its records."""

    judged: Values
    """(records, judged functions)"""
    candidates: Values
    """(records, candidates)"""
    seed: int


def usefulness(sites: Sequence[SiteVotes], labels: Values, answers: Values, classes: int) -> list[Values]:
    """(candidates, classes) of every site: the chance that the expert would accept each candidate for each class.

    `labels` are what the judged functions vote for and `answers` what the expert said of them, the same for all sites;
    1/2 before anything is judged.
    """
    if not len(answers):
        return [np.full((one.candidates.shape[1], classes), 0.5) for one in sites]
    if not sites:
        return []
    rows, many = (filled(max(one.candidates.shape[axis] for one in sites)) for axis in (0, 1))
    width = min(filled(len(sites)), TOGETHER, max(1, 1 << int(math.log2(max(1, BATCH // (rows * many))))))
    known = np.zeros((3, 1 << (max(64, len(answers)) - 1).bit_length()), np.float32)
    known[:, : len(answers)] = labels, answers, np.ones(len(answers))
    found: list[Values] = []
    for first in range(0, len(sites), width):
        part = sites[first : first + width]
        judged = np.zeros((width, rows, known.shape[1]), bool)
        candidates = np.zeros((width, rows, many), bool)
        sizes, seeds = np.ones(width, np.float32), np.zeros(width, np.uint32)
        for place, one in enumerate(part):
            judged[place, : len(one.judged), : one.judged.shape[1]] = one.judged
            candidates[place, : len(one.candidates), : one.candidates.shape[1]] = one.candidates
            sizes[place], seeds[place] = max(1, len(one.candidates)), one.seed
        chances = np.asarray(trained(judged, candidates, sizes, seeds, known, classes), np.float64)
        found += [chances[place, : one.candidates.shape[1]] for place, one in enumerate(part)]
    return found


def filled(count: int) -> int:
    """Rounded up to a multiple of 8, of large counts by an eighth at most: waste stays small, and programs few.

    >>> filled(1), filled(3), filled(8), filled(100), filled(1000)
    (1, 8, 8, 112, 1024)
    """
    step = max(8, 1 << max(0, count.bit_length() - 3))
    return 1 if count <= 1 else -(-count // step) * step


@partial(jax.jit, static_argnames="classes")
def trained(judged: Array, candidates: Array, sizes: Array, seeds: Array, known: Array, classes: int) -> Array:
    """(sites, candidates, classes) from votes (sites, records, functions)."""
    labels, answers, real = known
    places = jax.nn.one_hot(labels.astype(jnp.int32), classes)
    optimizer = optax.adam(RATE)

    def one_site(judged: Array, candidates: Array, size: Array, seed: Array) -> Array:
        seen = scaled(judged)

        def loss(params: Tree) -> Array:
            said = jnp.sum(outputs(params, seen) * places, axis=1)
            losses = optax.sigmoid_binary_cross_entropy(said, answers)
            return jnp.sum(losses * real) / jnp.sum(real)

        def step(_: int, carry: Tree) -> Tree:
            params, memory, best, waited = carry
            value, gradient = jax.value_and_grad(loss)(params)
            waited = jnp.where(value < best - SMALLEST_GAIN, 0, waited + 1)
            update, after = optimizer.update(gradient, memory)
            moved = (optax.apply_updates(params, update), after)
            goes_on = waited < PATIENCE
            params, memory = jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), moved, (params, memory))
            return params, memory, jnp.minimum(best, value), jnp.where(goes_on, waited, PATIENCE)

        params = first_weights(jax.random.key(seed), judged.shape[0], classes, size)
        began = (params, optimizer.init(params), jnp.inf, 0)
        params, *_ = jax.lax.fori_loop(0, STEPS, step, began)
        return jax.nn.sigmoid(outputs(params, scaled(candidates)))

    return jax.vmap(one_site)(judged, candidates, sizes, seeds)


def scaled(fired: Array) -> Array:
    """(functions, records): a function's votes as a site sees them, of the same length."""
    votes = fired.T.astype(jnp.float32)
    return votes / jnp.maximum(jnp.sqrt(jnp.sum(votes, axis=1, keepdims=True)), 1.0)


def first_weights(key: Key, rows: int, classes: int, size: Array) -> Tree:
    """Row by row, so that rows that are filled in do not change those of the others."""
    first, second, third = jax.random.split(key, 3)
    own = jax.vmap(lambda row: jax.random.normal(jax.random.fold_in(first, row), (classes, HIDDEN)))(jnp.arange(rows))
    return {
        "first": own.transpose(1, 0, 2) * jnp.sqrt(2 / (classes * size)),
        "second": jax.random.normal(second, (HIDDEN, HIDDEN)) * math.sqrt(2 / HIDDEN),
        "third": jax.random.normal(third, (HIDDEN,)) * math.sqrt(2 / HIDDEN),
        "biases": (jnp.zeros(HIDDEN), jnp.zeros(HIDDEN), jnp.zeros(())),
    }


def outputs(params: Tree, seen: Array) -> Array:
    """(functions, classes): of every function, were its votes for that class."""
    one, two, three = params["biases"]
    x = jax.nn.relu(jnp.einsum("fr,crh->fch", seen, params["first"]) + one)
    x = jax.nn.relu(x @ params["second"] + two)
    found: Array = x @ params["third"] + three
    return found
