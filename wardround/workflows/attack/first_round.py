"""What a curious coordinator hears in a round: the answers as they arrive, or only their sum."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.answers import side_by_side
from wardround.core.chain import drop_array
from wardround.core.contracts import OWED, Aggregator, Algorithm, Message, Params, Transform, Tree
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import answer_shapes

MOST_SITES = 200
"""Sites whose answers are kept side by side."""


class FirstRound(NamedTuple):
    """The update of every site without its weight, or the mean of all, the same for everybody."""

    updates: list[Params | None]
    """In the order of the sites; nothing from those without rows."""
    single: bool
    """Whether the coordinator sees each site's own."""


def observe_first_round(
    algorithm: Algorithm, transform: Transform, federation: Federation, params: Params, *, seed: int
) -> FirstRound:
    """Everybody takes part in a first round, and the coordinator keeps what it sees."""
    sites = len(federation.sites)
    if sites > MOST_SITES:
        raise Refusal(
            f"the answers of {sites} sites are too many to be kept side by side",
            where="attack",
            remedy=f"attack a study of at most {MOST_SITES} sites",
        )
    if transform.products_only:
        raise Refusal(
            "neither of two servers sees an update: only distances between them, and the sum of those that are chosen",
            where="[[transforms]] two_servers",
            remedy="leave the transform out to see what it hides",
        )
    row = tuple(jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in (federation.x, federation.y))
    shapes = answer_shapes(algorithm, algorithm.init(trees.copy(params), sites), algorithm.init_client(params), row)
    shapes = drop_array(shapes, OWED)  # no such note ever leaves a site
    if "update" not in shapes.arrays:
        raise Refusal(
            "this algorithm sends no updates, and the attacks here know nothing else",
            where="[algorithm]",
            remedy="attack a study whose sites send updates, such as fed_avg",
        )
    ear = with_recorder(algorithm, shapes, transform, sites)
    with Simulation(federation, seed=seed, transform=transform) as engine:
        progress = engine.begin(ear, params)
        progress, _ = engine.train(ear, progress, [(1, np.arange(sites))])
    arrays = jax.device_get(progress.server["heard"].arrays)
    weight, update = arrays["weight"], arrays["update"]
    rows = federation.part("train")[1]
    if transform.sum_only:
        mean = jax.tree.map(lambda leaf: leaf / max(float(weight), 1e-30), update)
        return FirstRound([mean if count else None for count in rows], single=False)
    each = [
        jax.tree.map(lambda leaf, place=place: leaf[place] / max(float(weight[place]), 1e-30), update)
        if rows[place]
        else None
        for place in range(sites)
    ]
    return FirstRound(each, single=True)


def with_recorder(algorithm: Algorithm, shapes: Message, transform: Transform, sites: int) -> Algorithm:
    """The algorithm with a coordinator that only listens."""
    if algorithm.tailoring is not None:
        raise Refusal(
            "every site trains a part of the model of its own, and the attacks here compare whole updates",
            where="[algorithm]",
            remedy='attack the same study with the algorithm fed_avg, or with selection = "rolling"',
        )

    def init(params: Params, count: int) -> Tree:
        # Another seat for those who are not there, whose number is that of the sites.
        room = () if transform.sum_only else (sites + 1,)
        silence = jax.tree.map(lambda leaf: jnp.zeros((*room, *leaf.shape), leaf.dtype), shapes)
        return {"server": algorithm.init(params, count), "heard": silence}

    def server(state: Tree, said: Message) -> Tree:
        if transform.sum_only:
            return {**state, "heard": said}
        site = said.arrays["site"]
        answers = Message({name: tree for name, tree in said.arrays.items() if name != "site"}, said.meta)
        heard = jax.tree.map(lambda room, own: room.at[site].set(own), state["heard"], answers)
        return {**state, "heard": heard}

    total: Aggregator = Aggregator(lambda template: (), lambda state, said: (said, state), linear=True)
    return algorithm._replace(
        init=init,
        broadcast=lambda state: algorithm.broadcast(state["server"]),
        params=lambda state: algorithm.params(state["server"]),
        aggregator=total if transform.sum_only else side_by_side(),
        server=server,
        tells=None,
    )


def split_into_small_sites(federation: Federation, seed: int, patients: int = 1) -> Federation:
    """The same sites with one patient each (or so many neighbours), drawn once: the worst case for their updates."""
    first, rows = federation.part("train")
    counts = np.zeros_like(federation.counts)
    counts[:, 0] = np.minimum(rows, patients)
    chosen = np.random.default_rng((seed, 0xA10E)).integers(0, np.maximum(rows - patients, 0) + 1)
    return replace(federation, first=first + chosen, counts=counts)


def training_rows(federation: Federation, site: int, most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """So many of a site's training rows, as numbers."""
    first, count = (int(part[site]) for part in federation.part("train"))
    x, y = federation.x[first : first + min(count, most)], federation.y[first : first + min(count, most)]
    return (x / 255.0 if x.dtype == np.uint8 else x).astype(np.float32), y
