"""Majority vote by hand."""

import jax
import numpy as np
import pytest

from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.majority_vote import majority_vote

TASK = Task((4,), ("no", "yes"))
KEY = jax.random.key(0)


def test_by_hand():
    # Functions vote no, no, yes; the fourth column is a feature. Two against one; one alone; a tie; no vote at all.
    model = majority_vote(TASK, votes=("no", "no", "yes"), balance=(0.25, 0.75))
    x = np.array([[1, 1, 1, 9], [0, 0, 1, 9], [1, 0, 1, 9], [0, 0, 0, 9]], np.float32)
    found = np.asarray(model.predict(model.init(KEY), x))
    np.testing.assert_allclose(found[:2, 1], [1 / 3, 1], atol=1e-3)
    assert found[2].argmax() == 1, "a tie goes to the likelier class"
    np.testing.assert_allclose(found[3], [0.25, 0.75], rtol=1e-5)


def test_columns_that_were_scaled_vote_the_same_and_nothing_is_learned():
    model = majority_vote(TASK, votes=("no", "no", "yes"))
    x = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(np.float32)
    params = model.init(KEY)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    np.testing.assert_allclose(model.predict(params, scaled), model.predict(params, x))
    batch = Batch(x, np.zeros(30, np.int32), np.ones(30, np.float32))
    assert float(model.loss(params, batch, KEY)) == 0
    assert not np.asarray(model.gradient(params, batch, KEY)["unused"]).any()


@pytest.mark.parametrize(
    ("task", "votes", "balance", "told"),
    [
        (TASK, (), (), "has no labeling functions"),
        (TASK, ("maybe",), (), "votes for 'maybe', and the classes are no, yes"),
        (TASK, ("no", "yes"), (0.5,), "a number above 0 for each of no, yes"),
        (TASK, ("no", "yes"), (0.0, 1.0), "a number above 0"),
        (TASK, ("no", "yes", "no", "no", "yes"), (), "5 functions, but a row has shape"),
        (TASK, ("no", "no"), (), "vote for 'no', so nothing tells"),
        (Task((4,)), ("no",), (), "the target is a number"),
    ],
)
def test_mistakes(task, votes, balance, told):
    with pytest.raises(Refusal, match=told):
        majority_vote(task, votes=votes, balance=balance)
