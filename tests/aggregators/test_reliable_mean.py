"""Who contradicts the larger camp is left out, nobody for having other patients, and what was learned is remembered."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.reliable_mean import (
    MOST_SITES,
    camps,
    cosines,
    is_ordinary,
    reliable_mean,
    without_mean_input,
    without_mean_inputs,
)
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine.fit import describe_state
from wardround.engine.simulate import Simulation
from wardround.transforms.secure_sum import secure_sum

Matrix = np.ndarray[Any, Any]
SITES = 7
AGGREGATOR = reliable_mean()
REDUCE = jax.jit(AGGREGATOR.reduce)


def first(sites: int = SITES) -> Any:
    return AGGREGATOR.init(Message({"site": np.arange(sites)}))


def stack(values: Any, weights: Any = None, site: Any = None) -> Message:
    """Answers without layers, so that what sites say is taken as it is."""
    values = np.asarray(values, np.float32)
    weights = np.ones(len(values), np.float32) if weights is None else np.asarray(weights, np.float32)
    site = np.arange(len(values)) if site is None else np.asarray(site)
    return Message({"update": values * weights[:, None], "weight": weights, "site": site})


def combined(values: Any, weights: Any = None) -> Matrix:
    return np.asarray(REDUCE(first(len(values)), stack(values, weights))[0].arrays["update"])


# ---- what is looked at ----


def test_the_mean_input_is_taken_off_by_hand() -> None:
    # Two sites, two inputs, one output. Biases 1 and -2; kernels (1, 2) and (-2, -1). The fitted input is
    # sum of kernel times bias over the sum of squares: ((1 + 4) / 5, (2 + 2) / 5) = (1, 0.8).
    kernel, bias = jnp.array([[[1.0], [2.0]], [[-2.0], [-1.0]]]), jnp.array([[1.0], [-2.0]])
    left = np.asarray(without_mean_input(kernel, bias))[..., 0]
    np.testing.assert_allclose(left, [[0.0, 1.2], [0.0, 0.6]], atol=1e-6)


def test_layers_are_found_in_both_layouts_and_others_left_as_they_are() -> None:
    random = np.random.default_rng(0)
    kernel, bias = random.normal(size=(4, 3, 3, 2, 5)), random.normal(size=(4, 5))
    flax = without_mean_inputs({"conv/kernel": kernel, "conv/bias": bias, "norm/scale": bias, "norm/bias": bias})
    torch = without_mean_inputs({"conv.weight": np.moveaxis(kernel, -1, 1), "conv.bias": bias})
    assert sorted(flax) == ["conv/kernel", "norm/bias", "norm/scale"]
    np.testing.assert_array_equal(flax["norm/bias"], bias)
    np.testing.assert_allclose(flax["conv/kernel"], torch["conv.weight"], rtol=1e-6)
    # Least squares: what is left has no more in common with the biases.
    np.testing.assert_allclose(np.einsum("sio,so->i", flax["conv/kernel"], bias), 0.0, atol=1e-5)


def test_what_is_ordinary_by_hand() -> None:
    # Of 1, 1, 1, 2, 3 and 0.05 the median is 1, so 0.05 is next to nothing; of the rest the median is 1 again.
    lengths = jnp.log(jnp.array([1.0, 1.0, 1.0, 2.0, 3.0, 0.05]))
    assert np.asarray(is_ordinary(lengths, jnp.ones(6, bool), 2.5)).tolist() == [True] * 4 + [False] * 2


def test_camps_by_hand() -> None:
    # Everybody contradicts the last of three, who agree among themselves: the field of each is 0.4 + 0.4 + 0.4 + 0.3,
    # its own -3 * 0.4 + 0.3. With no evidence at all everybody is relied on.
    agreement = 0.4 * np.array([[0, 1, 1, -1], [1, 0, 1, -1], [1, 1, 0, -1], [-1, -1, -1, 0]])
    assert np.sign(np.asarray(camps(jnp.asarray(agreement)))).tolist() == [1, 1, 1, -1]
    assert (np.asarray(camps(jnp.zeros((3, 3)))) > 0).all()
    # Two against two who contradict each other: nobody knows, and nobody is left out.
    even = 0.4 * np.array([[0, 1, -1, -1], [1, 0, -1, -1], [-1, -1, 0, 1], [-1, -1, 1, 0]])
    assert (np.asarray(camps(jnp.asarray(even))) > 0).all()


# ---- who is heard ----


def test_sites_with_other_patients_are_all_heard_with_their_weights() -> None:
    values, weights = np.eye(5) + 0.05, np.arange(1.0, 6.0)
    np.testing.assert_allclose(combined(values, weights), weights @ values / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize("factor", [-0.5, -1.0, -3.0, 0.0, 30.0])
def test_liars_leave_no_trace(factor: float) -> None:
    """Three of ten send a multiple of the honest mean: turned round, nothing, or much too long."""
    random = np.random.default_rng(0)
    honest = random.normal(size=(7, 40)) * 0.5 + random.normal(size=40)
    values = np.concatenate([np.tile(factor * honest.mean(axis=0), (3, 1)), honest])
    np.testing.assert_allclose(combined(values), honest.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_wrong_labels_are_told_from_other_patients() -> None:
    """Softmax slopes at 0: inputs around one centre a class, sites of two of four classes, three with labels shifted.

    Without the mean input taken off, a site with wrong labels agrees with some who hold those labels and is kept.
    """
    random, classes = np.random.default_rng(3), 4
    centres = 3.0 + random.normal(size=(classes, 12))
    held = np.array([[site % classes, (site + 1 + site // classes) % classes] for site in range(12)])
    labels = np.where(np.arange(12)[:, None] < 3, (held + 1) % classes, held)
    errors = np.eye(classes)[labels] - 1 / classes
    kernels, biases = np.einsum("sri,sro->sio", centres[held], errors), errors.sum(axis=1)

    def relied_on(names: tuple[str, str]) -> list[float]:
        update = dict(zip(names, (np.float32(kernels), np.float32(biases)), strict=True))
        said = Message({"update": update, "weight": np.ones(12, np.float32), "site": np.arange(12)})
        found: list[float] = np.asarray(REDUCE(first(12), said)[1]["reliable"]).tolist()
        return found

    assert relied_on(("dense_0/kernel", "dense_0/bias")) == [0] * 3 + [1] * 9
    assert relied_on(("something", "else")) != [0] * 3 + [1] * 9


def test_what_was_learned_is_remembered_over_rounds_in_which_others_answer() -> None:
    """Sites 0 to 5; 5 lies in round 1, and in round 2 says what 0 says, beside 0 alone: it stays out."""
    random = np.random.default_rng(1)
    common = random.normal(size=30)
    honest = common + 0.3 * random.normal(size=(5, 30))
    state = REDUCE(first(6), stack(np.concatenate([honest, -honest[:1]])))[1]
    assert np.asarray(state["reliable"]).tolist() == [1] * 5 + [0]
    agreed = np.asarray(cosines(state))
    assert agreed[0, 5] == pytest.approx(-1.0, abs=1e-5)
    said, after = REDUCE(state, stack([honest[0], 0.5 * honest[0]], site=[0, 5]))
    np.testing.assert_allclose(said.arrays["update"], honest[0], rtol=1e-5)
    # Over both rounds: (-1 + 0.5) |x|² over the root of (1 + 1)(1 + 0.25) |x|⁴; nobody else's evidence is changed.
    assert np.asarray(cosines(after))[0, 5] == pytest.approx(-0.5 / np.sqrt(2 * 1.25), abs=1e-5)
    np.testing.assert_array_equal(np.asarray(cosines(after))[1:5, 1:5], agreed[1:5, 1:5])


def test_forgetting_lets_a_site_come_back() -> None:
    honest = np.ones((5, 8)) + 0.2 * np.eye(5, 8)
    lies = np.concatenate([honest[:4], -honest[4:]])
    short = reliable_mean(keep=0.1)
    for aggregator, expected in ((AGGREGATOR, 0.0), (short, 1.0)):
        state = aggregator.init(Message({"site": np.arange(5)}))
        for values in (lies, lies, lies, honest, honest):
            state = jax.jit(aggregator.reduce)(state, stack(values))[1]
        assert float(state["reliable"][4]) == expected


# ---- the contract ----


def test_order_and_empty_seats_do_not_matter() -> None:
    random = np.random.default_rng(2)
    values, weights = 1 + random.normal(size=(SITES, 10)), np.arange(1.0, SITES + 1)
    said, state = REDUCE(first(), stack(values, weights))
    order = random.permutation(SITES)
    moved, other = REDUCE(first(), stack(values[order], weights[order], order))
    np.testing.assert_allclose(moved.arrays["update"], said.arrays["update"], rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-5), state, other)
    for filling in (0.0, 1e6, np.nan):
        seats = stack(values, weights)
        arrays = {name: np.insert(array, 3, 0, axis=0) for name, array in seats.arrays.items()}
        arrays["update"][3], arrays["site"][3] = filling, SITES
        heard, after = REDUCE(first(), Message(arrays))
        np.testing.assert_allclose(heard.arrays["update"], said.arrays["update"], rtol=1e-5, atol=1e-6)
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-5), state, after)


def test_nobody_there_gives_zeros_and_teaches_nothing() -> None:
    said, state = REDUCE(first(), stack(np.ones((SITES, 3)), np.zeros(SITES)))
    assert not np.asarray(said.arrays["update"]).any()
    assert float(said.arrays["weight"]) == 0.0
    jax.tree.map(np.testing.assert_array_equal, state, first())


def test_one_site_gives_its_answer() -> None:
    np.testing.assert_allclose(combined([[1.0, -2.0]]), [1.0, -2.0], rtol=1e-6)


def test_the_record_tells_who_is_left_out(even: Any, model: Any) -> None:
    algorithm = fed_avg(model, reliable_mean())
    with Simulation(even, seed=3) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        told = describe_state(algorithm, progress, engine.sites)
        assert describe_state(fed_avg(model, weighted_mean()), progress, engine.sites) == {}
    assert told == {"told": {"reliable": dict.fromkeys(even.sites, 1.0)}}


def test_refused_where_single_answers_are_hidden(even: Any, model: Any) -> None:
    words = r"must see each of them.*weighted_mean"
    with Simulation(even, seed=3, transform=secure_sum()) as engine, pytest.raises(Refusal, match=words):
        engine.begin(fed_avg(model, reliable_mean()), model.init(jax.random.key(0)))


def test_too_many_sites_are_refused() -> None:
    with pytest.raises(Refusal, match=f"{MOST_SITES + 1} sites.*majority_mean"):
        first(MOST_SITES + 1)


def test_a_long_answer_is_left_out_of_its_round_and_not_for_ever() -> None:
    # Seven sites that agree. In the sixth round one answers at three times its length: on average 3^(1/6) = 1.2 times
    # as long, so it is relied on; that answer alone is left out. The mean of seven would be (6 + 3) / 7.
    usual = np.tile([1.0, 0.0], (SITES, 1))
    long = usual * np.where(np.arange(SITES) == 0, 3.0, 1.0)[:, None]
    for at_once, expected in ((2.0, 1.0), (0.0, 9 / 7), (4.0, 9 / 7)):
        own = reliable_mean(at_once=at_once)
        state = own.init(Message({"site": np.arange(SITES)}))
        reduce = jax.jit(own.reduce)
        for _ in range(5):
            _, state = reduce(state, stack(usual))
        found, state = reduce(state, stack(long))
        np.testing.assert_allclose(found.arrays["update"], [expected, 0.0], rtol=1e-5)
        assert np.asarray(state["reliable"]).all()
        np.testing.assert_allclose(reduce(state, stack(usual))[0].arrays["update"], [1.0, 0.0], rtol=1e-5)
