"""A coordinator that uses times, events and horizons to learn about a single patient of a site."""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.contracts import Scores, Task
from wardround.data.survival.intervals import interval_names, label_numbers
from wardround.deploy.site.release.cleaning_review import cleaning_reasons, survival_sentences
from wardround.deploy.site.release.disclosure import FEW_PAIRS, coarse_figures, fewest_followed
from wardround.deploy.site.release.grid_offset import offset_by
from wardround.evaluate.block import result_block
from wardround.evaluate.rows import rows_of
from wardround.evaluate.survival.measures import patients_compared
from wardround.study.file import Study, parse_study

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
    """She is in 399 of 681 pairs. Before, C was told in steps of 1/8: 0.35 or 0.64, by one column of hers."""
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


# ---- two studies that are a few patients apart, and events of a few ----

DAYS = [1.0] * 20 + [29.7] + [30.0] * 79
"""All are followed up for 30 days: twenty die on the first, one between 29.5 and 30."""
DIED = [1] * 21 + [0] * 79
ROWS = pd.DataFrame({"age": np.arange(100) % 60, "days": DAYS, "died": DIED})


def survival(**words: Any) -> Study:
    said = {"source": "csv", "time": "days", "event": "died", "horizons": [29.5], **words}
    return parse_study({"study": {"name": "a"}, "data": said, "algorithm": {"name": "fed_avg"}}, where="a.toml")


def classes(**words: Any) -> Study:
    said = {"source": "csv", "target": "died", "drop": ["days"], **words}
    return parse_study({"study": {"name": "b"}, "data": said, "algorithm": {"name": "fed_avg"}}, where="b.toml")


def against(study: Study, other: Study, rows: pd.DataFrame = ROWS) -> list[str]:
    return cleaning_reasons(study, {"b-1": (other, tuple(rows.columns))}, rows, tuple(rows.columns), CELL, 10)


def test_horizons_and_classes_may_not_differ_in_a_few_patients():
    """Who died in a month, and who by day 29.5: the difference of both answers is about the one who died between."""
    for one, other in ((survival(), classes()), (classes(), survival())):
        (reason,) = against(one, other)
        assert "of 1 patient its outcome says something else than that of b-1" in reason
    text = ROWS.assign(died=np.where(ROWS["died"] == 1, "dead", "alive"))
    (reason,) = against(survival(event_is="dead"), classes(positive="dead"), text)
    assert "of 1 patient" in reason
    # Nobody dies between day 10 and the end of follow-up in other tables, or many are lost from sight before.
    assert against(survival(horizons=[30.0]), classes()) == []
    assert against(survival(), classes(), ROWS.assign(days=[*DAYS[:50], *[12.0] * 50])) == []
    assert against(survival(), classes(target="age")) == []


def test_nor_may_two_values_that_mean_the_event():
    cause = ROWS.assign(died=[*["ebola"] * 20, "fall", *["no"] * 40, *["lost"] * 39])
    both = survival(event_is="ebola", horizons=[30.0]), survival(event_is="fall", horizons=[30.0])
    assert against(*both, cause) == []  # 21 apart
    (reason,) = against(both[1], survival(event_is="lassa", horizons=[30.0]), cause)
    assert "of 1 patient its outcome says something else" in reason


def test_the_approval_warns_of_an_event_that_few_had():
    cause = ROWS.assign(died=[*["ebola"] * 20, "fall", *["no"] * 79])
    (warning,) = survival_sentences(survival(event_is="fall", horizons=[30.0]), cause, CELL)[2:]
    assert "fewer than 10 of your patients had the event above 0 and up to 30" in warning
    assert survival_sentences(survival(event_is="ebola", horizons=[30.0]), cause, CELL)[2:] == ()
    # Of 79 times between 2 and 30 one is that of an event.
    (warning,) = survival_sentences(survival(horizons=[2.0, 30.0]), ROWS, CELL)[2:]
    assert "had the event above 2 and up to 30" in warning
    assert "have a time" not in warning
