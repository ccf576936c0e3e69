"""Files that are damaged, old, foreign or not there yet: each is told in one paragraph, and nothing is predicted."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.mixed_patients import patients, study_of, train
from tests.support.outside_package import lay_mean, visible
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.predict.predictor import read_predictor
from wardround.runs.file_names import MODEL
from wardround.runs.model_file import HEADER, ModelFacts, read_facts, read_model, write_model
from wardround.runs.models import find_model, model_paths
from wardround.runs.sites import PredictionTask


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run, and its table."""
    place = tmp_path_factory.mktemp("run")
    patients(12).to_csv(place / "patients.csv", index=False)
    words = {"name": "mixed", "seed": 3, "rounds": 1}
    return train(study_of(place / "patients.csv", study=words), place / "run")


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def facts_of(**words):
    task = PredictionTask(kind="classification", target="t", classes=("a", "b"), features=("x",), positive="b")
    return ModelFacts(
        wardround="0",
        study="s",
        method="m",
        label="M",
        rounds=1,
        task=task,
        shape=(1,),
        **{"recipe": None, "preparation": None, **words},
    )


def test_what_is_written_is_read_again(tmp_path):
    params = {"own": {"dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}, "share": np.float32(0.25)}
    write_model(tmp_path / "m", params, facts_of(sites=("a", "b"), threshold=0.2))
    facts, found = read_model(tmp_path / "m")
    assert (facts.sites, facts.threshold) == (("a", "b"), 0.2)
    assert np.array_equal(found["own"]["dense/kernel"], params["own"]["dense/kernel"])
    assert found["share"] == np.float32(0.25)
    before = (tmp_path / "m").read_bytes()
    write_model(tmp_path / "m", found, facts)
    assert (tmp_path / "m").read_bytes() == before


def test_the_file_holds_all_that_a_prediction_needs(finished):
    facts = read_facts(finished / MODEL)
    assert (facts.study, facts.method, facts.rounds) == ("mixed", "fed_avg", 1)
    assert (facts.task.target, facts.task.positive, facts.task.classes) == ("outcome", "ill", ("ill", "well"))
    columns = Preparation.from_json(json.dumps(facts.preparation)).columns
    assert [column.name for column in columns] == ["age", "lactate", "sex", "ward", "smoker"]
    assert "path" not in facts.reading


@pytest.mark.parametrize("place", ["header", "middle", "end"])
def test_a_changed_byte_is_noticed(copied, place):
    path = copied / MODEL
    content = bytearray(path.read_bytes())
    at = {"header": content.index(b'"fill'), "middle": len(content) - 20, "end": len(content) - 1}[place]
    content[at] ^= 0x41
    path.write_bytes(content)
    with pytest.raises(Refusal, match=r"model.*(damaged|cannot be read).*model\.safetensors|not a preparation"):
        read_predictor(path).preparation  # noqa: B018


@pytest.mark.parametrize("share", [0.0, 0.001, 0.4, 0.99])
def test_a_cut_file_is_refused_by_name(copied, share):
    path = copied / MODEL
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(Refusal, match=r"[Tt]he model file is damaged, or none: .*model\.safetensors"):
        read_predictor(find_model(copied))


def test_other_files_and_other_formats(finished, tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    arrays = load_file(finished / MODEL)
    save_file(arrays, tmp_path / "bare.safetensors")
    # As versions before 0.2 wrote them.
    save_file(arrays, tmp_path / "old.safetensors", metadata={HEADER: '{"study": "s", "method": "m"}'})
    later = {**json.loads(facts_of().model_dump_json()), "format": 2, "wardround": "9.9"}
    save_file(arrays, tmp_path / "later.safetensors", metadata={HEADER: json.dumps(later)})
    broken = {**later, "format": 1, "task": 7}
    save_file(arrays, tmp_path / "broken.safetensors", metadata={HEADER: json.dumps(broken)})
    for name, words in (
        ("table.csv", "damaged, or none"),
        ("bare.safetensors", "holds parameters only: an older version.*or another program.*run the study again"),
        ("old.safetensors", "holds parameters only: an older version"),
        ("later.safetensors", r"has format 2, and this version reads up to 1.*install wardround 9\.9 or later"),
        ("broken.safetensors", "damaged.*its header lacks what a prediction needs \\(task"),
        ("nowhere", "no such run or model file"),
    ):
        with pytest.raises(Refusal, match=words):
            read_predictor(find_model(tmp_path / name))


def test_a_folder_of_an_older_version_says_so(copied):
    save_file(load_file(copied / MODEL), copied / MODEL, metadata={HEADER: '{"study": "s", "method": "m"}'})
    with pytest.raises(Refusal, match="an older version of wardround wrote it"):
        find_model(copied)


def test_an_interrupted_run_names_its_checkpoint(copied, tmp_path):
    (copied / MODEL).unlink()
    words = r"interrupted.*its last checkpoint is fed_avg-0\.safetensors.*wardround run STUDY --resume --out .*run"
    with pytest.raises(Refusal, match=words):
        find_model(copied)
    with pytest.raises(Refusal, match="no model in this folder"):
        find_model(tmp_path)


def test_a_model_of_arrays_takes_no_table(tmp_path, finished):
    facts, params = read_model(finished / MODEL)
    write_model(tmp_path / MODEL, params, facts.model_copy(update={"preparation": None}))
    predictor = read_predictor(tmp_path / MODEL)
    with pytest.raises(Refusal, match=r"takes arrays, such as images, and no table.*predict from Python"):
        predictor.preparation  # noqa: B018
    assert predictor.predict_prepared(np.zeros((2, *facts.shape), np.float32)).shape == (2, 2)
    with pytest.raises(Refusal, match=r"the shape \(1,\), and the model was trained on"):
        predictor.predict_prepared(np.zeros((2, 1), np.float32))


def test_a_model_made_in_python_says_so(tmp_path):
    write_model(tmp_path / MODEL, {"w": np.zeros(1)}, facts_of())
    with pytest.raises(Refusal, match="was made in Python"):
        read_predictor(tmp_path / MODEL)


def test_a_package_that_is_missing_is_named(tmp_path):
    patients(12).to_csv(tmp_path / "patients.csv", index=False)
    with visible(lay_mean(tmp_path / "packages", "calm_mean")):
        study = study_of(
            tmp_path / "patients.csv",
            study={"name": "mixed", "seed": 3, "rounds": 1},
            aggregator={"name": "calm_mean"},
        )
        path = find_model(train(study, tmp_path / "run"))
        assert read_predictor(path).facts.packages == {"fed-extras": "1.2"}
    with pytest.raises(Refusal, match=r"no aggregator called 'calm_mean'.*Fix: install fed-extras 1\.2"):
        read_predictor(path)


def test_the_model_card_lists_every_model(tmp_path):
    from wardround.report.model_card.facts import model_files

    for name in ("model-a.safetensors", "personal-b.safetensors", "personal-a.safetensors", "other.safetensors"):
        (tmp_path / name).write_bytes(name.encode())
    assert [path.name for path in model_paths(tmp_path)] == [
        *("model-a.safetensors", "personal-a.safetensors", "personal-b.safetensors")
    ]
    assert set(model_files(tmp_path)) == {path.name for path in model_paths(tmp_path)}
