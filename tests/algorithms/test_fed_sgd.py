"""FedSGD is gradient descent on all rows: against NumPy, against FedAvg, and to the optimum another library finds."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_sgd import fed_sgd
from wardround.core.answers import Weights
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Task
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic

Numbers = np.ndarray[Any, Any]
SEED, RATE = 11, 0.3
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4])), (3, np.array([2, 3, 5, 6]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def learned(algorithm: Algorithm, federation: Federation) -> Numbers:
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS)
    return matrix_of(algorithm.params(progress.server))


def test_by_patients_it_descends_on_the_rows_of_all_present_sites_at_once(ragged: Federation, model: Model) -> None:
    w = START
    for _, cohort in ROUNDS:
        rows = [rows_at(ragged, site) for site in cohort]
        w = w - RATE * slope(w, np.concatenate([x for x, _ in rows]), np.concatenate([y for _, y in rows]))
    assert np.abs(w - START).max() > 0.1
    np.testing.assert_allclose(learned(fed_sgd(model, weighted_mean(), learning_rate=RATE), ragged), w, atol=1e-6)


@pytest.mark.parametrize(("weights", "size"), [("uniform", 0), ("samples", 10)])
def test_one_batch_a_site_or_one_vote_a_site(weights: Weights, size: int, ragged: Federation, model: Model) -> None:
    """A batch is the first of the round's order; its mean counts by the site's patients, not by the batch's length."""
    w = START
    for number, cohort in ROUNDS:
        slopes, counts = [], []
        for site in cohort:
            x, y = rows_at(ragged, site)
            if len(y):
                batch = visiting_order(SEED, number, np.array([site]), np.array([len(y)]), 1)[0, : size or None]
                slopes.append(slope(w, x[batch], y[batch]))
                counts.append(len(y) if weights == "samples" else 1)
        w = w - RATE * np.average(slopes, axis=0, weights=counts)
    algorithm = fed_sgd(model, weighted_mean(), learning_rate=RATE, batch_size=size, weights=weights)
    np.testing.assert_allclose(learned(algorithm, ragged), w, atol=1e-6)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_fed_avg_with_one_step_on_all_rows_is_fed_sgd(weights: Weights, ragged: Federation, model: Model) -> None:
    one_step = fed_avg(model, weighted_mean(), learning_rate=RATE, local_epochs=1, batch_size=0, weights=weights)
    gradients = fed_sgd(model, weighted_mean(), learning_rate=RATE, weights=weights)
    # (w - rate g) - w and -rate g round differently in their last bit.
    np.testing.assert_allclose(learned(one_step, ragged), learned(gradients, ragged), atol=5e-7)


def test_finds_the_optimum_of_real_patients_that_another_library_finds() -> None:
    """569 real biopsies dealt to five unequal sites, sorted by size of the tumour so that the sites differ.

    Our penalty is l2/2 |W|^2 on two columns; at the optimum they are +w/2 and -w/2, so it is l2/4 |w|^2 for the
    classical w. Scikit-learn minimises C sum(losses) + |w|^2 / 2, that is mean + |w|^2 / (2 n C): C = 2 / (n l2).
    """
    x, y = load_breast_cancer(return_X_y=True)
    by_radius = np.argsort(x[:, 0], kind="stable")
    x, y = ((x - x.mean(axis=0)) / x.std(axis=0))[by_radius], y[by_radius]
    cuts, nothing = [10, 60, 200, 400], (x[:0], y[:0])
    pieces = zip(np.split(x, cuts), np.split(y, cuts), strict=True)
    task = Task((30,), ("malignant", "benign"))
    federation = assemble([(f"site-{i}", [piece, nothing, nothing]) for i, piece in enumerate(pieces)], task)
    l2 = 0.1
    known = LogisticRegression(C=2 / (len(y) * l2), tol=1e-8, max_iter=1000).fit(x, y)
    algorithm = fed_sgd(logistic(task, l2=l2), weighted_mean(), learning_rate=0.5)
    with Simulation(federation, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(np.zeros((31, 2))))
        # 320 rounds in equal calls, so that one compiled program serves all.
        progress, _ = engine.train(algorithm, progress, [(number, np.arange(5)) for number in range(1, 321)])
    w = matrix_of(algorithm.params(progress.server))
    np.testing.assert_allclose(w[:, 1] - w[:, 0], [*known.coef_[0], *known.intercept_], atol=2e-4)
