"""Mixing by hand, and what it changes: a lie far out stays in its own row, and honest differences are averaged away."""

from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.krum import krum
from wardround.aggregators.nearest_mixing import mix_nearest, nearest_mixing
from wardround.aggregators.stacks import open_stack
from wardround.core.contracts import Message

RULES = ("trimmed_mean", "median", "geometric_median", "krum")


def message(values: Any, weights: Any = None) -> Message:
    values = np.asarray(values, np.float32)
    weights = np.ones(len(values), np.float32) if weights is None else np.asarray(weights, np.float32)
    return Message({"update": values * weights[:, None], "weight": weights})


def combined(values: Any, weights: Any = None, **settings: Any) -> np.ndarray[Any, Any]:
    said, _ = jax.jit(nearest_mixing(**settings).reduce)((), message(values, weights))
    return np.asarray(said.arrays["update"])


def test_mixing_by_hand() -> None:
    # Of 0, 1, 3, 7 and 100 with one bad each takes its four nearest, itself among them: the first four (0 + 1 + 3 + 7)
    # / 4 = 2.75, and 100 itself with 7, 3 and 1: 27.75.
    values = np.array([[0.0], [1.0], [3.0], [7.0], [100.0]])
    stack = mix_nearest(open_stack(message(values)), 1)
    np.testing.assert_allclose(np.asarray(stack.values)[:, 0], [2.75, 2.75, 2.75, 2.75, 27.75], rtol=1e-6)
    # Without the largest and the smallest, and by every other rule, 2.75 is left.
    for rule in RULES:
        assert combined(values, bad=1, then=rule)[0] == pytest.approx(2.75, rel=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_nobody_bad_is_the_mean_of_all_sites(rule: str) -> None:
    values = np.random.default_rng(0).normal(size=(6, 5))
    np.testing.assert_allclose(combined(values, bad=0, then=rule), values.mean(axis=0), atol=1e-6)


def test_every_site_has_one_vote() -> None:
    values, weights = np.random.default_rng(1).normal(size=(7, 4)), [1, 500, 2, 9, 40, 3, 7]
    for rule in RULES:
        np.testing.assert_allclose(
            combined(values, weights, bad=2, then=rule), combined(values, bad=2, then=rule), rtol=1e-4, atol=1e-5
        )


def test_empty_seats_are_mixed_into_nobody() -> None:
    values = np.random.default_rng(2).normal(size=(7, 4))
    seats = np.insert(values, [0, 4], 1e6, axis=0)
    weights = np.insert(np.ones(7), [0, 4], 0.0)
    np.testing.assert_allclose(combined(seats, weights, bad=2), combined(values, bad=2), atol=1e-6)


def test_too_few_answers_count_as_none() -> None:
    assert (nearest_mixing(bad=2).fewest, nearest_mixing(bad=2, then="krum").fewest) == (5, 7)
    assert not combined(np.ones((4, 3)), bad=2).any()
    assert combined(np.ones((5, 3)), bad=2).all()


@pytest.mark.slow
def test_where_honest_sites_differ_it_stays_closer_to_their_mean_than_the_rule_alone() -> None:
    """Two camps of honest sites (9 and 5), and six who send the honest mean turned round."""
    random = np.random.default_rng(3)
    far_alone, far_mixed = [], []
    for _ in range(20):
        honest = random.normal(size=(14, 30)) + 3 * np.repeat([[1.0], [-1.0]], [9, 5], axis=0) * random.normal(size=30)
        lies = np.tile(-honest.mean(axis=0), (6, 1))
        stack = message(np.concatenate([honest, lies]))
        alone = np.asarray(krum(bad=6).reduce((), stack)[0].arrays["update"])
        both = np.asarray(nearest_mixing(bad=6, then="krum").reduce((), stack)[0].arrays["update"])
        far_alone.append(np.linalg.norm(alone - honest.mean(axis=0)))
        far_mixed.append(np.linalg.norm(both - honest.mean(axis=0)))
    assert np.mean(far_mixed) < np.mean(far_alone)
