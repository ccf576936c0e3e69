"""Learning from votes over real sites: the same model as in simulation, where nobody has labelled most rows."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.in_process import NAMES, Consortium, study_of
from wardround.core.components.recipes import recipe_of
from wardround.deploy.site.authorization import departures
from wardround.deploy.site.policy_file import set_policy
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.methods import own_method
from wardround.study.sections.votes import sketch_task
from wardround.workflows.run import run

RULES = [
    {"name": "unigram", "column": "note", "word": "bleeding", "label": "confirmed"},
    {"name": "threshold", "condition": "temperature > 38.5", "label": "confirmed"},
    {"name": "conjunction", "condition": "temperature <= 38 and age < 60", "label": "excluded"},
]
MODEL = {"name": "weasel", "hidden": [4], "end_hidden": [4]}


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    for place, (name, path) in enumerate(made.tables.items()):
        frame = pd.read_csv(path)
        generator = np.random.default_rng(place)
        told = np.array(["Bleeding, severe", "no complaint"])[generator.integers(0, 2, len(frame))]
        frame = frame.assign(note=told)
        frame["ebola"] = frame["ebola"].mask(generator.random(len(frame)) < (1.0 if name == "kenema" else 0.5))
        frame.to_csv(path, index=False)
        set_policy(made.homes[name].policy_path, "components", "*")
    return made


def simulated(consortium, study):
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    path = consortium.folder / "patients.csv"
    pd.concat(frames).to_csv(path, index=False)
    words = study.model_copy(update={"data": study.data.model_copy(update={"path": str(path)})})
    folder = RunFolder.create(consortium.folder / "simulated", resume=False)
    run(words, folder, [own_method(words)], kind="run")
    return folder.path


def votes_study(name, rounds=3, **tables):
    cleaning = {"rules": RULES, "texts": {"note": {"features": 4}}}
    return study_of(name, rounds, **{"data": {"cleaning": cleaning}, "model": MODEL, **tables})


def test_the_approved_functions_are_part_of_the_model():
    """Quick: what a site lets pass names the classes that the approved functions vote for, and no others."""
    study = votes_study("votes")
    algorithm = assemble.build(study, own_method(study), sketch_task(study), NAMES)
    assert departures(study, recipe_of(algorithm)) == []
    other = votes_study("votes", data={"cleaning": {"rules": RULES[::-1]}})
    assert departures(other, recipe_of(algorithm)) == [
        "the study does not include the model weasel with these settings"
    ]


@pytest.mark.slow
def test_the_model_is_that_of_the_simulation(consortium):
    study = votes_study("votes", rounds=2)
    deployed = consortium.conduct(study)
    assert deployed["task"]["classes"] == ["confirmed", "excluded"]
    assert deployed["task"]["features"][:3] == ["rule 1", "rule 2", "rule 3"]
    ours, theirs = (
        load_file(one / "model.safetensors") for one in (consortium.run(study), simulated(consortium, study))
    )
    assert set(ours) == set(theirs)
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)
    assert any("are for training alone" in note for note in deployed["notes"])


@pytest.mark.slow
def test_under_a_secure_sum(consortium):
    study = votes_study("sums", rounds=2, transforms=[{"name": "secure_sum"}])
    consortium.conduct(study)
    ours, theirs = (
        load_file(one / "model.safetensors") for one in (consortium.run(study), simulated(consortium, study))
    )
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-3 for name in theirs)
