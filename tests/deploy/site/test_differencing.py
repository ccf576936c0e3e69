"""What really leaves a site at work, told in cells of ten: two answers that differ by one patient tell nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from wardround.core.codes.json_arrays import unpack
from wardround.core.components.recipes import Recipe, recipe_of, to_json
from wardround.core.contracts import Message, Query, Scores, Task
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.deploy.protocol.requests import Received, Topic, read_request
from wardround.deploy.site.release.disclosure import coarse_figures, coarse_losses, in_own_cells
from wardround.deploy.site.study_worker import StudyWorker
from wardround.evaluate.block import result_block
from wardround.queries.cards import cards
from wardround.queries.category_counts import category_counts
from wardround.queries.extremes import extremes
from wardround.queries.moments import moments
from wardround.study.file import parse_study

CELL, ROWS = 10, 160
KINDS = {"age": "number", "flag": "number", "ward": "text"}
STUDY = parse_study(
    {
        "study": {"name": "triage", "rounds": 1, "seed": 3},
        "data": {
            "source": "csv",
            "target": "outcome",
            "shares": [1.0, 0.0, 0.0],
            "preparation": {"smallest_cell": CELL},
        },
    },
    where="test",
)


def patients() -> pd.DataFrame:
    random = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "age": random.normal(55, 15, ROWS).round(2),
            "flag": (random.random(ROWS) < 0.2).astype(float),
            "ward": random.choice(["a", "b", "c"], ROWS, p=[0.6, 0.36, 0.04]),
            "outcome": np.where(np.arange(ROWS) % 2 == 0, "no", "yes"),
        }
    )


def received(topic: Topic, **words: Any) -> Received[Any]:
    return read_request(topic, {"study": "s", "round": 0, **words})


def at_work(folder: Path, frame: pd.DataFrame, cell: int = CELL) -> StudyWorker:
    table = Table({"bo": frame.reset_index(drop=True)}, "outcome", "test")
    site = StudyWorker("bo", STUDY, table, folder, allow=lambda recipe: None, smallest_cell=cell)
    schema = {"kinds": KINDS, "task": "classification", "classes": ["no", "yes"]}
    site.settle(received(Topic.SETTLE, schema=schema, seed=3), Message({}))
    return site


def asked(site: StudyWorker, query: Query, on: str = "training") -> dict[str, Any]:
    return site.query(received(Topic.QUERY, query=to_json(recipe_of(query)), on=on), Message({}))[1].arrays


def leaves(folder: Path, frame: pd.DataFrame, cell: int = CELL) -> dict[str, Any]:
    """Everything but the training itself, as one dictionary of numbers."""
    site, numbers = at_work(folder, frame, cell), ("age", "flag")
    card = unpack(asked(site, cards(target="outcome", smallest_cell=cell), "raw")["card"])
    wards = unpack(asked(site, category_counts(columns=("ward",), most=200, smallest_cell=cell))["counts"])["ward"]
    told = asked(site, moments(columns=numbers, smallest_cell=cell))
    ends = asked(site, extremes(columns=numbers, smallest_cell=cell))
    return {
        "rows": card["rows"],
        "labels": card["labels"],
        "wards": [wards.get(name, 0) for name in "abc"],
        "count": told["count"].tolist(),
        "sum": told["sum"].tolist(),
        "low": ends["low"].tolist(),
        "high": ends["high"].tolist(),
    }


def test_a_patient_more_or_less_changes_whole_cells_or_nothing(tmp_path):
    frame = patients()
    whole = leaves(tmp_path, frame)
    assert whole["wards"][2] == 0 < (frame["ward"] == "c").sum() < CELL
    real = (frame["ward"] == "b").sum()
    assert whole["wards"][1] == real - real % CELL
    for gone in range(0, ROWS, 5):
        rest = leaves(tmp_path, frame.drop(index=gone))
        for name in ("rows", "wards", "count"):
            away = np.abs(np.ravel(whole[name]) - np.ravel(rest[name]))
            assert set(away.tolist()) <= {0, CELL}
        # Of a flag the sum is a count: it never moves by the one patient.
        assert abs(whole["sum"][1] - rest["sum"][1]) != 1
        assert whole["low"][0] > frame["age"].min()
        assert whole["high"][0] < frame["age"].max()


def test_without_cells_the_same_attack_finds_the_patient(tmp_path):
    frame = patients()
    whole = leaves(tmp_path, frame, 1)
    for gone in (3, 77, 150):
        rest = leaves(tmp_path, frame.drop(index=gone), 1)
        assert whole["sum"][0] - rest["sum"][0] == pytest.approx(frame["age"][gone])
        assert "abc"[int(np.argmax(np.subtract(whole["wards"], rest["wards"])))] == frame["ward"][gone]


def test_the_policys_cells_win_and_other_sizes_do_not_narrow_a_count(tmp_path):
    site = at_work(tmp_path, patients())
    real = int((patients()["ward"] == "b").sum())

    def ward(cell: int) -> int:
        query = category_counts(columns=("ward",), most=200, smallest_cell=cell)
        return unpack(asked(site, query)["counts"])["ward"].get("b", 0)

    # Whoever asks in cells of 1 is answered in tens, in cells of 11, 12, ... 20 in twenties, then in forties.
    assert ward(1) == ward(10) == real - real % 10
    assert {ward(cell) for cell in range(11, 21)} == {real - real % 20}
    assert ward(21) == real - real % 40
    # The positive control: cells of many sizes would give the number away.
    possible = set(range(ROWS + 1))
    for cell in range(10, 41):
        possible &= set(range(real - real % cell, real - real % cell + cell))
    assert len(possible) <= 2
    free = in_own_cells(Recipe("query", "category_counts", (("smallest_cell", 7),)), 1)
    assert dict(free.settings) == {"smallest_cell": 7}
    assert in_own_cells(Recipe("query", "kinds_of"), CELL) == Recipe("query", "kinds_of")


def test_only_the_approved_split_is_told_about(tmp_path):
    site = at_work(tmp_path, patients())
    schema = {"kinds": KINDS, "task": "classification", "classes": ["no", "yes"]}
    with pytest.raises(Refusal, match="a seed that is not the approved study's"):
        site.settle(received(Topic.SETTLE, schema=schema, seed=4), Message({}))


# ---- how well a model does ----

TASK = Task((1,), ("no", "yes"))


def scores(sick: int, well: int, wrong: int) -> Scores:
    actual = np.repeat([1, 0], [sick, well])
    guessed = np.where(np.arange(len(actual)) < wrong, 1 - actual, actual)
    likely = np.where(guessed == 1, 0.8, 0.2)
    return Scores(np.stack([1 - likely, likely], axis=1), actual, np.array([0, len(actual)]))


def figures(of: Scores, cell: int) -> dict[str, Any]:
    return coarse_figures(result_block(of, TASK, ["bo"], resamples=0), of, TASK, cell)["sites"]["bo"]


def test_losses_are_told_in_cells():
    # 47 of 57 right: 0.8246, on a grid of 1/16 (2 / 57 = 0.035) 0.8125, of the 50 patients told 40.6.
    told = coarse_losses(scores(30, 27, 10), TASK, CELL)
    assert (int(told["rows"]), int(told["right"])) == (50, 41)
    exact = coarse_losses(scores(30, 27, 10), TASK, 1)
    assert (int(exact["rows"]), int(exact["right"])) == (57, 47)
    # 10 losses of -ln 0.2 = 1.609 and 47 of -ln 0.8 = 0.223 have a mean of 0.4664; ten are a cell, so none is clipped;
    # 2 * 1.609 / 57 = 0.0565, so the grid has steps of 1/16, and 0.4664 is nearest to 7/16.
    assert exact["loss"] / 57 == pytest.approx(0.4664, abs=1e-4)
    assert told["loss"] / 50 == 7 / 16
    assert int(coarse_losses(scores(5, 4, 0), TASK, CELL)["rows"]) == 0


def off_by(wrong: int, probability: float = 1e-7) -> Scores:
    """60 patients of whom a model is all but certain; of `wrong` it is certain of the wrong outcome."""
    actual = np.repeat([1, 0], 30)
    right = np.where(np.arange(60) < wrong, probability, 1.0)
    likely = np.where(actual == 1, right, 1 - right)
    return Scores(np.stack([1 - likely, likely], axis=1), actual, np.array([0, 60]))


def test_a_loss_of_fewer_patients_than_a_cell_is_not_told():
    """Up to nine patients with a loss of 16.1 and all others with none: exactly it would be 16.1 a patient over 60."""
    for wrong in range(CELL):
        told = coarse_losses(off_by(wrong), TASK, CELL)
        assert told["loss"] == 0.0
        assert figures(off_by(wrong), CELL)["log_loss"]["value"] == 0.0
        assert coarse_losses(off_by(wrong), TASK, 1)["loss"] == pytest.approx(wrong * 16.118, rel=1e-3, abs=1e-4)
    # From a cell on: 2 * 16.118 / 60 = 0.537, so steps of 1; 10 * 16.118 / 60 = 2.69 is told as 3.
    assert coarse_losses(off_by(CELL), TASK, CELL)["loss"] == 3.0 * 60


def test_that_training_diverged_is_told_of_a_cell_of_patients():
    for wrong, told in ((1, False), (CELL - 1, False), (CELL, True)):
        assert np.isinf(coarse_losses(off_by(wrong, np.nan), TASK, CELL)["loss"]) == told
        assert np.isinf(coarse_losses(off_by(wrong, np.nan), TASK, 1)["loss"])


def test_figures_of_a_rare_outcome_are_withheld():
    few = figures(scores(6, 90, 2), CELL)
    assert few["recall"]["value"] is None
    assert "enough patients" in few["recall"]["undefined"]
    # 94 of 96: 0.979, on a grid of 1/32 (2 / 96 = 0.021) 0.96875 or 1; the nearer is 0.96875.
    assert few["accuracy"]["value"] == 0.96875
    # The positive control: of 6 sick patients 4 are found.
    assert figures(scores(6, 90, 2), 1)["recall"]["value"] == pytest.approx(4 / 6)


def test_one_patient_moves_a_figure_by_a_step_or_not_at_all():
    # 40 sick, 60 well: accuracy on a grid of 1/32, recall on one of 1/16.
    for wrong in range(1, 12):
        before, after = figures(scores(40, 60, wrong), CELL), figures(scores(40, 60, wrong + 1), CELL)
        for name, step in (("accuracy", 1 / 32), ("recall", 1 / 16)):
            assert before[name]["value"] - after[name]["value"] in (0.0, step)
    assert json.loads(json.dumps(before)) == before


def test_ranks_and_probabilities_are_told_more_finely_and_not_of_rare_outcomes():
    # Of 30 sick and 27 well, 10 sick are taken for well: pairs ranked rightly 20 x 27, ties 10 x 27, so
    # (540 + 135) / 810 = 0.8333. One of the 27 well makes up to 1/27 = 0.037 of it, so the steps are of 1/16: the 13th.
    assert figures(scores(30, 27, 10), CELL)["roc_auc"]["value"] == 13 / 16
    # Of 300 and 270 one makes 0.0037; no steps are finer than 1/64.
    assert figures(scores(300, 270, 100), CELL)["roc_auc"]["value"] == 53 / 64
    # Brier: 10 of (0.8)^2 and 47 of (0.2)^2 over 57 are 0.1453; 2 / 57 = 0.035, so the steps are of 1/16: the 2nd.
    assert figures(scores(30, 27, 10), CELL)["brier"]["value"] == 2 / 16
    assert figures(scores(9, 90, 2), CELL)["roc_auc"]["value"] is None
    # Nobody is taken for sick: what is known of ranks may be told, a share of those alarmed may not.
    timid = scores(30, 60, 28)
    assert figures(timid, CELL)["precision"]["value"] is None
    assert figures(timid, CELL)["roc_auc"]["value"] is not None
