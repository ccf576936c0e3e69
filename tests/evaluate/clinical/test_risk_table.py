"""From a table of patients by band of risk follows what follows from every single prediction."""

import numpy as np
import pytest

from wardround.evaluate.clinical.decision_curve import decision_curve
from wardround.evaluate.clinical.operating_point import flags_by_site
from wardround.evaluate.clinical.risk_table import band_figures, risk_counts

CUTS = (0.1, 0.2, 0.5)


def test_by_hand():
    # Risks 0.05 and 0.1 without, 0.1, 0.3 and 0.9 with the outcome: a risk on a cut is in the band above it.
    counts = risk_counts(np.array([0.05, 0.1, 0.1, 0.3, 0.9]), np.array([0, 0, 1, 1, 1]), CUTS)
    assert counts.tolist() == [[1, 1, 0, 0], [0, 1, 1, 1]]
    found = band_figures({"A": counts}, CUTS, 0.2, resamples=0)
    flags = found["operating_point"]["all"]
    assert (flags["true_positives"], flags["false_positives"]) == (2, 0)
    assert (flags["false_negatives"], flags["true_negatives"]) == (1, 2)
    # At 0.2 the odds are a quarter: two found and no false alarm of five patients is 0.4.
    assert found["decision_curve"]["net_benefit"][1] == pytest.approx(2 / 5)
    assert found["decision_curve"]["treat_all"][1] == pytest.approx((3 - 0.25 * 2) / 5)
    # Of the two patients between 10 and 20 % one has the outcome; the first band's middle is 5 %.
    assert [(p["predicted"], p["observed"], p["rows"]) for p in found["reliability"]] == [
        (0.05, 0.0, 1),
        (pytest.approx(0.15), 0.5, 2),
        (pytest.approx(0.35), 1.0, 1),
        (0.75, 1.0, 1),
    ]


def test_it_is_what_single_predictions_give():
    rng = np.random.default_rng(5)
    risk = rng.random(3_000)
    ill = (rng.random(3_000) < risk).astype(int)
    first = np.array([0, 1_000, 3_000])
    tables = {
        name: risk_counts(risk[first[at] : first[at + 1]], ill[first[at] : first[at + 1]], CUTS)
        for at, name in enumerate("AB")
    }
    found = band_figures(tables, CUTS, 0.5, resamples=0)
    exact = decision_curve(risk, ill, resamples=0)
    places = [9, 19, 49]
    assert np.allclose(found["decision_curve"]["net_benefit"], np.array(exact["net_benefit"])[places], atol=1e-12)
    assert np.allclose(found["decision_curve"]["treat_all"], np.array(exact["treat_all"])[places], atol=1e-12)
    assert found["operating_point"]["sites"] == flags_by_site(risk, ill, 0.5, first, ["A", "B"])


def test_intervals_hold_whatever_the_cells_hide():
    """Two sites of 150 patients, cells of 10: the intervals contain what is true in at least 95 of 100 roundings."""
    rng = np.random.default_rng(11)
    exact = {name: np.array([[60, 30, 17, 3], [4, 9, 12, 15]]) for name in "AB"}
    risks = band_figures(exact, CUTS, 0.2, resamples=200)
    held = {"sensitivity": 0, "ppv": 0, "net_benefit": 0}
    for _ in range(300):
        told = {name: 10 * np.floor(table / 10 + rng.random(table.shape)).astype(int) for name, table in exact.items()}
        found = band_figures(told, CUTS, 0.2, cells={"A": 10, "B": 10}, resamples=200)
        for name in ("sensitivity", "ppv"):
            figure, true = found["operating_point"]["all"][name], risks["operating_point"]["all"][name]["value"]
            held[name] += figure["low"] <= true <= figure["high"]
        curve = found["decision_curve"]
        held["net_benefit"] += curve["low"][1] <= risks["decision_curve"]["net_benefit"][1] <= curve["high"][1]
    assert min(held.values()) >= 285, held
    # Exact counts have the interval of Wilson, and no rounding.
    assert "rounding" not in risks["operating_point"]["all"]
