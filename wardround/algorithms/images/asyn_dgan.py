"""AsynDGAN: a central generator of images learns from discriminators that stay at the sites.

Chang et al., "Synthetic Learning: Learn From Distributed Asynchronized Discriminator GAN Without Sharing Medical Image
Data", CVPR 2020. Needs a model that makes up images (`gan_u_net`). In a round every site is sent the generator. It
draws images of the site's style, and the site trains its discriminator, for local_epochs passes over its rows, to tell
its own images with their masks from drawn ones. It answers with one gradient: how the generator's arrays should change
so that the discriminator takes `images` drawn images for real. The server averages these gradients over sites, takes a
step of Adam, and trains the U-Net (segmenter) on images drawn by the generator's running mean (`averaging`): so the
common model, judged on real images, has never seen one. The discriminator never leaves its site.

Differs from the paper. There, drawn images travel down and gradients in their pixels up, several times a round; here
the generator travels, and the gradient in its arrays, one exchange a round: the same step of the generator by the chain
rule, which adds up over sites, so that secure sums, compression and robust aggregators work. There, sites give their
masks to the server; here masks are random ellipses, and none leaves. There, an image is judged by the site whose mask
it has; here by the site whose style it has.

With `mask_statistics` sites also tell means of 29 statistics of their masks (whether anything is there, how much, how
many, how large; `style_statistics.py` says what hides single patients), and in the first `search_rounds` rounds the
server fits the ellipses of each style to them, so that a site with small nuclei and many empty images teaches the
generator on such masks. These means are not covered by noise: [privacy] refuses them. They can only be added up, and
each style has a place of its own, which a secure sum does not hide.

What leaves is a gradient of a discriminator that learned from a site's images. No image leaves, but without [privacy]
nothing bounds what that gradient tells: a coordinator that sends generators of its choice reads the discriminator's
slopes at images of its choice. Under [privacy] of patients the discriminator learns by noised gradients alone; all else
is made from these and from what the server sent, so the promise holds whatever generator or first discriminator it
chose. Only the discriminator's rows need noise: drawn images are nobody's.

Costs the generator's size down and up, in many rounds (hundreds). A site keeps its discriminator and Adam's state.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from wardround.algorithms.images.drawn_lessons import learn_from_drawn
from wardround.algorithms.images.mask_search import begin_search
from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.components.generation import Generation, arrays_of
from wardround.core.contracts import Aggregator, Algorithm, Array, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, descend_on
from wardround.core.errors import Refusal

LABEL = "Learned from made-up images"
Realness = Callable[[Params, Array, Key], Array]


def asyn_dgan(
    model: Model,
    aggregator: Aggregator,
    *,
    learning_rate: Positive = 0.001,
    generator_learning_rate: Positive = 0.001,
    averaging: Momentum = 0.99,
    images: Count = 16,
    local_epochs: Count = 1,
    batch_size: Count = 16,
    segmenter_learning_rate: Positive = 0.001,
    segmenter_steps: CountOrAll = 1,
    segmenter_after: CountOrAll = 0,
    mask_statistics: bool = False,
    search_rounds: Count = 12,
    simulated: Count = 256,
    weights: Weights = "uniform",
    smallest_cell: Count = 10,
    images_each: Count = 1,
) -> Algorithm:
    """A central generator learns from discriminators at the sites, a U-Net from what it draws; no image leaves."""
    made, realness = made_by(model)
    shapes, search = made.shape_table, None
    if mask_statistics:
        rules = {"rounds": search_rounds, "simulated": simulated, "cell": smallest_cell, "each": images_each}
        search = begin_search(made, aggregator, **rules)
    critic_optimizer = optax.adam(learning_rate, b1=0.5)
    generator_optimizer = optax.adam(generator_learning_rate, b1=0.5)
    segmenter_optimizer = optax.adam(segmenter_learning_rate)

    def init(params: Params, sites: int) -> Tree:
        generator = arrays_of(params, made.generator)
        return {
            "params": params,
            "learning": generator,
            "generator": generator_optimizer.init(generator),
            "segmenter": segmenter_optimizer.init(arrays_of(params, made.segmenter)),
            "known": jnp.zeros(made.styles),
            "taught": jnp.arange(made.styles) < sites,
            "masks": search.begin(params) if search else {},
            "round": jnp.zeros((), jnp.int32),
        }

    def init_client(params: Params) -> Tree:
        critic = arrays_of(params, made.discriminator)
        return critic, critic_optimizer.init(critic)

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        generator: Params = message.arrays["generator"]
        style = jnp.full(images, jnp.asarray(shard.site) % made.styles)
        learning, judging = jax.random.split(key)

        def gradient(critic: Params, batch: Batch, key: Key) -> Params:
            """That real images look real, and made-up ones do not."""
            own, fresh = jax.random.split(key)
            slope = model.gradient(critic, batch, own)
            return trees.add(slope, jax.grad(lambda at: jnp.mean(jax.nn.softplus(odds(generator, at, fresh))))(critic))

        def odds(generator: Params, critic: Params, key: Key) -> Array:
            return realness({**generator, **critic}, style, key)

        critic, memory = descend_on(
            gradient, critic_optimizer, kept, shard, learning, batch_size=batch_size, passes=local_epochs
        )
        slope = jax.grad(lambda at: jnp.mean(jax.nn.softplus(-odds(at, critic, judging))))(generator)
        arrays: dict[str, Tree] = {"generator_slope": slope}
        if search:
            arrays |= search.tell(shard)
        return answer(model, aggregator, generator, shard, weights, arrays), (critic, memory)

    def server(state: Tree, combined: Message) -> Tree:
        slope, learning = combined.arrays["generator_slope"], state["learning"]
        # A site's gradient reaches its own style only; others' rows are 0, or noise alone.
        heard = state["taught"] & jnp.any(slope[made.style_table] != 0, axis=1)
        known = jnp.maximum(state["known"], heard.astype(jnp.float32))
        updates, moved = generator_optimizer.update(slope, state["generator"], learning)
        after = optax.apply_updates(learning, updates)
        learning, memory = trees.choose(jnp.any(heard), (after, moved), (learning, state["generator"]))
        # Masks have no slope; what noise for whole sites put there is not taken for one.
        rows, searched = state["params"][shapes], state["masks"]
        if search:
            rows, searched = search.step(searched, rows, combined)
        learning = {**learning, shapes: rows}
        number = state["round"] + 1
        share = jnp.minimum(averaging, 1 - 1 / number.astype(jnp.float32))
        params = dict(state["params"])
        for name, array in learning.items():
            params[name] = array if name == shapes else share * params[name] + (1 - share) * array
        # A style that no site taught is not handed out.
        params[made.style_table] = params[made.style_table] * known[:, None]

        own, segmenter = arrays_of(params, made.segmenter), state["segmenter"]
        if segmenter_steps:
            steps = jnp.where(number > segmenter_after, segmenter_steps, 0)
            start = own, segmenter
            own, segmenter = learn_from_drawn(model, segmenter_optimizer, params, start, known, number, steps, images)
        return {
            "params": {**params, **own},
            "learning": learning,
            "generator": memory,
            "segmenter": segmenter,
            "known": known,
            "taught": state["taught"],
            "round": number,
            "masks": searched,
        }

    return Algorithm(
        init=init,
        init_client=init_client,
        broadcast=lambda state: Message({"generator": state["learning"]}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
        tells=(lambda state: {"mask_distance": state["masks"]["distance"]}) if search else None,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
    )


def made_by(model: Model) -> tuple[Generation, Realness]:
    if model.generation is None or model.generation.realness is None:
        raise Refusal(
            "AsynDGAN trains a generator of images by discriminators, and this model makes none",
            where="[algorithm] asyn_dgan",
            remedy="take the model 'gan_u_net' and a study of masks",
        )
    return model.generation, model.generation.realness
