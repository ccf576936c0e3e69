"""FED-SIM: a simulator of labelled images whose numbers are learned over sites, and a U-Net that learns from it.

After Li, Kar, Ravikumar, Frangi, Fidler, "Federated Simulation for Medical Imaging", MICCAI 2020. Needs a model with a
simulator (`sim_u_net`). Every site answers with the mean statistics of its images and masks (brightness, noise, focus,
sizes and numbers of structures; `models/images/image_statistics.py`). The server takes `search_steps` steps that bring
the statistics of simulated images to these (`simulated_moments.py`), then trains the U-Net (segmenter) on simulated
images: so the common model, judged on real images, has never seen one.

Simplified. In the paper the simulator is of CT volumes: shapes from a statistical model of organs, textures by a
neural renderer, both trained by gradients of a discriminator or a discrepancy of features that travel over sites. Here
it is twelve numbers of ellipses on a plain ground, fitted by moments: no network draws, and nothing of single images is
compared. What the simulator cannot draw (texture, colour, shapes that are no ellipse) is not learned. Statistics do not
depend on the simulator, so they are the same in every round: rounds serve the fit and the U-Net.

A site's look is its number modulo the model's `styles`. With styles = 1 all sites share one simulator, and a secure sum
hides every site's statistics; else each look has its place in the sum, and the sum tells the mean statistics of each.

What leaves is 62 means over all training images of a site, each of a statistic from 0 to 1, none where the images are
fewer than smallest_cell, rounded to steps of which one image makes half at most (exact with a cell of 1): two studies
over images that differ by one do not tell that image's statistics. Where a patient has several images (`images_each`,
which a real site sets to the most that one has), cells and steps are so many times larger, so that the same holds for
patients. Noise does not cover them: [privacy] refuses it.

Costs the table of numbers down, 63 numbers for each style up, and 16 times `simulated` images for a step of a style.
"""

import jax
import jax.numpy as jnp
import optax

from wardround.algorithms.images.drawn_lessons import learn_from_drawn
from wardround.algorithms.images.style_statistics import fitted_rows, heard_statistics, told_statistics
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Positive
from wardround.core.components.generation import Generation, arrays_of
from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK
from wardround.core.errors import Refusal

LABEL = "Learned from simulated images"
TOLD = "image_statistics"


def fed_sim(
    model: Model,
    aggregator: Aggregator,
    *,
    search_steps: CountOrAll = 1,
    simulated: Count = 256,
    images: Count = 16,
    segmenter_learning_rate: Positive = 0.003,
    segmenter_steps: CountOrAll = 1,
    segmenter_after: CountOrAll = 0,
    weights: Weights = "uniform",
    smallest_cell: Count = 10,
    images_each: Count = 1,
) -> Algorithm:
    """A simulator learns what sites' images look like, a U-Net learns from what it draws; sites send statistics."""
    made = simulator_of(model, aggregator)
    table, describe, exactly = made.style_table, made.describe, made.simulate
    assert describe is not None
    assert exactly is not None
    optimizer = optax.adam(segmenter_learning_rate)

    def describe_simulated(row: Array) -> Array:
        """The same random numbers for every row, step, round and style."""
        return describe(*exactly(jnp.broadcast_to(row, (simulated, *row.shape)), jax.random.key(1)))

    def init(params: Params, sites: int) -> Tree:
        row = jax.ShapeDtypeStruct(params[table].shape[1:], jnp.float32)
        count = jax.eval_shape(describe_simulated, row).shape[1]
        return {
            "params": params,
            "segmenter": optimizer.init(arrays_of(params, made.segmenter)),
            "bank": jnp.zeros((made.styles, count)),
            "known": jnp.zeros(made.styles),
            "distance": jnp.zeros(made.styles),
            "round": jnp.zeros((), jnp.int32),
        }

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        arrays = told_statistics(TOLD, shard, describe, made.styles, smallest_cell, images_each)
        return answer(model, aggregator, message.arrays, shard, weights, arrays), kept

    def server(state: Tree, combined: Message) -> Tree:
        bank, known = heard_statistics(TOLD, state["bank"], state["known"], combined)
        rows, distance = state["params"][table], state["distance"]
        if search_steps:
            rows, distance = fitted_rows(known, bank, (rows, distance), describe_simulated, search_steps)
        params, number = {**state["params"], table: rows}, state["round"] + 1
        own, memory = arrays_of(params, made.segmenter), state["segmenter"]
        if segmenter_steps:
            ready = (number > segmenter_after) & jnp.any(known > 0)
            steps = jnp.where(ready, segmenter_steps, 0)
            own, memory = learn_from_drawn(model, optimizer, params, (own, memory), known, number, steps, images)
        return {
            "params": {**params, **own},
            "segmenter": memory,
            "bank": bank,
            "known": known,
            "distance": distance,
            "round": number,
        }

    return Algorithm(
        init=init,
        init_client=lambda params: (),
        broadcast=lambda state: Message({"simulator": state["params"][table]}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
        tells=lambda state: {"simulator_distance": state["distance"]},
        largest_batch=CHUNK,
    )


def simulator_of(model: Model, aggregator: Aggregator) -> Generation:
    if model.generation is None or model.generation.describe is None or model.generation.simulate is None:
        raise Refusal(
            "FED-SIM fits a simulator of images, and this model has none",
            where="[algorithm] fed_sim",
            remedy="take the model 'sim_u_net' and a study of masks",
        )
    if not aggregator.is_plain_sum or aggregator.needs:
        raise Refusal(
            "FED-SIM's answers hold each site's statistics in a place of their own, so they can only be added up",
            where="[aggregator]",
            remedy="choose weighted_mean",
        )
    return model.generation
