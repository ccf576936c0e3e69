"""Drawn images become a training set: a model file in, a folder that a study of images reads out."""

import jax
import numpy as np
import pytest

from wardround import __version__
from wardround.cli.models.generate import write_images
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.data.sources.images import images
from wardround.engine import registry
from wardround.predict.made_images import draw_images
from wardround.predict.predictor import read_predictor
from wardround.runs.model_file import ModelFacts, write_model
from wardround.runs.sites import PredictionTask

TASK = Task((8, 8, 1), (), "mask", segmentation=True)
SMALL = {"filters": 2, "depth": 1, "generator_filters": 2, "discriminator_filters": 2, "styles": 3}


def written(folder, model, algorithm, params):
    method = registry.find("algorithm", algorithm).build(model, registry.find("aggregator", "weighted_mean").build())
    told = PredictionTask(kind="segmentation", target="mask", classes=(), features=("image",))
    facts = {"study": "drawn", "method": algorithm, "label": "x", "rounds": 1, "task": told, "shape": TASK.shape}
    recipe = to_json(recipe_of(method))
    write_model(folder / "model.safetensors", params, ModelFacts(
        wardround=__version__, recipe=recipe, preparation=None, **facts
    ))  # fmt: skip
    return read_predictor(folder / "model.safetensors")


def test_a_folder_of_drawn_images_is_read_by_a_study_of_images(tmp_path):
    model = registry.find("model", "gan_u_net").build(TASK, **SMALL)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0)))
    table = np.array(params["generator/styles"])
    table[1] = 0  # no site taught this style
    predictor = written(tmp_path, model, "asyn_dgan", {**params, "generator/styles": table})
    drawn = list(draw_images(predictor, 40, seed=1))
    assert [one.style for one in drawn] == [0] * 40 + [2] * 40
    assert len({one.image.tobytes() for one in drawn}) == 80  # none twice, though more than are drawn at once
    assert [one.image.tobytes() for one in draw_images(predictor, 2, seed=1)][:2] == [
        one.image.tobytes() for one in drawn[:2]
    ]
    assert write_images(drawn, tmp_path / "out") == 2
    table = images(path=str(tmp_path / "out"), target="mask", layout="site/frame", masks="masks")
    assert {name: len(rows) for name, rows in table.sites.items()} == {"style_0": 40, "style_2": 40}


def test_a_model_that_draws_nothing_is_refused(tmp_path):
    model = registry.find("model", "u_net").build(TASK, filters=2, depth=1)
    predictor = written(tmp_path, model, "fed_avg", jax.device_get(jax.jit(model.init)(jax.random.key(0))))
    with pytest.raises(Refusal, match="draws no images"):
        list(draw_images(predictor, 1, seed=0))
