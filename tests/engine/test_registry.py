"""Components are found by their names, and settings are checked against the factory's own signature."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from wardround.core.bounds import Count, Positive, Share
from wardround.core.components.settings import check_value, type_text
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.registry import Component, broken_rule, check_settings, describe, find, suggest_name
from wardround.evaluate.metrics import METRICS

EVERYTHING = [(kind, name) for kind in registry.ROOMS for name in registry.components(kind)]
PYTHON_ONLY = {"from_flax", "from_torch", "frame"}
"""These take a Python object, which no study file can hold and no package may ask for."""


def sample(
    model: Any,
    *,
    rate: Positive,
    epochs: Count = 1,
    way: Literal["I", "II"] = "I",
    sizes: tuple[int, ...] = (8,),
    share: Share | None = None,
    plain: bool = False,
    table: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """What it does in a line.

    More that no list prints.
    """
    return {"model": model, "rate": rate, "epochs": epochs, "way": way, "sizes": sizes, "share": share, "plain": plain}


@pytest.fixture
def component() -> Component:
    return describe("algorithm", "sample", sample)


@pytest.mark.parametrize(("kind", "name"), EVERYTHING)
def test_every_component_says_what_it_does_and_has_typed_settings(kind: str, name: str) -> None:
    component = find(kind, name)
    assert broken_rule(component) == "" or name in PYTHON_ONLY
    assert component.label
    assert component.factory.__module__ in [f"{room}.{name}" for room in registry.rooms_of(kind)]
    for parameter in component.parameters:
        assert parameter.annotation is not Any, f"{parameter.name} has no type"
        assert type_text(parameter.annotation)


@pytest.mark.parametrize(("kind", "name"), EVERYTHING)
def test_every_default_would_pass_the_check(kind: str, name: str) -> None:
    for parameter in find(kind, name).parameters:
        if not parameter.required:
            value = check_value(parameter.name, parameter.default, parameter.annotation, "")
            assert value == parameter.default


def test_the_rooms_hold_what_the_study_files_name() -> None:
    assert {"fed_avg", "fed_sgd", "fed_prox", "scaffold", "fed_opt", "local", "centralized", "fine_tune"} <= set(
        registry.components("algorithm")
    )
    assert {"weighted_mean", "median", "krum"} <= set(registry.components("aggregator"))
    # Modules that only serve components are no components.
    assert "stacks" not in registry.components("aggregator")
    assert list(registry.components("algorithm")) == sorted(registry.components("algorithm"))


def test_an_unknown_kind_and_an_unknown_name_are_refused_with_the_nearest() -> None:
    with pytest.raises(Refusal, match="algorithm, aggregator"):
        registry.components("algoritm")
    with pytest.raises(Refusal, match=r"no algorithm called 'fed_agv' \(\[x\]\).*'fed_avg'"):
        find("algorithm", "fed_agv", where="[x]")


def test_nearest_word_or_all_of_them() -> None:
    assert suggest_name("learning_rat", ("learning_rate", "momentum")) == "did you mean 'learning_rate'?"
    assert suggest_name("zzz", ("learning_rate", "momentum")) == "known are learning_rate, momentum"


def test_a_factory_is_described_by_its_signature(component: Component) -> None:
    assert component.summary == "What it does in a line."
    assert [p.name for p in component.parameters] == ["rate", "epochs", "way", "sizes", "share", "plain", "table"]
    assert [p.name for p in component.parameters if p.required] == ["rate"]
    assert component.parameters[1].default == 1


def test_building_gives_the_factory_as_many_things_as_it_takes(component: Component) -> None:
    built = component.build("a model", "an aggregator it does not want", rate=1, sizes=[4, 2])
    assert built["model"] == "a model"
    assert built["sizes"] == (4, 2)
    assert built["rate"] == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "key 'rate' is missing"),
        ({"rate": 0}, "'rate' must be greater than 0, not 0"),
        ({"rate": float("nan")}, "'rate' must be greater than 0"),
        ({"rate": "fast"}, "'rate' must be a number, not 'fast'"),
        ({"rate": True}, "'rate' must be a number, not True"),
        ({"rate": 1, "epochs": 0}, "'epochs' must be at least 1, not 0"),
        ({"rate": 1, "epochs": 1.5}, "'epochs' must be a whole number, not 1.5"),
        ({"rate": 1, "way": "III"}, "'way' must be one of 'I', 'II', not 'III'"),
        ({"rate": 1, "sizes": 8}, "'sizes' must be a list of whole numbers, not 8"),
        ({"rate": 1, "sizes": [8, "x"]}, "'sizes' must be a list of whole numbers"),
        ({"rate": 1, "share": 1.5}, "'share' must be a number at least 0 and at most 1"),
        ({"rate": 1, "plain": 1}, "'plain' must be true or false, not 1"),
        ({"rate": 1, "table": [1]}, "'table' must be"),
        ({"rate": 1, "epoch": 2}, r"unknown key 'epoch' \(\[algorithm\], algorithm sample\).*'epochs'"),
    ],
)
def test_wrong_settings_are_told(component: Component, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=f"(?i){words}"):
        check_settings(component, settings, "[algorithm]")


def test_right_settings_pass_in_their_types(component: Component) -> None:
    settings = {"rate": 1, "epochs": 2, "way": "II", "sizes": [4], "share": 0.5, "plain": True, "table": {"a": 1.0}}
    assert check_settings(component, settings, "") == {**settings, "sizes": (4,)}


def test_a_component_without_settings_says_so() -> None:
    with pytest.raises(Refusal, match="takes no settings"):
        check_settings(find("aggregator", "weighted_mean"), {"x": 1}, "")


def test_a_table_of_metrics_is_found_like_a_room() -> None:
    assert set(registry.components("metric")) == set(METRICS)
    assert find("metric", "brier").build() is METRICS["brier"]
    assert find("metric", "brier").summary == METRICS["brier"].words
    with pytest.raises(Refusal, match=r"no metric called 'brierr'.*'brier'"):
        find("metric", "brierr")


def test_one_component_is_found_without_loading_its_neighbours() -> None:
    """A prediction for one patient must not wait for every algorithm there is, nor for plots and statistics."""
    said = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert json.loads(said.stdout) == []


LOADED = """
import json, sys
import wardround.cli.models.predict
from wardround.engine.registry import find
find("algorithm", "fed_avg"), find("aggregator", "weighted_mean"), find("model", "logistic"), find("source", "csv")
unwanted = ("plotly", "sklearn", "scipy", "torch", "dp_accounting", "optuna", "nvflare", "cryptography")
unwanted += ("wardround.algorithms.scaffold", "wardround.models.cnn", "wardround.study.file")
print(json.dumps([name for name in unwanted if name in sys.modules]))
"""


def test_a_name_that_is_no_component_is_none() -> None:
    for kind, name in (
        ("algorithm", "__init__"),
        ("aggregator", "stacks"),
        ("model", "no.such"),
        ("metric", "nothing"),
    ):
        assert registry.own_component(kind, name) is None
    with pytest.raises(Refusal, match="no kind of component called 'thing'"):
        registry.own_components("thing")
