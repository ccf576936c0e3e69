"""The adapted Ndoye factor: the printed formula, who ranks where, and who cannot be ranked."""

import json

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.errors import Refusal
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.datasets.triage import triage
from wardround.data.folder import data_folder
from wardround.data.load import load
from wardround.engine import registry
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.partners.choice import Question, Rule, select_partners
from wardround.partners.choices.ndoye import ndoye
from wardround.partners.similarity.transfer import implausible_home_losses, transfer_matrix

FLIPPED = 4


@pytest.fixture(scope="module")
def federation():
    """Hospitals 0, 2 and 4 are of one group, 1 and 3 of another; number 4 writes the outcome down the wrong way."""
    made = load(triage(hospitals=5, clusters=2, patients=500, degree=1.0, seed=1), seed=1).federation
    first, count = made.part("train")
    rows = slice(first[FLIPPED], first[FLIPPED] + count[FLIPPED])
    made.y[rows] = 1 - made.y[rows]
    return made


@pytest.fixture(scope="module")
def ask(federation):
    """Questions of any user to any candidates over one engine, so that nothing is compiled twice."""
    model = logistic(federation.task)
    engine = Simulation(federation, seed=3, device_count=1)
    algorithm, params = fed_avg(model, weighted_mean()), model.init(jax.random.key(0))

    def question(user, candidates):
        return Question(engine, model, algorithm, params, 1, user, candidates)

    return question


@pytest.fixture(scope="module")
def matrix(ask):
    return transfer_matrix(ask(0, (1, 2, 3, 4)))


@pytest.fixture(scope="module")
def evidence(ask):
    return ndoye().assess(ask(0, (1, 2, 3, 4)))


def test_the_score_is_minus_the_transfer_loss_as_printed(evidence, matrix):
    """L(f_i on S_0) - CV_i, with the variances of both terms added."""
    assert np.isnan(evidence.score[0])
    assert np.isnan(evidence.error[0])
    np.testing.assert_allclose(evidence.score[1:], matrix.cv[1:] - matrix.loss[0, 1:], rtol=1e-4, atol=1e-5)
    variance = np.square(matrix.error[0, 1:]) + np.square(matrix.cv_error[1:])
    np.testing.assert_allclose(np.square(evidence.error[1:]), variance, rtol=1e-3)


def test_the_same_group_first_and_wrong_labels_last(ask, evidence, federation):
    """Site 2 shares p(y|x) with site 0, sites 1 and 3 do not, and site 4 has it upside down."""
    assert np.nanargmax(evidence.score) == 2
    assert np.nanargmin(evidence.score) == FLIPPED
    assert select_partners(evidence, Rule(top=1), federation.sites, (1, 2, 3, 4)) == (2,)
    assert FLIPPED not in select_partners(evidence, Rule(), federation.sites, (1, 2, 3, 4))
    of_another = ndoye().assess(ask(3, (0, 1, 2, 4)))
    assert np.nanargmax(of_another.score) == 1
    assert np.nanargmin(of_another.score) == FLIPPED


@pytest.mark.slow
def test_the_cut_is_the_asking_sites_own_sampling_error(ask, evidence, matrix):
    assert evidence.cut == pytest.approx(-matrix.cv_error[0], rel=1e-4)
    assert ndoye(tolerance=2.5).assess(ask(0, (1,))).cut == pytest.approx(-2.5 * matrix.cv_error[0], rel=1e-4)
    assert ndoye(tolerance=0.0).assess(ask(0, (1,))).cut == 0


def test_before_all_have_answered(ask, evidence, federation):
    """Those who have are judged as they are among all; the others have no score and are not ranked."""
    some = ndoye().assess(ask(0, (1, 4)))
    np.testing.assert_allclose(some.score[[1, 4]], evidence.score[[1, 4]], rtol=1e-4)
    assert np.isnan(some.score[[0, 2, 3]]).all()
    assert some.details["ranking"] == [federation.sites[1], federation.sites[4]]


def test_only_the_asking_site_judges(ask, federation):
    question = ask(2, (0, 1))
    ndoye().assess(question)
    names = federation.sites
    assert [record.sites for record in question.records] == [(names[0], names[1], names[2]), (names[2],)]


def test_details_are_plain_and_by_name(evidence, matrix, federation):
    told = json.loads(json.dumps(evidence.details, allow_nan=False))
    names = federation.sites
    assert told["asking"] == names[0]
    assert told["ranking"] == [names[i] for i in np.argsort(-evidence.score[1:]) + 1]
    assert told["losses"] == pytest.approx({names[i]: matrix.loss[0, i] for i in range(1, 5)}, rel=1e-4)
    assert told["cv"] == pytest.approx({names[i]: matrix.cv[i] for i in range(5)}, rel=1e-4)
    assert told["unanswered"] == []


def test_the_registry_checks_its_settings():
    component = registry.find("choice", "ndoye")
    assert component.build(folds=3).assess
    with pytest.raises(Refusal, match="folds"):
        component.build(folds=1)


def test_empty_and_single_row_sites(ragged, model):
    """Sites of 40, 7, 0, 23, 1, 64 and 30 rows: neither the empty nor the single-row one has a model to judge."""
    engine = Simulation(ragged, seed=3, device_count=1)
    algorithm, params = fed_avg(model, weighted_mean()), model.init(jax.random.key(0))

    def asked(user):
        others = tuple(i for i in range(7) if i != user)
        return ndoye(epochs=5).assess(Question(engine, model, algorithm, params, 1, user, others))

    evidence = asked(0)
    assert np.flatnonzero(np.isfinite(evidence.score)).tolist() == [1, 3, 5, 6]
    assert evidence.details["unanswered"] == ["site-2", "site-4"]
    assert select_partners(evidence, Rule(top=9), ragged.sites, (1, 2, 3, 4, 5, 6))[-1] == np.nanargmin(evidence.score)

    alone = asked(4)  # one row is enough to judge others, but tells nothing about chance
    assert np.isfinite(alone.score[[0, 1, 3, 5, 6]]).all()
    assert np.isnan(alone.error).all()
    assert alone.cut == 0

    with pytest.raises(Refusal, match="site-2"):
        asked(2)


@pytest.mark.slow
@pytest.mark.skipif(
    not (data_folder() / "uci_heart_disease").is_dir(), reason="the folder uci_heart_disease is not in WARDROUND_DATA"
)
def test_four_real_hospitals_against_scikit_learn():
    """In Switzerland 94 of 100 were ill (46 in Cleveland, 36 in Hungary): its model is the last to take from there."""
    federation = load(heart_disease(), seed=0).federation
    model = logistic(federation.task)
    engine = Simulation(federation, seed=0, device_count=1)
    algorithm, params = fed_avg(model, weighted_mean()), model.init(jax.random.key(0))
    first, count = federation.part("train")
    rows = [slice(start, start + rows) for start, rows in zip(first, count, strict=True)]
    for user in (0, 1):
        others = tuple(i for i in range(4) if i != user)
        evidence = ndoye().assess(Question(engine, model, algorithm, params, 1, user, others))
        x, y = federation.x[rows[user]], federation.y[rows[user]]
        for i in others:
            # C = 2 / decay, see test_own_models.
            fitted = LogisticRegression(C=0.4, max_iter=1000).fit(federation.x[rows[i]], federation.y[rows[i]])
            loss = -np.log(fitted.predict_proba(x)[np.arange(len(y)), y]).mean()
            assert evidence.details["losses"][federation.sites[i]] == pytest.approx(loss, abs=0.02)
        assert evidence.details["ranking"][-1] == "switzerland"
        assert evidence.score[2] < evidence.cut - 3 * evidence.error[2]


def test_a_home_loss_that_the_asking_site_does_not_see_is_named(evidence):
    """By hand. Excesses (loss at home less loss at the judge's) of sites 1 to 4 are 0.1, 0.1, 0.1 and 0.9; the judge's
    standard error is 0.05 and both have 100 rows, so the doubt is 0.05 * sqrt(2) = 0.0707 and 0.8 is 11.3 of it."""
    loss, error = np.full(5, 0.5), np.full(5, 0.05)
    cv, rows = np.array([0.5, 0.6, 0.6, 0.6, 1.4]), np.full(5, 100.0)
    assert implausible_home_losses(cv, loss, error, rows, 0) == {4: pytest.approx(0.8 / (0.05 * np.sqrt(2)))}
    # A quarter of the rows: the same scatter over 25 patients is twice as wide, sqrt(1 + 4) * 0.05 = 0.1118.
    few = np.where(np.arange(5) == 4, 25.0, rows)
    assert implausible_home_losses(cv, loss, error, few, 0)[4] == pytest.approx(0.8 / (0.05 * np.sqrt(5)))
    # Within four standard errors, below what is measured, or with a single other site: nothing to say.
    assert implausible_home_losses(np.array([0.5, 0.6, 0.6, 0.6, 0.85]), loss, error, rows, 0) == {}
    assert implausible_home_losses(np.array([0.5, 0.6, 0.6, 0.6, 0.1]), loss, error, rows, 0) == {}
    assert implausible_home_losses(cv[[0, 1, 4]], loss[:3], error[:3], rows[:3], 0) == {}
    # One whose patients are simply easier than everybody's names nobody.
    assert implausible_home_losses(cv.clip(max=0.6) + 1.0, loss, error, rows, 0) == {}
    assert "implausible" not in evidence.details, "honest sites, also the one with wrong labels, are not named"
