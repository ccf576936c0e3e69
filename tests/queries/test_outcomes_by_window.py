"""Expected and observed outcomes by hand, in cells; and a consortium that sees at which site a model has aged."""

import numpy as np
import pandas as pd
import pytest

from tests.predict.known_model import known_patients, write_known_model
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.query import ask_all
from wardround.monitor.consortium import aged_windows, site_windows
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
    # January: 4 patients with both known, 0.5 + 0.25 + 0.25 + 0.9 expected, 3 observed. February: one patient.
    report = ask_all(outcomes_by_window(), Message({}), [Site("A", TABLE)])
    own = report["sites"]["A"]
    assert own["windows"] == ["2025-01", "2025-02"]
    assert (own["patients"], own["observed"]) == ([4, 1], [3, 0])
    assert own["expected"] == pytest.approx([1.9, 0.5])
    assert ask_all(outcomes_by_window(most=1), Message({}), [Site("A", TABLE)])["sites"]["A"]["windows"] == ["2025-02"]


def test_small_cells_are_not_told():
    # In cells of 2: 4 patients, 1.9 expected is below a cell, 3 observed is one cell; February is not named.
    report = ask_all(outcomes_by_window(smallest_cell=2), Message({}), [Site("A", TABLE)])
    own = {"windows": ["2025-01"], "patients": [4.0], "expected": [0.0], "observed": [2.0]}
    assert report == {"sites": {"A": own}}


def test_a_patient_more_or_less_changes_a_count_by_a_whole_cell_or_nothing():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"window": "2025-01", "predicted": rng.random(60), "outcome": rng.integers(0, 2, 60)})
    query = outcomes_by_window(smallest_cell=10)
    whole, less = (query.ask(Message({}), Site("A", part)).arrays for part in (table, table[1:]))
    for name in ("patients", "expected", "observed"):
        assert set(np.abs(whole[name] - less[name])) <= {0, 10}


def test_an_answer_is_as_large_as_its_terms_say():
    many = pd.DataFrame({"window": [f"{year}-01" for year in range(1900, 2000)], "predicted": 0.5, "outcome": 1})
    answer = outcomes_by_window(most=7).ask(Message({}), Site("A", many))
    told = sum(len(answer.arrays[name]) for name in ("patients", "expected", "observed"))
    assert told + 7 == TERMS.numbers(Extent(settings={"most": 7}))
    assert "multiples of 10" in TERMS.describe({"most": 7, "smallest_cell": 10})


def test_a_consortium_sees_where_the_model_ages(tmp_path):
    predictor = load_predictor(write_known_model(tmp_path / "run"))
    dates = pd.Series(pd.to_datetime(["2025-01-15"] * 400 + ["2025-02-15"] * 400))
    sites = []
    for number, name in enumerate(("East", "North", "West")):
        then, now = (known_patients(400, seed=2 * number + k, shift=k * 1.5 * (name == "North")) for k in (0, 1))
        sites.append(site_windows(predictor, name, pd.concat([then, now], ignore_index=True), dates))
    report = ask_all(outcomes_by_window(smallest_cell=10), Message({}), sites)
    found = {(one.site, one.window): one.verdict for one in aged_windows(report, smallest_cell=10)}
    assert found.pop(("North", "2025-02")) == "too low"
    assert set(found.values()) == {""}
    assert len(found) == 5


def test_a_quantity_has_no_counts(tmp_path):
    predictor = load_predictor(write_known_model(tmp_path / "run", classes=()))
    with pytest.raises(Refusal, match="Only the risk of one outcome can be counted"):
        site_windows(predictor, "East", known_patients(10), pd.Series(pd.to_datetime(["2025-01-15"] * 10)))
