"""The simulation engine: all sites on this machine (or on several hosts), each round compiled, none looped over."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from wardround.core import trees
from wardround.core.chain import identity
from wardround.core.contracts import (
    Algorithm,
    Message,
    Params,
    Progress,
    Query,
    Report,
    RoundRecord,
    Scores,
    Shard,
    Site,
    Transform,
    Tree,
)
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine import devices, predictions
from wardround.engine.feed import Feed, place
from wardround.engine.layout import Seating, Shape, shape_for
from wardround.engine.memory import refuse_if_too_large
from wardround.engine.program import Data, on_devices, on_one_device, outgoing, round_key

Cohort = np.ndarray[Any, Any]
NAMED = 100
"""Cohorts up to this size are named in the round records."""
STREAM_AT_ONCE = 64
"""Rounds in one call of the one-device program, at most."""


class Diverged(Refusal):
    """A site's model became NaN or infinite."""

    def __init__(self, number: int, names: Sequence[str]) -> None:
        self.round = number
        self.sites = tuple(names)
        super().__init__(
            f"training diverged in round {number}: the answer of {', '.join(names[:5])}"
            f"{f' and {len(names) - 5} more' if len(names) > 5 else ''} is not a finite number",
            remedy="lower the learning rate, or look for extreme values in these sites' columns; "
            "the last good checkpoint is kept",
        )


class Simulation:
    """Every site of a federation, trained on this machine; fulfils the Engine contract.

    `progress` given to `train` is used up (its buffers are reused): go on with the one it returns.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        seed: int = 0,
        transform: Transform | None = None,
        tables: Sequence[Site] = (),
        largest_cohort: int | None = None,
        device_count: int | None = None,
        evaluated: np.ndarray[Any, Any] | None = None,
    ) -> None:
        self.federation = federation
        self.seed = seed
        self.transform = transform or identity()
        self.tables = tables
        self.largest_cohort = largest_cohort or len(federation.sites)
        self.device_count = min(device_count or devices.available(), devices.available())
        self.evaluated = np.arange(len(federation.sites)) if evaluated is None else evaluated
        self._feeds: dict[tuple[bool, Shape, int], Feed] = {}
        self._pooled: Federation | None = None
        self._bytes: dict[tuple[Algorithm, Transform], tuple[int, int]] = {}

    @property
    def sites(self) -> Sequence[str]:
        return self.federation.sites

    def begin(self, algorithm: Algorithm, params: Params) -> Progress:
        """The state before the first round; refuses what cannot work before anything is computed."""
        self._refuse_bad_combinations(algorithm)
        shape = self.shape(algorithm, params)
        population = len(self._training(algorithm).sites)
        server = algorithm.init(trees.copy(params), population)
        kept = algorithm.init_client(params)
        refuse_if_too_large(algorithm, params, kept, self._training(algorithm), shape)
        clients = jax.tree.map(lambda a: jnp.array(jnp.broadcast_to(a, (population, *jnp.shape(a)))), kept)
        shapes = self._answer_shapes(algorithm, server, kept)
        answer = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return Progress(
            server=trees.copy(server),
            aggregator=algorithm.aggregator.init(answer),
            transform=self.transform.init(answer),
            clients=clients,
        )

    def train(
        self, algorithm: Algorithm, progress: Progress, rounds: Sequence[tuple[int, Cohort]]
    ) -> tuple[Progress, list[RoundRecord]]:
        """Do these rounds; raises Diverged, naming round and sites, when an answer is not finite."""
        if algorithm.pools:
            rounds = [(number, np.zeros(1, np.int64)) for number, _ in rounds]
        feed = self._feed(algorithm, algorithm.params(progress.server))
        done: list[RoundRecord] = []
        for begin in range(0, len(rounds), STREAM_AT_ONCE):
            piece = list(rounds[begin : begin + STREAM_AT_ONCE])
            started, cpu = time.perf_counter(), time.process_time()
            if feed.shape.devices == 1:
                progress, seatings, finite = self._on_one_device(algorithm, progress, feed, piece)
            else:
                progress, seatings, finite = self._on_devices(algorithm, progress, feed, piece)
            self._stop_if_diverged(algorithm, piece, seatings, finite)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            done += self._records(algorithm, progress, feed, piece, seconds, cpu)
        return progress, done

    def evaluate(self, algorithm: Algorithm, progress: Progress, part: str) -> Scores:
        """Predictions for one part of every evaluated site's rows, by the model that site would use."""
        return predictions.scores(
            algorithm,
            progress,
            self.federation,
            part,
            self.evaluated,
            seed=self.seed,
        )

    def ask(self, query: Query, message: Message) -> Report:
        """Put a question to every site's own table."""
        return query.combine([query.ask(message, site) for site in self.tables])

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _training(self, algorithm: Algorithm) -> Federation:
        if not algorithm.pools:
            return self.federation
        if self._pooled is None:
            self._pooled = self.federation.pooled()
        return self._pooled

    def shape(self, algorithm: Algorithm, params: Params) -> Shape:
        federation = self._training(algorithm)
        cohort = min(self.largest_cohort, len(federation.sites))
        rows = int(federation.part("train")[1].mean() * cohort) if len(federation.sites) else 0
        return shape_for(cohort, rows, trees.nbytes(params) // 4, self.device_count)

    def _feed(self, algorithm: Algorithm, params: Params) -> Feed:
        shape = self.shape(algorithm, params)
        key = (algorithm.pools, shape, algorithm.passes)
        if key not in self._feeds:
            self._feeds[key] = Feed(self._training(algorithm), shape, seed=self.seed, passes=algorithm.passes)
        return self._feeds[key]

    def _answer_shapes(self, algorithm: Algorithm, server: Tree, kept: Tree) -> Message:
        """The shapes of an answer as it leaves a site, without training anything."""
        federation = self.federation
        x = jax.ShapeDtypeStruct((1, *federation.x.shape[1:]), federation.x.dtype)
        y = jax.ShapeDtypeStruct((1, *federation.y.shape[1:]), federation.y.dtype)

        def answer(server: Tree, kept: Tree, x: Any, y: Any) -> Message:
            number = jnp.zeros((), jnp.int32)
            order = jnp.zeros((algorithm.passes, 1), jnp.int32)
            shard = Shard(x, y, order, number, number, number, number)
            return algorithm.client(algorithm.broadcast(server), kept, shard, jax.random.key(0))[0]

        shapes: Message = jax.eval_shape(answer, server, kept, x, y)
        return shapes

    def _on_one_device(
        self, algorithm: Algorithm, progress: Progress, feed: Feed, rounds: list[tuple[int, Cohort]]
    ) -> tuple[Progress, list[Seating], np.ndarray[Any, Any]]:
        program = on_one_device(algorithm, self.transform)
        if feed.resident:
            seatings = [seating for seating, _ in feed.ahead(rounds)]
            numbers = np.array([number for number, _ in rounds], np.int32)
            stacked: Seating = jax.tree.map(lambda *parts: np.stack(parts), *seatings)
            progress, finite = program(progress, np.uint32(self.seed), numbers, feed.resident_data(), stacked)
            return progress, seatings, np.asarray(finite)
        seatings, flags = [], []
        for (number, _), (seating, data) in zip(rounds, feed.ahead(rounds), strict=True):
            here: Data = jax.tree.map(lambda a: a[0], data)
            stacked = jax.tree.map(lambda a: a[None], seating)
            progress, finite = program(progress, np.uint32(self.seed), np.array([number], np.int32), here, stacked)
            seatings.append(seating)
            flags.append(finite)
        return progress, seatings, np.concatenate([np.asarray(flag) for flag in flags])

    def _on_devices(
        self, algorithm: Algorithm, progress: Progress, feed: Feed, rounds: list[tuple[int, Cohort]]
    ) -> tuple[Progress, list[Seating], np.ndarray[Any, Any]]:
        count = feed.shape.devices
        programs = on_devices(algorithm, self.transform, count, feed.resident)
        seatings, flags = [], []
        for (number, _), (seating, rows) in zip(rounds, feed.ahead(rounds), strict=True):
            data = feed.resident_data() if rows is None else place(rows, count, split=True)
            key = round_key(self.seed, number)
            states = (progress.aggregator, progress.transform)
            sent = place((programs.send(replace(progress, clients=()), key), states), count, split=False)
            kept = place(programs.look_up(progress.clients, seating.site), count, split=True)
            seats = place(seating, count, split=True)
            keys = jax.random.wrap_key_data(place(jax.random.key_data(key), count, split=False))
            totals, kept, finite = programs.train(*sent, keys, data, seats, kept)
            totals, kept, finite = together((totals, kept, finite))
            after = programs.conclude(replace(progress, clients=()), totals)
            progress = replace(after, clients=programs.put_back(progress.clients, seating.site, kept))
            seatings.append(seating)
            flags.append(finite)
        return progress, seatings, np.stack([np.asarray(flag) for flag in flags])

    def _stop_if_diverged(
        self,
        algorithm: Algorithm,
        rounds: list[tuple[int, Cohort]],
        seatings: list[Seating],
        finite: np.ndarray[Any, Any],
    ) -> None:
        if finite.all():
            return
        sites = self._training(algorithm).sites
        index = int(np.argmax(~finite.reshape(len(rounds), -1).all(axis=1)))
        lost = seatings[index].site[~finite[index]]
        raise Diverged(rounds[index][0], [sites[int(site)] for site in np.sort(lost)])

    def _records(
        self,
        algorithm: Algorithm,
        progress: Progress,
        feed: Feed,
        rounds: list[tuple[int, Cohort]],
        seconds: float,
        cpu: float,
    ) -> list[RoundRecord]:
        sites = self._training(algorithm).sites
        down, up = self.message_bytes(algorithm, progress)
        return [
            RoundRecord(
                round=number,
                sites=tuple(sites[int(site)] for site in cohort) if len(cohort) <= NAMED else (),
                count=len(cohort),
                rows=int(feed.rows[cohort].sum()),
                seconds=seconds / len(rounds),
                cpu_seconds=cpu / len(rounds),
                bytes_down=down * len(cohort),
                bytes_up=up * len(cohort),
            )
            for number, cohort in rounds
        ]

    def message_bytes(self, algorithm: Algorithm, progress: Progress) -> tuple[int, int]:
        """Bytes of one message each way, as it would travel; none for a baseline that never sends any."""
        if algorithm.silent:
            return 0, 0
        key = (algorithm, self.transform)
        if key not in self._bytes:
            kept = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), progress.clients)
            sent = jax.eval_shape(lambda p: outgoing(algorithm, self.transform, p, jax.random.key(0)), progress)
            answer = self._answer_shapes(algorithm, progress.server, kept)
            self._bytes[key] = (trees.nbytes(sent), trees.nbytes(answer))
        return self._bytes[key]

    def _refuse_bad_combinations(self, algorithm: Algorithm) -> None:
        aggregator = algorithm.aggregator
        if self.transform.sum_only and not aggregator.secure:
            raise Refusal(
                "a transform that reveals only the sum of the answers was combined with an aggregator "
                "that must see each of them",
                remedy="choose the aggregator weighted_mean, or leave the transform out",
            )
        if not algorithm.pools and self.largest_cohort < aggregator.fewest:
            raise Refusal(
                f"the aggregator needs at least {aggregator.fewest} sites in a round, "
                f"and there are {self.largest_cohort}",
                remedy="expect fewer bad sites, take more sites into a round, or choose another aggregator",
            )


def together(tree: Tree) -> Tree:
    """Arrays split over the devices, brought to the first device of every host."""
    if jax.process_count() == 1:
        return jax.device_put(tree, jax.local_devices()[0])
    return jax.device_put(multihost_utils.process_allgather(tree, tiled=True), jax.local_devices()[0])
