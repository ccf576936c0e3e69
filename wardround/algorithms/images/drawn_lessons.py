"""How the server trains a U-Net on images that a generator draws: steps of an optimizer, and no site's row."""

import jax
import jax.numpy as jnp
import optax

from wardround.core.contracts import Array, Batch, Model, Params, Tree


def learn_from_drawn(
    model: Model,
    optimizer: optax.GradientTransformation,
    params: Params,
    start: tuple[Params, Tree],
    known: Array,
    number: Array,
    steps: Array,
    images: int,
) -> tuple[Params, Tree]:
    """The segmenter's arrays and its optimizer's state after so many steps.

    Every step has as many fresh images, in styles drawn alike among the known ones; `number` is the round's. `params`
    has the generator that draws.
    """
    made = model.generation
    assert made is not None

    def step(index: Array, carry: tuple[Params, Tree]) -> tuple[Params, Tree]:
        own, memory = carry
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), number), index)
        which, drawing, looking = jax.random.split(key, 3)
        style = jax.random.categorical(which, jnp.log(known), shape=(images,))
        x, y = made.generate(params, style, drawing)
        slope = jax.grad(model.loss)(own, Batch(x, y, jnp.ones(images)), looking)
        updates, memory = optimizer.update(slope, memory, own)
        return optax.apply_updates(own, updates), memory

    learned: tuple[Params, Tree] = jax.lax.fori_loop(0, steps, step, start)
    return learned
