"""WeaSEL by hand, in its limits, and on votes of known accuracy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.mlp import mlp
from wardround.models.weasel import weasel

KEY = jax.random.key(0)
VOTES = ("no", "no", "yes", "yes")
TASK = Task((6,), ("no", "yes"))


def rows(n=400, seed=0):
    """Two features; four functions of accuracy 0.9, 0.6, 0.9, 0.6 that vote on half of the rows."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, n)
    features = generator.normal(size=(n, 2)) + 1.5 * y[:, None]
    accuracy, of = np.array([0.9, 0.6, 0.9, 0.6]), np.array([0, 0, 1, 1])
    chance = np.where(of == y[:, None], accuracy, 1 - accuracy) * 0.8
    cast = generator.random((n, 4)) < chance
    return np.concatenate([cast, features], axis=1).astype(np.float32), y


def test_names_and_number_of_parameters():
    # The label model: 6 x 20 + 20, 20 x 20 + 20, 20 x 4 + 4. The end model: 2 x 20 + 20, 420, 20 x 2 + 2.
    params = jax.eval_shape(weasel(TASK, votes=VOTES).init, KEY)
    sizes = {part: sum(one.size for name, one in params.items() if name.startswith(part)) for part in ("label", "end")}
    assert sizes == {"label": 140 + 420 + 84, "end": 60 + 420 + 42}


@pytest.mark.parametrize(("scale", "times"), [("count", 4.0), ("root", 2.0)])
def test_the_loss_by_hand(scale, times):
    """Both networks at zeros: weights are 1/4 times the scale each, the end model says 1/2."""
    model = weasel(TASK, votes=VOTES, scale=scale, balance=(0.4, 0.6))
    params = jax.tree.map(jnp.zeros_like, model.init(KEY))
    x = np.array([[1, 1, 1, 0, 5, 5], [0, 0, 0, 0, 5, 5]], np.float32)
    weight = times / 4
    odds = np.array([0.4 * np.exp(2 * weight), 0.6 * np.exp(weight)])
    labelled = odds / odds.sum()
    # -(labelled . log 1/2) - (1/2 . log labelled) in the first row; the second has no vote and teaches nothing.
    expected = (np.log(2) - np.log(labelled).mean()) / 2
    found = model.loss(params, Batch(x, np.zeros(2, np.int32), np.ones(2, np.float32)), KEY)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_each_model_takes_the_other_for_the_truth():
    """The end model's gradient is that of its cross entropy against labels that do not move with it."""
    model = weasel(TASK, votes=VOTES)
    x, y = rows(20)
    batch, params = Batch(x, y, np.ones(20, np.float32)), model.init(KEY)
    found = model.gradient(params, batch, KEY)
    # Without the stops, the sum of both cross entropies would have another gradient in either half; with them, an end
    # model that learns from equal weights (a label model at zeros gives these) is just that of learn_from = "majority".
    flat = {name: jnp.zeros_like(one) if name.startswith("label") else one for name, one in params.items()}
    other = weasel(TASK, votes=VOTES, learn_from="majority")
    one, two = model.gradient(flat, batch, KEY), other.gradient(flat, batch, KEY)
    for name in one:
        if name.startswith("end"):
            np.testing.assert_allclose(one[name], two[name], rtol=1e-4, atol=1e-7)
        else:
            assert not np.asarray(two[name]).any(), "the majority has no label model to teach"
            assert np.isfinite(np.asarray(found[name])).all()
    assert np.asarray(found["label_model/dense_2/kernel"]).any()


def test_labels_are_the_supervised_model():
    model = weasel(TASK, votes=VOTES, learn_from="labels", end_hidden=(5,))
    plain = mlp(Task((2,), TASK.classes), hidden=(5,))
    x, y = rows(30)
    params = model.init(KEY)
    own = {name.removeprefix("end_model/"): one for name, one in params.items() if name.startswith("end_model/")}
    mask = np.ones(30, np.float32)
    assert float(model.loss(params, Batch(x, y, mask), KEY)) == pytest.approx(
        float(plain.loss(own, Batch(x[:, 4:], y, mask), KEY)), rel=1e-5
    )
    unknown = np.full(30, -1, np.int32)
    assert float(model.loss(params, Batch(x, unknown, mask), KEY)) == 0, "without a label there is nothing to learn"


def test_padding_does_not_count_and_votes_are_no_inputs_of_the_end_model():
    model = weasel(TASK, votes=VOTES)
    x, y = rows(8)
    params = model.init(KEY)
    padded = Batch(
        np.concatenate([x, np.full((3, 6), np.nan, np.float32)]),
        np.append(y, [0, 0, 0]),
        np.r_[np.ones(8), np.zeros(3)],
    )
    alone = Batch(x, y, np.ones(8))
    assert float(model.loss(params, padded, KEY)) == pytest.approx(float(model.loss(params, alone, KEY)), rel=1e-6)
    assert float(model.loss(params, Batch(x, y, np.zeros(8)), KEY)) == 0
    other = x.copy()
    other[:, :4] = 1 - other[:, :4]
    np.testing.assert_array_equal(model.predict(params, x), model.predict(params, other))


def test_learns_from_votes_what_the_features_tell():
    x, y = rows(1500)
    batch = Batch(x, np.zeros_like(y), np.ones(len(y), np.float32))  # no label is ever seen
    optimizer = optax.adam(0.01)
    model = weasel(TASK, votes=VOTES)

    def step(_, carry):
        updates, memory = optimizer.update(model.gradient(carry[0], batch, KEY), carry[1])
        return optax.apply_updates(carry[0], updates), memory

    params = jax.jit(lambda p: jax.lax.fori_loop(0, 60, step, (p, optimizer.init(p)))[0])(model.init(KEY))
    new, truth = rows(1000, seed=1)
    right = (np.asarray(model.predict(params, new)).argmax(axis=1) == truth).mean()
    counts = new[:, :4] @ np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    majority = np.where(counts[:, 0] == counts[:, 1], 0.5, counts.argmax(axis=1) == truth).mean()
    # The best border of two features 1.5 apart is right with probability Phi(1.5 / sqrt 2) = 0.856.
    assert right > 0.84
    assert majority < 0.8


def test_predictions_from_votes_are_the_label_model_s_where_a_function_votes():
    """A label model at zeros weighs every vote 1: two votes against one are odds of e; without a vote, the text."""
    model, by_votes = (weasel(TASK, votes=VOTES, predict_from=one) for one in ("features", "votes"))
    params = {name: jnp.zeros_like(one) if name.startswith("label") else one for name, one in model.init(KEY).items()}
    x = np.array([[1, 1, 1, 0, 5, 5], [0, 0, 0, 0, 5, 5], [0, 0, 0, 1, -5, 5]], np.float32)
    found, seen = np.asarray(by_votes.predict(params, x)), np.asarray(model.predict(params, x))
    odds = np.e / (1 + np.e)
    np.testing.assert_allclose(found[[0, 2]], [[odds, 1 - odds], [1 - odds, odds]], rtol=1e-5)
    np.testing.assert_array_equal(found[1], seen[1])
    majority = weasel(TASK, votes=VOTES, learn_from="majority", predict_from="votes")
    np.testing.assert_allclose(np.asarray(majority.predict(params, x))[[0, 2]], found[[0, 2]], rtol=1e-5)
    with pytest.raises(Refusal, match="no label model to predict with"):
        weasel(TASK, votes=VOTES, learn_from="labels", predict_from="votes")


@pytest.mark.parametrize("end", ["logistic", "series_cnn"])
def test_other_end_models(end):
    task = Task((14,), ("no", "yes"))
    model = weasel(task, votes=VOTES, end_model=end)
    found = model.predict(model.init(KEY), np.ones((3, 14), np.float32))
    np.testing.assert_allclose(np.asarray(found).sum(axis=1), 1, rtol=1e-5)


def test_nothing_beside_votes_is_refused():
    with pytest.raises(Refusal, match="the end model has nothing to see"):
        weasel(Task((4,), ("no", "yes")), votes=VOTES)


def test_rules_for_one_class_only_are_refused():
    with pytest.raises(Refusal, match="All labeling functions vote for 'yes', so nothing tells the classes apart"):
        weasel(TASK, votes=("yes", "yes"))
