"""A table with times and events becomes one with an outcome; mistakes are refused by name, or count as unknown."""

import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.load import load
from wardround.data.survival.follow_up import with_follow_up
from wardround.data.survival.intervals import SurvivalOutcome
from wardround.data.table import Table

OUTCOME = SurvivalOutcome("days", "died", (365.0, 730.0))


def table(**columns):
    frame = pd.DataFrame({"age": [50.0, 60.0, 70.0], "days": [100.0, 400.0, 800.0], "died": [1, 0, 1], **columns})
    return Table({"bo": frame}, "died", "rows.csv")


def test_the_event_becomes_the_outcome_and_the_time_is_set_aside():
    made = with_follow_up(table(), OUTCOME)
    assert made.sites["bo"]["died"].tolist() == ["by 365", "unknown after 365", "after 730"]
    assert made.sites["bo"]["days"].tolist() == [100.0, 400.0, 800.0]
    assert (made.target, made.task, made.aside, made.horizons) == ("died", "survival", ("days",), (365.0, 730.0))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"days": [-1.0, 400.0, 800.0]}, "negative or infinite in 1 rows.*codes for unknown"),
        ({"days": ["a", "b", "c"]}, "no numbers"),
        ({"died": ["dead", "alive", "dead"]}, "does not hold 0 and 1.*event_is"),
    ],
)
def test_mistakes_are_refused_with_the_site(columns, words):
    with pytest.raises(Refusal, match=words) as refusal:
        with_follow_up(table(**columns), OUTCOME)
    assert "site bo" in str(refusal.value)
    unknown = with_follow_up(table(**columns), OUTCOME, refuse=False).sites["bo"]["died"].isna()
    assert unknown.any()  # at a real site, where no refusal may tell of a patient


def test_another_value_may_be_the_event():
    words = {"died": ["dead", "alive", "dead"]}
    made = with_follow_up(table(**words), OUTCOME._replace(event_is="dead"))
    assert made.sites["bo"]["died"].tolist() == ["by 365", "unknown after 365", "after 730"]


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(Refusal, match="Column 'day' is missing; did you mean 'days'"):
        with_follow_up(table(), OUTCOME._replace(time="day"))


def test_a_horizon_that_nobody_reaches_is_noted():
    # Times up to 900 days, horizons in months by mistake and one beyond: 12 has no event before it, 5000 nobody there.
    rows = pd.DataFrame({"age": range(40), "days": [900.0] * 20 + [100.0] * 20, "died": [0] * 20 + [1] * 20})
    made = with_follow_up(Table({"bo": rows}, "died", "rows"), SurvivalOutcome("days", "died", (12.0, 365.0, 5000.0)))
    notes = [one for one in load(made, seed=1).notes if "No patient" in one]
    assert notes == [
        "No patient had the event by 12.",
        "No patient was followed up to 5000: what is predicted for it is a guess.",
    ]


def test_parts_have_their_share_of_events():
    # 100 patients, 20 events by the horizon: with shares of 60, 20 and 20 %, the parts have 12, 4 and 4 of them.
    rows = pd.DataFrame({"age": range(100), "days": [10.0] * 20 + [900.0] * 40 + [5.0] * 40})
    rows["died"] = [1] * 20 + [0] * 80
    made = with_follow_up(
        Table({"bo": rows, "kenema": rows}, "died", "rows"), SurvivalOutcome("days", "died", (365.0,))
    )
    federation = load(made, seed=3).federation
    assert federation.task.horizons == (365.0,)
    assert federation.task.classes == ("by 365", "after 365")
    assert federation.features == ("age",)
    for site in range(2):
        for part, events in (("train", 12), ("validation", 4), ("test", 4)):
            first, count = (one[site] for one in federation.part(part))
            labels, times = (one[first : first + count] for one in (federation.y, federation.times))
            assert (labels == 0).sum() == events
            assert ((times == 10.0) == (labels == 0)).all()  # times go with their patients
            assert ((times == 5.0) == (labels == 2)).all()
