"""DP-SGD inside every site: an algorithm learns from cut and noised gradients of Poisson batches only.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016: the gradient of every row is cut to the length
`clip`, the sum gets Gaussian noise of standard deviation noise_multiplier * clip, and is divided by the expected
number of rows, a public number. Whatever an algorithm makes of such gradients is as private as they are. Adding or
removing one row changes a sum by `clip` at most. The number of a site's training rows counts as public.

Works with any algorithm that takes its steps through `Model.gradient` and its rows through `Shard.batch`; what else it
does with rows is refused (see `dry_run`). A site's personal model never leaves it and is fitted without noise.
"""

from typing import Any

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.contracts import Algorithm, Array, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.errors import Refusal
from wardround.privacy.noise import noise_like, secret_words
from wardround.privacy.row_gradients import clipped_sum
from wardround.privacy.sampling import PoissonBatch, poisson_shard

PIECE = 16
"""Rows computed at a time: a batch has room for about twice the rows it mostly has, and empty pieces are skipped."""
SMALL = 50_000
"""Parameters up to which the rows expected are computed at once; larger models are quicker in pieces throughout."""
LEAST_SCALE = 1e-20
"""Of noise: far below it, numbers are rounded to 0, and noise would be none."""


def private_model(model: Model, *, clip: float, noise_multiplier: float) -> Model:
    """The model with a private gradient; it must be given batches of a `PoissonShard`."""
    if noise_multiplier and not noise_multiplier * clip >= LEAST_SCALE:
        raise Refusal(
            f"noise of {noise_multiplier:g} times a clip of {clip:g} would be rounded to none at all",
            where="[privacy] clip",
            remedy="choose a larger clip, such as 1.0",
        )

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        drawn: object = batch
        if not isinstance(drawn, PoissonBatch):
            raise Refusal(
                "the algorithm takes a gradient of rows that were not drawn for a private step",
                where="[privacy]",
                remedy="choose an algorithm that takes its batches from the site's shard, such as fed_avg",
            )
        total = sum_of(model, params, drawn, clip, key)
        if noise_multiplier:
            scale = noise_multiplier * clip * jnp.sqrt(drawn.variance)
            noise = noise_like(params, drawn.key, drawn.nonce, drawn.first)
            total = trees.add(total, trees.scale(noise, scale))
        mean: Params = trees.scale(total, 1.0 / drawn.denominator)
        return mean

    return model._replace(gradient=gradient)


def sum_of(model: Model, params: Params, batch: PoissonBatch, clip: float, key: Key) -> Params:
    """The clipped sum over the rows that entered: those expected at once, the others piece by piece."""
    whole = Batch(batch.x, batch.y, batch.taken * (batch.mask > 0))
    places = len(whole.mask)
    head = min(batch.usual + 2 * round(batch.usual**0.5), places) if trees.nbytes(params) // 4 <= SMALL else 0
    if places - head <= PIECE:
        return clipped_sum(model.loss, params, whole, clip, key)
    total: Params = trees.zeros(params)
    if head:
        total = clipped_sum(model.loss, params, Batch(*(a[:head] for a in whole)), clip, key)
    pieces = -(-(places - head) // PIECE)
    spare = head + pieces * PIECE - places
    rest = Batch(*(jnp.pad(a[head:], [(0, spare), *[(0, 0)] * (a.ndim - 1)]) for a in whole))

    def body(number: Array, total: Params) -> Params:
        piece = Batch(*(jax.lax.dynamic_slice_in_dim(a, number * PIECE, PIECE) for a in rest))
        part = clipped_sum(model.loss, params, piece, clip, jax.random.fold_in(key, number))
        added: Params = trees.add(total, part)
        return added

    needed = jnp.clip((batch.entered - head + PIECE - 1) // PIECE, 0, pieces)
    result: Params = jax.lax.fori_loop(0, needed, body, total)
    return result


def sample_level(algorithm: Algorithm, plain: Algorithm, *, seeded: bool, noise: Any = 1.0) -> Algorithm:
    """An algorithm made with a private model, given rows as that needs; `plain` is the same made with the model itself.

    Fresh secret bits for every site in every round, unless `seeded`. `noise` multiplies that of the private model; it
    may be a traced number, so that one program serves all.
    """

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        private = poisson_shard(shard, secret_words(key, seeded=seeded), noise)
        # Made from noised sums only, so what is not finite tells nothing; that it is not is no news either.
        answer, keeps = algorithm.client(message, kept, private, key)
        return trees.finite_or_zero(answer), trees.finite_or_zero(keeps)

    return algorithm._replace(client=client, personal=plain.personal, largest_batch=int(algorithm.largest_batch))


def refuse_coupled(model: Model) -> None:
    """Refuse a model of which one patient's gradient depends on other patients of the batch."""
    if model.coupled:
        raise Refusal(
            f"batch normalization ({', '.join(model.coupled)}) mixes the patients of a batch, so that no patient's"
            " gradient can be bounded by itself",
            where="[model] under [privacy]",
            remedy='set normalization = "group" in [model], which looks at one patient at a time',
        )
