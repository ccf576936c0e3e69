"""Images with masks drawn by a trained generator, to learn from or to look at; no site is asked for anything."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.components.recipes import Recipe, from_json
from wardround.core.contracts import Model
from wardround.core.errors import Refusal
from wardround.engine.registry import make_from
from wardround.predict.predictor import Predictor

AT_ONCE = 32
Pixels = np.ndarray[Any, Any]


class MadeImage(NamedTuple):
    """One drawn image, (height, width, channels) from 0 to 255, and its mask of 0 and 255."""

    style: int
    image: Pixels
    mask: Pixels


def model_of(predictor: Predictor) -> Model:
    """The model behind a run's algorithm, made again; refused where it draws no images."""
    recipe = None if predictor.facts.recipe is None else find_model_recipe(from_json(predictor.facts.recipe))
    made: Model | None = None if recipe is None else make_from(recipe)
    if made is None or made.generation is None:
        raise Refusal(
            "this model draws no images",
            where=f"model of {predictor.facts.study}",
            remedy="train one: the model gan_u_net with the algorithm asyn_dgan, or sim_u_net with fed_sim",
        )
    return made


def find_model_recipe(recipe: Recipe) -> Recipe | None:
    """The first model that a recipe uses, however deep."""
    if recipe.kind == "model":
        return recipe
    return next((found for part in recipe.parts if (found := find_model_recipe(part)) is not None), None)


def draw_images(predictor: Predictor, count: int, seed: int) -> Iterator[MadeImage]:
    """As many of every style that a site taught, one style after the other."""
    generation = model_of(predictor).generation
    assert generation is not None
    table = np.asarray(predictor.params[generation.style_table])
    taught = np.flatnonzero(np.any(table != 0, axis=1))
    draw = jax.jit(partial(generation.generate, {name: jnp.asarray(one) for name, one in predictor.params.items()}))
    key = jax.random.key(seed)
    for style in taught.tolist():
        for begin in range(0, count, AT_ONCE):
            own = jax.random.fold_in(jax.random.fold_in(key, style), begin)
            images, masks = jax.device_get(draw(jnp.full(AT_ONCE, style), own))
            pixels = np.round(255 * np.clip(images, 0, 1)).astype(np.uint8)
            for image, mask in zip(pixels[: count - begin], masks, strict=False):
                yield MadeImage(style, image, np.where(mask > 0, 255, 0).astype(np.uint8))
