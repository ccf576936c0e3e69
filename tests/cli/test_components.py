"""`wardround list` shows every component that a study file can name, with what it does and its settings."""

import json
from typing import Any

import pytest

from tests.support import tiny_study as tiny
from wardround.engine import registry

Capture = pytest.CaptureFixture[str]


def test_json_has_every_component_with_summary_and_parameters(capsys: Capture) -> None:
    said = tiny.call(capsys, "list", "--json")
    assert len(said.out.splitlines()) == 1
    told = json.loads(said.out)["components"]
    known = {(kind, name) for kind in registry.kinds() for name in registry.components(kind)}
    assert {(one["kind"], one["name"]) for one in told} == known
    assert len(told) == len(known)
    for one in told:
        assert one["summary"]
        for parameter in one["parameters"]:
            assert set(parameter) == {"name", "type", "default", "required"}
            assert parameter["type"]


def parameters(told: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (one for one in told if one["name"] == name)
    return {parameter["name"]: parameter for parameter in found["parameters"]}


def test_a_kind_alone(capsys: Capture) -> None:
    told = tiny.call(capsys, "list", "aggregator", "--json").json["components"]
    assert {one["kind"] for one in told} == {"aggregator"}
    assert parameters(told, "weighted_mean") == {}
    assert parameters(told, "krum")["bad"] == {
        "name": "bad", "type": "a whole number at least 0", "default": 1, "required": False,
    }  # fmt: skip
    source = tiny.call(capsys, "list", "source", "--json").json["components"]
    assert parameters(source, "csv")["path"]["required"]


def test_words_for_people(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = tiny.call(capsys, "list")
    for kind in registry.kinds():
        assert kind in said.out
        for name, component in registry.components(kind).items():
            assert name in said.out
            assert component.summary in said.out
    assert "learning_rate=" in said.out
