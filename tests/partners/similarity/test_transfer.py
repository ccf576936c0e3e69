"""The matrix of transfer losses against closed forms, its limiting cases, and its standard errors."""

import jax
import numpy as np
import pytest

from tests.support.by_hand.lines import LINE, sites_on_lines
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.partners.choice import Question
from wardround.partners.probes.own_models import OwnTraining
from wardround.partners.similarity.transfer import paired_error, transfer_matrix

SLOPES = (1.0, 1.0, 3.0, 2.0, -1.0, 1.0)
SIZES = (60, 25, 80, 1, 40, 9)
RECIPE = OwnTraining(epochs=300, decay=2.0)
SEED = 5


@pytest.fixture(scope="module")
def lines():
    return sites_on_lines(SIZES, SLOPES)


@pytest.fixture(scope="module")
def line_model():
    return linear(LINE)


@pytest.fixture(scope="module")
def engine(lines):
    return Simulation(lines, seed=SEED, device_count=1)


def question_of(engine, model, user, candidates):
    algorithm = fed_avg(model, weighted_mean())
    return Question(engine, model, algorithm, model.init(jax.random.key(0)), 1, user, candidates)


@pytest.fixture(scope="module")
def found(engine, line_model):
    return transfer_matrix(question_of(engine, line_model, 0, (1, 2, 3, 4, 5)), RECIPE)


def rows_in_order(federation, site):
    first, count = federation.part("train")
    rows = first[site] + visiting_order(SEED, 1, np.array([site]), count[[site]], 1)[0]
    return federation.x[rows, 0].astype(np.float64), federation.y[rows].astype(np.float64)


def ridge(x, y):
    """The least of mean((y - w x - b)^2) + decay / (2 n) w^2 at decay 2: w = Sxy / (Sxx + 1), see test_own_models."""
    centred = x - x.mean()
    w = centred @ (y - y.mean()) / (centred @ centred + 1.0)
    return w, y.mean() - w * x.mean()


def squared(model, x, y):
    return (y - model[0] * x - model[1]) ** 2


def held_out(x, y):
    fold = np.arange(len(y)) % 5
    loss = np.zeros(len(y))
    for k in range(5):
        loss[fold == k] = squared(ridge(x[fold != k], y[fold != k]), x[fold == k], y[fold == k])
    return loss


MANY = (0, 1, 2, 4, 5)
"""The sites with more than one row."""


def test_every_pair_by_closed_forms(found, lines):
    data = {site: rows_in_order(lines, site) for site in MANY}
    models = {site: ridge(*data[site]) for site in MANY}
    home = {site: held_out(*data[site]) for site in MANY}
    for j in MANY:
        np.testing.assert_allclose(found.cv[j], home[j].mean(), rtol=2e-3)
        n = len(data[j][1])
        for i in MANY:
            if i == j:
                continue
            each = squared(models[i], *data[j])
            error, home_error = each.std(ddof=1) / np.sqrt(n), home[i].std(ddof=1) / np.sqrt(len(home[i]))
            assert found.loss[j, i] == pytest.approx(each.mean(), rel=2e-3)
            assert found.error[j, i] == pytest.approx(error, rel=5e-3)
            assert found.transfer[j, i] == pytest.approx(each.mean() - home[i].mean(), rel=1e-2, abs=2e-3)
            assert found.transfer_error[j, i] == pytest.approx(np.hypot(error, home_error), rel=1e-2)
            assert found.gap[j, i] == pytest.approx(each.mean() - home[j].mean(), rel=1e-2, abs=2e-3)
            # The rows' own losses under cross-validation stay at the site; pairing with those of the model that saw
            # the rows must come near what they would give.
            truly = (each - home[j]).std(ddof=1) / np.sqrt(n)
            assert found.gap_error[j, i] == pytest.approx(truly, rel=0.25, abs=0.01)


def test_at_home_nothing_is_lost(found):
    for site in MANY:
        assert found.loss[site, site] == found.cv[site]
        assert found.transfer[site, site] == found.gap[site, site] == 0
        assert found.transfer_error[site, site] == found.gap_error[site, site] == 0


def test_a_site_with_one_row_is_nobody(found):
    for values in (found.loss, found.error, found.transfer, found.transfer_error, found.gap, found.gap_error):
        assert np.isnan(values[3]).all()
        assert np.isnan(values[:, 3]).all()
    assert np.isnan(found.cv[3])
    assert np.isnan(found.models["dense_0/kernel"][3]).all()
    assert found.rows.tolist() == [60, 25, 80, 0, 40, 9]


def test_alike_sites_lose_nothing_and_others_much(found):
    """Sites 0, 1 and 5 have the slope 1, site 4 has -1: off by 2 x, so by 4 E(x^2) = 4 (1 + 1/4) = 5 in the mean."""
    for j, i in ((0, 1), (1, 0), (1, 5), (5, 1), (0, 5)):
        assert abs(found.transfer[j, i]) < 4 * found.transfer_error[j, i]
    assert found.transfer[0, 4] == pytest.approx(5, abs=4 * found.transfer_error[0, 4])
    assert found.transfer[0, 4] > 5 * found.transfer_error[0, 4]


def test_only_those_who_may_answer_and_each_as_if_alone(found, engine, line_model):
    question = question_of(engine, line_model, 5, (1, 4))
    some = transfer_matrix(question, RECIPE)
    asked = [1, 4, 5]
    for name in ("cv", "cv_error"):
        np.testing.assert_allclose(getattr(some, name)[asked], getattr(found, name)[asked], rtol=1e-4)
        assert np.isnan(getattr(some, name)[[0, 2, 3]]).all()
    for name in ("loss", "error", "transfer", "transfer_error", "gap", "gap_error"):
        few, everyone = getattr(some, name), getattr(found, name)
        np.testing.assert_allclose(few[np.ix_(asked, asked)], everyone[np.ix_(asked, asked)], rtol=1e-3, atol=1e-4)
        assert np.isnan(few[[0, 2, 3]]).all()
        assert np.isnan(few[:, [0, 2, 3]]).all()
    # Two exchanges, and nobody else took part in them.
    assert [record.sites for record in question.records] == [("site-1", "site-4", "site-5")] * 2


def test_standard_error_of_a_difference_by_hand():
    """Variances 9 and 16: with correlation 0 it is 5, with 1 it is 4 - 3, with -1 it is 4 + 3."""
    three, four = np.array(3.0), np.array(4.0)
    assert [float(paired_error(three, four, np.array(r))) for r in (0.0, 1.0, -1.0)] == [5, 1, 7]
