"""New images of a folder: what a model of labels tells of each, what one of masks marks, and what is refused."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from tests.support.images.folder import disc, square
from wardround import __version__
from wardround.cli.app import app
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.runs.model_file import ModelFacts, write_model
from wardround.runs.sites import PredictionTask
from wardround.study.model_facts import prediction_task

LABELS = Task((4, 4, 1), ("no", "yes"), "finding")
MASKS = Task((4, 4, 1), (), "mask", segmentation=True)


def written(folder, task, model, **arrays):
    made = registry.find("model", model[0]).build(task, **model[1])
    params = {**jax.device_get(jax.jit(made.init)(jax.random.key(0))), **arrays}
    method = registry.find("algorithm", "fed_avg").build(made, registry.find("aggregator", "weighted_mean").build())
    told = PredictionTask.model_validate(prediction_task(task, ("image",), 1).plain())
    facts = {"study": "eyes", "method": "fed_avg", "label": "Common model", "rounds": 1, "task": told}
    recipe = to_json(recipe_of(method))
    write_model(
        folder / "model.safetensors",
        params,
        ModelFacts(wardround=__version__, recipe=recipe, preparation=None, shape=task.shape, **facts),
    )
    return str(folder / "model.safetensors")


@pytest.fixture
def pictures(tmp_path):
    """Bright on the right (yes) and on the left, one of another size, and one that is none."""
    (tmp_path / "new/a").mkdir(parents=True)
    Image.fromarray(square(True, 1)).save(tmp_path / "new/a/1.png")
    Image.fromarray(square(False, 2, side=24)).save(tmp_path / "new/a/2.png")
    (tmp_path / "new/3.png").write_text("not an image")
    return tmp_path / "new"


def predict(*words):
    return CliRunner().invoke(app, ["predict", *map(str, words)])


def test_a_line_for_every_file_with_its_outcome(tmp_path, pictures):
    kernel = np.zeros((16, 2), np.float32)
    kernel[:, 1] = np.tile([-8, -8, 8, 8], 4)  # right less left
    model = written(tmp_path, LABELS, ("logistic", {}), **{"dense_0/kernel": kernel})
    made = predict(model, pictures, "--out", tmp_path / "told.csv")
    assert made.exit_code == 0, made.output
    assert "finding of 2 images by the model (Common model) of the study eyes." in made.output
    assert "Left out, not readable: 1 file (3.png: not an image of the kind its name says)." in made.output
    told = pd.read_csv(tmp_path / "told.csv", keep_default_na=False)
    assert told["file"].tolist() == ["3.png", "a/1.png", "a/2.png"]
    assert told["finding"].tolist() == ["", "yes", "no"]
    # By hand: of every quarter of an image the mean of its bytes over 255, as the form brings it to 4 x 4 pixels.
    small = np.asarray(Image.fromarray(square(True, 1)).resize((4, 4), Image.Resampling.BILINEAR)) / 255
    expected = 1 / (1 + np.exp(-8 * (small[:, 2:].sum() - small[:, :2].sum())))
    assert float(told["probability of yes"][1]) == pytest.approx(expected, rel=1e-5)
    records = json.loads(predict(model, pictures, "--json").output)["patients"]
    assert [one["finding"] for one in records] == [None, "yes", "no"]


def test_masks_of_files_that_differ_in_their_suffix_do_not_replace_each_other(tmp_path, pictures):
    Image.fromarray(disc(3, 20)[0]).save(pictures / "a/1.jpg")
    model = written(tmp_path, MASKS, ("u_net", {"filters": 2, "depth": 1}))
    made = predict(model, pictures, "--out", tmp_path / "marked")
    assert made.exit_code == 0, made.output
    assert "3 images marked by the model" in made.output
    found = {one.relative_to(tmp_path / "marked").as_posix() for one in (tmp_path / "marked").rglob("*.png")}
    assert found == {"a/1.png", "a/1.png.png", "a/2.png"}
    for name, side in (("1.png", 20), ("1.png.png", 16), ("2.png", 24)):
        with Image.open(tmp_path / "marked/a" / name) as mask:
            assert mask.size == (side, side)
    lines = pd.read_csv(tmp_path / "marked/masks.csv", keep_default_na=False)
    assert lines["problem"].tolist() == ["not an image of the kind its name says", "", "", ""]


def test_what_is_refused(tmp_path, pictures):
    model = written(tmp_path, LABELS, ("logistic", {}))
    (tmp_path / "empty").mkdir()
    for words, reason in (
        ([model, pictures, "--explain"], "has no columns to keep, query or explain"),
        ([model, pictures / "a/1.png"], "A model of images reads a folder of images, and this is none"),
        ([model, tmp_path / "empty"], "There is no image file (PNG, JPEG, DICOM) in this folder"),
        ([model, pictures, "--out", pictures], "This is a folder"),
    ):
        made = predict(*words)
        assert isinstance(made.exception, Refusal)
        assert reason in str(made.exception)
