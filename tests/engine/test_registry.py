"""Components are found by their names, and settings are checked against the factory's own signature."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Annotated, Any, Literal

import pytest

from wardround.core.bounds import Bound, Count, Momentum, Positive, Share
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.registry import Component, check_settings, convert, describe, find, in_words, nearest

EVERYTHING = [(kind, name) for kind in registry.kinds() for name in registry.components(kind)]


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
    assert component.summary
    assert len(component.summary) <= 120, "one line of a list"
    assert component.label
    assert component.factory.__name__ == name
    assert component.factory.__module__ == f"{registry.ROOMS[kind]}.{name}"
    for parameter in component.parameters:
        assert parameter.annotation is not Any, f"{parameter.name} has no type"
        assert in_words(parameter.annotation)


@pytest.mark.parametrize(("kind", "name"), EVERYTHING)
def test_every_default_would_pass_the_check(kind: str, name: str) -> None:
    for parameter in find(kind, name).parameters:
        if not parameter.required:
            value = registry.checked(parameter.name, parameter.default, parameter.annotation, "")
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
    assert nearest("learning_rat", ("learning_rate", "momentum")) == "did you mean 'learning_rate'?"
    assert nearest("zzz", ("learning_rate", "momentum")) == "known are learning_rate, momentum"


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


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, float, (True, 3)),
        (3.5, int, (False, 3.5)),
        (None, int | None, (True, None)),
        ("x", int | str, (True, "x")),
        ([1, 2], tuple[int, ...], (True, (1, 2))),
        ((1, 2), list[int], (True, [1, 2])),
        ([0, 2], list[Annotated[int, Bound(low=1)]], (False, [0, 2])),
        ({"a": 1}, dict[str, int], (True, {"a": 1})),
        (3, Any, (True, 3)),
    ],
)
def test_conversion(value: Any, annotation: Any, expected: tuple[bool, Any]) -> None:
    assert convert(value, annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (float, "a number"),
        (bool, "true or false"),
        (Momentum, "a number at least 0 and less than 1"),
        (int | None, "a whole number"),
        (str | None, "a text"),
        (tuple[str, ...], "a list of texts"),
        (Literal["a", "b"], "one of 'a', 'b'"),
    ],
)
def test_types_in_words(annotation: Any, words: str) -> None:
    assert in_words(annotation) == words


def test_an_installed_package_adds_a_component(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("their_median", "wardround.aggregators.median:median", "wardround.aggregator")
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [entry] if group == entry.group else [])
    registry.components.cache_clear()
    try:
        theirs = find("aggregator", "their_median")
        assert theirs.summary == find("aggregator", "median").summary
        assert not theirs.build().linear
    finally:
        registry.components.cache_clear()
