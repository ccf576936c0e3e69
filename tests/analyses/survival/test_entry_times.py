"""Patients who come under observation late (left truncation) are at risk from then on, not before."""

import numpy as np
import pytest
from statsmodels.duration.hazard_regression import PHReg

from tests.support.survival.sites import found, made_patients
from wardround.analyses.survival.cox import cox
from wardround.analyses.survival.kaplan_meier import kaplan_meier
from wardround.core.errors import Refusal

WORDS = {"time": "time", "event": "event", "entry": "entry"}


def late_patients():
    """Three in five enter somewhere in the first 70 % of their time, at half days so that no event ties with it."""
    rows, draw = made_patients(), np.random.default_rng(0)
    part = draw.uniform(0, 0.7, len(rows)) * (draw.random(len(rows)) < 0.6)
    rows = rows.assign(entry=np.floor(rows["time"] * part) + 0.5)
    return rows[rows["entry"] < rows["time"]].reset_index(drop=True)


ROWS = late_patients()


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cox_is_the_stratified_fit_of_all_rows_with_entry_times(ties):
    report = found(cox(columns=("age", "ill"), ties=ties, **WORDS), ROWS)
    x = ROWS[["age", "ill"]].astype(float)
    pooled = PHReg(ROWS["time"], x, ROWS["event"], entry=ROWS["entry"], strata=ROWS["site"], ties=ties).fit()
    np.testing.assert_allclose(report["numbers"]["coefficients"], pooled.params, atol=1e-8)
    np.testing.assert_allclose(report["numbers"]["standard_errors"], pooled.bse, atol=1e-8)
    ignored = found(cox(columns=("age", "ill"), ties=ties, time="time", event="event"), ROWS)["numbers"]["coefficients"]
    assert abs(ignored[1] - pooled.params[1]) > 1e-3, "it would not be the same without them"
    assert "C-index" not in " ".join(report["words"]), "pairs are not compared where risk sets are"


def test_the_curve_is_the_product_over_risk_sets_by_definition():
    rows = ROWS.assign(entry=np.floor(ROWS["entry"]))
    report = found(kaplan_meier(bins=8000, **WORDS), rows)
    assert report["numbers"]["exact"]
    edges, told = np.array(report["numbers"]["edges"]), report["numbers"]["groups"]["all"]["survival"]
    survival = 1.0
    for time in np.unique(rows["time"][rows["event"] > 0]):
        risk = ((rows["entry"] < time) & (rows["time"] >= time)).sum()
        survival *= 1 - ((rows["time"] == time) & (rows["event"] > 0)).sum() / risk
        assert told[np.searchsorted(edges, time)] == pytest.approx(survival, abs=1e-9)
    assert f"Of {len(rows)} patients" in " ".join(report["words"])


def test_wide_intervals_and_cells_stay_near_the_exact_curve():
    rows = ROWS.assign(entry=np.floor(ROWS["entry"]))  # who does not enter late does so at 0
    exact = found(kaplan_meier(bins=8000, horizons=(200.0,), **WORDS), rows)["tables"][1]["rows"][0][3]
    for words, most in (({"bins": 50}, 0.02), ({"bins": 50, "smallest_cell": 5}, 0.06)):
        near = found(kaplan_meier(horizons=(200.0,), **words, **WORDS), rows)["tables"][1]["rows"][0][3]
        assert abs(near - exact) < most


@pytest.mark.parametrize(
    ("settings", "rows", "words"),
    [
        ({}, ROWS.assign(entry=ROWS["time"]), "some patients enter .'entry'. when their follow-up .*.site [ABC]"),
        ({"by_site": False}, ROWS, "with entry times patients are compared within their own site"),
        ({"horizons": (100.0,)}, ROWS, "no curve is predicted"),
        ({"entry": "age"}, ROWS, "'age' says when patients enter"),
        ({}, ROWS.assign(entry=-1.0), "negative times"),
    ],
    ids=["over", "across", "horizons", "twice", "negative"],
)
def test_what_cannot_be_is_refused(settings, rows, words):
    with pytest.raises(Refusal, match=f"(?i){words}"):
        found(cox(columns=("age", "ill"), **WORDS | settings), rows)
