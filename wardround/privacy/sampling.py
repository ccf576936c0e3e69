"""Poisson sampling: every row of a site enters a batch by its own toss of a coin, unknown to everybody else.

Accounting for differential privacy by subsampling (Abadi et al., CCS 2016) holds for this way to draw, not for batches
cut from a shuffled list. The gaps between the rows that enter are geometric numbers, so a batch needs as many random
words as it has places and never looks at the other rows: exact, and it costs the same at a site of any size. A batch
has a fixed number of places, so that it compiles once; it overflows with a probability below 1e-12, which is charged to
delta. Rows past the last place would be left out.

`PoissonShard` stands in for a site's shard. An algorithm asks it for batches as always: where it names the study's
batch size (an `ExpectedSize`) it is given a Poisson sample, where it goes through all rows in chunks it is given the
rows as they are. Every batch carries the key and nonce of its own noise, so that no noise is ever used for two
questions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import jax.numpy as jnp
from scipy.stats import poisson

from wardround.core.contracts import Array, Batch, Shard, intensities
from wardround.core.descent import CHUNK, batches
from wardround.core.errors import Refusal
from wardround.privacy.noise import BLOCK, stream, uniform

OVERFLOW = 1e-12
"""The probability, at most, that a batch has more rows than places."""


class ExpectedSize(int):
    """A batch size that is an expectation: told apart from a chunk of all rows, which may be as large."""


class PoissonBatch(NamedTuple):
    """A batch as an algorithm sees it, and what its private gradient needs; has the fields of a Batch.

    `mask` says nothing about which rows entered, nor how many: an algorithm may add it up. It may set places to 0 by
    what stands in a row. `taken` is 1 where a row entered.
    """

    x: Array
    y: Array
    mask: Array
    taken: Array
    """Among the first places."""
    entered: Array
    """How many."""
    denominator: Array
    """The number of rows expected, a public number."""
    rate: Array
    """The probability with which a row enters."""
    variance: Array
    """Of this batch's noise, as a multiple of the model's own: less for one of several chunks of all rows."""
    key: Array
    nonce: Array
    """Of the noise, beginning at block `first`."""
    first: Any
    usual: Any
    """How many rows mostly enter; this and `first` are plain numbers."""


@cache
def places_for(expected: int) -> int:
    """Places that suffice: a binomial number of the same mean has no heavier tail than the Poisson number."""
    return int(poisson.isf(OVERFLOW, expected)) + 1


def sampled_places(words: Array, rate: Array, rows: Array) -> tuple[Array, Array]:
    """Places from 0 to rows - 1, each with probability `rate` independently of all others: ascending, and how many.

    The gaps of such a sequence are geometric: the least k with 1 - (1 - rate)^k above a uniform number.
    """
    # rate = 1: a division by infinity, so every gap is 1.
    failures = jnp.floor(-jnp.log1p(-uniform(words)) / -jnp.log1p(-jnp.minimum(rate, 1.0)))
    gaps = 1 + jnp.minimum(failures, rows.astype(jnp.float32)).astype(jnp.int32)
    ends = jnp.cumsum(gaps)
    # Sums of many long gaps may wrap around in whole numbers; in floats they are merely not exact.
    near = jnp.cumsum(gaps.astype(jnp.float32)) <= 1.5 * rows + 2
    inside = (ends <= rows) & near
    return jnp.where(inside, ends - 1, 0), jnp.sum(inside)


@dataclass(frozen=True)
class PoissonShard(Shard):
    """A site's rows, handed out so that what is learned from them can be made private.

    Not a tree of arrays, on purpose: it must stay within one site's client.
    """

    key: Any = None
    """256 secret bits of this site in this round."""
    noise: Any = 1.0
    """What the model's own noise is multiplied by: a number, or a traced one."""
    asked: Iterator[int] = field(default_factory=count)
    """Numbers the places in the algorithm's code that ask for a batch, while it is traced."""

    def batch(self, visit: Array | int, index: Array | int, size: int) -> Batch:
        place = jnp.stack([jnp.asarray(part).astype(jnp.uint32) for part in (next(self.asked), visit, index)])
        if isinstance(size, ExpectedSize):
            return self._sample(visit, size, place)  # type: ignore[return-value]
        if size == CHUNK:
            return self._chunk(visit, index, size, place)  # type: ignore[return-value]
        raise Refusal(
            f"the algorithm looks at {size} rows of a site apart from its batches, which noise does not cover",
            where="[privacy]",
            remedy="choose an algorithm and an aggregator that learn by gradients alone, such as fed_avg",
        )

    def _sample(self, visit: Array | int, size: int, nonce: Array) -> PoissonBatch:
        places = places_for(int(size))
        rows = jnp.maximum(1, jnp.asarray(self.rows))
        expected = jnp.minimum(int(size), rows).astype(jnp.float32)
        rate = expected / rows
        found, entered = sampled_places(stream(self.key, nonce, 0, places), rate, rows)
        at = self.first + visit * self.longest + found
        x, y = (jnp.asarray(a).at[at].get(mode="clip") for a in (self.x, self.y))
        taken = (jnp.arange(places) < entered).astype(jnp.float32)
        first = -(-places // BLOCK)  # the blocks before it decided who enters
        return PoissonBatch(
            intensities(x),
            y,
            jnp.ones(places),
            taken,
            entered,
            expected,
            rate,
            jnp.square(jnp.float32(self.noise)),
            self.key,
            nonce,
            first,
            int(size),
        )

    def _chunk(self, visit: Array | int, index: Array | int, size: int, nonce: Array) -> PoissonBatch:
        plain = super().batch(visit, index, size)
        # The chunks are added up, and so is their noise: together it has the variance of one.
        share = jnp.square(jnp.float32(self.noise)) / jnp.maximum(1, batches(jnp.asarray(self.rows), size))
        nominal = jnp.maximum(1.0, jnp.sum(plain.mask))
        return PoissonBatch(
            *plain, plain.mask, jnp.asarray(size), nominal, jnp.ones(()), share, self.key, nonce, 0, size
        )


def poisson_shard(shard: Shard, key: Array, noise: Any = 1.0) -> PoissonShard:
    """The shard of a site with the secret key of this round; `noise` multiplies that of the model."""
    own = (shard.x, shard.y, shard.first, shard.rows, shard.longest, shard.site, shard.padding)
    return PoissonShard(*own, key=key, noise=noise)
