"""Cross-validation with inputs left out, against closed forms and another library; plans and pooled gains by hand."""

import inspect
from typing import get_type_hints

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.support.answers import numbers_told
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.mlp import mlp
from wardround.partners.probes.feature_gains import (
    columns_of,
    feature_gains,
    inputs_of,
    plan_trials,
    pool_gains,
)
from wardround.partners.probes.own_models import own_models

FEATURES = ("a", "b", "c")
KEEP = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]], np.float32)
CONVERGED = {"epochs": 600, "learning_rate": 0.1, "decay": 2.0}


def told(federation, algorithm, params, keep=KEEP, sites=None):
    engine = Simulation(federation, seed=3)
    progress = engine.begin(algorithm, {"params": params, "keep": keep})
    cohort = np.arange(len(federation.sites)) if sites is None else np.array(sites)
    return jax.tree.map(np.asarray, engine.train(algorithm, progress, [(1, cohort)])[0].server)


def numbers(sizes):
    """y = 2 a - b + noise; c says nothing."""
    task = Task((3,), (), "cost")
    parts = []
    for site, rows in enumerate(sizes):
        generator = np.random.default_rng([7, site])
        x = generator.normal(0.2 * site, 1, (rows, 3)).astype(np.float32)
        y = 2 * x[:, 0] - x[:, 1] + generator.normal(0, 0.5, rows)
        parts.append((f"site-{site}", [(x, y), (x[:1], y[:1]), (x[:1], y[:1])]))
    return assemble(parts, task, FEATURES)


def own_rows(federation, site, folds=5):
    """The site's training rows in the order of round 1, and the fold of each: its place modulo the folds."""
    first, count = federation.part("train")
    rows = int(count[site])
    order = first[site] + visiting_order(3, 1, np.array([site]), np.array([rows]), 1)[0]
    return federation.x[order].astype(float), federation.y[order], np.arange(rows) % folds


def summary(losses):
    """Mean losses (rows of `losses`: sets of inputs) and the standard error of each paired difference to set 0."""
    apart = losses - losses[0]
    return losses.mean(axis=1), apart.std(axis=1, ddof=1) / np.sqrt(losses.shape[1])


def test_a_regression_is_ridge_regression_fold_by_fold():
    """The minimum of |y - b - X w|^2 / n + decay/(2 n) |w|^2: (2 X'X + decay I) w = 2 X'y, the intercept left alone."""
    federation = numbers([23, 40])
    model = linear(federation.task)
    state = told(federation, feature_gains(model, **CONVERGED), model.init(jax.random.key(0)))
    for site in range(2):
        x, y, fold = own_rows(federation, site)
        losses = np.zeros((3, len(y)))
        for number, keep in enumerate(KEEP):
            for out in range(5):
                seen = np.column_stack([x * keep, np.ones(len(x))])
                learn = fold != out
                pull = np.diag([2.0, 2.0, 2.0, 0.0])
                w = np.linalg.solve(2 * seen[learn].T @ seen[learn] + pull, 2 * seen[learn].T @ y[learn])
                losses[number, ~learn] = (y[~learn] - seen[~learn] @ w) ** 2
        mean, error = summary(losses)
        np.testing.assert_allclose(state["loss"][site], mean, rtol=2e-4)
        np.testing.assert_allclose(state["gain_error"][site], error, rtol=2e-4, atol=1e-6)
    assert state["rows"].tolist() == [23, 40]


def test_a_classification_is_that_of_another_library(make_federation, model):
    """Two softmax columns w, -w carry half of the classical weight v each: decay/2 * 2 |v/2|^2 = |v|^2 / (2 C), C = 1
    for decay 2."""
    federation = make_federation([35, 28])
    state = told(federation, feature_gains(model, **CONVERGED), model.init(jax.random.key(0)))
    for site in range(2):
        x, y, fold = own_rows(federation, site)
        losses = np.zeros((3, len(y)))
        for number, keep in enumerate(KEEP):
            for out in range(5):
                learn = fold != out
                fitted = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(x[learn] * keep, y[learn])
                right = fitted.predict_proba(x[~learn] * keep)[np.arange((~learn).sum()), y[~learn]]
                losses[number, ~learn] = -np.log(right)
        mean, error = summary(losses)
        np.testing.assert_allclose(state["loss"][site], mean, rtol=1e-3)
        np.testing.assert_allclose(state["gain_error"][site], error, rtol=1e-3, atol=1e-6)


def test_both_probes_train_alike_by_default():
    ours, theirs = (inspect.signature(probe).parameters for probe in (feature_gains, own_models))
    assert {name: one.default for name, one in ours.items()} == {name: one.default for name, one in theirs.items()}
    assert get_type_hints(feature_gains, include_extras=True) == get_type_hints(own_models, include_extras=True)


TRACED = []
"""One entry each time the gradient is traced."""


@pytest.fixture(scope="module")
def quick(model):
    def counted(params, batch, key):
        TRACED.append(1)
        return model.gradient(params, batch, key)

    return feature_gains(model._replace(gradient=counted), epochs=30)


def test_all_inputs_is_what_own_models_finds(ragged, model, quick):
    """Also at the sites that say nothing: one is empty, one has a single row."""
    params = model.init(jax.random.key(0))
    engine = Simulation(ragged, seed=3)
    probe = own_models(model, epochs=30)
    own = engine.train(probe, engine.begin(probe, params), [(1, np.arange(7))])[0].server
    state = told(ragged, quick, params)
    np.testing.assert_allclose(state["loss"][:, 0], own["cv"], rtol=1e-5)
    assert state["rows"].tolist() == np.asarray(own["rows"]).tolist()
    assert (state["gain_error"][:, 0] == 0).all()


def test_empty_and_single_rows_say_nothing_and_harm_nobody(ragged, model, quick):
    """Sites of 40, 7, 0, 23, 1, 64 and 30 rows, those of site 3 all of one class; a site's answer is its own affair."""
    params = model.init(jax.random.key(0))
    state = told(ragged, quick, params)
    assert state["rows"].tolist() == [40, 7, 0, 23, 0, 64, 30]
    assert (state["loss"][[2, 4]] == 0).all()
    assert (state["gain_error"][[2, 4]] == 0).all()
    assert np.isfinite(state["loss"]).all()
    assert (state["loss"][[0, 1, 3, 5, 6]] > 0).all()
    alone = told(ragged, quick, params, sites=[1, 5])
    np.testing.assert_allclose(alone["loss"][[1, 5]], state["loss"][[1, 5]], rtol=1e-5)
    np.testing.assert_allclose(alone["gain_error"][[1, 5]], state["gain_error"][[1, 5]], rtol=1e-4, atol=1e-7)
    assert alone["rows"].tolist() == [0, 7, 0, 0, 0, 64, 0]


def test_other_sets_and_other_sites_need_no_new_program(ragged, model, quick):
    """To begin, and to count the bytes of an engine's first message, traces shapes too but compiles nothing: what is
    counted is what later rounds of the same engine trace."""
    params = model.init(jax.random.key(0))
    engine = Simulation(ragged, seed=3)
    found, traced = [], []
    for keep, sites in ((KEEP, range(7)), (KEEP[[0, 2, 1]], range(7)), (KEEP, (1, 4))):
        progress = engine.begin(quick, {"params": params, "keep": keep})
        begun = len(TRACED)
        progress, _ = engine.train(quick, progress, [(1, np.array(sites))])
        traced.append(len(TRACED) - begun)
        found.append(np.asarray(progress.server["loss"]))
    assert TRACED  # programs are shared with other tests, so the first round may find one already
    assert traced[1:] == [0, 0]
    np.testing.assert_allclose(found[1], found[0][:, [0, 2, 1]], rtol=1e-5)
    np.testing.assert_allclose(found[2][1], found[0][1], rtol=1e-5)


@pytest.mark.slow
def test_a_neural_network(make_federation):
    federation = make_federation([20, 12])
    model = mlp(federation.task, hidden=(4,))
    state = told(federation, feature_gains(model, epochs=5), model.init(jax.random.key(0)))
    assert np.isfinite(state["loss"]).all()
    assert (state["loss"] > 0).all()
    assert (state["gain_error"][:, 1:] > 0).all()


# Columns and plans


def test_inputs_of_columns():
    features = ("age", "age missing", "pain=no", "pain=very=much", "pain missing", "a=b", "a=b=x", "x missing")
    columns = ("age", "pain", "a=b", "x missing")
    assert inputs_of(features, columns) == {"age": (0, 1), "pain": (2, 3, 4), "a=b": (5, 6), "x missing": (7,)}
    assert columns_of(("age", "age missing", "pain=no", "pain=very=much", "x missing")) == ("age", "pain", "x missing")
    with pytest.raises(Refusal, match="'weight' belongs to none of the columns"):
        inputs_of(("age", "weight"), ("age",))


def test_a_plan_adds_to_what_the_site_records():
    """Site 1 lacks two columns that others have, site 2 one; nobody records the last column."""
    features = ("age", "sex=f", "sex=m", "lab", "lab missing", "shoe")
    columns = ("age", "sex", "lab", "shoe")
    recorded = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]], bool)
    everything = plan_trials(features, columns, recorded, 0)
    assert everything.further == ()
    assert everything.keep.tolist() == [[1, 1, 1, 1, 1, 0]] * 3, "as many rows as site 1 needs: one program for all"
    two = plan_trials(features, columns, recorded, 1)
    assert two.further == ("sex", "lab")
    assert two.keep.tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 0, 0, 1, 1, 0]]
    one = plan_trials(features, columns, recorded, 2)
    assert one.further == ("lab",)
    assert one.keep.tolist() == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]
    with pytest.raises(Refusal, match="has 3 columns, but 4 were prepared"):
        plan_trials(features, columns, recorded[:, :3], 0)


# Gains of several sites as one


def test_gains_that_differ_beyond_chance():
    """100 rows each, gains 0.1 and 0.3, errors 0.1: Q = 0.02/0.01 = 2 for 1 degree of freedom, so the variance between
    sites is (2 - 1)/(200 - 100) = 0.01 and the mean's is (0.01 + 0.01)/2. Three times as alike: weights 3/4 and 1/4."""
    gain, error, rows = np.array([0.1, 0.3]), np.array([0.1, 0.1]), np.array([100.0, 100.0])
    assert pool_gains(gain, error, rows, np.ones(2)) == pytest.approx((0.2, 0.1))
    expected = (0.75 * 0.1 + 0.25 * 0.3, np.sqrt((9 / 16 + 1 / 16) * 0.02))
    assert pool_gains(gain, error, rows, np.array([3.0, 1.0])) == pytest.approx(expected)


def test_gains_that_do_not_differ_count_by_rows():
    """300 and 100 rows with the same variance a row (12 and 12): no variance between, weights 3/4 and 1/4."""
    error = np.sqrt([12 / 300, 12 / 100])
    mean, off = pool_gains(np.array([0.2, 0.2]), error, np.array([300.0, 100.0]), np.ones(2))
    assert (mean, off) == pytest.approx((0.2, np.sqrt(12 / 400)))


def test_one_site_and_no_variance():
    assert pool_gains(np.array([0.4]), np.array([0.1]), np.array([50.0]), np.array([2.0])) == pytest.approx((0.4, 0.1))
    assert pool_gains(np.zeros(2), np.zeros(2), np.array([9.0, 1.0]), np.ones(2)) == (0.0, 0.0)


def test_a_small_own_error_does_not_outvote_the_others():
    """A site where the column does nothing has next to no error; by its own inverse variance it would be all that
    counts (weight 10,000 : 1), and the mean 0."""
    mean, off = pool_gains(np.array([0.0, 0.2]), np.array([0.0005, 0.05]), np.array([100.0, 100.0]), np.ones(2))
    assert mean == pytest.approx(0.1)
    assert off > 0.05


def test_an_answer_is_as_large_as_its_terms_say(model):
    """Of 5 sets of inputs: 5 losses, 5 errors and the number of rows."""
    params = {"params": model.init(jax.random.key(0)), "keep": np.ones((5, 3), np.float32)}
    assert numbers_told(feature_gains(model), params) == terms_of(feature_gains).numbers(Extent(models=5)) == 11
