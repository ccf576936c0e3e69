"""Curves over sites equal those of all rows in one place; what is rounded or withheld is told."""

import numpy as np
import pytest

from tests.support.answers import numbers_of
from tests.support.survival.sites import agreed_on, found, made_patients, real_table, sites_of
from wardround.analyses.survival.kaplan_meier import TERMS, kaplan_meier
from wardround.core.components.terms import Extent
from wardround.engine.registry import find

STUDY = {"time": "time", "event": "event", "group": "stage"}


def test_over_sites_it_is_lifelines_on_all_rows():
    lifelines = pytest.importorskip("lifelines")
    rows = made_patients()
    report = found(kaplan_meier(**STUDY, bins=1000, horizons=(200.0,), unit="days"), rows)
    assert report["numbers"]["exact"]
    edges = np.array(report["numbers"]["edges"])
    for stage in ("I", "II", "III"):
        own = rows[rows["stage"] == stage]
        fitted = lifelines.KaplanMeierFitter().fit(own["time"], own["event"])
        curve = report["numbers"]["groups"][stage]
        expected = fitted.survival_function_at_times(edges).to_numpy()
        np.testing.assert_allclose(curve["survival"], expected, atol=1e-12)
        assert curve["median"] == fitted.median_survival_time_
    assert "Every time is the edge of an interval, so nothing is rounded." in report["words"]
    assert report["words"][0].startswith("Of the patients with stage I half had the event by ")


def test_wider_intervals_say_how_far_they_can_be_off():
    rows = made_patients(rounded=False)
    exact = found(kaplan_meier(time="time", event="event", times=tuple(np.unique(rows["time"]))), rows)["numbers"]
    report = found(kaplan_meier(time="time", event="event", bins=20), rows)
    wide = report["numbers"]
    assert exact["exact"]
    assert not wide["exact"]
    steps = np.array([1.0, *exact["groups"]["all"]["survival"]])
    at_edges = steps[np.searchsorted(exact["edges"], wide["edges"], side="right")]
    assert 0 < np.abs(at_edges - wide["groups"]["all"]["survival"]).max() <= wide["rounding"] < 0.05
    assert any("percentage points from those of exact times" in one for one in report["words"])


def test_no_count_of_an_interval_is_below_the_smallest_cell():
    rows = made_patients()
    sites = sites_of(rows)
    agreed = agreed_on(rows, sites)
    analysis = kaplan_meier(**STUDY, smallest_cell=5)
    state = analysis.begin(agreed)
    for site in sites:
        first = analysis.ask(agreed, analysis.message(state), site).arrays
        assert (first["later"] % 5 == 0).all()
        assert first["patients"] % 5 == 0
    report = found(analysis, rows)
    assert not report["numbers"]["exact"]
    curves = found(kaplan_meier(**STUDY, bins=1000), rows)["numbers"]
    for stage in ("I", "II", "III"):
        # A curve ends where fewer than a cell are followed.
        told = dict(zip(report["numbers"]["edges"], report["numbers"]["groups"][stage]["survival"], strict=False))
        assert min(report["numbers"]["groups"][stage]["at_risk"]) >= 5
        true = dict(zip(curves["edges"], curves["groups"][stage]["survival"], strict=True))
        assert max(abs(told[edge] - true[edge]) for edge in told if edge in true) < 0.2
    assert any("at least 5 patients and events at once" in one for one in report["words"])


def test_a_group_too_small_to_tell_of_is_withheld():
    rows = made_patients()
    rows.loc[rows.index[:3], "stage"] = "IV"
    report = found(kaplan_meier(**STUDY, smallest_cell=5), rows)
    assert report["numbers"]["groups"]["IV"]["at_risk"][0] == 0
    assert "Of the patients with stage IV too few are at any site to tell." in report["words"]


def test_answers_have_one_shape_and_at_most_the_size_of_the_terms():
    rows = made_patients()
    sites = sites_of(rows)
    agreed = agreed_on(rows, sites)
    analysis = kaplan_meier(**STUDY)
    settings = {one.name: one.default for one in find("analysis", "kaplan_meier").parameters} | STUDY
    state = analysis.begin(agreed)
    while (asked := analysis.message(state)) is not None:
        empty = sites[0].table.iloc[:0]
        answers = [analysis.ask(agreed, asked, site) for site in (*sites, type(sites[0])("empty", empty))]
        assert len({str({k: v.shape for k, v in one.arrays.items()}) for one in answers}) == 1
        assert numbers_of(answers[0]) <= TERMS.numbers(Extent(settings))
        total = {name: sum(one.arrays[name] for one in answers) for name in answers[0].arrays}
        state = analysis.step(state, type(asked)(total))
    assert state.counted.patients.sum() == len(rows)


def test_lung_by_institution_is_the_published_curve():
    # Median survival in R's help page of survfit on this table: 310 days, 95 % interval 285 to 363; by sex 270 and 426.
    # (R's "log" interval is another scale than ours, so that only medians are compared.)
    lung = real_table("multicentre_small/lung.csv")
    lung = lung.assign(inst=lung["inst"].fillna(0), sex=lung["sex"].map({1: "man", 2: "woman"}))
    study = {"time": "time", "event": "status", "event_is": "2", "bins": 1500}
    assert found(kaplan_meier(**study), lung, "inst")["numbers"]["groups"]["all"]["median"] == 310
    by_sex = found(kaplan_meier(**study, group="sex"), lung, "inst")["numbers"]["groups"]
    assert (by_sex["man"]["median"], by_sex["woman"]["median"]) == (270, 426)
