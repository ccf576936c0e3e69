"""Own models and their cross-validation against closed forms, plain NumPy loops and scikit-learn."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.support.amount import ALL
from tests.support.answers import numbers_told
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Task
from wardround.core.federation import assemble
from wardround.core.order import visiting_order
from wardround.data.datasets.triage import triage
from wardround.data.load import load
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.partners.probes.own_models import own_models, rows_seen

SEED = 5


def asked(engine, model, algorithm, cohort=None):
    """The state after one round among the cohort."""
    cohort = np.arange(len(engine.sites)) if cohort is None else np.asarray(cohort)
    progress = engine.begin(algorithm, model.init(jax.random.key(0)))
    progress, _ = engine.train(algorithm, progress, [(1, cohort)])
    return jax.device_get(progress.server)


def simulated(federation):
    return Simulation(federation, seed=SEED, device_count=1)


def rows_in_order(federation, site):
    """A site's training rows as it visits them in its only pass."""
    first, count = federation.part("train")
    order = visiting_order(SEED, 1, np.array([site]), count[[site]], 1)[0]
    rows = first[site] + order
    return federation.x[rows].astype(np.float64), federation.y[rows]


def line_site(rows, seed, slope=2.0):
    generator = np.random.default_rng(seed)
    x = generator.normal(0.5, 1, (rows, 1))
    return x, (1 + slope * x[:, 0] + generator.normal(0, 0.5, rows)).astype(np.float32)


LINE = Task((1,), (), "value")
SIZES = (12, 7, 3, 1, 0, 90, 2)


@pytest.fixture(scope="module")
def lines():
    parts = [
        (f"site-{i}", [line_site(n, i, 1.0 + i), line_site(2, 50 + i), line_site(2, 80 + i)])
        for i, n in enumerate(SIZES)
    ]
    return assemble(parts, LINE, ("a",))


@pytest.fixture(scope="module")
def line_model():
    return linear(LINE)


@pytest.fixture(scope="module")
def line_probe(line_model):
    return own_models(line_model, epochs=400, learning_rate=0.05, decay=2.0)


@pytest.fixture(scope="module")
def line_engine(lines):
    return simulated(lines)


@pytest.fixture(scope="module")
def line_state(line_engine, line_model, line_probe):
    return asked(line_engine, line_model, line_probe)


def ridge(x, y, decay):
    """Where mean((y - w x - b)^2) + decay / (2 n) w^2 is least.

    Its derivative by b makes b = mean(y) - w mean(x); put in, that by w gives -2 Sxy + 2 w Sxx + decay w = 0 with the
    centred sums, so w = Sxy / (Sxx + decay / 2).
    """
    centred = x - x.mean()
    w = centred @ (y - y.mean()) / (centred @ centred + decay / 2)
    return w, y.mean() - w * x.mean()


def cross_validated(x, y, folds, decay):
    """(model, spread of both weights, mean loss, standard error), fold by fold."""
    fold = np.arange(len(y)) % folds
    loss, weights = np.zeros(len(y)), []
    for k in sorted(set(fold)):
        w, b = ridge(x[fold != k], y[fold != k], decay)
        loss[fold == k] = (y[fold == k] - w * x[fold == k] - b) ** 2
        weights.append((w, b))
    used = len(weights)
    spread = np.sqrt((used - 1) / used * np.square(weights - np.mean(weights, axis=0)).sum(axis=0))
    return ridge(x, y, decay), spread, loss.mean(), loss.std(ddof=1) / np.sqrt(len(y))


@pytest.mark.parametrize("site", [0, 1, 2, 5, 6])
def test_a_line_has_a_closed_form(site, lines, line_state):
    """Also with fewer rows than folds (3 and 2 rows for 5 folds), where every row is a fold."""
    x, y = rows_in_order(lines, site)
    (w, b), spread, loss, error = cross_validated(x[:, 0], y.astype(np.float64), 5, 2.0)
    assert line_state["models"]["dense_0/kernel"][site, 0, 0] == pytest.approx(w, abs=2e-4)
    assert line_state["models"]["dense_0/bias"][site, 0] == pytest.approx(b, abs=2e-4)
    assert line_state["spread"]["dense_0/kernel"][site, 0, 0] == pytest.approx(spread[0], rel=1e-2, abs=1e-3)
    assert line_state["spread"]["dense_0/bias"][site, 0] == pytest.approx(spread[1], rel=1e-2, abs=1e-3)
    assert line_state["cv"][site] == pytest.approx(loss, rel=2e-3)
    # Two equal losses have no spread. With few optimizations the root of a difference of squares is off by its root;
    # compiled as users compile it, it is exact.
    assert line_state["cv_error"][site] == pytest.approx(error, rel=2e-3, abs=1e-12 if ALL else 2e-2 * loss**0.5)
    assert line_state["rows"][site] == SIZES[site]


def test_a_site_with_one_row_or_none_says_nothing(line_state):
    for site in (3, 4):
        assert line_state["rows"][site] == 0
        assert line_state["cv"][site] == 0
        assert not line_state["models"]["dense_0/kernel"][site].any()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(line_state))


def test_a_site_does_not_depend_on_who_else_is_there(line_engine, line_model, line_probe, line_state):
    """The largest site is away, so that loops end earlier; who was not asked has no entry."""
    state = asked(line_engine, line_model, line_probe, [0, 2])
    for name in ("models", "spread", "cv", "cv_error", "rows"):
        for few, all_sites in zip(jax.tree.leaves(state[name]), jax.tree.leaves(line_state[name]), strict=True):
            np.testing.assert_allclose(few[[0, 2]], all_sites[[0, 2]], atol=1e-5)
            assert not few[[1, 3, 4, 5, 6]].any()


def test_rows_seen_by_hand():
    """Seven rows in three folds: 3, 2 and 2 rows, so 4, 5 and 5 are left, and the last model sees all 7."""
    assert rows_seen(np.int32(7), 3).tolist() == [4, 5, 5, 7]
    assert rows_seen(np.int32(2), 3).tolist() == [1, 1, 2, 2]
    assert rows_seen(np.int32(0), 3).tolist() == [0, 0, 0, 0]


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def stepped(x, y, allowed, *, epochs, rate, size, decay):
    """Logistic regression by batches in fixed order with momentum 0.9, the rows that are not allowed left out."""
    w, b = np.zeros((x.shape[1], 2)), np.zeros(2)
    speed = [np.zeros_like(w), np.zeros_like(b)]
    for _ in range(epochs):
        for begin in range(0, len(y), size):
            use = np.arange(begin, min(begin + size, len(y)))
            use = use[allowed[use]]
            if not len(use):
                continue
            wrong = (softmax(x[use] @ w + b) - np.eye(2)[y[use]]) / len(use)
            slopes = [x[use].T @ wrong + decay / allowed.sum() * w, wrong.sum(axis=0)]
            speed = [0.9 * v + g for v, g in zip(speed, slopes, strict=True)]
            w, b = w - rate * speed[0], b - rate * speed[1]
    return w, b


def test_steps_in_batches_are_those_of_a_plain_loop(ragged, model):
    """Sites of 40, 7, 0, 23, 1, 64 and 30 rows; a batch of 3 can lie wholly in the folds left out only at its end."""
    settings = {"epochs": 3, "learning_rate": 0.2, "batch_size": 3, "decay": 4.0}
    state = asked(simulated(ragged), model, own_models(model, folds=3, **settings))
    for site in (0, 1, 3, 5, 6):
        x, y = rows_in_order(ragged, site)
        fold, loss = np.arange(len(y)) % 3, np.zeros(len(y))
        loop = {"epochs": 3, "rate": 0.2, "size": 3, "decay": 4.0}
        kept = []
        for k in range(3):
            w, b = stepped(x, y, fold != k, **loop)
            out = fold == k
            loss[out] = -np.log(softmax(x[out] @ w + b)[np.arange(out.sum()), y[out]])
            kept.append(w)
        w, b = stepped(x, y, fold >= 0, **loop)
        np.testing.assert_allclose(state["models"]["dense_0/kernel"][site], w, atol=1e-5)
        np.testing.assert_allclose(state["models"]["dense_0/bias"][site], b, atol=1e-5)
        # K = 3 folds: (K - 1) / K times the sum of squares.
        spread = np.sqrt(2 / 3 * np.square(np.array(kept) - np.mean(kept, axis=0)).sum(axis=0))
        np.testing.assert_allclose(state["spread"]["dense_0/kernel"][site], spread, atol=1e-5)
        assert state["cv"][site] == pytest.approx(loss.mean(), abs=1e-5)
        assert state["cv_error"][site] == pytest.approx(loss.std(ddof=1) / np.sqrt(len(y)), abs=1e-5)


def test_the_defaults_reach_the_best_penalized_model_of_triage():
    """Against scikit-learn on the same folds.

    Two columns of weights +-w/2 at decay d are penalized by d/2 * 2 * |w/2|^2 = d/4 |w|^2, scikit-learn's one column by
    1/(2 C) |w|^2: C = 2/d.
    """
    federation = load(triage(hospitals=3, patients=120, clusters=1), seed=0).federation
    model = logistic(federation.task)
    state = asked(simulated(federation), model, own_models(model))
    for site in range(3):
        x, y = rows_in_order(federation, site)
        fold, loss = np.arange(len(y)) % 5, {2: [], 0.4: []}
        for c, found in loss.items():
            for k in range(5):
                fitted = LogisticRegression(C=c, max_iter=1000).fit(x[fold != k], y[fold != k])
                given = fitted.predict_proba(x[fold == k])
                found += list(-np.log(given[np.arange(len(given)), y[fold == k]]))
        assert state["cv"][site] == pytest.approx(np.mean(loss[0.4]), abs=2e-3)
        assert state["cv"][site] < np.mean(loss[2])  # a weaker pull (decay 1) does worse


def test_other_models_cross_validate_too(even):
    task = Task((3,), ("no", "yes"), "outcome")
    model = mlp(task, hidden=(8,))
    state = asked(simulated(even), model, own_models(model, folds=2, epochs=40))
    assert (state["cv"] < np.log(2)).all()
    assert all((leaf.max(axis=tuple(range(1, leaf.ndim))) > 0).all() for leaf in state["spread"].values())


def test_an_answer_is_as_large_as_its_terms_say(model):
    """A logistic model of 3 inputs and 2 classes has 3 * 2 + 2 = 8 parameters."""
    told = numbers_told(own_models(model), model.init(jax.random.key(0)))
    assert told == terms_of(own_models).numbers(Extent(parameters=8))
