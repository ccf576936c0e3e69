"""Competing risks over sites equal those of all rows in one place."""

import numpy as np
import pytest

from tests.support.survival.sites import found, made_patients, real_table
from wardround.analyses.survival.cumulative_incidence import cumulative_incidence
from wardround.core.errors import Refusal


def two_causes():
    rows = made_patients(rounded=False)
    return rows.assign(outcome=np.where(rows["event"] == 0, "alive", np.where(rows["ill"] == 1, "relapse", "death")))


STUDY = {"time": "time", "event": "outcome", "causes": ("relapse", "death")}


@pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
def test_over_sites_it_is_lifelines_on_all_rows():
    lifelines = pytest.importorskip("lifelines")
    rows = two_causes()
    report = found(cumulative_incidence(**STUDY, times=tuple(np.unique(rows["time"]))), rows)
    code = rows["outcome"].map({"alive": 0, "relapse": 1, "death": 2})
    told = report["numbers"]["groups"]["all"]
    assert report["numbers"]["exact"]
    for place, cause in enumerate(("relapse", "death"), 1):
        fitted = lifelines.AalenJohansenFitter(calculate_variance=False).fit(rows["time"], code, place)
        own = told["causes"][cause]["incidence"]
        np.testing.assert_allclose(own, fitted.cumulative_density_.to_numpy()[1:, 0], atol=1e-12)
    total = np.sum([one["incidence"] for one in told["causes"].values()], axis=0) + told["survival"]
    np.testing.assert_allclose(total, 1)


def test_words_and_grays_test():
    report = found(cumulative_incidence(**STUDY, group="stage", horizons=(300.0,), unit="days", bins=400), two_causes())
    assert all("Gray's test" in one for one in report["words"][:2])
    assert report["words"][2].startswith("By 300 days outcome relapse had struck ")
    assert set(report["numbers"]["gray"]) == {"relapse", "death"}


def test_cells_hide_causes_too():
    exact = found(cumulative_incidence(**STUDY, horizons=(200.0,)), two_causes())
    report = found(cumulative_incidence(**STUDY, horizons=(200.0,), smallest_cell=5), two_causes())
    one, two = (next(r for r in f["tables"][0]["rows"] if r[1] == "relapse")[3] for f in (exact, report))
    assert abs(one - two) < 0.08


def test_bone_marrow_transplants_by_hospital():
    rows = real_table("multicentre_small/bmt.csv")
    rows = rows.assign(outcome=np.where(rows["d2"] == 1, "relapse", np.where(rows["d1"] == 1, "death", "alive")))
    report = found(
        cumulative_incidence(time="t2", event="outcome", causes=("relapse", "death"), bins=4000), rows, "hospital"
    )
    # 42 of 137 patients relapse and 41 die without; nobody knows more of them than the curve's end: below the share.
    told = report["numbers"]["groups"]["all"]["causes"]
    assert report["numbers"]["exact"]
    assert 0.30 < told["relapse"]["incidence"][-1] < 0.36
    assert 0.29 < told["death"]["incidence"][-1] < 0.36


def test_causes_must_be_named():
    with pytest.raises(Refusal, match="must be named once"):
        found(cumulative_incidence(time="time", event="outcome", causes=()), two_causes())
    with pytest.raises(Refusal, match="No site has told of outcome = none"):
        found(cumulative_incidence(time="time", event="outcome", causes=("none",)), two_causes())
