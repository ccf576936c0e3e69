"""A coordinator that uses times, events and horizons to learn about a single patient of a site."""

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.data.survival.intervals import interval_names, label_numbers
from wardround.deploy.site.release.disclosure import FEW_PAIRS, coarse_figures, fewest_followed
from wardround.deploy.site.release.grid_offset import offset_by
from wardround.evaluate.block import result_block
from wardround.evaluate.rows import rows_of
from wardround.evaluate.survival.measures import patients_compared

HORIZONS, CELL = (100.0,), 10
TASK = Task((1,), interval_names(HORIZONS), "died", HORIZONS)


def lost_early(smokes: bool, lost: int = 369) -> Scores:
    """The first patient dies on day 1, then many are lost from sight, and twelve others die later.

    The model's risk is one column, such as smoking, that half of the patients have; of the first nobody knows it.
    """
    random = np.random.default_rng(0)
    time = np.concatenate([[1.0], random.uniform(2, 10, lost), random.uniform(20, 90, 12), np.full(18, 120.0)])
    event = np.concatenate([[1.0], np.zeros(lost), np.ones(12), np.zeros(18)])
    risk = np.where(random.integers(0, 2, len(time)), 0.9, 0.1)
    risk[0] = 0.9 if smokes else 0.1
    labels = label_numbers(time, event, HORIZONS)
    return Scores(np.stack([risk, 1 - risk], axis=1), labels, np.array([0, len(time)]), time)


def told(scores: Scores, key: bytes = b"0" * 32):
    block = result_block(scores, TASK, ["bo"], metrics=["c_index"], resamples=0)
    return block["sites"]["bo"]["c_index"], coarse_figures(block, scores, TASK, CELL, offset_by(key, scores))["sites"][
        "bo"
    ]["c_index"]


def test_no_c_index_leaves_that_is_one_patients_rank():
    """She is in 399 of 509 pairs. Before, C was told in steps of 1/8, and 0.35 or 0.64 told which she is for certain."""
    both = [lost_early(smokes) for smokes in (False, True)]
    assert all(fewest_followed(scores, TASK) >= CELL for scores in both)
    exact = [told(scores)[0]["value"] for scores in both]
    assert exact[1] - exact[0] > 2 / 8
    assert [told(scores)[1] for scores in both] == [{"value": None, "undefined": FEW_PAIRS}] * 2


def test_where_it_is_told_one_patient_makes_a_step_at_most():
    # 20 lost from sight: she is in 50 of 410 pairs or so, behind which are some 5 to 10 patients.
    both = [lost_early(smokes, lost=20) for smokes in (False, True)]
    behind = patients_compared(rows_of(both[0], TASK))
    assert CELL / 2 <= behind < CELL
    exact, coarse = zip(*(told(scores) for scores in both), strict=True)
    step = 2.0 ** np.ceil(np.log2(1 / behind))
    assert abs(exact[1]["value"] - exact[0]["value"]) <= step
    assert all((one["value"] / step).is_integer() for one in coarse)
