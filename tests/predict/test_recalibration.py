"""Maps of risks against other libraries and known truths; none is taken that only fits noise."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from wardround.predict.recalibration import RiskMap, choose_map, fit_map


def patients(rows, *, seed=0, shift=0.0, stretch=1.0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 1.5, rows)
    ill = (rng.random(rows) < expit(stretch * odds + shift)).astype(float)
    return expit(odds), ill


def test_shift_and_slope_are_those_of_scikit_learn():
    risk, ill = patients(800, shift=0.7, stretch=0.6)
    found = fit_map("slope", risk, ill)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit(risk)[:, None], ill)
    np.testing.assert_allclose([found.slope, found.intercept], [theirs.coef_[0, 0], theirs.intercept_[0]], atol=1e-5)
    np.testing.assert_allclose(found.apply(risk), theirs.predict_proba(logit(risk)[:, None])[:, 1], atol=1e-6)


def test_in_the_large_the_mean_risk_is_the_share_of_the_ill():
    # The derivative of the log loss by the shift is the sum of (risk - outcome), which is 0 at the best shift.
    risk, ill = patients(500, shift=-1.2)
    found = fit_map("in_the_large", risk, ill)
    assert found.slope == 1.0
    assert found.apply(risk).mean() == pytest.approx(ill.mean(), abs=1e-10)
    np.testing.assert_allclose(logit(found.apply(risk)) - logit(risk), found.intercept, atol=1e-6)


def test_isotonic_is_that_of_scikit_learn():
    risk, ill = patients(700, stretch=0.3)
    found = fit_map("isotonic", risk, ill)
    theirs = IsotonicRegression(y_min=1 / 702, y_max=1 - 1 / 702, out_of_bounds="clip").fit(risk, ill)
    new = np.linspace(0, 1, 1001)
    np.testing.assert_allclose(found.apply(new), theirs.predict(new), atol=1e-12)
    assert found.apply(new).min() > 0
    assert found.apply(new).max() < 1


def test_a_map_survives_its_file_and_keeps_the_order_of_patients():
    risk, ill = patients(400, stretch=0.5)
    for kind in ("in_the_large", "slope", "isotonic"):
        found = fit_map(kind, risk, ill)
        again = RiskMap.model_validate_json(found.model_dump_json())
        assert np.array_equal(again.apply(risk), found.apply(risk))
        assert (np.diff(found.apply(np.sort(risk))) >= 0).all()


def test_extreme_risks_stay_between_0_and_1():
    told = RiskMap(kind="slope", intercept=40.0, slope=30.0).apply(np.array([0.0, 1e-30, 0.5, 1.0]))
    assert told.min() > 0
    assert told.max() < 1


@pytest.mark.parametrize(
    ("shift", "stretch", "chosen"),
    [(1.0, 1.0, "in_the_large"), (0.0, 0.4, "slope")],
)
def test_what_is_wrong_is_mended_and_no_more(shift, stretch, chosen):
    kinds = [choose_map(*patients(1500, seed=seed, shift=shift, stretch=stretch)).chosen.kind for seed in range(4)]
    assert kinds.count(chosen) >= 3


def test_a_bend_takes_the_isotonic_map():
    # Nobody below a risk of 1/2 falls ill and everybody above does half the time: no straight line of log-odds is near.
    rng = np.random.default_rng(0)
    risk = rng.uniform(0.02, 0.98, 3000)
    ill = ((risk > 0.5) & (rng.random(3000) < 0.5)).astype(float)
    assert choose_map(risk, ill).chosen.kind == "isotonic"


def test_right_risks_are_left_alone():
    kinds = [choose_map(*patients(300, seed=seed)).chosen.kind for seed in range(10)]
    assert kinds.count("none") >= 8


def test_a_model_that_ranks_patients_backwards_is_not_turned_round():
    risk, ill = patients(600, stretch=-1.0)
    assert fit_map("slope", risk, ill) is None
    assert "slope" not in choose_map(risk, ill).losses


def test_a_quantity_is_mapped_by_least_squares():
    rng = np.random.default_rng(1)
    predicted = rng.normal(size=300)
    actual = 3 + 0.5 * predicted + rng.normal(0, 0.1, 300)
    chosen = choose_map(predicted, actual, log_odds=False).chosen
    assert chosen.kind == "slope"
    np.testing.assert_allclose([chosen.slope, chosen.intercept], np.polyfit(predicted, actual, 1), atol=1e-9)
