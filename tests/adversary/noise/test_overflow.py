"""Parameters that overflow for chosen patients only tell a lying coordinator nothing without noise."""

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.noise import private_study
from wardround.core.contracts import Message
from wardround.data.preparation import Preparation
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.release.privacy_budget import budget_of
from wardround.study.file import Study

DELTA = 1e-3
EPSILON = 1.0
LARGEST = 2.5e38


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("noise"))


def overflowing(params: dict[str, Any], features: list[str]) -> dict[str, Any]:
    """Weights near the largest float for two features: only patients who have both get more than any float."""
    kernel = np.zeros_like(params["dense_0/kernel"])
    for name in ("sex=female", "fever=yes"):
        kernel[features.index(name)] = [LARGEST, -LARGEST]
    return {**params, "dense_0/kernel": kernel}


def overflowing_within(params: dict[str, Any], features: list[str]) -> dict[str, Any]:
    """No number beyond what a site takes: only in the product of two layers patients who have both features get more
    than any float (1e19 + 1e19 - 1.5e19 = 5e18, times 9e19), and all others get zero."""
    first, second = np.zeros_like(params["dense_0/kernel"]), np.zeros_like(params["dense_1/kernel"])
    for name in ("sex=female", "fever=yes"):
        first[features.index(name), 0] = 1e19
    second[0] = [9e19, -9e19]
    bias = np.zeros_like(params["dense_0/bias"])
    bias[0] = -1.5e19
    return {**params, "dense_0/kernel": first, "dense_0/bias": bias, "dense_1/kernel": second}


def attack(
    consortium: Any, study: Study, spoil: Callable[[dict[str, Any], list[str]], dict[str, Any]] = overflowing
) -> tuple[dict[str, Any], Message]:
    """What a site answers where the first round comes with such parameters."""
    found: list[tuple[dict[str, Any], Message]] = []
    ask = consortium.ask

    def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
        header, message = decode(body)
        if (site, topic, header["round"]) == ("bo", "round", 1):
            preparation = Preparation.from_json(decode_header(consortium, study, "prepare")["preparation"])
            arrays = {**message.arrays, "params": spoil(message.arrays["params"], list(preparation.features))}
            body = encode(header, Message(arrays, message.meta))
        reply: bytes = ask(site, topic, body, within)
        if (site, topic, header["round"]) == ("bo", "round", 1):
            found.append(decode(reply))
        return reply

    consortium.ask = asked
    try:
        consortium.conduct(study)
    finally:
        consortium.ask = ask
    return found[0]


def decode_header(consortium: Any, study: Study, topic: str) -> dict[str, Any]:
    folder = consortium.homes["bo"].folder(study_id(study))
    words: dict[str, Any] = json.loads((folder / f"{topic}.json").read_bytes())
    return words


def test_overflow_for_chosen_patients_is_no_bit_without_noise(consortium: Any) -> None:
    """Without [privacy] it is one, which shows that the attack works: the site says that it diverged."""
    two = {"deploy": {"quorum": 2}, "rounds": 1}
    plain = private_study("plain", {"epsilon": EPSILON, "delta": DELTA}, **two).model_copy(update={"privacy": None})
    assert attack(consortium, plain)[0]["status"] == "diverged"
    told, answer = attack(consortium, private_study("overflow", {"epsilon": EPSILON, "delta": DELTA}, **two))
    # Such a model is turned away before any patient is looked at: the refusal tells nothing of them and costs nothing.
    assert (told["status"], answer.arrays) == ("refused", {})
    spent = [one for one in budget_of(consortium.homes["bo"]).charges() if one.study.startswith("overflow")]
    assert ("sample", 1) not in [(one.level, one.round) for one in spent]


@pytest.mark.slow
def test_overflow_between_layers_is_answered_with_noise_and_paid_for(consortium: Any) -> None:
    """Where the model itself is not huge, the rows that overflow count as zero: no word and no number tells of them."""
    two = {"deploy": {"quorum": 2}, "rounds": 1, "model": {"name": "mlp", "hidden": [2]}}
    words = {"epsilon": EPSILON, "delta": DELTA}
    plain = private_study("plain-layers", words, **two).model_copy(update={"privacy": None})
    assert attack(consortium, plain, overflowing_within)[0]["status"] == "diverged", "without noise it is one bit"
    told, answer = attack(consortium, private_study("layers", words, **two), overflowing_within)
    assert told["status"] == "ok"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(answer.arrays))
    spent = [one for one in budget_of(consortium.homes["bo"]).charges() if one.study.startswith("layers")]
    assert ("sample", 1) in [(one.level, one.round) for one in spent], "and it is paid for as any other answer"
