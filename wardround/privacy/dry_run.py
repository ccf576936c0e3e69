"""What an algorithm's client really does in a round, found out by running it on a stand-in model that only counts.

Accounting must follow what is executed, not what a docstring says: how many gradients a site of so many rows takes, of
which batches, and that every batch is asked for once and used for one gradient. An algorithm that looks at rows in any
other way (predictions, losses, second derivatives, the same batch twice) is refused, since noise would not cover it.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.contracts import Algorithm, Array, Batch, Key, Model, Params, Shard
from wardround.core.errors import Refusal
from wardround.privacy.sampling import PoissonBatch, PoissonShard

REMEDY = "choose an algorithm that learns by the gradients of its batches alone, such as fed_avg, fed_prox or scaffold"
Place = tuple[int, int, int]
"""Which place of the code asked, for which pass, for which batch."""


@dataclass
class DryRun:
    """Counts the gradients of `algorithm`, which must have been made with `model`."""

    asked: list[Place] = field(default_factory=list)
    taken: list[tuple[Place, float, float]] = field(default_factory=list)
    """The batch, the rate with which rows enter, and the share of a noise that it gets."""
    _programs: dict[Algorithm, Any] = field(default_factory=dict)
    _counts: threading.Lock = field(default_factory=threading.Lock)
    """One count at a time: several sites in one process share a dry run."""

    def model(self, plain: Model) -> Model:
        """A stand-in whose gradients are 0 and which refuses everything else."""

        @jax.custom_jvp
        def slope(params: Params, nonce: Array, rate: Array, variance: Array) -> Params:
            # The parameters come along so that gradients at several points side by side are counted each.
            point = sum((jnp.sum(leaf) for leaf in jax.tree.leaves(params)), jnp.zeros(()))
            jax.debug.callback(self._take, nonce, rate, variance, point)
            nothing: Params = trees.zeros(params)
            return nothing

        slope.defjvp(lambda *given: refuse_uncovered("differentiates gradients, as full MAML does"))

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            drawn: object = batch
            if not isinstance(drawn, PoissonBatch):
                refuse_uncovered("makes batches of its own")
            counted: Params = slope(params, drawn.nonce, drawn.rate, drawn.variance)
            return counted

        return plain._replace(
            loss=lambda *given: refuse_uncovered("looks at the losses of a site's rows"),
            predict=lambda *given: refuse_uncovered("predicts a site's own rows, or reveals its classes"),
            gradient=gradient,
            features=None
            if plain.features is None
            else lambda *given: refuse_uncovered("looks at what the model sees of a site's rows"),
        )

    def trace(self, algorithm: Algorithm, params: Params, row: Any, sites: int) -> None:
        """Refuse whatever can be seen without running: all but a batch that is used twice."""

        def first(params: Params) -> Any:
            return self._given(algorithm, params, row, 1, sites)

        self._program(algorithm).trace(*jax.eval_shape(first, params))

    def rounds(self, algorithm: Algorithm, params: Params, row: Any, rows: int, sites: int) -> tuple[Any, ...]:
        """What a site of `rows` rows does in one round: pairs of the rate and the number of noised sums.

        `params` may be shapes; `row` has the shapes and types of x and y of a single row.
        """
        params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
        with self._counts:
            self.asked.clear()
            self.taken.clear()
            done = self._program(algorithm)(*self._given(algorithm, params, row, rows, sites))
            jax.block_until_ready(done)
            jax.effects_barrier()
            return self._count_sums()

    def _program(self, algorithm: Algorithm) -> Any:
        if algorithm not in self._programs:
            self._programs[algorithm] = jax.jit(lambda *given: self._client(algorithm, *given))
        return self._programs[algorithm]

    def _given(self, algorithm: Algorithm, params: Params, row: Any, rows: int, sites: int) -> tuple[Any, ...]:
        """What a site is given: the message, what it keeps, its rows."""
        room = int(algorithm.largest_batch)
        # What stands in the rows does not matter, so a few stand for all.
        x, y = (jnp.zeros((room, *part.shape), part.dtype) for part in row)
        zero, many = jnp.zeros((), jnp.int32), jnp.asarray(rows, jnp.int32)
        message = algorithm.broadcast(algorithm.init(params, sites))
        if algorithm.tailoring is not None:  # the steps are the same with every kind of message
            message = algorithm.tailoring.cut(message, 0, zero, jax.random.key(0))
        return message, algorithm.init_client(params), Shard(x, y, zero, many, many, zero, room)

    def _client(self, algorithm: Algorithm, message: Any, kept: Any, shard: Shard) -> Any:
        counting = _CountingShard(
            shard.x, shard.y, shard.first, shard.rows, shard.longest, shard.site, shard.padding,
            key=jnp.zeros(8, jnp.uint32), dry_run=self,
        )  # fmt: skip
        return algorithm.client(message, kept, counting, jax.random.key(0))

    def _ask(self, nonce: Any) -> None:
        self.asked.append(_place(nonce))

    def _take(self, nonce: Any, rate: Any, variance: Any, _: Any) -> None:
        self.taken.append((_place(nonce), float(rate), float(variance)))

    def _count_sums(self) -> tuple[Any, ...]:
        asked, taken = Counter(self.asked), Counter(place for place, _, _ in self.taken)
        if set(asked) - set(taken):
            refuse_uncovered("looks at rows without taking a gradient of them")
        if any(times > 1 for times in (asked | taken).values()):
            raise Refusal(
                "the algorithm takes several gradients of the same batch, for which there is only one noise",
                where="[privacy]",
                remedy="let inner_batch_size be equal to batch_size, or choose another algorithm, such as fed_avg",
            )
        sums: dict[float, float] = {}
        for _, rate, variance in self.taken:
            sums[rate] = sums.get(rate, 0.0) + variance
        return tuple((rate, round(many)) for rate, many in sorted(sums.items()))


@dataclass(frozen=True)
class _CountingShard(PoissonShard):
    dry_run: DryRun | None = None

    def batch(self, visit: Array | int, index: Array | int, size: int) -> Batch:
        batch = super().batch(visit, index, size)
        drawn: object = batch
        assert isinstance(drawn, PoissonBatch)
        assert self.dry_run is not None
        jax.debug.callback(self.dry_run._ask, drawn.nonce)
        return batch


def refuse_uncovered(what: str) -> NoReturn:
    raise Refusal(f"the algorithm {what}, which noise does not cover", where="[privacy]", remedy=REMEDY)


def _place(nonce: Any) -> Place:
    asked, visit, index = (int(part) for part in np.asarray(nonce))
    return asked, visit, index
