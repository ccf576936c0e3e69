"""What a choice of partners may ask a site: the probes and counts that the study names, as often as was approved."""

import pytest

from tests.support import in_process
from wardround.core.codes.json_arrays import pack
from wardround.core.components.recipes import Recipe, recipe_of, to_json
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.deploy.site.authorization import departures
from wardround.deploy.site.release.partner_questions import debit
from wardround.partners.probes.losses import losses
from wardround.partners.probes.own_models import OwnTraining, own_models
from wardround.partners.probes.slopes import slopes
from wardround.partners.similarity.held_out import loss_probe
from wardround.partners.similarity.transfer import probes as transfer_probes
from wardround.queries.cells_of import cells_of
from wardround.queries.kinds_of import kinds_of
from wardround.queries.recorded_columns import recorded_columns
from wardround.study import assemble
from wardround.study.file import parse_study
from wardround.study.methods import own_method
from wardround.study.partners import asks_of

NAMES = ("bo", "freetown", "kenema", "makeni")
USER = "freetown"
BY_COUNTS = {"smallest_cell": 10}
"""As the sites' policies want it."""


def study_of(name, partners, **tables):
    said = {"algorithm": in_process.KEPT, **tables, "study": {"user": USER, **tables.get("study", {})}}
    words = in_process.study_of(name, 3, **said).model_dump(mode="json", exclude_none=True)
    words["study"]["name"] = name
    return parse_study({**words, "partners": partners}, where="test")


TASK = Task((4,), ("0", "1"), "ebola")


def probe_of(study, factory, **settings):
    return recipe_of(factory(assemble.model_of(study, TASK), **settings))


def test_departures():
    study = study_of("s", {"name": "gradient_distance"}, model={"name": "logistic", "l2": 0.5})
    assert departures(study, probe_of(study, slopes)) == []
    assert departures(study, probe_of(study, losses)) == []
    assert "probe own_models" in departures(study, probe_of(study, own_models))[0]
    other = study_of("s", {"name": "gradient_distance"}, model={"name": "logistic", "l2": 0.0})
    assert departures(study, probe_of(other, slopes)) == [
        "the study does not include the model logistic with these settings"
    ]
    # A study that chooses nobody answers no probe; one that does trains nothing but what it says.
    plain = in_process.study_of("plain")
    assert "chooses no partners" in departures(plain, probe_of(plain, slopes))[0]
    faster = study.model_copy(update={"algorithm": study.algorithm.model_copy(update={"learning_rate": 50.0})})
    assert departures(study, recipe_of(assemble.build(faster, own_method(faster), TASK, NAMES))) == [
        "the study does not include the algorithm scaffold with these settings"
    ]
    assert departures(study, recipe_of(assemble.build(study, own_method(study), TASK, NAMES))) == []
    assert departures(study, Recipe("choice", "ndoye")) != []


def test_the_other_choices_announce_the_probes_that_they_make():
    """Those above were refused at the sites if they did not; these make theirs in functions of their own."""
    ndoye = study_of("s", {"name": "ndoye", "folds": 3, "decay": 1.0})
    model = assemble.model_of(ndoye, TASK)
    made = [recipe_of(one) for one in transfer_probes(model, OwnTraining(folds=3, decay=1.0))]
    assert [departures(ndoye, one) for one in made] == [[], []]
    shapley = study_of("s", {"name": "shapley", "part": "test"})
    assert departures(shapley, recipe_of(loss_probe(model, "test"))) == []
    assert departures(shapley, recipe_of(loss_probe(model, "validation"))) != []
    # 4 sites have 2 ** 3 sets of partners for one of them; no more than 64 models are judged at a time.
    (judging,) = asks_of(shapley).probes
    assert [judging.models(sites) for sites in (4, 20)] == [8, 64]


@pytest.mark.parametrize(
    ("said", "asked", "passes"),
    [
        ({}, {"epsilon": 0.0, "smallest_cell": 10, "seed": None}, True),
        ({}, {"epsilon": 0.0, "smallest_cell": 5, "seed": None}, False),
        ({"epsilon": 2.0}, {"epsilon": 0.25, "smallest_cell": 10, "seed": None}, True),
        ({"epsilon": 2.0}, {"epsilon": 0.25, "smallest_cell": 10, "seed": 7}, False),
        ({"epsilon": 2.0}, {"epsilon": 0.0, "smallest_cell": 10, "seed": None}, False),
        ({"epsilon": 2.0}, {"epsilon": 2.5, "smallest_cell": 10, "seed": None}, False),
    ],
)
def test_counts_are_asked_for_with_the_noise_and_the_cell_that_were_approved(said, asked, passes):
    study = study_of("s", {"name": "distribution_distance", **BY_COUNTS, **said})
    assert (departures(study, recipe_of(cells_of(**asked))) == []) == passes
    assert departures(study, recipe_of(kinds_of())) == []
    assert departures(study, recipe_of(recorded_columns(columns=("age",)))) != []
    assert departures(in_process.study_of("plain"), recipe_of(kinds_of())) != []


def test_the_noise_of_counts_is_spent_once(tmp_path):
    """0.25 for each of two columns is 0.5 a question, so an epsilon of 1 pays for two; a repeated one costs nothing."""
    study = study_of("s", {"name": "distribution_distance", "epsilon": 1.0, **BY_COUNTS})
    recipe = recipe_of(cells_of(epsilon=0.25, smallest_cell=10, seed=None))
    message = Message({"columns": pack([{"name": "age"}, {"name": "sex"}])})

    def ask(nonce):
        debit(tmp_path, study, recipe, {"query": to_json(recipe), "on": "training", "nonce": nonce}, message)

    for nonce in ("a", "a", "b", "a", "b"):
        ask(nonce)
    with pytest.raises(Refusal, match="an epsilon of 1 in all"):
        ask("c")
    ask("a")


def test_counts_without_noise_are_told_as_often_as_a_choice_needs_them(tmp_path):
    """Four questions to find the edges and one for the counts."""
    study = study_of("s", {"name": "distribution_distance", **BY_COUNTS})
    recipe = recipe_of(cells_of(epsilon=0.0, smallest_cell=10, seed=None))

    def ask(edge):
        message = Message({"columns": pack([{"name": "age", "edges": [edge]}])})
        debit(tmp_path, study, recipe, {"query": to_json(recipe), "on": "training"}, message)

    for edge in (1, 2, 3, 4, 5, 5):
        ask(edge)
    with pytest.raises(Refusal, match="at most 5 times cells_of"):
        ask(6)
