"""What a study says about values holds at real sites as in its simulation: the same words, the same model."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.in_process import Consortium, study_of
from wardround.core.errors import Refusal
from wardround.deploy.site.datasets import add, table_for
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.study_summary import what_is_changed
from wardround.runs.folder import RunFolder
from wardround.study.methods import own_method
from wardround.workflows.run import run

CLEANING = {
    "kinds": {"temperature": "decimal_comma"},
    "missing": {"age": [-999]},
    "recode": {"sex": {"F": "female", "M": "male"}},
    "days": {"left": "came", "came": "2024-01-01"},
    "date_formats": {"left": "%d.%m.%Y"},
    "drop_rows": {"status": ["cancelled"]},
}


def spoil(frame, site):
    """The same patients as people write them down."""
    generator = np.random.default_rng(len(site))
    came = pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 90, len(frame)), "D")
    left = came + pd.to_timedelta(generator.integers(0, 9, len(frame)), "D")
    frame = frame.assign(
        temperature=frame["temperature"].map(lambda value: "" if pd.isna(value) else f"{value:.1f}".replace(".", ",")),
        age=frame["age"].mask(generator.random(len(frame)) < 0.1, -999),
        came=came.strftime("%Y-%m-%d"),
        left=left.strftime("%d.%m.%Y"),
        status=np.where(generator.random(len(frame)) < 0.2, "cancelled", "open"),
    )
    if site == "bo":
        frame["sex"] = frame["sex"].map({"female": "F ", "male": "M"})
    others = frame["ebola"] != "confirmed"
    frame["ebola"] = frame["ebola"].mask(others & (generator.random(len(frame)) < 0.5), "suspected")
    return frame


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    for site, path in made.tables.items():
        spoil(pd.read_csv(path), site).to_csv(path, index=False)
    return made


def test_the_model_is_that_of_the_simulation(consortium):
    study = study_of("cleaned", 1, data={"cleaning": CLEANING, "drop": ["status"]})
    deployed = consortium.conduct(study)
    frames = [pd.read_csv(path, dtype=str).assign(hospital=name) for name, path in consortium.tables.items()]
    path = consortium.folder / "patients.csv"
    pd.concat(frames).to_csv(path, index=False)
    simulated = study.model_copy(update={"data": study.data.model_copy(update={"path": str(path)})})
    folder = RunFolder.create(consortium.folder / "simulated", resume=False)
    expected = run(simulated, folder, [own_method(simulated)], kind="run")
    assert deployed["task"]["classes"] == list(expected.task.classes) == ["not confirmed", "confirmed"]
    assert deployed["task"]["features"] == list(expected.task.features)
    assert {"left", "came", "sex=female"} <= set(deployed["task"]["features"])
    assert not any(name.startswith("status") for name in deployed["task"]["features"])
    ours, theirs = (load_file(one / "model.safetensors") for one in (consortium.run(study), folder.path))
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)
    assert any("against the rest" in note for note in deployed["notes"])


def test_what_is_not_declared_is_refused_without_a_patients_value(consortium):
    with pytest.raises(Refusal) as caught:
        consortium.conduct(study_of("raw", data={"drop": ["status", "came", "left"]}))
    assert "column 'temperature' holds a mixture of text and numbers" in str(caught.value).lower()
    values = set(pd.read_csv(consortium.tables["bo"], dtype=str)["temperature"].dropna())
    assert not any(value in str(caught.value) for value in values)


def test_whoever_registers_or_approves_reads_what_stands_in_the_way(consortium):
    home = consortium.homes["bo"]
    seen = add(home, "again", "csv", {"path": str(consortium.tables["bo"])}, target="ebola")
    assert {(one.kind, one.column) for one in seen.findings} >= {("unread", "temperature"), ("outsiders", "age")}
    study = study_of("cleaned", data={"cleaning": CLEANING, "drop": ["status"]})
    (told,) = what_is_changed(study)
    assert 'drop_rows = {"status": ["cancelled"]}' in told
    table = table_for(home, "demo", study, read_policy(home.policy_path))
    assert table.sites["bo"]["temperature"].dtype == float
    assert "status" not in table.sites["bo"].columns
