"""What every robust aggregator must do: order and empty seats do not matter, and a bad minority moves it boundedly."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.aggregators.centered_clipping import centered_clipping
from wardround.aggregators.geometric_median import geometric_median
from wardround.aggregators.krum import krum
from wardround.aggregators.median import median
from wardround.aggregators.multi_krum import multi_krum
from wardround.aggregators.nearest_mixing import nearest_mixing
from wardround.aggregators.stacks import BLOCK
from wardround.aggregators.trimmed_mean import trimmed_mean
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core.contracts import Aggregator, Message

Matrix = np.ndarray[Any, Any]

AGGREGATORS = {
    "median": median(),
    "trimmed_mean": trimmed_mean(share=0.2),
    "krum": krum(bad=1),
    "multi_krum": multi_krum(bad=1),
    "geometric_median": geometric_median(),
    "centered_clipping": centered_clipping(radius=100.0),
    "nearest_mixing": nearest_mixing(bad=1),
}
REDUCE = {name: jax.jit(aggregator.reduce) for name, aggregator in AGGREGATORS.items()}
COLUMNS = 10
SITES = 7
everyone = pytest.mark.parametrize("name", sorted(AGGREGATORS))
data_root = Path(os.environ.get("WARDROUND_DATA", Path(__file__).parents[3] / "shared" / "data"))
heart = data_root / "uci_heart_disease" / "heart_disease_4_hospitals.csv"


def stacked(values: Matrix, weights: Matrix) -> Message:
    """Rows as the answers of sites with a kernel (3, 2) and a bias (4), multiplied by their weights."""
    sent = (values * weights[:, None]).astype(np.float32)
    update = {"kernel": sent[:, :6].reshape(-1, 3, 2), "bias": sent[:, 6:]}
    return Message({"update": update, "weight": weights.astype(np.float32)})


def flat(message: Message) -> Matrix:
    update = message.arrays["update"]
    return np.concatenate([np.asarray(update["kernel"]).ravel(), np.asarray(update["bias"])])


def first_state(aggregator: Aggregator, stack: Message) -> Any:
    return aggregator.init(jax.tree.map(lambda leaf: np.zeros_like(leaf[0]), stack))


def combine(name: str, values: Matrix, weights: Matrix) -> Matrix:
    stack = stacked(values, weights)
    return flat(REDUCE[name](first_state(AGGREGATORS[name], stack), stack)[0])


def answers(seed: int = 0, sites: int = SITES) -> tuple[Matrix, Matrix]:
    random = np.random.default_rng(seed)
    return random.normal(1.0, 2.0, (sites, COLUMNS)), random.integers(1, 50, sites).astype(float)


@everyone
def test_the_order_of_sites_changes_nothing(name: str) -> None:
    values, weights = answers()
    order = np.random.default_rng(1).permutation(SITES)
    np.testing.assert_allclose(
        combine(name, values[order], weights[order]), combine(name, values, weights), rtol=1e-6, atol=1e-6
    )


@everyone
def test_identical_answers_give_that_answer(name: str) -> None:
    values, weights = answers()
    np.testing.assert_allclose(combine(name, np.tile(values[0], (SITES, 1)), weights), values[0], rtol=1e-6, atol=1e-6)


@everyone
@pytest.mark.parametrize("filling", [0.0, 1e6, np.nan, np.inf, -np.inf])
def test_empty_seats_do_not_count_whatever_they_hold(name: str, filling: float) -> None:
    values, weights = answers()
    stack = stacked(np.insert(values, [0, 3], 0.0, axis=0), np.insert(weights, [0, 3], 0.0))
    empty = stack.arrays["weight"] == 0
    stack = jax.tree.map(
        lambda leaf: np.where(empty.reshape(-1, *[1] * (leaf.ndim - 1)) & (leaf.ndim > 1), np.float32(filling), leaf),
        stack,
    )
    message, _ = REDUCE[name](first_state(AGGREGATORS[name], stack), stack)
    np.testing.assert_allclose(flat(message), combine(name, values, weights), rtol=1e-6, atol=1e-6)
    assert float(message.arrays["weight"]) == weights.sum()


@everyone
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_site_that_sends_no_numbers_is_left_out(name: str, poison: float) -> None:
    values, weights = answers()
    poisoned = np.concatenate([values, values[:2]])
    poisoned[-2, 4] = poison
    heard = combine(name, poisoned, np.append(weights, [1.0, 0.0]))
    np.testing.assert_allclose(heard, combine(name, values, weights), rtol=1e-6, atol=1e-6)


@everyone
def test_nobody_there_gives_zeros(name: str) -> None:
    stack = stacked(answers()[0], np.zeros(SITES))
    state = first_state(AGGREGATORS[name], stack)
    message, after = REDUCE[name](state, stack)
    assert not flat(message).any()
    assert float(message.arrays["weight"]) == 0.0
    jax.tree.map(np.testing.assert_array_equal, after, state)


@everyone
def test_one_site_gives_its_answer_or_nothing_where_more_are_needed(name: str) -> None:
    values, weights = answers()
    weights[1:] = 0.0
    expected = np.zeros(COLUMNS) if AGGREGATORS[name].fewest > 1 else values[0]
    np.testing.assert_allclose(combine(name, values, weights), expected, rtol=1e-6, atol=1e-6)


@everyone
def test_the_result_has_the_form_of_an_answer_and_the_same_bits_again(name: str) -> None:
    values, weights = answers()
    stack = stacked(values, weights)
    state = first_state(AGGREGATORS[name], stack)
    message, after = REDUCE[name](state, stack)
    form = jax.tree.map(lambda leaf: (leaf.shape[1:], leaf.dtype), stack)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), message) == form
    assert jax.tree.map(np.shape, after) == jax.tree.map(np.shape, state)
    np.testing.assert_array_equal(flat(REDUCE[name](state, stack)[0]), flat(message))


@pytest.mark.parametrize("name", sorted(set(AGGREGATORS) - {"centered_clipping"}))
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), exponent=st.floats(-1, 30), slot=st.integers(0, SITES - 1))
def test_one_bad_site_of_seven_moves_the_result_boundedly(name: str, seed: int, exponent: float, slot: int) -> None:
    # With D the diameter of the six good answers, the result is at most 3 D from their mean: coordinate-wise ones stay
    # in the good range (<= D); Krum's choice lies within D of a good answer, since its score is at most a good one's,
    # 4 D² over four neighbours that are all good (<= 2 D); the geometric median is bounded by 2 (6/7) / (5/7) = 2.4
    # times the largest distance from the mean.
    values, _ = answers(seed)
    values[slot] = np.random.default_rng(seed + 1).normal(size=COLUMNS) * 10.0**exponent
    good = np.delete(values, slot, axis=0)
    diameter = max(np.linalg.norm(a - b) for a in good for b in good)
    heard = combine(name, values, np.ones(SITES))
    assert np.linalg.norm(heard - good.mean(axis=0)) <= 3 * diameter


@pytest.mark.parametrize("name", ["median", "geometric_median"])
def test_three_bad_sites_of_seven_that_collude_do_not_carry_it_off(name: str) -> None:
    values, _ = answers(5)
    for size in (1e2, 1e6, 1e20):
        values[:3] = size
        good = values[3:]
        diameter = max(np.linalg.norm(a - b) for a in good for b in good)
        # 2 (4/7) / (1/7) = 8 times the largest distance from the good mean.
        assert np.linalg.norm(combine(name, values, np.ones(SITES)) - good.mean(axis=0)) <= 8 * diameter


def real_gradients() -> tuple[Matrix, Matrix]:
    """Slope of the logistic loss at 0 on three groups of patients in each of four hospitals: twelve sites."""
    table = pd.read_csv(heart)
    x = table[["age", "sex", "cp", "trestbps", "thalach", "exang", "oldpeak"]]
    normal = ((x - x.mean()) / x.std()).fillna(0.0).to_numpy()
    slopes = normal * (0.5 - (table["num"].to_numpy() > 0))[:, None]
    sites = [
        rows[third::3] for rows in (np.flatnonzero(table["hospital"] == h) for h in table["hospital"].unique())
        for third in range(3)
    ]  # fmt: skip
    values = np.stack([slopes[rows].mean(axis=0) for rows in sites])
    return np.pad(values, ((0, 0), (0, COLUMNS - values.shape[1]))), np.array([float(len(rows)) for rows in sites])


@pytest.mark.skipif(not heart.exists(), reason=f"the heart disease data are not at {heart} (set WARDROUND_DATA)")
@everyone
def test_hospitals_keep_their_direction_when_two_of_twelve_sites_turn_theirs_round(name: str) -> None:
    values, weights = real_gradients()
    honest = np.average(values, axis=0, weights=weights)
    values[[2, 9]] *= -50.0

    def agreement(result: Matrix) -> float:
        return float(result @ honest / np.linalg.norm(result) / np.linalg.norm(honest))

    few = {
        **AGGREGATORS,
        "krum": krum(bad=2),
        "multi_krum": multi_krum(bad=2),
        "nearest_mixing": nearest_mixing(bad=2),
        "centered_clipping": centered_clipping(radius=0.3, iterations=3),
    }
    stack = stacked(values, weights)
    assert agreement(flat(weighted_mean().reduce((), jax.tree.map(lambda leaf: leaf.sum(axis=0), stack))[0])) < -0.5
    assert agreement(flat(jax.jit(few[name].reduce)(first_state(few[name], stack), stack)[0])) > 0.8


@everyone
def test_rows_longer_than_a_block_are_the_same_as_short_ones_side_by_side(name: str) -> None:
    # Every coordinate repeated k times scales all distances by sqrt(k), so the choice of any of these rules repeats too
    # (the radius of centered clipping is never reached here).
    values, weights = answers(3)
    times = 2 * BLOCK // COLUMNS + 1
    long = np.tile(values, (1, times))
    sent = (long * weights[:, None]).astype(np.float32)
    stack = Message({"update": sent, "weight": weights.astype(np.float32)})
    wide = {**AGGREGATORS, "centered_clipping": centered_clipping(radius=1e4)}[name]
    result = jax.jit(wide.reduce)(first_state(wide, stack), stack)[0].arrays["update"]
    assert result.shape == (COLUMNS * times,)
    assert result.size > 2 * BLOCK
    np.testing.assert_allclose(result, np.tile(combine(name, values, weights), times), rtol=1e-5, atol=2e-6)
