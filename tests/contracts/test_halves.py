"""The two halves of a deployed round give what the simulation gives, for every algorithm, aggregator and transform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.images.algorithms import OF_TABLES
from wardround.core.chain import first_carried, identity
from wardround.core.contracts import Progress, Scores
from wardround.engine import registry
from wardround.engine.predictions import predict_rows
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import (
    OwnRows,
    answer_shapes,
    carried_round,
    combine_answers,
    initial_progress,
    message_of_round,
    own_params,
)

ALGORITHMS = sorted(set(OF_TABLES) - {"centralized"})
AGGREGATORS = sorted(registry.components("aggregator"))
TRANSFORMS = sorted(registry.components("transform"))
PROBES = sorted(registry.components("probe"))
ROUNDS = ((1, (0, 1, 2, 3, 4, 5, 6)), (2, (0, 2, 3, 5, 6)), (3, (0, 1, 2, 3, 4, 5, 6)))
"""Two sites are away in the second round."""
SEED = 3


def simulated(algorithm, transform, federation, params, predicts=True) -> tuple[Progress, Scores | None]:
    with Simulation(federation, seed=SEED, transform=transform, device_count=1) as engine:
        progress = engine.begin(algorithm, params)
        progress, _ = engine.train(algorithm, progress, [(number, np.array(cohort)) for number, cohort in ROUNDS])
        scores = engine.predict(algorithm, progress, "test") if predicts else None
    return jax.device_get(progress), scores


def own_rows(federation, site: int, part: str) -> OwnRows:
    first, count = (int(column[site]) for column in federation.part(part))
    return OwnRows(federation.x[first : first + count], federation.y[first : first + count], site)


def deployed(algorithm, transform, federation, params, predicts=True):
    """The same rounds, every site with nothing but its own rows and what it kept."""
    sites = len(federation.sites)
    row = (
        jax.ShapeDtypeStruct(federation.x.shape[1:], federation.x.dtype),
        jax.ShapeDtypeStruct(federation.y.shape[1:], federation.y.dtype),
    )
    progress = initial_progress(algorithm, transform, params, sites, row)
    made = answer_shapes(algorithm, progress.server, algorithm.init_client(params), row)
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), made)
    both = {site: (algorithm.init_client(params), first_carried(transform, zeros)) for site in range(sites)}
    for number, cohort in ROUNDS:
        answers = {}
        for site in cohort:
            sent = message_of_round(algorithm, transform, progress, seed=SEED, number=number, site=site)
            own = own_rows(federation, site, algorithm.part)
            answers[site], both[site], finite = carried_round(
                algorithm, transform, sent, both[site], own, seed=SEED, number=number
            )
            assert finite
        progress = combine_answers(algorithm, transform, progress, answers, sites, sites, seed=SEED, number=number)
    kept = {site: own for site, (own, _) in both.items()}
    if not predicts:
        return jax.device_get(progress), both, None
    message = jax.device_get(algorithm.broadcast(progress.server))
    common = algorithm.params(progress.server)
    seen = [
        predict_rows(
            algorithm,
            own_params(algorithm, message, common, kept[site], own_rows(federation, site, "train"), seed=SEED),
            own_rows(federation, site, "test").x,
        )
        for site in range(sites)
    ]
    return jax.device_get(progress), both, np.concatenate(seen)


def check(algorithm, transform, federation, params, *, predicts=True) -> None:
    (theirs, scores), (ours, kept, seen) = (
        way(algorithm, transform, federation, params, predicts) for way in (simulated, deployed)
    )
    for a, b in zip(jax.tree.leaves(theirs.server), jax.tree.leaves(ours.server), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)
    for site, own in kept.items():
        stored = jax.tree.leaves((theirs.clients, theirs.carried))
        for table, value in zip(stored, jax.tree.leaves(own), strict=True):
            np.testing.assert_allclose(table[site], value, atol=1e-5, rtol=1e-5)
    if predicts:
        np.testing.assert_allclose(scores.predicted, seen, atol=1e-5)


def first(model):
    return model.init(jax.random.key(0))


def built(name: str, model, aggregator: str = "weighted_mean"):
    return registry.find("algorithm", name).build(model, registry.find("aggregator", aggregator).build())


@pytest.fixture
def model(model, layered, request):
    """A model that the algorithm can be made with."""
    return layered if request.node.callspec.params.get("name") == "federated_dropout" else model


@pytest.fixture(scope="module")
def unlike(make_federation):
    """Seven sites of three sizes, one of them empty: a site's program is compiled once for each size."""
    return make_federation([40, 40, 0, 7, 7, 40, 7])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm(name, unlike, model):
    check(built(name, model), identity(), unlike, first(model))


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_every_aggregator(aggregator, even, model):
    check(built("fed_avg", model, aggregator), identity(), even, first(model))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_transform(transform, even, model):
    component = registry.find("transform", transform)
    # The two columns of this model are each other's mirror image, and rotated they hold zeros up to rounding, whose
    # sign eden sends: it is left to its own tests.
    codes = any(one.name == "smallest" for one in component.parameters) and transform != "eden"
    small = {"smallest": 1} if codes else {}
    if transform == "top_k":  # of a mirrored pair both are sent or neither, or rounding would choose between them
        small["fraction"] = 2 / 3
    made = component.build(**small)
    aggregator = "multi_krum" if made.products_only else "weighted_mean"
    check(built("fed_avg", model, aggregator), made, even, first(model))


def stacked(params, copies: int):
    return jax.tree.map(lambda a: jnp.stack([a * (1 + place) for place in range(copies)]), params)


STARTS = {
    "losses": lambda params: stacked(params, 3),
    "curvature": lambda params: {"model": params, "right": stacked(params, 7), "without": jnp.arange(7)},
    "feature_gains": lambda params: {"params": params, "keep": jnp.asarray([[1.0, 1, 1], [1, 0, 1]])},
}
"""What a probe is begun with, where that is more than one model."""


@pytest.mark.parametrize("name", PROBES)
def test_every_probe(name, ragged, model):
    """A real site's half of a probe tells the server the same as in simulation; nothing is predicted with it."""
    component = registry.find("probe", name)
    quick = {"epochs": 5} if any(one.name == "epochs" for one in component.parameters) else {}
    # A step away from the start, where all gradients of a logistic model look alike.
    params = jax.tree.map(lambda a: a + 0.1, first(model))
    start = STARTS.get(name, lambda one: one)(params)
    check(component.build(model, **quick), identity(), ragged, start, predicts=False)
