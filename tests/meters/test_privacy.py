"""What was spent, against published epsilons."""

import json

import pytest

from wardround.core.contracts import RoundRecord
from wardround.meters.privacy import privacy
from wardround.privacy.accountant import Step


def record(number: int, **told) -> RoundRecord:
    base = {"level": "sample", "delta": 1e-5, "noise_multiplier": 1.0, "clip": 1.0}
    measures = {"privacy": {**base, **told}} if told else {}
    return RoundRecord(number, ("a", "b"), 2, 100, 0.1, 0.1, 10, 10, measures)


def spent(*records: RoundRecord):
    meter = privacy()
    state = meter.init()
    for one in records:
        state = json.loads(json.dumps(meter.observe(state, one)))
    return meter.report(state)


def test_rounds_add_up_to_the_published_epsilon():
    # (noise 1, rate 0.01, 1000 steps, delta 1e-5): 1.8282; half of the steps in each of two rounds.
    half = list(Step(rate=0.01, noise_multiplier=1.0, times=500))
    told = spent(*(record(number, patients={"a": [half], "b": [half]}) for number in (1, 2)))
    assert told["sample_epsilon"] == pytest.approx(1.8282, abs=1e-3)
    assert told["sample_epsilon_by_site"]["b"] == told["sample_epsilon"]
    assert told["site_epsilon"] is None
    assert "A patient is protected with epsilon 1.83" in told["words"]
    assert "A whole site has no formal guarantee." in told["words"]


def test_a_single_round_without_noise_takes_the_guarantee_away():
    one = list(Step(rate=0.01, noise_multiplier=1.0, times=500))
    told = spent(record(1, patients={"a": [one], "b": [one]}), record(2))
    assert told["sample_epsilon"] is None
    # Round 0 chooses partners; it is not a training round, and says for itself what it spent.
    assert spent(record(0), record(1, patients={"a": [one]}))["sample_epsilon"] is not None


def test_without_privacy_nothing_is_promised():
    assert spent(record(1))["words"] == "No formal privacy guarantee."
