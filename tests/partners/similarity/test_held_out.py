import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine.simulate import Simulation
from wardround.partners.choice import Question
from wardround.partners.similarity.held_out import judge_models, loss_rises, stack_models


def ask(federation: Federation, model, user: int) -> Question:
    others = tuple(site for site in range(len(federation.sites)) if site != user)
    algorithm = fed_avg(model, weighted_mean())
    return Question(Simulation(federation), model, algorithm, model.init(jax.random.key(0)), 1, user, others)


def models(count: int):
    generator = np.random.default_rng(0)
    return [
        {
            "dense_0/kernel": generator.normal(0, 1, (3, 2)).astype(np.float32),
            "dense_0/bias": np.zeros(2, np.float32),
        }
        for _ in range(count)
    ]


def row_losses(federation, part, site, params):
    first, count = federation.part(part)
    rows = slice(int(first[site]), int(first[site] + count[site]))
    z = federation.x[rows].astype(np.float64) @ params["dense_0/kernel"]
    return np.logaddexp(z[:, 0], z[:, 1]) - z[np.arange(len(z)), federation.y[rows]]


@pytest.mark.parametrize("part", ["validation", "test"])
def test_losses_and_errors_are_those_of_the_asking_sites_own_rows(even, model, part):
    question = ask(even, model, 2)
    stack = models(7)
    verdict = judge_models(question, stack_models(stack, 7), part)
    rows = np.stack([row_losses(even, part, 2, params) for params in stack])
    np.testing.assert_allclose(verdict.loss, rows.mean(axis=1), rtol=1e-5)
    # Any combination with coefficients that add up to 0: over the patients, as of any mean.
    combination = np.array([0.5, -1.0, 0.25, 0.25, 0, 0, 0])
    each = combination @ rows
    np.testing.assert_allclose(verdict.error(combination), each.std(ddof=1) / np.sqrt(len(each)), rtol=1e-3)
    score, error = loss_rises(question, stack_models(stack, 7), part)
    np.testing.assert_allclose(score[5], (rows[5] - rows[2]).mean(), rtol=1e-3)
    np.testing.assert_allclose(error[5], (rows[5] - rows[2]).std(ddof=1) / 4, rtol=1e-3)  # 16 held-out rows
    assert np.isnan(score[2])
    assert np.isnan(error[2])
    # Only the asking site was given the models.
    assert {record.sites for record in question.records} == {("site-2",)}


def test_a_single_patient_leaves_the_error_open(ragged, model):
    question = ask(ragged, model, 4)
    score, error = loss_rises(question, stack_models(models(7), 7), "validation")
    others = [0, 1, 2, 3, 5, 6]
    assert np.isfinite(score[others]).all()
    assert np.isnan(error).all()


def test_an_asking_site_without_held_out_patients_is_refused(even, model):
    counts = even.counts.copy()
    counts[3] = (80, 0, 0)
    question = ask(Federation(even.sites, even.x, even.y, even.first, counts, even.task), model, 3)
    with pytest.raises(Refusal, match=r"no validation patients to judge by \(site site-3\)"):
        judge_models(question, stack_models(models(2), 2), "validation")
