"""Partners chosen over real sites are those of the simulation; a choice is made once, and asks nothing unannounced."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from wardround import __version__
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.core.recipes import Recipe, recipe_of, to_json
from wardround.deploy.conducting import study_id
from wardround.deploy.decisions import reasons_against, read_offer, withdraw
from wardround.deploy.described import describe
from wardround.deploy.office import SiteOffice, departures
from wardround.deploy.probed import debit
from wardround.deploy.wire import decode, encode
from wardround.partners.distribution import cells_of, kinds_of, packed
from wardround.partners.probes.feature_gains import columns_recorded
from wardround.partners.probes.losses import losses
from wardround.partners.probes.own_models import own_models
from wardround.partners.probes.slopes import slopes
from wardround.report.page import write_report
from wardround.study import assemble
from wardround.study.file import parse_study
from wardround.study.folder import RunFolder
from wardround.study.methods import own_method
from wardround.study.run import run

_spec = importlib.util.spec_from_file_location("clerks", Path(__file__).parents[1] / "faults" / "clerks.py")
assert _spec is not None
assert _spec.loader is not None
clerks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(clerks)

NAMES = ("bo", "freetown", "kenema", "makeni")
USER = "freetown"
BY_COUNTS = {"smallest_cell": 10}
"""As the sites' policies want it."""


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    return clerks.Consortium(tmp_path_factory.mktemp("consortium"), NAMES)


@pytest.fixture(autouse=True)
def undisturbed(consortium):
    yield
    consortium.away, consortium.change = set(), lambda site, topic, header, reply: reply


def study_of(name, partners, **tables):
    said = {"study": {"user": USER, **tables.pop("study", {})}, **tables}
    words = clerks.study_of(name, 3, **said).model_dump(mode="json", exclude_none=True)
    words["study"]["name"] = name
    return parse_study({**words, "partners": partners}, where="test")


def simulated(consortium, study):
    """The same words in simulation, on the same patients in one file."""
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    path = consortium.folder / "patients.csv"
    pd.concat(frames).to_csv(path, index=False)
    study = study.model_copy(update={"data": study.data.model_copy(update={"path": str(path)})})
    folder = RunFolder.create(consortium.folder / "simulated" / study.study.name, resume=False)
    result = run(study, folder, [own_method(study)], kind="run")
    return result, folder.path


def lines(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


CHOICES = [
    ("gradient_distance", {"top": 1}, "fed_avg"),
    ("gradient_distance", {"rounds": 2, "top": 2}, "scaffold"),
    ("evidence", BY_COUNTS, "fed_avg"),
    ("ndoye", {"epochs": 40}, "fed_avg"),
    ("distribution_distance", {**BY_COUNTS, "top": 2}, "fed_avg"),
    ("influence", {"top": 2, "iterations": 4}, "fed_avg"),
    ("leave_one_out", {"top": 2}, "scaffold"),
    ("shapley", {"top": 1}, "fed_avg"),
]


@pytest.mark.parametrize(("choice", "settings", "algorithm"), CHOICES)
def test_partners_and_model_are_those_of_the_simulation(consortium, choice, settings, algorithm):
    """scaffold keeps something at the sites: what one training of a choice leaves there must not reach the next."""
    name = f"{choice}-{algorithm}"
    study = study_of(name, {"name": choice, **settings}, algorithm={"name": algorithm, "learning_rate": 0.1})
    deployed = consortium.conduct(study)
    simulation, path = simulated(consortium, study)
    found, expected = (result["methods"][0] for result in (deployed, simulation))
    assert (found["user"], found["partners"]) == (USER, expected["partners"])
    ours, theirs = (load_file(one / "model.safetensors") for one in (consortium.run(study), path))
    assert all(np.abs(ours[key] - theirs[key]).max() <= 1e-5 for key in theirs)
    ours, theirs = lines(consortium.run(study)), lines(path)
    assert [one["round"] for one in ours] == [one["round"] for one in theirs] == [0, 1, 2, 3]
    assert [one["sites"] for one in ours] == [one["sites"] for one in theirs]
    told, other = (one[0]["measures"]["told"] for one in (ours, theirs))
    assert told["score"] == pytest.approx(other["score"], rel=1e-3, abs=1e-5)
    assert (told["chosen"], told["probes"]) == (other["chosen"], other["probes"])
