"""Every probe and every query says on what terms a site answers it; whoever approves reads its words."""

import pytest

from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Terms, is_part, terms_of
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine import registry

QUESTIONS = [(kind, name) for kind in ("probe", "query") for name in registry.components(kind)]
SAID = {
    "noise": 1.0,
    "delta": 1e-6,
    "columns": ("age", "sex"),
    "most": 200,
    "target": "ill",
    "epsilon": 1.0,
    "smallest_cell": 10,
    "seed": None,
}
"""For settings without a default; a new one of another name gets a place here."""


@pytest.mark.parametrize(("kind", "name"), QUESTIONS)
def test_its_words_and_size_can_be_told_before_anything_is_asked(kind, name):
    component = registry.find(kind, name)
    terms = terms_of(component.factory)
    settings = {one.name: SAID[one.name] if one.required else one.default for one in component.parameters}
    words = terms.describe(settings)
    assert words == words.strip()
    assert not words.endswith(".")
    assert "{" not in words
    one, two = (
        terms.numbers(Extent(settings, parameters=size, sites=size, models=size, columns=size)) for size in (1, 7)
    )
    assert isinstance(one, int)
    assert 0 < one <= two
    assert terms.times is None or terms.times >= 1


def test_without_terms_no_site_answers():
    @recorded("query")
    def untold():
        raise AssertionError

    with pytest.raises(Refusal, match="'untold' does not say on what terms"):
        terms_of(untold)


def test_the_strictest_is_the_default():
    terms = Terms("words", lambda of: 1)
    assert (terms.times, terms.rows, terms.in_part) == (1, "features", ())
    assert terms.spends({}, Message({})) == 0.0


@pytest.mark.parametrize(
    ("asked", "departs"),
    [
        ({"epsilon": 2.0, "cell": 5}, ""),
        ({"epsilon": 0.5, "cell": 5}, ""),
        ({"epsilon": 0.0, "cell": 5}, "epsilon"),  # no noise at all would be no part of it
        ({"epsilon": 2.5, "cell": 5}, "epsilon"),
        ({"epsilon": True, "cell": 5}, "epsilon"),
        ({"epsilon": float("nan"), "cell": 5}, "epsilon"),
        ({"epsilon": 2.0, "cell": 4}, "cell"),
        ({"epsilon": 2.0, "cell": 5, "seed": 3}, "seed"),
        ({"epsilon": 2.0}, "cell"),
    ],
)
def test_only_what_was_announced_or_a_part_of_it_where_that_is_allowed(asked, departs):
    terms = Terms("words", lambda of: 1, in_part=("epsilon",))
    assert terms.departs({"epsilon": 2.0, "cell": 5}, asked) == departs
    assert not is_part("1", 2.0)
