"""Sentences for hand-made tables, and the corrections behind them."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from wardround.core.contracts import Site, Task
from wardround.core.federation import assemble
from wardround.data.datasets.heart_disease import heart_disease
from wardround.engine.simulate import Simulation
from wardround.partners.similarity.histograms import ask_histograms, differences
from wardround.partners.similarity.multiple_tests import holm
from wardround.queries.cells_of import ColumnCells
from wardround.report.partners.differences import NOTHING, UNKNOWN, median, sentences

DATA = Path(os.environ.get("WARDROUND_DATA", Path(__file__).parents[3] / "shared" / "data"))
HEART = DATA / "uci_heart_disease" / "heart_disease_4_hospitals.csv"
ROWS = (np.zeros((1, 1), np.float32), np.zeros(1, np.int32))


def said(here: pd.DataFrame, there: pd.DataFrame | None) -> list[str]:
    """What is said about Kenema's patients to the people of Bo."""
    federation = assemble([("Bo", [ROWS] * 3), ("Kenema", [ROWS] * 3)], Task((1,), ("no", "yes")))
    tables = [Site("Bo", here)] + ([] if there is None else [Site("Kenema", there)])
    told = ask_histograms(Simulation(federation, tables=tables))
    return sentences(told, differences(told), 0, 1)


def test_younger_patients() -> None:
    quantiles = norm.ppf((np.arange(200) + 0.5) / 200)
    words = said(pd.DataFrame({"age": 33 + 12 * quantiles}), pd.DataFrame({"age": 24 + 8 * quantiles}))
    assert len(words) == 1
    assert words[0].startswith("Kenema's patients are younger (median about 2")
    theirs, ours = (int(part) for part in words[0].rstrip(").").replace(", yours", "").split()[-2:])
    assert abs(theirs - 24) <= 2
    assert abs(ours - 33) <= 2


def test_shares_of_a_test_result() -> None:
    here = pd.DataFrame({"malaria_test": ["positive"] * 16 + ["negative"] * 84})
    there = pd.DataFrame({"malaria_test": ["positive"] * 54 + ["negative"] * 46})
    # In cells of 5: 50 and 45 of 95 there, 15 and 80 of 95 here.
    assert said(here, there) == ["Malaria test is positive for 53 % there and 16 % here."]


def test_signs_and_other_categories() -> None:
    here = pd.DataFrame({"vomiting": ["no"] * 80 + ["yes"] * 20, "ward": ["A"] * 50 + ["B"] * 30 + ["C"] * 20})
    there = pd.DataFrame({"vomiting": ["no"] * 30 + ["yes"] * 70, "ward": ["A"] * 10 + ["B"] * 30 + ["C"] * 60})
    words = said(here, there)
    assert "Vomiting: yes for 70 % there and 20 % here." in words
    assert "Ward is A for 10 % there and 50 % here." in words or "Ward is C for 60 % there and 20 % here." in words


def test_what_is_recorded_at_one_place_only() -> None:
    full, empty = pd.DataFrame({"weight": np.arange(60.0)}), pd.DataFrame({"weight": [np.nan] * 80})
    assert said(empty, full) == ["Weight is recorded there but not here."]
    assert said(full, empty) == ["Weight is recorded here but not there."]


def test_more_gaps() -> None:
    here = pd.DataFrame({"myalgia": ["yes"] * 45 + ["no"] * 45 + [None] * 10})
    there = pd.DataFrame({"myalgia": ["yes"] * 30 + ["no"] * 30 + [None] * 40})
    assert said(here, there) == ["Myalgia is missing for 40 % there and 10 % here."]
    # Gaps everywhere there, many here: no share of "yes" is made up for the site that knows none. A cell told as 0 may
    # have held 4 of the 100, which is why it says at least 96 %.
    mostly = pd.DataFrame({"myalgia": ["yes"] * 20 + ["no"] * 20 + [None] * 60})
    nothing = pd.DataFrame({"myalgia": [None] * 100})
    assert said(mostly, nothing) == ["Myalgia is missing for at least 96 % there and 60 % here."]


def test_what_was_withheld_is_not_made_up() -> None:
    """Nobody here lacks the value, but a cell of up to 4 of 100 would be told as 0 too: more cannot be said."""
    here = pd.DataFrame({"fbs": ["yes"] * 30 + ["no"] * 70})
    there = pd.DataFrame({"fbs": ["yes"] * 12 + ["no"] * 28 + [None] * 60})
    # In cells of 5: 60 of 10 + 25 + 60 there.
    assert said(here, there) == ["Fbs is missing for 63 % there and at most 4 % here."]


@pytest.mark.skipif(not HEART.exists(), reason=f"the heart disease data are not at {HEART} (set WARDROUND_DATA)")
def test_four_real_hospitals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cholesterol was not measured in Switzerland; of the patients there 93 % (115 of 123) have the disease."""
    monkeypatch.setenv("WARDROUND_DATA", str(DATA))
    sites = heart_disease().sites
    words = said(sites["cleveland"], sites["switzerland"])
    assert "Chol is recorded here but not there." in words
    ill = {name: (sites[name]["disease"] == "disease") for name in ("switzerland", "cleveland")}
    assert {name: (one.sum(), (~one).sum()) for name, one in ill.items()} == {
        "switzerland": (115, 8),
        "cleveland": (139, 164),
    }
    # In cells of 5: 115 of 115 + 5 there, 135 of 135 + 160 here.
    assert "Disease is disease for 96 % there and 46 % here." in words


def test_chance_is_no_news() -> None:
    here = pd.DataFrame({"sex": ["f"] * 52 + ["m"] * 48, "age": np.arange(100) % 50})
    there = pd.DataFrame({"sex": ["f"] * 45 + ["m"] * 55, "age": (np.arange(100) + 7) % 50})
    assert said(here, there) == [NOTHING]


def test_a_silent_site() -> None:
    assert said(pd.DataFrame({"sex": ["f"] * 50}), None) == [UNKNOWN]


def test_the_largest_difference_comes_first() -> None:
    here = pd.DataFrame({"a": ["yes"] * 30 + ["no"] * 70, "b": ["yes"] * 10 + ["no"] * 90})
    there = pd.DataFrame({"a": ["yes"] * 60 + ["no"] * 40, "b": ["yes"] * 95 + ["no"] * 5})
    assert [sentence[0] for sentence in said(here, there)] == ["B", "A"]


def test_median_in_a_straight_line() -> None:
    column = ColumnCells("x", (10.0, 20.0), low=0.0, high=40.0, number=True)
    # A quarter below 10, half from 10 to 20: the middle is halfway through that cell.
    assert median(column, np.array([0.25, 0.5, 0.25])) == pytest.approx(15.0)
    # 0.1 + 0.2 below 20, so (0.5 - 0.3) / 0.7 of the way from 20 to 40.
    assert median(column, np.array([0.1, 0.2, 0.7])) == pytest.approx(20 + 20 * 2 / 7)


def test_holm_by_hand() -> None:
    # In order 0.01, 0.02, 0.03: times 3, 2, 1 are 0.03, 0.04, 0.03, and none below the one before it.
    np.testing.assert_allclose(holm(np.array([0.02, 0.03, 0.01])), [0.04, 0.04, 0.03])
    assert holm(np.array([0.9, 0.8])).max() == 1.0
