"""What a recipe tells is enough to make the same thing elsewhere, and nothing but installed components is made."""

import json

import jax
import numpy as np
import pytest

from wardround.core.components.recipes import Recipe, from_json, names_in, recipe_of, recorded, to_json
from wardround.core.contracts import Message, Site, Task
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.simulate import Simulation
from wardround.partners.probes.slopes import slopes
from wardround.queries.moments import moments

TASK = Task((3,), ("no", "yes"), "ill")


def through_the_wire(made):
    return registry.make_from(from_json(json.loads(json.dumps(to_json(recipe_of(made))))))


def built(name: str, **settings):
    model = registry.find("model", "logistic").build(TASK, l2=0.01)
    aggregator = registry.find("aggregator", "trimmed_mean").build(share=0.2)
    return registry.find("algorithm", name).build(model, aggregator, **settings)


def test_an_algorithm_made_from_its_recipe_trains_the_same_bits(make_federation):
    federation = make_federation([20, 30, 25])
    ours = built("fed_avg", learning_rate=0.3, local_epochs=2)
    theirs = through_the_wire(ours)
    assert theirs is not ours
    found = []
    for algorithm in (ours, theirs):
        model = registry.make_from(recipe_of(algorithm).parts[0])
        with Simulation(federation, seed=1) as engine:
            progress = engine.begin(algorithm, model.init(jax.random.key(0)))
            progress, _ = engine.train(algorithm, progress, [(1, np.arange(3)), (2, np.arange(3))])
        found.append(jax.device_get(progress.server))
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_every_name_in_a_recipe_is_there_to_be_decided_about():
    assert names_in(recipe_of(built("fed_avg"))) == (
        ("algorithm", "fed_avg"),
        ("model", "logistic"),
        ("task", "task"),
        ("aggregator", "trimmed_mean"),
    )


def test_the_same_words_give_the_same_object_so_that_programs_are_shared():
    model = registry.find("model", "logistic").build(TASK)
    assert slopes(model, part="test") is slopes(model, part="test")
    assert slopes(model, part="test") is not slopes(model)
    assert registry.make_from(recipe_of(model)) is registry.make_from(recipe_of(model))


def test_a_query_travels_by_name():
    import pandas as pd

    query = through_the_wire(moments(columns=["age"], smallest_cell=2))
    site = Site("a", pd.DataFrame({"age": [1.0, 3.0]}))
    assert query.combine([query.ask(Message({}), site)])["mean"] == [2.0]


def test_what_was_made_by_hand_has_no_recipe():
    @recorded("probe")
    def by_hand(model):
        return (model,)

    with pytest.raises(Refusal, match="not made by an installed component"):
        recipe_of(by_hand((len, max)))


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"kind": "query", "name": "moments", "settings": {}},
        {"kind": "query", "name": ["moments"], "settings": {}, "parts": []},
        {"kind": "query", "name": "moments", "settings": [], "parts": []},
        {"kind": "query", "name": "moments", "settings": {}, "parts": [3]},
    ],
)
def test_what_is_no_recipe_is_refused(content):
    with pytest.raises(Refusal, match="names no component"):
        from_json(content)


@pytest.mark.parametrize("recipe", [Recipe("query", "system"), Recipe("algorithm", "os"), Recipe("module", "os")])
def test_nothing_but_installed_components_is_made(recipe):
    with pytest.raises(Refusal):
        registry.make_from(recipe)
