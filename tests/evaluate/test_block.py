"""The block for result.json: plain values, reasons where there are none, the same figures as elsewhere."""

import json

import numpy as np
import pytest

from wardround.core.contracts import Scores, Task
from wardround.core.federation import NumberedSites
from wardround.evaluate import block as module
from wardround.evaluate.block import result_block

ILL = Task((1,), ("well", "ill"))


def three_hospitals() -> Scores:
    rng = np.random.default_rng(16)
    risk = rng.random(92).astype(np.float32)
    actual = np.concatenate([(rng.random(80) < risk[:80]), np.zeros(12)]).astype(np.int32)
    return Scores(np.stack([1 - risk, risk], axis=1), actual, np.array([0, 50, 80, 92, 92]))


def test_it_is_json_and_says_what_is_undefined() -> None:
    block = result_block(three_hospitals(), ILL, ["basel", "bern", "chur", "davos"], resamples=200, seed=7)
    assert json.loads(json.dumps(block, allow_nan=False)) == block
    assert block["rows"] == {"basel": 50, "bern": 30, "chur": 12, "davos": 0}
    assert block["sites"]["chur"]["roc_auc"] == {
        "value": None,
        "low": None,
        "high": None,
        "undefined": "only one class among 12 test patients",
    }
    assert block["sites"]["davos"]["accuracy"]["undefined"] == "no test patients"
    at_basel = block["sites"]["basel"]["accuracy"]
    assert at_basel["low"] < at_basel["value"] < at_basel["high"]
    area = block["weighted"]["roc_auc"]
    one, two = (block["sites"][name]["roc_auc"]["value"] for name in ("basel", "bern"))
    assert area["value"] == pytest.approx((50 * one + 30 * two) / 80)
    assert (area["sites_defined"], area["sites"]) == (2, 4)
    assert block["unweighted"]["roc_auc"]["value"] == pytest.approx((one + two) / 2)
    assert block["percentiles"]["roc_auc"]["50"] == pytest.approx((one + two) / 2)
    # Two sites of weight 5/8 and 3/8: sqrt(5/8 * 3/8) * |difference|
    assert block["sd_between_sites"]["roc_auc"]["value"] == pytest.approx((15 / 64) ** 0.5 * abs(one - two))
    assert block["intervals"] == {"level": 0.95, "resamples": 200, "drawn_again": "patients"}


def test_without_resamples_there_are_no_intervals() -> None:
    block = result_block(three_hospitals(), ILL, list("abcd"), metrics=["brier"], resamples=0)
    assert set(block["sites"]["a"]["brier"]) == {"value"}
    assert "intervals" not in block


def test_regression_block() -> None:
    scores = Scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]), np.array([0, 3]))
    block = result_block(scores, Task((1,)), ["a"], resamples=50)
    assert set(block["weighted"]) == {"rmse", "mae", "r2"}
    assert block["weighted"]["mae"]["value"] == pytest.approx(1)
    assert block["weighted"]["r2"]["undefined"] == "undefined at every site"


def test_too_many_sites_are_not_listed() -> None:
    count = module.MOST_NAMED + 1
    actual = np.arange(count) % 2
    scores = Scores(np.full((count, 2), 0.5), actual, np.arange(count + 1))
    block = result_block(scores, ILL, NumberedSites("client", count), metrics=["accuracy"], resamples=0)
    assert block["sites"] == block["rows"] == {}
    assert block["sites_not_listed"] == count
    # Ties go to the first class, which every other client has.
    assert block["weighted"]["accuracy"]["value"] == pytest.approx(0.5, abs=1e-3)
