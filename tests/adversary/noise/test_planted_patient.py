"""Whether one planted patient is in the data is told no better than epsilon allows, by anything that is released."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from tests.support.adversary.noise import private_study
from tests.support.in_process import NAMES
from wardround.core.chain import chain
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message, Scores, Site, Task
from wardround.engine.registry import make_from
from wardround.engine.split_round import OwnRows, site_round
from wardround.privacy.noised_sums import noise_key
from wardround.queries.noised_counts import cell_edges
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.noised_figures import loss_bound, noised_look, risk_table
from wardround.study.release_noise import release_noise

DELTA = 1e-3
EPSILON = 1.0
BOUND = (math.e**EPSILON - 1 + 2 * DELTA) / (math.e**EPSILON + 1)
"""How far the rates of true and false guesses can be apart (Humphries et al. 2023)."""
QUERIES = 10_000


def advantage(inside: Any, outside: Any) -> float:
    """How far true and false guesses are apart for the best threshold, found on one half and measured on the other."""
    halves = [(np.asarray(inside)[at::2], np.asarray(outside)[at::2]) for at in (0, 1)]
    cuts = np.quantile(np.concatenate(halves[0]), np.linspace(0, 1, 201))
    best = max(cuts, key=lambda cut: np.mean(halves[0][0] > cut) - np.mean(halves[0][1] > cut))
    return float(np.mean(halves[1][0] > best) - np.mean(halves[1][1] > best))


SLACK = 4 * math.sqrt(2 * 0.25 / (QUERIES / 8))
"""Four standard deviations of the difference of two measured rates."""
MEASURED = private_study("measured", {"epsilon": EPSILON, "delta": DELTA}, rounds=3)
TASK = Task((2,), ("no", "yes"), "ebola")


def look_released(inside: bool, noise: float) -> float:
    """All looks of a study, at a model under which the planted patient has the largest loss there is."""
    actual = np.zeros(100, np.int64)
    predicted = np.tile([0.6, 0.4], (100, 1))
    predicted[-1] = [0.0, 1.0]
    rows = slice(None) if inside else slice(0, -1)
    bound = loss_bound(TASK, None) or 0.0
    looks = [
        noised_look(predicted[rows], actual[rows], bound, noise, noise_key(None))
        for _ in range(release_noise(MEASURED).look_count)
    ]
    return float(np.mean([one.loss / bound for one in looks]))


def figures_released(inside: bool, noise: float) -> float:
    """The table of the figures, in which only the planted patient is in the last cell."""
    from wardround.privacy.noised_sums import with_gaussian_noise

    actual = np.zeros(100, np.int64)
    predicted = np.tile([1.0, 0.0], (100, 1))
    predicted[-1] = [0.0, 1.0]
    rows = slice(None) if inside else slice(0, -1)
    table = risk_table(Scores(predicted[rows], actual[rows], np.array([0, len(actual[rows])])), 1, 20)
    return float(with_gaussian_noise(table, noise, noise_key(None))[0, -1])


PLANTED = pd.DataFrame({"age": [30.0] * 40 + [1e6], "pulse": [70.0] * 40 + [1e6]})


def statistics_released(inside: bool, noise: float) -> float:
    """The cells in which only the planted patient's values are, one of each column."""
    recipe = Recipe("query", "noised_counts", (("columns", ("age", "pulse")), ("delta", 1e-4), ("noise", noise)))
    told = make_from(recipe).ask(Message({}), Site("bo", PLANTED if inside else PLANTED[:-1]))
    place = int(np.flatnonzero((cell_edges()[:, 0] <= 1e6) & (cell_edges()[:, 1] > 1e6))[0])
    return float(told.arrays["cells"][:, place].sum())


ASKED = private_study("measured", {"epsilon": EPSILON, "delta": DELTA}, declared=False)
RELEASES: dict[str, tuple[Callable[[bool, float], float], float]] = {
    "looks": (look_released, release_noise(MEASURED).looks or 0.0),
    "figures": (figures_released, release_noise(MEASURED).figures or 0.0),
    "statistics": (
        statistics_released,
        release_noise(private_study("measured", {"epsilon": EPSILON, "delta": DELTA}, declared=False)).statistics
        or 0.0,
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_planted_patient_is_told_no_better_than_epsilon_allows(name: str) -> None:
    """10,000 times what is released, with the planted patient in and not in."""
    release, noise = RELEASES[name]
    count = QUERIES // (2 * release_noise(MEASURED).look_count if name == "looks" else 2)
    inside, outside = ([release(there, noise) for _ in range(count)] for there in (True, False))
    measured = advantage(inside, outside)
    assert measured <= BOUND + SLACK
    without = advantage(*([release(there, 0.0) for _ in range(40)] for there in (True, False)))
    assert without == 1.0, "without noise the same attack always succeeds"


def training_released(study: Study, rows: int) -> Callable[[bool], float]:
    """The answer of the only round, along the gradient of the planted patient, at parameters that the liar chose."""
    task = Task((4,), ("no", "yes"), "ebola")
    algorithm = assemble.build(study, own_method(study), task)
    params = {"dense_0/kernel": jnp.zeros((4, 2)), "dense_0/bias": jnp.zeros(2)}
    server = algorithm.init(params, 3)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 4)).astype(np.float32) * 0.01
    x[-1] = [0.0, 0.0, 0.0, 100.0]
    y = np.zeros(rows, np.int32)
    y[-1] = 1
    whole, without = OwnRows(x, y, 0), OwnRows(x[:-1], y[:-1], 0)
    sent, kept, none = algorithm.broadcast(server), algorithm.init_client(params), chain(())

    def released(inside: bool) -> float:
        answer, _, _ = site_round(algorithm, none, sent, kept, whole if inside else without, seed=1, number=1)
        update = np.asarray(answer.arrays["update"]["dense_0/kernel"])
        return float(update[3, 1] - update[3, 0])

    return released


@pytest.mark.slow
def test_a_round_tells_no_more_of_a_planted_patient() -> None:
    rows, count = 60, 1000
    study = private_study(
        "trained",
        {"epsilon": EPSILON, "delta": DELTA},
        rounds=1,
        algorithm={"name": "fed_avg", "learning_rate": 0.1, "batch_size": 60},
        model={"name": "logistic", "l2": 0.0},
    )
    task = Task((4,), ("no", "yes"), "ebola")
    from wardround.deploy.coordinator.privacy_plan import plan_noise

    noisy, _ = plan_noise(study, task, NAMES, dict.fromkeys(NAMES, (rows, 20, 20)))
    released = training_released(noisy, rows)
    measured = advantage(*([released(there) for _ in range(count)] for there in (True, False)))
    assert measured <= BOUND + 4 * math.sqrt(2 * 0.25 / (count / 2))
    silent = noisy.model_copy(update={"privacy": noisy.privacy.model_copy(update={"noise_multiplier": 1e-6})})  # type: ignore[union-attr]
    open_ = training_released(silent, rows)
    assert advantage(*([open_(there) for _ in range(20)] for there in (True, False))) == 1.0
