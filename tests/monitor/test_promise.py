"""A monitor as a whole: its promise over all bets together, and real hospitals."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.predict.known_model import known_patients, known_value, write_known_model
from tests.support import tiny_study as tiny
from wardround.data.folder import data_folder
from wardround.engine import registry
from wardround.monitor.surveillance import WatchedRows, begin_state, watch
from wardround.predict.predictor import load_predictor


def watched(frame: pd.DataFrame, marks: np.ndarray) -> WatchedRows:
    risk = 1 / (1 + np.exp(-known_value(frame)))
    return WatchedRows(frame, risk, (frame["ill"] == "yes").to_numpy(np.float64), marks)


def looks(predictor, seed: int, *, change: int = 10**9, shift: float = 0.0) -> int | None:
    """A hundred looks at 20 new patients each; at which of them the alarm rings."""
    marks = np.random.default_rng(seed).integers(0, 2**63, 2100, dtype=np.uint64)
    first = watched(known_patients(100, seed=seed), marks[:100])
    state = begin_state(predictor, first, name="old", site=None, every=20, alpha=0.05, tolerance=0.0)
    for look in range(100):
        frame = known_patients(20, seed=10_000 + 100 * seed + look, shift=shift if look >= change else 0.0)
        own = marks[100 + 20 * look : 120 + 20 * look]
        labels = np.full(20, f"look {look}", dtype=object)
        state = watch(state, predictor, watched(frame, own), labels)
        if state.alarms:
            return look
    return None


def test_a_change_is_found_soon_after_it_happens(tmp_path):
    predictor = load_predictor(write_known_model(tmp_path / "run"))
    found = looks(predictor, 0, change=30, shift=1.5)
    assert found is not None
    assert 30 <= found < 45


@pytest.mark.slow
def test_a_hundred_looks_at_all_bets_together_ring_by_chance_as_seldom_as_promised(tmp_path):
    # At most 5 % of 120 monitors are 6; 12 would be 2.5 standard errors (2.4) above.
    predictor = load_predictor(write_known_model(tmp_path / "run"))
    assert sum(looks(predictor, seed) is not None for seed in range(120)) <= 12


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "uci_heart_disease").is_dir(), reason="heart_disease needs WARDROUND_DATA")
def test_patients_of_another_real_hospital_are_noticed(tmp_path, capsys):
    """Heart disease in three hospitals, mixed; then the patients of a fourth arrive (needs WARDROUND_DATA)."""
    table = registry.find("dataset", "heart_disease").build()
    known = pd.concat([table.sites[name] for name in ("cleveland", "hungarian", "switzerland")])
    before, after = known.sample(frac=1, random_state=0), table.sites["va"]
    frame = known.assign(hospital="all").reset_index(drop=True)
    frame.loc[::2, "hospital"] = "other"
    data = {"target": table.target, "positive": table.positive}
    study = tiny.write_study(tmp_path, frame, data=data, study={"rounds": 20})
    run = tmp_path / "run"
    assert tiny.call(capsys, "run", study, "--out", run).code == 0
    stream = pd.concat([before, after], ignore_index=True)
    stream["date"] = pd.date_range("2024-01-01", periods=len(stream)).strftime("%Y-%m-%d")
    for rows, code in ((len(before), 0), (len(stream), 3)):
        stream[:rows].to_csv(tmp_path / "new.csv", index=False)
        said = tiny.call(capsys, "monitor", run, tmp_path / "new.csv", "--by", "date", "--every", "60", "--json")
        assert said.code == code
    # 720 patients came before: the windows of the fourth hospital begin at 721.
    assert {alarm["window"] for alarm in json.loads(said.out)["alarms"]} <= {
        *("721 to 780", "781 to 840", "841 to 900", "901 to 960")
    }
