"""Expected and observed outcomes by hand, in cells; and a consortium that sees at which site a model has aged."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from tests.predict.known_model import known_patients, write_known_model
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.query import ask_all
from wardround.monitor.consortium import aged_windows, judge, site_windows
from wardround.predict.predictor import load_predictor
from wardround.queries.outcomes_by_window import TERMS, outcomes_by_window

TABLE = pd.DataFrame(
    {
        "window": ["2025-01"] * 5 + ["2025-02"] * 2,
        "predicted": [0.5, 0.25, 0.25, 0.9, None, 0.5, 0.5],
        "outcome": [1, 1, 0, 1, 1, None, 0],
    }
)


def test_by_hand():
    # January: 4 patients with both known, mean risk (0.5 + 0.25 + 0.25 + 0.9) / 4 = 0.475, 3 observed. February: one.
    # Together: 5 patients, (1.9 + 0.5) / 5 = 0.48.
    report = ask_all(outcomes_by_window(), Message({}), [Site("A", TABLE)])
    own = report["sites"]["A"]
    assert own["windows"] == ["2025-01", "2025-02", "all"]
    assert (own["patients"], own["observed"]) == ([4, 1, 5], [3, 0, 3])
    assert own["risk"] == pytest.approx([0.475, 0.5, 0.48])
    assert ask_all(outcomes_by_window(most=1), Message({}), [Site("A", TABLE)])["sites"]["A"]["windows"] == ["2025-02"]


def test_small_cells_are_not_told():
    # In cells of 2: 4 patients, 3 observed is one cell; February is not named, nor counted among all.
    # Of 4 patients the grid has the step 2 / 4: 0.475 is told as 0.5.
    report = ask_all(outcomes_by_window(smallest_cell=2), Message({}), [Site("A", TABLE)])
    own = {"cell": 2, "windows": ["2025-01"], "patients": [4], "risk": [0.5], "observed": [2]}
    assert report == {"sites": {"A": own}}


@pytest.mark.parametrize(("offset", "risk"), [(0.0, 0.0), (0.04, 0.0), (0.06, 0.5), (0.99, 0.5)])
def test_a_secret_decides_which_way_a_risk_is_rounded(offset, risk):
    # 0.475 is 0.95 of a step of 0.5: it goes up where the offset is above 0.05, and so does 0.95 of all offsets.
    report = ask_all(outcomes_by_window(smallest_cell=2), Message({}), [Site("A", TABLE.assign(offset=offset))])
    assert report["sites"]["A"]["risk"] == [risk]


def test_a_patient_more_or_less_changes_a_count_by_a_whole_cell_or_nothing():
    rng = np.random.default_rng(0)
    windows = np.repeat(["2025-01", "2025-02"], 60)
    table = pd.DataFrame({"window": windows, "predicted": rng.random(120), "outcome": rng.integers(0, 2, 120)})
    query = outcomes_by_window(smallest_cell=10)
    whole, less = (query.ask(Message({}), Site("A", part)).arrays for part in (table, table[1:]))
    for name in ("patients", "observed"):
        assert set(np.abs(whole[name] - less[name])) <= {0, 10}
    # Of 60 patients a step is 2 / 60 rounded up to 1/16, of 120 it is 1/32: a patient makes half of it at most.
    assert set(np.abs(whole["risk"] - less["risk"])[:2]) <= {0, 1 / 16}
    assert abs(whole["risk"] - less["risk"])[2] in (0, 1 / 32)


def test_an_answer_is_as_large_as_its_terms_say():
    many = pd.DataFrame({"window": [f"{year}-01" for year in range(1900, 2000)], "predicted": 0.5, "outcome": 1})
    answer = outcomes_by_window(most=7).ask(Message({}), Site("A", many))
    told = sum(len(answer.arrays[name]) for name in ("patients", "risk", "observed"))
    names = 7 + 1  # and the cell, and the site's name
    assert told + names + 2 == TERMS.numbers(Extent(settings={"most": 7}))
    assert "multiples of 10" in TERMS.describe({"every": "year", "most": 7, "smallest_cell": 10})


def test_a_consortium_sees_where_the_model_ages(tmp_path):
    predictor = load_predictor(write_known_model(tmp_path / "run"))
    dates = pd.Series(pd.to_datetime(["2025-01-15"] * 400 + ["2025-02-15"] * 400))
    sites = []
    for number, name in enumerate(("East", "North", "West")):
        then, now = (known_patients(400, seed=2 * number + k, shift=k * 1.5 * (name == "North")) for k in (0, 1))
        sites.append(site_windows(predictor, name, pd.concat([then, now], ignore_index=True), dates))
    report = ask_all(outcomes_by_window(smallest_cell=10), Message({}), sites)
    found = {(one.site, one.window): one.verdict for one in aged_windows(report)}
    assert found.pop(("North", "2025-02")) == "too low"
    assert found.pop(("North", "all")) == "too low"
    assert set(found.values()) == {""}
    assert len(found) == 7


def test_a_quantity_has_no_counts(tmp_path):
    predictor = load_predictor(write_known_model(tmp_path / "run", classes=()))
    with pytest.raises(Refusal, match="Only the risk of one outcome can be counted"):
        site_windows(predictor, "East", known_patients(10), pd.Series(pd.to_datetime(["2025-01-15"] * 10)))


def test_a_verdict_against_scipy():
    # Told: 100 patients, 40 with the outcome, in cells of 10. At the lowest it is 40 of 109, at the highest 49 of 100.
    # The risk may be 1/32 off (2 / 100, up to a power of two): 0.25 is too low (0.28125 < 0.2825), 0.26 may be right.
    low = binomtest(40, 109).proportion_ci(method="wilson").low
    high = binomtest(49, 100).proportion_ci(method="wilson").high
    for risk, verdict in ((0.25, "too low"), (0.26, ""), (0.61, ""), (0.62, "too high")):
        one = judge("A", "2025", 0.95, 10, 100, risk, 40)
        assert (one.low, one.high) == pytest.approx((low, high))
        assert one.verdict == verdict


def test_intervals_are_widened_for_all_windows_together():
    # 0.05 shared by 4 windows: each has the level 0.9875.
    own = {"cell": 1, "windows": ["2025", "2026"], "patients": [50, 50], "risk": [0.5, 0.5], "observed": [25, 25]}
    for one in aged_windows({"sites": {"A": own, "B": own}}):
        assert one == judge(one.site, one.window, 0.9875, 1, 50, 0.5, 25)


@pytest.mark.slow
def test_a_right_model_is_seldom_called_wrong():
    """400 looks at three sites and eight windows of patients who are ill as often as predicted: 5 % at most."""
    rng = np.random.default_rng(5)
    windows = np.repeat([f"2025-{month:02}" for month in range(1, 9)], 60)
    query = outcomes_by_window(smallest_cell=10)
    wrong = 0
    for _ in range(400):
        sites = []
        for name in "ABC":
            risk = rng.beta(2, 4, len(windows))
            ill, offset = rng.random(len(windows)) < risk, rng.random()
            table = pd.DataFrame({"window": windows, "predicted": risk, "outcome": ill.astype(int), "offset": offset})
            sites.append(Site(name, table))
        wrong += any(one.verdict for one in aged_windows(ask_all(query, Message({}), sites)))
    assert wrong <= 20
