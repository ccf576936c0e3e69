"""The first question of all survival analyses, and the mistakes that it finds."""

import numpy as np
import pytest

from tests.support.survival.sites import found, made_patients
from wardround.analyses.survival.kaplan_meier import kaplan_meier
from wardround.core.errors import Refusal

STUDY = {"time": "time", "event": "event"}


def refusal_of(rows, **settings):
    with pytest.raises(Refusal) as refused:
        found(kaplan_meier(**{**STUDY, **settings}), rows)
    return str(refused.value)


def test_negative_times_are_refused_at_their_site():
    rows = made_patients()
    rows.loc[rows.index[rows["site"] == "B"][0], "time"] = -1
    said = refusal_of(rows)
    assert "has negative times" in said
    assert "site B" in said


def test_an_event_that_is_not_0_or_1_is_refused_with_the_setting_that_helps():
    rows = made_patients()
    said = refusal_of(rows.assign(event=rows["event"] + 1))
    assert "does not hold 0 and 1" in said
    assert 'event_is = "..."' in said
    twos = found(kaplan_meier(**STUDY, event_is="2"), rows.assign(event=rows["event"] + 1))["numbers"]
    assert twos == found(kaplan_meier(**STUDY), rows)["numbers"]
    words = rows.assign(event=np.where(rows["event"] == 1, "yes", "no"))
    assert found(kaplan_meier(**STUDY), words)["numbers"] == twos


def test_all_censored_is_refused():
    assert "are censored: nobody had the event" in refusal_of(made_patients().assign(event=0))


def test_no_known_patient_is_refused():
    assert "no site has patients" in refusal_of(made_patients().assign(time=np.nan)).lower()


@pytest.mark.parametrize("factor", [30.4, 365.25])
def test_times_in_another_unit_are_refused(factor):
    rows = made_patients(rounded=False)
    rows.loc[rows["site"] == "B", "time"] /= factor
    said = refusal_of(rows)
    assert "times that of another: days and months?" in said
    assert found(kaplan_meier(**STUDY, check_units=False), rows)


def test_times_that_may_be_in_another_unit_get_a_word():
    rows = made_patients(rounded=False)
    rows.loc[rows["site"] == "B", "time"] /= 12
    report = found(kaplan_meier(**STUDY), rows)
    assert any("check that all times are in one unit" in one for one in report["words"])


def test_unknown_values_are_left_out_and_counted():
    rows = made_patients()
    rows.loc[rows.index[:7], "time"] = np.nan
    report = found(kaplan_meier(**STUDY), rows)
    assert any(one.startswith("7 more were left out") for one in report["words"])
    assert report["numbers"]["groups"]["all"]["at_risk"][0] == len(rows) - 7


def test_a_missing_column_names_site_and_likely_name():
    with pytest.raises(Refusal, match=r"'tme' is missing \(site A\).*'time'"):
        found(kaplan_meier(time="tme", event="event"), made_patients())


def test_an_interval_without_events_changes_nothing():
    # Edges where nobody has an event only repeat the curve.
    rows = made_patients()
    times = tuple(np.unique(rows["time"]))
    one = found(kaplan_meier(**STUDY, times=times), rows)["numbers"]
    two = found(kaplan_meier(**STUDY, times=tuple(sorted((*times, 3.5, 77.25)))), rows)["numbers"]
    assert one["exact"]
    assert two["exact"]
    kept = [two["edges"].index(edge) for edge in one["edges"]]
    np.testing.assert_allclose(np.array(two["groups"]["all"]["survival"])[kept], one["groups"]["all"]["survival"])
