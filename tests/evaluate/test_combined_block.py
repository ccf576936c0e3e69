"""Figures over all sites from the sites' own figures."""

import numpy as np
import pytest

from wardround.core.contracts import Scores, Task
from wardround.evaluate.block import result_block
from wardround.evaluate.combined_block import Z, combined_blocks

TASK = Task((1,), ("no", "yes"))


def block(site: str, value, rows: int, low=None, high=None, **more):
    told = {"value": value, **({} if low is None else {"low": low, "high": high}), **more}
    return {"sites": {site: {"accuracy": told}}, "rows": {site: rows}}


def test_means_and_intervals_by_hand():
    # SE of a: 0.1 / Z..., so that (high - low) / (2 Z) is 0.1 and 0.05.
    a = block("a", 0.8, 30, 0.8 - 0.1 * Z, 0.8 + 0.1 * Z)
    b = block("b", 0.6, 10, 0.6 - 0.05 * Z, 0.6 + 0.05 * Z)
    found = combined_blocks({"a": a, "b": b})
    weighted = found["weighted"]["accuracy"]
    assert weighted["value"] == pytest.approx(0.75 * 0.8 + 0.25 * 0.6)
    width = Z * np.hypot(0.75 * 0.1, 0.25 * 0.05)
    assert weighted["high"] - weighted["value"] == pytest.approx(width)
    assert found["unweighted"]["accuracy"]["value"] == pytest.approx(0.7)
    # Weighted population form: mean 0.75, deviations 0.05 and -0.15, weights 30 and 10.
    assert found["sd_between_sites"]["accuracy"]["value"] == pytest.approx(np.sqrt(0.75 * 0.05**2 + 0.25 * 0.15**2))
    assert found["rows"] == {"a": 30, "b": 10}


def test_a_site_that_cannot_tell_is_left_out_and_counted():
    found = combined_blocks({"a": block("a", 0.8, 30), "b": block("b", None, 10, undefined="one class")})
    weighted = found["weighted"]["accuracy"]
    assert (weighted["value"], weighted["sites_defined"], weighted["sites"]) == (0.8, 1, 2)
    assert "low" not in weighted
    nobody = combined_blocks({"b": block("b", None, 10, undefined="one class")})
    assert nobody["weighted"]["accuracy"] == {
        "value": None,
        "undefined": "one class",
        "sites_defined": 0,
        "sites": 1,
    }


def test_agrees_with_the_block_over_all_patients_but_for_the_intervals():
    random = np.random.default_rng(0)
    blocks, predicted, actual = {}, [], []
    for site, rows in (("a", 40), ("b", 25)):
        y = random.integers(0, 2, rows)
        p = np.clip(0.5 + 0.3 * (y - 0.5) + 0.2 * random.standard_normal(rows), 0.01, 0.99)
        chances = np.stack([1 - p, p], axis=1)
        blocks[site] = result_block(Scores(chances, y, np.array([0, rows])), TASK, [site], resamples=200)
        predicted.append(chances)
        actual.append(y)
    whole = result_block(
        Scores(np.concatenate(predicted), np.concatenate(actual), np.array([0, 40, 65])),
        TASK,
        ["a", "b"],
        resamples=200,
    )
    found = combined_blocks(blocks)
    for metric, told in whole["weighted"].items():
        assert found["weighted"][metric]["value"] == pytest.approx(told["value"])
        assert found["unweighted"][metric]["value"] == pytest.approx(whole["unweighted"][metric]["value"])
        assert found["sd_between_sites"][metric]["value"] == pytest.approx(whole["sd_between_sites"][metric]["value"])
    assert found["percentiles"] == whole["percentiles"]
    assert set(found) == set(whole) - {"intervals"}
