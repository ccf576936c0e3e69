"""Weight Erosion against the loop of its algorithm 1, its limiting cases, and when it helps the asking site."""

from typing import Any, Literal

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_sgd import fed_sgd
from wardround.algorithms.weight_erosion import weight_erosion
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic

Updates = Literal["gradient", "local"]
Middle = Literal["mean", "median"]
Numbers = np.ndarray[Any, Any]
SEED, RATE, EPOCHS, P_D, P_S, USER = 11, 0.3, 2, 0.04, 0.3, 5
PLAIN = identity()
COHORTS = [[1, 3, 4], [0, 3, 5], [0, 1, 5, 6], [0, 1, 3], [0, 1, 2, 4, 5], [3, 5, 6], [0, 1, 2, 3, 4, 5, 6]]
"""Of seven sites, site 5 asks: absent in the first and the fourth round. Site 2 is empty, site 4 has one row."""


def naive(federation: Federation, updates: Updates, newcomers: Middle, size: int) -> list[dict[str, Any]]:
    """Algorithm 1, agent after agent; w, alpha and the last distances after every round."""
    w, alpha, taken, last = START, dict[int, float](), dict[int, int](), dict[int, float]()
    after = []
    for number, cohort in enumerate(COHORTS, start=1):
        g = {}
        for i in cohort:
            x, y = rows_at(federation, i)
            if not len(y):
                continue
            orders = visiting_order(SEED, number, np.array([i]), np.array([len(y)]), EPOCHS)
            if updates == "gradient":
                batch = orders[0][: size or len(y)]
                g[i] = slope(w, x[batch], y[batch])
            else:
                own = w
                for order in orders:
                    for begin in range(0, len(y), size or len(y)):
                        batch = order[begin : begin + (size or len(y))]
                        own = own - RATE * slope(own, x[batch], y[batch])
                g[i] = (w - own) / RATE
        if USER in g:
            known = [alpha[i] for i in g if i in alpha]
            typical = float(np.mean(known) if newcomers == "mean" else np.median(known)) if known else 1.0
            for i, own in g.items():
                rows = len(rows_at(federation, i)[1])
                b = size or rows
                if updates == "local":
                    b = EPOCHS * rows
                r = taken.get(i, 0) + 1
                last[i] = float(np.linalg.norm(own - g[USER]) / np.linalg.norm(g[USER]))
                delta = (1 + P_S * ((r - 1) * b // rows)) * P_D * last[i]
                alpha[i] = max(0.0, alpha.get(i, typical) - delta)
                taken[i] = r
            w = w - RATE * sum(alpha[i] * g[i] for i in g) / sum(alpha[i] for i in g)
        told: dict[str, Any] = {"alpha": alpha, "distance": last, "rounds": taken}
        after.append({"w": w, **{name: [d.get(i, 0) for i in range(7)] for name, d in told.items()}})
    return after


@pytest.mark.parametrize(
    ("updates", "newcomers", "size"), [("gradient", "mean", 10), ("gradient", "median", 0), ("local", "median", 10)]
)
def test_equals_the_loop_while_sites_come_and_go(
    updates: Updates, newcomers: Middle, size: int, ragged: Federation, model: Model
) -> None:
    algorithm = weight_erosion(
        model,
        user=USER,
        updates=updates,
        newcomers=newcomers,
        p_d=P_D,
        p_s=P_S,
        learning_rate=RATE,
        local_epochs=EPOCHS,
        batch_size=size,
    )
    wanted = naive(ragged, updates, newcomers, size)
    # The cases that matter do occur: a weight that is eroded wholly, and a newcomer below 1.
    assert wanted[-1]["alpha"][4] == 0 or (updates, size) != ("gradient", 10)
    assert 0 < wanted[2]["alpha"][6] < 1
    with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(START))
        for number, (cohort, loop) in enumerate(zip(COHORTS, wanted, strict=True), start=1):
            progress, _ = engine.train(algorithm, progress, [(number, np.array(cohort))])
            told = tells(algorithm, progress.server)
            np.testing.assert_allclose(matrix_of(algorithm.params(progress.server)), loop["w"], atol=5e-6)
            np.testing.assert_allclose(told["alpha"], loop["alpha"], atol=5e-6)
            np.testing.assert_allclose(told["distance"], loop["distance"], rtol=2e-5)
            assert told["rounds"].tolist() == loop["rounds"]
            assert told["skipped"] == (1 if number < 4 else 2)
            assert not told["stopped"]
            if number > 1:  # the asking site's own distance is 0, to the bit
                assert (told["alpha"][USER], told["distance"][USER]) == (1, 0)


def tells(algorithm: Algorithm, server: Any) -> dict[str, Numbers]:
    assert algorithm.tells is not None
    return {name: np.asarray(value) for name, value in algorithm.tells(server).items()}


def trained(
    algorithm: Algorithm, federation: Federation, start: Numbers, rounds: int, cohort: list[int] | None = None
) -> tuple[Numbers, Any]:
    """The model as a matrix, and the server's state."""
    sites = np.arange(len(federation.sites)) if cohort is None else np.array(cohort)
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(start))
        for number in range(1, rounds + 1):  # one a call, so that any number of rounds is one compilation
            progress, _ = engine.train(algorithm, progress, [(number, sites)])
        server = jax.device_get(progress.server)
    return matrix_of(algorithm.params(server)), server


def test_no_erosion_is_averaging_with_one_vote_a_site(ragged: Federation, model: Model) -> None:
    eroding = weight_erosion(model, p_d=0.0, learning_rate=RATE, batch_size=10)
    plain = fed_sgd(model, weighted_mean(), learning_rate=RATE, batch_size=10, weights="uniform")
    one, other = (trained(algorithm, ragged, START, 3)[0] for algorithm in (eroding, plain))
    assert np.abs(one - START).max() > 0.05
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_wholly_eroded_partners_leave_the_local_model(ragged: Federation, model: Model) -> None:
    """All distances are above 1/1000, so that p_d = 1000 takes every partner's whole weight in the first round."""
    algorithm = weight_erosion(model, user=USER, p_d=1000.0, learning_rate=RATE, batch_size=10)
    alone = fed_sgd(model, weighted_mean(), learning_rate=RATE, batch_size=10)
    one, server = trained(algorithm, ragged, START, 4)
    assert tells(algorithm, server)["alpha"].tolist() == [0, 0, 0, 0, 0, 1, 0]
    np.testing.assert_allclose(one, trained(alone, ragged, START, 4, [USER])[0], atol=1e-6)


def test_one_step_over_all_rows_is_a_gradient(ragged: Federation, model: Model) -> None:
    """Relative distances do not change with the rate, and both go through all rows once a round."""
    ways = [
        weight_erosion(model, updates=updates, p_d=P_D, learning_rate=RATE, batch_size=0)
        for updates in ("gradient", "local")
    ]
    (one, first), (other, second) = (trained(algorithm, ragged, START, 4) for algorithm in ways)
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(first["alpha"], second["alpha"], atol=2e-5)
    assert first["alpha"].min() < 0.9


def slopes(*truths: float, pairs: tuple[int, ...] = ()) -> Federation:
    """Pairs of rows (1, t_i), (-1, -t_i): F_i = (w - t_i)^2, g_i = 2 (w - t_i), and no pull on the intercept."""
    nothing = (np.zeros((0, 1)), np.zeros(0))
    parts = []
    for i, t in enumerate(truths):
        times = pairs[i] if pairs else 1
        parts.append((f"site-{i}", [(np.tile([[1.0], [-1.0]], (times, 1)), np.tile([t, -t], times)), nothing, nothing]))
    return assemble(parts, Task((1,)))


def line(w: float) -> Numbers:
    return np.array([[w], [0.0]])


def on_slopes(**settings: Any) -> Algorithm:
    return weight_erosion(linear(Task((1,))), batch_size=0, **settings)


def test_the_distance_at_the_global_model_is_that_of_example_2() -> None:
    """At the minimum over both sites' rows g_i = -|S_0|/|S_i| g_0, hence d = 1 + |S_0|/|S_i|.

    One pair at t = 1 and three at t = -1: 1 (w - 1) + 3 (w + 1) = 0 at w = -1/2, and d = 1 + 1/3.
    """
    algorithm = on_slopes(learning_rate=0.25)
    _, server = trained(algorithm, slopes(1.0, -1.0, pairs=(1, 3)), line(-0.5), 1)
    np.testing.assert_allclose(server["distance"], [0, 4 / 3], rtol=1e-6)
    np.testing.assert_allclose(server["alpha"], [1, 1 - 0.01 * 4 / 3], rtol=1e-6)


def test_small_sites_pay_for_rows_used_again() -> None:
    """b = 2 of 2 and of 6 rows: floor((r - 1) b / |S_i|) is 0, 1, 2, 3 and 0, 0, 0, 1.

    All rows of a site are (1, t_i), so that all batches have one gradient, 2 (w + intercept - t_i) for both numbers:
    with t = 1 at the asking site, -1 at its partners and a rate so small that the model stays at 0, g_0 = (-2, -2),
    g_i = (2, 2), d = 2. With p_d = 0.01, p_s = 0.5 a round costs 0.02 (1 + 0.5 f): in four rounds 0.02 (4 + 3) = 0.14
    and 0.02 (4 + 0.5) = 0.09.
    """
    nothing = (np.zeros((0, 1)), np.zeros(0))
    sizes = [(2, 1.0), (2, -1.0), (6, -1.0)]
    rows = [(f"site-{n}-{t}", [(np.ones((n, 1)), np.full(n, t)), nothing, nothing]) for n, t in sizes]
    algorithm = weight_erosion(linear(Task((1,))), batch_size=2, p_d=0.01, p_s=0.5, learning_rate=1e-9)
    _, server = trained(algorithm, assemble(rows, Task((1,))), line(0.0), 4)
    np.testing.assert_allclose(server["alpha"], [1, 0.86, 0.91], atol=1e-6)


def test_a_vanished_gradient_of_the_asking_site_compares_nothing() -> None:
    """At w = t_0 its gradient is exactly 0 (example 4 of the paper: the distance is undefined)."""
    model, server = trained(on_slopes(p_d=0.5), slopes(2.0, 1.0, -3.0), line(2.0), 3)
    assert np.array_equal(model, line(2.0))
    assert server["alpha"].tolist() == [1, 1, 1]
    assert (server["rounds"].tolist(), int(server["skipped"])) == ([0, 0, 0], 3)


def test_the_cone_rule_stops_before_the_first_step_against_a_partner() -> None:
    """t_0 = 2, t_1 = 1, from w = 0 at rate 1/4, p_s = 0, p_d = 0.1: g_0 = 2 (w - 2), g_1 = 2 (w - 1), d = 1 / (2 - w).

    Round 1: w = 0, d = 1/2, alpha = 0.95, step (4 + 0.95 * 2) / 1.95 / 4 = 0.756410.
    Round 2: w = 0.756410, d = 0.804124, alpha = 0.869588, step (2.487179 + 0.869588 * 0.487179) / 1.869588 / 4
    = 0.389233. Round 3: w = 1.145644 > t_1, so g_1 > 0 > g_0 and the mean (g_0 is the larger, and so is its weight) is
    negative: stopped there, after alpha has lost 0.1 / (2 - 1.145644) = 0.117047 more. Nothing moves afterwards.
    """
    pair = slopes(2.0, 1.0)
    settings: dict[str, Any] = {"p_d": 0.1, "p_s": 0.0, "learning_rate": 0.25}
    stopping = on_slopes(stop="cone", **settings)
    with Simulation(pair, seed=SEED, transform=PLAIN) as engine:
        progress = engine.begin(stopping, params_of(line(0.0)))
        for number, alpha in enumerate((0.95, 0.869588, 0.752541, 0.752541, 0.752541), start=1):
            progress, _ = engine.train(stopping, progress, [(number, np.arange(2))])
            server = jax.device_get(progress.server)
            at = 0.756410 if number == 1 else 1.145644
            np.testing.assert_allclose(matrix_of(server["params"]), line(at), atol=2e-6)
            np.testing.assert_allclose(server["alpha"], [1, alpha], atol=2e-6)
            assert bool(server["stopped"]) is (number >= 3)
            assert server["rounds"].tolist() == [min(number, 3)] * 2
    # The attractor that it keeps away from: without it the partner erodes and the model ends at t_0.
    model, server = trained(on_slopes(**settings), pair, line(0.0), 60)
    np.testing.assert_allclose(model, line(2.0), atol=1e-4)
    assert server["alpha"].tolist() == [1, 0]


def test_a_partner_that_was_never_in_the_cone_does_not_stop_the_training() -> None:
    """t_2 = -1 is against the others from the start: g = (-4, -2, 2), d = (0, 1/2, 3/2), alpha = (1, 0.95, 0.85).

    The mean is (-4 - 1.9 + 1.7) / 2.8 = -1.5, the step at rate 1/4 is 0.375.
    """
    algorithm = on_slopes(p_d=0.1, p_s=0.0, learning_rate=0.25, stop="cone")
    model, server = trained(algorithm, slopes(2.0, 1.0, -1.0), line(0.0), 1)
    np.testing.assert_allclose(model, line(0.375), atol=1e-6)
    assert not server["stopped"]
    # It erodes, and the model stops a step past t_1, where the partner that had been in the cone leaves it.
    model, server = trained(algorithm, slopes(2.0, 1.0, -1.0), line(0.0), 40)
    assert server["stopped"]
    assert 1 < model[0, 0] < 1.5
    assert server["alpha"][1] > 0


@pytest.mark.parametrize("user", [-1, 7])
def test_an_asking_site_that_is_not_there_is_refused(user: int, ragged: Federation, model: Model) -> None:
    algorithm = weight_erosion(model, user=user)
    with pytest.raises(Refusal, match="from 0 to 6"), Simulation(ragged, seed=SEED) as engine:
        engine.begin(algorithm, params_of(START))


def test_an_asking_site_without_patients_is_told_as_rounds_that_were_skipped(ragged: Federation, model: Model) -> None:
    """Site 2 is empty: no round can count, the model stays the first one, and the record says so."""
    algorithm = weight_erosion(model, user=2)
    matrix, server = trained(algorithm, ragged, START, 3)
    told = tells(algorithm, server)
    assert np.array_equal(matrix, START.astype(np.float32))
    assert (int(told["skipped"]), told["rounds"].tolist(), told["alpha"].tolist()) == (3, [0] * 7, [0] * 7)


TRUTH = np.array([1.5, -1.0, 0.5, 0, 0, 0, 0, 0])
WIDE = Task((8,), ("no", "yes"))


def few_patients(seed: int) -> Federation:
    """24 patients at the asking site, 200 at a partner of the same truth, 200 at one of the opposite truth."""

    def rows(count: int, stream: int, truth: Numbers) -> tuple[Numbers, Numbers]:
        generator = np.random.default_rng([seed, stream])
        x = generator.normal(size=(count, 8))
        return x, generator.random(count) < 1 / (1 + np.exp(-x @ truth))

    sites = [("asking", 24, 2000, TRUTH), ("like", 200, 1, TRUTH), ("unlike", 200, 1, -TRUTH)]
    return assemble(
        [
            (name, [rows(train, 3 * i, truth), rows(1, 3 * i + 1, truth), rows(test, 3 * i + 2, truth)])
            for i, (name, train, test, truth) in enumerate(sites)
        ],
        WIDE,
    )


@pytest.mark.slow
def test_helps_an_asking_site_with_few_patients() -> None:
    """Mean log loss on 2,000 further patients of the asking site, over five draws, after 60 rounds.

    Erosion is better than training alone, though it ends near the local model (the attractor); the stopping rule is
    better than training on, than alone and than all together. The partner of the same truth always keeps more weight.
    """
    model = logistic(WIDE)
    settings: dict[str, Any] = {"learning_rate": 0.5, "batch_size": 0}
    methods = {
        "eroding": weight_erosion(model, **settings),
        "stopping": weight_erosion(model, stop="cone", **settings),
        "all": fed_sgd(model, weighted_mean(), **settings),
        "alone": local(model, **settings),
    }
    losses: dict[str, list[float]] = {name: [] for name in methods}
    for seed in range(5):
        federation = few_patients(seed)
        for name, algorithm in methods.items():
            with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
                progress = engine.begin(algorithm, model.init(jax.random.key(0)))
                for begin in range(1, 61, 10):
                    ten = [(number, np.arange(3)) for number in range(begin, begin + 10)]
                    progress, _ = engine.train(algorithm, progress, ten)
                    if name == "eroding" and begin == 1:
                        alpha = tells(algorithm, progress.server)["alpha"]
                        assert alpha[1] > alpha[2] + 0.1
                        assert tells(algorithm, progress.server)["distance"][0] == 0
                scores = engine.predict(algorithm, progress, "test")
            own = slice(scores.first[0], scores.first[1])
            right = scores.predicted[own][np.arange(2000), scores.actual[own]]
            losses[name].append(float(-np.log(right).mean()))
    mean = {name: float(np.mean(values)) for name, values in losses.items()}
    assert mean["eroding"] < mean["alone"] - 0.01, mean
    assert mean["stopping"] < mean["eroding"] - 0.05, mean
    assert mean["stopping"] < mean["all"] - 0.05, mean
