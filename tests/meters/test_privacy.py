"""Privacy spent, from round records, against the accountant."""

import json
from typing import Any

import pytest

from wardround.core.contracts import RoundRecord
from wardround.meters.privacy import privacy
from wardround.privacy.accountant import Step, epsilon

DELTA = 1e-5


def record(number: int, told: dict[str, Any] | None) -> RoundRecord:
    measures = {} if told is None else {"privacy": {"delta": DELTA, "clip": 1.0, "noise_multiplier": 8.0, **told}}
    return RoundRecord(number, (), 2, 100, 0.1, 0.2, 1, 1, measures)


def metered(*records: RoundRecord) -> dict[str, Any]:
    meter = privacy()
    state = meter.init()
    for one in records:
        state = json.loads(json.dumps(meter.observe(state, one)))
    return meter.report(state)


def test_no_guarantee_is_said() -> None:
    report = metered(record(1, None), record(2, None))
    assert (report["level"], report["sample_epsilon"], report["site_epsilon"]) == (None, None, None)
    assert report["words"] == "No formal privacy guarantee."


def test_rounds_add_up_to_the_published_epsilon() -> None:
    # (noise 1, rate 0.01, 1000 steps, delta 1e-5): 1.8282; half of the steps in each of two rounds.
    told = {"level": "sample", "patients": {"bo": [[0.01, 1.0, 500]]}}
    assert metered(record(1, told), record(2, told))["sample_epsilon"] == pytest.approx(1.8282, abs=1e-3)


def test_patients_of_every_site_from_the_rounds_it_took_part_in() -> None:
    both = {"level": "sample", "patients": {"bo": [[1.0, 8.0, 5]], "makeni": [[1.0, 8.0, 2]]}}
    alone = {"level": "sample", "patients": {"makeni": [[1.0, 8.0, 2]]}}
    report = metered(record(1, both), record(2, alone))
    expected = {"bo": epsilon([Step(1.0, 8.0, 5)], DELTA), "makeni": epsilon([Step(1.0, 8.0, 4)], DELTA)}
    assert report["sample_epsilon_by_site"] == pytest.approx(expected)
    assert report["sample_epsilon"] == pytest.approx(expected["bo"])
    assert report["steps"] == {"bo": [[1.0, 8.0, 5]], "makeni": [[1.0, 8.0, 4]]}
    assert report["site_epsilon"] is None
    assert report["words"].startswith(f"A patient is protected with epsilon {expected['bo']:.3g} at delta 1e-05.")
    assert "A whole site has no formal guarantee." in report["words"]
    assert "Taken to be public" in report["words"]


def test_whole_sites_and_their_patients_side_by_side() -> None:
    told = {
        "level": "site",
        "whole_sites": {"bo": [[1.0, 8.0, 1]]},
        "patients": {"bo": [[1.0, 4.0, 1]]},
        "coordinator": {"bo": [[1.0, 4.0, 1]]},
    }
    report = metered(*(record(number, told) for number in range(1, 11)))
    assert report["site_epsilon"] == pytest.approx(epsilon([Step(1.0, 8.0, 10)], DELTA))
    assert report["sample_epsilon"] == pytest.approx(epsilon([Step(1.0, 4.0, 10)], DELTA))
    assert report["sample_epsilon"] > report["site_epsilon"]
    assert report["site_epsilon_towards_coordinator"] == pytest.approx(report["sample_epsilon"])


def test_a_round_without_noise_takes_the_guarantee_away() -> None:
    told = {"level": "sample", "patients": {"bo": [[1.0, 8.0, 5]]}}
    assert metered(record(1, told), record(2, None))["sample_epsilon"] is None
    bare = {"level": "sample", "patients": {"bo": [[1.0, 0.0, 5]]}}
    assert metered(record(1, told), record(2, bare))["sample_epsilon"] is None
    # The record of a choice made before the first round is no round.
    assert metered(record(0, None), record(1, told))["sample_epsilon"] is not None


def test_what_overflowing_batches_may_cost_is_taken_from_delta() -> None:
    told = {"level": "sample", "patients": {"bo": [[1.0, 8.0, 5]]}, "overflow": 4e-6}
    assert metered(record(1, told), record(2, told))["sample_epsilon"] == pytest.approx(
        epsilon([Step(1.0, 8.0, 10)], 2e-6), abs=1e-6
    )
    assert metered(*(record(n, told) for n in (1, 2, 3)))["sample_epsilon"] is None


def test_a_site_that_says_nothing_spends_nothing() -> None:
    report = metered(record(1, {"level": "sample", "patients": {"bo": []}}))
    assert report["sample_epsilon"] == 0.0
