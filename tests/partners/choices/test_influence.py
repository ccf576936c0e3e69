from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Model, Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.datasets.triage import triage
from wardround.data.folder import data_folder
from wardround.data.load import load
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.partners.choice import Evidence, Question
from wardround.partners.choices.influence import influence, influence_at
from wardround.partners.choices.leave_one_out import leave_one_out
from wardround.partners.similarity.rank_agreement import agreement

NUMBER = Task((3,), (), "days")
MODELS = {l2: linear(NUMBER, l2=l2) for l2 in (0.0, 0.5)}
HEART = data_folder() / "uci_heart_disease"
with_real_data = pytest.mark.skipif(not HEART.exists(), reason=f"there is no {HEART} (set WARDROUND_DATA)")


def regression():
    """Four sites and an empty one; site 2 is another world."""
    generator = np.random.default_rng(2)

    def rows(site, size):
        x = generator.normal(0, 1, (size, 3)).astype(np.float32)
        y = x @ ([-1.0, 2.0, 0.5] if site == 2 else [1.0, 0.1 * site, -1.0]) + 0.5 + generator.normal(0, 0.5, size)
        return x, y.astype(np.float32)

    sizes = (40, 60, 50, 35, 0)
    return assemble([(f"site-{i}", [rows(i, n), rows(i, 25), rows(i, 20)]) for i, n in enumerate(sizes)], NUMBER)


def part_of(federation, part, site):
    first, count = federation.part(part)
    rows = slice(int(first[site]), int(first[site] + count[site]))
    x = np.hstack([federation.x[rows], np.ones((int(count[site]), 1))]).astype(np.float64)
    return x, federation.y[rows].astype(np.float64)


def ask(federation, model, user, rounds, *, candidates=None, learning_rate=0.3):
    others = tuple(site for site in range(len(federation.sites)) if site != user)
    params = model.init(jax.random.key(0))
    return Question(
        Simulation(federation), model, taught(model, learning_rate), params, rounds, user, candidates or others
    )


@cache
def taught(model, learning_rate):
    """One algorithm for one model, so that its program is compiled once."""
    return fed_avg(model, weighted_mean(), batch_size=0, learning_rate=learning_rate)


@pytest.mark.parametrize(("part", "l2"), [("validation", 0.5), ("test", 0.0)])
def test_least_squares_without_a_site_is_found_exactly_even_from_a_half_trained_model(part, l2):
    # The loss is quadratic, so one Newton step from anywhere leads to the optimum. Ridge in closed form: the gradient
    # of mean (x w - y)^2 + l2/2 |w|^2 is 0 where (2 X'X / n + l2 E) w = 2 X'y / n, E without the intercept.
    federation = regression()

    def ridge(sites):
        x, y = (np.concatenate(p) for p in zip(*[part_of(federation, "train", s) for s in sites], strict=True))
        pull = l2 * np.diag([1, 1, 1, 0])
        return np.linalg.solve(2 * x.T @ x / len(y) + pull, 2 * x.T @ y / len(y))

    question = ask(federation, MODELS[l2], 1, rounds=2)
    evidence = influence(part=part, damping=0.0, tolerance=1e-6, iterations=8).assess(question)
    x, y = part_of(federation, part, 1)
    whole = np.square(x @ ridge((0, 1, 2, 3)) - y)
    for site in (0, 2, 3):
        rise = np.square(x @ ridge([one for one in range(4) if one != site]) - y) - whole
        assert evidence.score[site] == pytest.approx(rise.mean(), rel=2e-3, abs=1e-5)
        assert evidence.error[site] == pytest.approx(rise.std(ddof=1) / np.sqrt(len(rise)), rel=2e-3)
    assert np.isnan(evidence.score[1])
    assert evidence.score[4] == pytest.approx(0, abs=1e-6)  # an empty site
    assert evidence.details["training_loss_still_to_gain"] > 0.01
    assert evidence.details["unsolved"] == []


def test_logistic_steps_are_those_of_newtons_method_written_down(make_federation, model):
    # An independent Newton step for one column of weights, from the optimum that NumPy finds by itself.
    federation = make_federation([40, 60, 25, 50])
    data = [part_of(federation, "train", site) for site in range(4)]

    def newton(w, sites):
        gradient, hessian = np.zeros(4), np.zeros((4, 4))
        for x, y in (data[site] for site in sites):
            p = 1 / (1 + np.exp(-x @ w))
            gradient += x.T @ (p - y)
            hessian += (x * (p * (1 - p))[:, None]).T @ x
        return w - np.linalg.solve(hessian, gradient)

    optimum = np.zeros(4)
    for _ in range(20):
        optimum = newton(optimum, range(4))
    x, y = part_of(federation, "validation", 0)

    def loss(w):
        return np.mean(np.logaddexp(0, x @ w) - y * (x @ w))

    evidence = influence(damping=1e-6, tolerance=1e-5).assess(ask(federation, model, 0, 400, learning_rate=1.0))
    expected = [loss(newton(optimum, [s for s in range(4) if s != site])) - loss(optimum) for site in (1, 2, 3)]
    np.testing.assert_allclose(evidence.score[1:], expected, rtol=1e-2, atol=2e-5)
    assert abs(evidence.details["training_loss_still_to_gain"]) < 1e-6


def test_a_site_without_which_nothing_is_left_to_learn_from_has_no_score():
    federation = regression()
    question = ask(federation, MODELS[0.0], 4, rounds=2, candidates=(1,))
    evidence = influence(damping=0.0, tolerance=1e-6, iterations=8).assess(question)
    assert np.isnan(evidence.score).all()


@pytest.mark.slow
def test_the_order_is_that_of_leave_one_out_on_patients_with_a_known_truth():
    federation = load(triage(hospitals=10, patients=100, clusters=2, degree=0.7, seed=1), seed=1).federation
    question = ask(federation, logistic(federation.task), 3, rounds=192, learning_rate=0.5)
    exact = leave_one_out().assess(question)
    told = agreement(influence_at(question, question.train(question.everyone)), exact)
    assert told.spearman >= 0.9
    assert told.sites == 9


@pytest.mark.slow
@with_real_data
def test_the_order_is_that_of_leave_one_out_at_four_real_hospitals():
    federation = load(heart_disease(), seed=0).federation
    model = logistic(federation.task, l2=0.01)
    pairs = []
    for user in range(4):
        question = ask(federation, model, user, rounds=256, learning_rate=0.5)
        exact = leave_one_out().assess(question)
        pairs.append((influence_at(question, question.train(question.everyone)), exact))
    # Three candidates a hospital are too few for an order, so all twelve scores are compared together.
    quick, exact = (Evidence(np.concatenate([p[way].score for p in pairs]), np.array([]), 0.0) for way in (0, 1))
    told = agreement(quick, exact)
    assert told.sites == 12
    assert told.spearman >= 0.9


@pytest.mark.slow
def test_another_asking_site_or_fewer_candidates_compile_nothing_anew(even, model):
    question = ask(even, model, 0, 5)
    influence().assess(question)
    compiled = []

    def listen(event, seconds, **_):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for user, candidates in ((3, (0, 1, 2, 4, 5, 6)), (5, (1, 2))):
            again = Question(
                question.engine, model, question.algorithm, question.params, question.rounds, user, candidates
            )
            assert np.isfinite(influence().assess(again).score[list(candidates)]).all()
        assert not compiled
        jax.jit(lambda x: x + len(compiled) + 17)(1.0)
        assert compiled, "nothing was listened to"
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_a_neural_network_gets_finite_scores_with_damping(even):
    question = ask(even, mlp(even.task, hidden=(4,)), 0, rounds=10)
    evidence = influence(damping=0.3, iterations=8).assess(question)
    assert np.isfinite(evidence.score[1:]).all()
    assert np.abs(evidence.score[1:]).max() < 1


def test_a_model_without_second_derivatives_is_refused(even, model):
    def gradient(params, batch, key):
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
        return jax.pure_callback(
            lambda given: jax.tree.map(np.asarray, given), shapes, params, vmap_method="sequential"
        )

    opaque = Model(model.init, model.loss, model.predict, gradient)
    question = ask(even, model, 0, 1)
    question = Question(
        question.engine, opaque, question.algorithm, jax.tree.map(jnp.ones_like, question.params), 1, 0, (1, 2)
    )
    with pytest.raises(Refusal, match="need second derivatives"):
        influence().assess(question)
