"""What a site answers, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.answers import Weights, answer, class_shares, weight_of
from wardround.core.contracts import Aggregator, Model, Shard
from wardround.core.descent import CHUNK


def shard_of(labels: list[int], *, longest: int | None = None) -> Shard:
    """A site with these labels, between rows of other sites whose label is 2."""
    places = longest or len(labels)
    y = np.array([2, 2, *labels, *[2] * (places - len(labels) + CHUNK)], np.int32)
    begin, rows, most, site = (jnp.int32(number) for number in (2, len(labels), places, 0))
    return Shard(jnp.zeros((len(y), 3)), jnp.asarray(y), begin, rows, most, site, CHUNK)


def mean(needs: tuple[str, ...] = ()) -> Aggregator:
    return Aggregator(lambda template: (), lambda state, total: (total, state), linear=True, needs=needs)


def model(classes: int) -> Model:
    """Only the shape of its predictions is looked at."""
    return Model(
        init=lambda key: {},
        loss=lambda params, batch, key: jnp.zeros(()),
        predict=lambda params, x: jnp.zeros((x.shape[0], classes)),
        gradient=lambda params, batch, key: {},
    )


def test_weights_are_rows_or_votes_and_nothing_for_an_empty_site() -> None:
    many, one, none = shard_of([0] * 7), shard_of([1]), shard_of([], longest=7)
    assert [float(weight_of(shard, "samples")) for shard in (many, one, none)] == [7, 1, 0]
    assert [float(weight_of(shard, "uniform")) for shard in (many, one, none)] == [1, 1, 0]
    assert weight_of(many, "samples").dtype == jnp.float32


def test_class_shares_by_hand() -> None:
    # Three of four rows are class 1; the neighbours' class 2 is not seen, nor are rows past the end.
    for longest in (4, 200):
        assert class_shares(shard_of([1, 1, 0, 1], longest=longest), 3).tolist() == [0.25, 0.75, 0.0]
    assert class_shares(shard_of([], longest=70), 3).tolist() == [0.0, 0.0, 0.0]


def test_class_shares_of_several_chunks() -> None:
    labels = [0] * 90 + [1] * 45 + [2] * 15
    np.random.default_rng(0).shuffle(labels)
    np.testing.assert_allclose(class_shares(shard_of(labels), 3), [0.6, 0.3, 0.1], rtol=1e-6)


@pytest.mark.parametrize(("weights", "weight"), [("samples", 4.0), ("uniform", 1.0)])
def test_all_but_the_weight_is_multiplied_by_it(weights: Weights, weight: float) -> None:
    shard = shard_of([1, 1, 0, 1])
    given = {"update": {"w": jnp.array([0.5, -2.0])}, "control": (jnp.array(3.0),)}
    said = answer(model(2), mean(), {}, shard, weights, given)
    assert set(said.arrays) == {"update", "control", "weight"}
    assert float(said.arrays["weight"]) == weight
    assert said.arrays["update"]["w"].tolist() == [0.5 * weight, -2.0 * weight]
    assert float(said.arrays["control"][0]) == 3.0 * weight
    assert said.meta == ()
    assert set(given) == {"update", "control"}


def test_class_shares_go_along_only_when_asked_for_and_weighted_too() -> None:
    shard = shard_of([1, 1, 0, 1])
    said = answer(model(4), mean(("class_shares",)), {}, shard, "samples", {"update": jnp.ones(1)})
    # The model has four outputs, so there are four shares: (1/4, 3/4, 0, 0) times four patients.
    assert said.arrays["class_shares"].tolist() == [1.0, 3.0, 0.0, 0.0]


def test_an_empty_site_answers_with_zeros() -> None:
    said = answer(model(3), mean(("class_shares",)), {}, shard_of([], longest=5), "samples", {"update": jnp.ones(2)})
    assert all(not leaf.any() for leaf in jax.tree.leaves(said))
