"""FedDG: a common model for sites it has never seen, from images that look as if they came from the other sites.

Liu, Chen, Qin, Dou, Heng, "FedDG: Federated Domain Generalization on Medical Image Segmentation via Episodic Learning
in Continuous Frequency Space", CVPR 2021. Every site tells the amplitudes of its images' lowest frequencies; in
training, a site moves those of its own images towards another site's by a random share (`spectrum.py`). A step is an
episode: the model after an inner step on the images as they are must do well on the moved ones, and see edges alike in
both (`boundary.py`). The gradient is that of L(w; x) + L(w'; x') + boundary_weight B(w'; x, x'), with w' = w - inner
rate times the gradient of L(w; x). With second_order false the inner step's own dependence on w is left out, which
costs three gradients instead of about six.

What leaves is more than an update. Where the paper has a bank of single images' spectra, a site here sends the MEAN
amplitudes over all its training images, and nothing where these are fewer than smallest_cell. They have no phases, so
no picture can be made from them, but they tell how bright, how coloured and how coarse a site's images are on average,
and all sites get them. Of each amplitude those that fewer images than a cell exceed are cut off, and the mean is told
in steps of which one image makes half at most: the difference of two studies over images that differ by one is not that
image's amplitudes. Where a patient has several images (`images_each`, which a real site sets to the most that one has),
cells and steps are so many times larger. Each site's lie in a place of their own: a secure sum hides the update, not
them. Under [privacy] it is refused.

Costs FedAvg's traffic and 3 (2 low_frequencies + 1)^2 numbers, up once and down for every site. Needs a model of masks
that shows its features (`u_net`) and an aggregator that adds up. A site that knows no other learns from its own images.
"""

import jax
import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.boundary import boundary_loss
from wardround.algorithms.images.spectrum import interpolated, low_amplitudes
from wardround.core import trees
from wardround.core.answers import Weights, answer, weight_of
from wardround.core.bounds import Count, Momentum, NotNegative, Positive
from wardround.core.contracts import Aggregator, Algorithm, Array, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, batches, descend, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Common model (FedDG)"
CHANNELS = 3
"""Places for amplitudes of colours; a grey image has the first."""
SMALLEST = 2.0**-40
"""Of a step, where no image has the frequency."""


def fed_dg(
    model: Model,
    aggregator: Aggregator,
    *,
    low_frequencies: Count = 3,
    inner_learning_rate: Positive = 0.01,
    boundary_weight: NotNegative = 0.1,
    boundary: Count = 1,
    temperature: Positive = 0.1,
    second_order: bool = True,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: Count = 8,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
    smallest_cell: Count = 10,
    images_each: Count = 1,
) -> Algorithm:
    """A common model of masks for sites unlike those of training: mean amplitudes exchanged, episodes of two steps."""
    refuse_unfit(model, aggregator)
    optimizer, reach = local_optimizer(learning_rate, momentum), low_frequencies
    features = model.features
    assert features is not None
    plain = fed_avg(model, aggregator, local_epochs=local_epochs, batch_size=batch_size)

    def init(params: Params, sites: int) -> Tree:
        side = 2 * reach + 1
        return {"params": params, "bank": jnp.zeros((sites, side, side, CHANNELS)), "known": jnp.zeros(sites)}

    def episode(params: Params, batch: Batch, key: Key, bank: Array, known: Array, site: Array) -> Params:
        """The gradient of one step."""
        look, own_key, moved_key = jax.random.split(key, 3)
        moved = batch._replace(x=seen_elsewhere(jnp.asarray(batch.x), look, bank, known, site, reach))

        def inner(at: Params) -> Params:
            slope = model.gradient(at, batch, own_key)
            return trees.subtract(at, trees.scale(slope, inner_learning_rate))

        def outer(after: Params) -> Array:
            loss = model.loss(after, moved, moved_key)
            if not boundary_weight:
                return loss
            seen = features(after, batch.x), features(after, moved.x)
            return loss + boundary_weight * boundary_loss(seen, batch.y, batch.mask, boundary, temperature)

        if second_order:
            further: Params = jax.grad(lambda at: outer(inner(at)))(params)
        else:
            further = jax.grad(outer)(inner(params))
        slope: Params = trees.add(model.gradient(params, batch, own_key), further)
        return slope

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        bank, known = message.arrays["bank"], message.arrays["known"]

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            return episode(params, batch, key, bank, known, jnp.asarray(shard.site))

        own = descend(gradient, optimizer, common, shard, key, batch_size=batch_size, passes=local_epochs)
        told = (jnp.asarray(shard.rows) >= smallest_cell * images_each).astype(jnp.float32)
        # Divided by the weight that all is multiplied with: else a sum would tell how many images each site has.
        share = trees.divide_or_zero(told, weight_of(shard, weights))
        place = share * (jnp.arange(len(known)) == shard.site)
        arrays = {
            "update": trees.subtract(own, common),
            "spectra": place[:, None, None, None] * coarse_amplitudes(shard, reach, smallest_cell, images_each),
            "told": place,
        }
        return answer(model, aggregator, common, shard, weights, arrays), kept

    def server(state: Tree, combined: Message) -> Tree:
        told = combined.arrays["told"]
        heard = told > 0
        # No amplitude of an image from 0 to 1 is above 1, whatever a site that lies says: all others look like it.
        fresh = jnp.clip(combined.arrays["spectra"] / jnp.where(heard, told, 1.0)[:, None, None, None], 0.0, 1.0)
        return {
            "params": trees.add(state["params"], combined.arrays["update"]),
            "bank": jnp.where(heard[:, None, None, None], fresh, state["bank"]),
            "known": jnp.maximum(state["known"], heard.astype(jnp.float32)),
        }

    return plain._replace(
        init=init,
        broadcast=lambda state: Message(dict(state)),
        client=client,
        server=server,
        params=lambda state: state["params"],
    )


def seen_elsewhere(x: Array, key: Key, bank: Array, known: Array, site: Array, reach: int) -> Array:
    """Every image moved by a random share towards a random other site that is known; as it is where there is none."""
    where, how_far = jax.random.split(key)
    own = jnp.arange(len(known)) == site
    others = known * ~own
    any_other = jnp.sum(others) > 0
    weights = jnp.where(any_other, others, own)
    drawn = jax.random.categorical(where, jnp.log(weights), shape=(len(x),))
    shares = jnp.where(any_other, jax.random.uniform(how_far, (len(x),)), 0.0)
    return interpolated(x, bank[drawn][..., : x.shape[-1]], shares, reach)


def coarse_amplitudes(shard: Shard, reach: int, cell: int, each: int = 1) -> Array:
    """The mean over all rows of the site as it leaves; zeros in the places of colours that its images do not have.

    The largest amplitudes, of fewer images than a cell, count as the next one; the mean is on a grid of powers of two.
    With a cell of 1 it is exact.
    """
    rows, channels, most = jnp.maximum(1, shard.rows), shard.x.shape[-1], batches(shard.longest, CHUNK)
    cut = cell * each
    nothing = jnp.zeros((cut, 2 * reach + 1, 2 * reach + 1, channels))

    def amplitudes(index: Array) -> tuple[Array, Array]:
        batch = shard.batch(0, index, CHUNK)
        return low_amplitudes(jnp.asarray(batch.x), reach), batch.mask.reshape(-1, 1, 1, 1)

    def keep_largest(index: Array, largest: Array) -> Array:
        found, mask = amplitudes(index)
        return jnp.sort(jnp.concatenate([largest, found * mask]), axis=0)[-cut:]

    highest = jax.lax.fori_loop(0, most, keep_largest, nothing)[0]

    def add(index: Array, total: Array) -> Array:
        found, mask = amplitudes(index)
        return total + jnp.sum(jnp.minimum(found, highest) * mask if cell > 1 else found * mask, axis=0)

    mean = jax.lax.fori_loop(0, most, add, nothing[0]) / rows
    step = jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(2 * each * highest / rows, SMALLEST))))
    told = mean if cell == 1 else jnp.round(mean / step) * step
    return jnp.pad(told, ((0, 0), (0, 0), (0, CHANNELS - channels)))


def refuse_unfit(model: Model, aggregator: Aggregator) -> None:
    if model.features is None:
        raise Refusal(
            "FedDG compares what a model sees at edges, and this model shows no features of pixels",
            where="[algorithm] fed_dg",
            remedy="take the model 'u_net' and a study of masks",
        )
    if not aggregator.is_plain_sum:
        raise Refusal(
            "FedDG's answers hold each site's amplitudes in a place of their own, so they can only be added up",
            where="[aggregator]",
            remedy="choose weighted_mean",
        )
