"""The simulation engine: all sites on this machine (or on several hosts), each round compiled, none looped over."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.chain import first_carried, identity, tailored
from wardround.core.contracts import (
    Algorithm,
    Message,
    Params,
    Progress,
    Query,
    Report,
    RoundRecord,
    Scores,
    Site,
    Transform,
)
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.core.quality import Quality
from wardround.engine import predictions
from wardround.engine.checks import refuse_few, refuse_many, refuse_unseen, stop_if_diverged
from wardround.engine.feed import (
    PIECES_UNDER_WAY,
    Feed,
    pieces_in_turn,
    replicate,
    shard_over_devices,
    split_by_device,
    to_host,
)
from wardround.engine.layout import PIECE_BYTES, Seating, Shape, pad_places, shape_for
from wardround.engine.machine import devices
from wardround.engine.machine.memory import refuse_if_too_large
from wardround.engine.program import (
    RoundPrograms,
    fused_rounds,
    kept_by_sites,
    round_programs,
    with_kept,
    without_kept,
)
from wardround.engine.shared_programs import number_of
from wardround.engine.split_round import begin_states, empty_answer, plain_message
from wardround.engine.traffic import NAMED, RoundTraffic, bytes_by_site, choices_of_round, round_traffic

Cohort = np.ndarray[Any, Any]
ROUNDS_IN_A_CALL = 64
"""Rounds in one call of a program, at most."""
QUICK_ENOUGH = 1_000_000_000
"""Rows times parameters of a round, up to which devices may wait for each other inside a program: about a second."""
Astray = tuple[int, np.ndarray[Any, Any], Any]
"""A round, who sat where, and whether each answer was finite."""


JudgeScores = Callable[[Scores, Sequence[str]], Quality]
"""What sites tell of predictions where they do not tell exactly: from the scores and the sites' names."""


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
        look: JudgeScores | None = None,
    ) -> None:
        if not 0 <= seed < 2**32:
            raise Refusal(f"the seed {seed} is out of range", remedy="choose a whole number from 0 to 4294967295")
        self.federation = federation
        self.seed = seed
        self.transform = transform or identity()
        self.tables = tables
        self.largest_cohort = largest_cohort or len(federation.sites)
        self.device_count = min(device_count or devices.device_count(), devices.device_count())
        self.evaluated = np.arange(len(federation.sites)) if evaluated is None else evaluated
        self.look = look
        self._feeds: dict[tuple[bool, str, Shape, int, int, int], Feed] = {}
        self._pooled: Federation | None = None
        self._parts: dict[str, Federation] = {"train": federation}
        self._ways: dict[tuple[Algorithm, int], RoundTraffic] = {}

    @property
    def sites(self) -> Sequence[str]:
        return self.federation.sites

    def begin(self, algorithm: Algorithm, params: Params) -> Progress:
        """The state before the first round; refuses what cannot work before anything is computed."""
        return self._first_state(algorithm, params)

    def first_shapes(self, algorithm: Algorithm, params: Params) -> Progress:
        """The shapes of that state, from those of the parameters; refuses the same, and nothing is compiled."""
        return jax.eval_shape(lambda given: self._first_state(algorithm, given), params)

    def _first_state(self, algorithm: Algorithm, params: Params) -> Progress:
        algorithm = tailored(algorithm, self.transform)
        self._refuse_bad_combinations(algorithm)
        shape = self.shape(algorithm, params)
        population = len(self._training(algorithm).sites)
        server = algorithm.init(trees.copy(params), population)
        kept = algorithm.init_client(params)
        refuse_if_too_large(algorithm, params, kept, self._training(algorithm), shape)
        clients = jax.tree.map(lambda a: jnp.array(jnp.broadcast_to(a, (population, *jnp.shape(a)))), kept)
        carried = first_carried(self.transform, empty_answer(algorithm, server, kept, self._row))
        return replace(
            begin_states(algorithm, self.transform, server, kept, self._row, population),
            clients=clients,
            carried=jax.tree.map(lambda a: jnp.array(jnp.broadcast_to(a, (population, *a.shape))), carried),
        )

    def train(
        self, algorithm: Algorithm, progress: Progress, rounds: Sequence[tuple[int, Cohort]]
    ) -> tuple[Progress, list[RoundRecord]]:
        """Do these rounds; raises Diverged, naming round and sites, when an answer is not finite."""
        algorithm = tailored(algorithm, self.transform)
        if algorithm.pools:
            rounds = [(number, np.zeros(1, np.int64)) for number, _ in rounds]
        for number, cohort in rounds:
            if len(cohort) > self.largest_cohort:
                raise Refusal(
                    f"{len(cohort)} sites take part in round {number}, and the simulation was made for "
                    f"{self.largest_cohort} at most",
                    remedy="give Simulation a larger largest_cohort",
                )
            self._refuse_few(algorithm, cohort, f"round {number}")
        feed = self._feed(algorithm, progress, self._largest_kind(algorithm))
        # Committed to the first device from the start, as it will be after a round: else programs compile twice.
        progress = jax.device_put(progress, jax.local_devices()[0])
        train = self._in_one_call if self._is_fused(algorithm, progress, feed) else self._in_pieces
        together = max(1, min(ROUNDS_IN_A_CALL, PIECE_BYTES // max(1, 4 * feed.places_of(rounds[0][1]))))
        done: list[RoundRecord] = []
        for begin in range(0, len(rounds), together):
            some = list(rounds[begin : begin + together])
            started, cpu = time.perf_counter(), time.process_time()
            progress, astray = train(algorithm, progress, feed, some)
            stop_if_diverged(self._training(algorithm).sites, astray, self.transform.limit)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            done += self._records(algorithm, progress, feed, some, seconds, cpu)
        return progress, done

    def judge(self, algorithm: Algorithm, progress: Progress, part: str) -> Quality:
        """Sums of losses over one part of every evaluated site's rows, by the model that site would use."""
        scores = self.predict(algorithm, progress, part)
        names = [self.federation.sites[int(site)] for site in self.evaluated]
        # Where a site uses a model of its own, real sites of a private study would tell nothing.
        if self.look is not None and algorithm.personal is None:
            return self.look(scores, names)
        return predictions.quality(scores, names)

    def predict(self, algorithm: Algorithm, progress: Progress, part: str, personal: Params | None = None) -> Scores:
        """The predictions themselves, site after site: no real site would tell them, so only a simulation can.

        `personal` are models that `personal_models` gave, which then need not be fitted again.
        """
        return predictions.scores(
            algorithm, progress, self.federation, part, self.evaluated, seed=self.seed, personal=personal
        )

    def personal_models(self, algorithm: Algorithm, progress: Progress) -> Params | None:
        """The models of the evaluated sites along a first axis; none where all use the common one, or they are many."""
        return predictions.personal_models(algorithm, progress, self.federation, self.evaluated, seed=self.seed)

    def ask(self, query: Query, message: Message) -> Report:
        """Put a question to every site's own table."""
        return query.combine([query.ask(message, site) for site in self.tables])

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self._feeds.clear()

    def _training(self, algorithm: Algorithm) -> Federation:
        if not algorithm.pools:
            if algorithm.part not in self._parts:
                self._parts[algorithm.part] = self.federation.select_part(algorithm.part)
            return self._parts[algorithm.part]
        if self._pooled is None:
            self._pooled = self.federation.pool()
        return self._pooled

    def shape(self, algorithm: Algorithm, params: Params, kind: int | None = None) -> Shape:
        """How the rounds of this algorithm are laid out, for all sites or for those whose messages are of one kind."""
        federation = self._training(algorithm)
        many = len(federation.sites)
        if algorithm.tailoring is not None:
            kinds, kind = self._kinds(algorithm), self._largest_kind(algorithm) if kind is None else kind
            server = jax.eval_shape(lambda given: algorithm.init(given, many), params)
            params = jax.eval_shape(lambda server: plain_message(algorithm, server, kind).arrays, server)
            many = int(np.count_nonzero(kinds == kind))
        cohort = min(self.largest_cohort, many)
        rows = int(federation.part("train")[1].mean() * cohort * algorithm.passes) if len(federation.sites) else 0
        row_bytes = federation.x[:1].nbytes + federation.y[:1].nbytes
        return shape_for(cohort, rows, row_bytes, trees.nbytes(params) // 4, self.device_count)

    def _kinds(self, algorithm: Algorithm) -> np.ndarray[Any, Any]:
        """For every site the kind of its messages."""
        sites = np.arange(len(self._training(algorithm).sites))
        return np.zeros_like(sites) if algorithm.tailoring is None else algorithm.tailoring.kind_of(sites)

    def _largest_kind(self, algorithm: Algorithm) -> int:
        """The kind that most sites get."""
        return int(np.bincount(self._kinds(algorithm)).argmax()) if algorithm.tailoring is not None else 0

    def _feed(self, algorithm: Algorithm, progress: Progress, kind: int) -> Feed:
        shape = self.shape(algorithm, algorithm.params(progress.server), kind)
        key = (algorithm.pools, algorithm.part, shape, algorithm.passes, algorithm.largest_batch, kind)
        if key not in self._feeds:
            self._feeds[key] = Feed(
                self._training(algorithm),
                shape,
                seed=self.seed,
                passes=algorithm.passes,
                padding=algorithm.largest_batch,
            )
        return self._feeds[key]

    @property
    def _row(self) -> tuple[Any, Any]:
        """Shape and type of x and y of a single row."""
        x, y = self.federation.x, self.federation.y
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype), jax.ShapeDtypeStruct(y.shape[1:], y.dtype)

    def _round_traffic(self, algorithm: Algorithm, progress: Progress, kind: int = 0) -> RoundTraffic:
        """What travels in a round to and from a site; found out once."""
        if (algorithm, kind) not in self._ways:
            self._ways[algorithm, kind] = round_traffic(algorithm, self.transform, progress, self._row, kind)
        return self._ways[algorithm, kind]

    def _is_fused(self, algorithm: Algorithm, progress: Progress, feed: Feed) -> bool:
        """Whether whole rounds run in one call: rows at hand, and no device waits long for another."""
        several = algorithm.tailoring is not None and algorithm.tailoring.kinds > 1
        if several or not feed.resident or feed.shape.pieces > 1 or jax.process_count() > 1:
            return False
        parameters = trees.nbytes(algorithm.params(progress.server)) // 4
        work = int(feed.rows.mean() * self.largest_cohort) * feed.passes * parameters
        return feed.shape.devices == 1 or work <= QUICK_ENOUGH

    def _in_one_call(
        self, algorithm: Algorithm, progress: Progress, feed: Feed, rounds: list[tuple[int, Cohort]]
    ) -> tuple[Progress, list[Astray]]:
        count = feed.shape.devices
        program = fused_rounds(algorithm, self.transform, count, feed.padding)
        numbers = np.array([number for number, _ in rounds], np.int32)
        seated = [
            feed.seat(number, feed.templates(cohort)[0]) for number, (_, cohort) in zip(numbers, rounds, strict=True)
        ]
        # A capacity that grew on the way: tables made before are padded to it.
        places = max(one.table.shape[1] for one in seated)
        seated = [one._replace(table=pad_places(one.table, places)) for one in seated]
        seatings: Seating = jax.tree.map(lambda *parts: np.stack(parts), *seated)
        given = (np.uint32(self.seed), numbers, feed.source(), seatings, number_of(algorithm))
        progress, finite = program(replicate(progress, count), *given)
        if count > 1:  # the same on every device
            progress = jax.tree.map(lambda a: a.addressable_shards[0].data, progress)
        return progress, list(zip(numbers, seatings.site, np.asarray(finite), strict=True))

    def _in_pieces(
        self, algorithm: Algorithm, progress: Progress, feed: Feed, rounds: list[tuple[int, Cohort]]
    ) -> tuple[Progress, list[Astray]]:
        seed = np.uint32(self.seed)
        ways, shares = self._by_kind(algorithm, progress, rounds)
        programs = ways[feed]
        astray: list[Astray] = []
        totals: list[Any] = []
        last = 0
        sent: dict[int, Any] = {}
        message = programs.send(without_kept(progress), seed, np.int32(rounds[0][0]))
        following = [number for number, _ in rounds[1:]] + [0]
        for number, own, (is_first, is_last), seating, (data, seats) in pieces_in_turn(shares):
            programs, count = ways[own], own.shape.devices
            if is_first:
                sent = {}
            if count not in sent:
                sent[count] = replicate(message, count)
            stored = kept_by_sites(progress)
            kept = programs.look_up(stored, seating.site) if jax.tree.leaves(stored) else stored
            total, kept, finite = programs.train(
                sent[count], seed, np.int32(number), data, seats, shard_over_devices(kept, count)
            )
            if last == count and algorithm.aggregator.linear:
                totals[-1] = programs.add(totals[-1], total)
            else:
                totals.append(total)
            last = 0 if is_last else count
            if jax.tree.leaves(kept):
                progress = with_kept(progress, programs.put_back(stored, seating.site, split_by_device(kept)))
            astray.append((number, seating.site, finite))
            if is_last:
                sums = [split_by_device(total) for total in totals]
                after, message = programs.conclude(without_kept(progress), sums, seed, np.int32(following.pop(0)))
                progress = with_kept(after, kept_by_sites(progress))
                totals = []
            if len(astray) > PIECES_UNDER_WAY:  # so that rows of later pieces do not pile up in memory
                jax.block_until_ready(astray[-1 - PIECES_UNDER_WAY][2])
        return progress, [(number, site, to_host(finite)) for number, site, finite in astray]

    def _by_kind(
        self, algorithm: Algorithm, progress: Progress, rounds: list[tuple[int, Cohort]]
    ) -> tuple[dict[Feed, RoundPrograms], list[list[tuple[Feed, int, Cohort]]]]:
        """The programs for each kind of message, and who is trained with which in every round."""
        kinds, ways = self._kinds(algorithm), {}
        feeds = {int(kind): self._feed(algorithm, progress, int(kind)) for kind in np.unique(kinds)}
        for kind, feed in feeds.items():
            way = self._round_traffic(algorithm, progress, kind)
            ways[feed] = round_programs(
                algorithm, self.transform, feed.shape, feed.padding, feed.resident, way.said, way.added, kind
            )
        shares = [
            [(feed, number, own) for kind, feed in feeds.items() if len(own := cohort[kinds[cohort] == kind])]
            or [(next(iter(feeds.values())), number, cohort)]
            for number, cohort in rounds
        ]
        return ways, shares

    def _records(
        self,
        algorithm: Algorithm,
        progress: Progress,
        feed: Feed,
        rounds: list[tuple[int, Cohort]],
        seconds: float,
        cpu: float,
    ) -> list[RoundRecord]:
        sites, kinds = self._training(algorithm).sites, self._kinds(algorithm)
        down, up = self._bytes_by_site(algorithm, progress)
        told = {kind: way.choices for kind, way in self._ways_of(algorithm, progress).items()}
        return [
            RoundRecord(
                round=number,
                sites=tuple(sites[int(site)] for site in cohort) if len(cohort) <= NAMED else (),
                count=len(cohort),
                rows=int(feed.rows[cohort].sum()),
                seconds=seconds / len(rounds),
                cpu_seconds=cpu / len(rounds),
                bytes_down=int(down[cohort].sum()),
                bytes_up=int(up[cohort].sum()),
                measures={"compression": found} if (found := choices_of_round(told, kinds, sites, cohort)) else {},
            )
            for number, cohort in rounds
        ]

    def message_bytes(self, algorithm: Algorithm, progress: Progress) -> tuple[int, int]:
        """Bytes of the largest message each way, as it would travel; none for a baseline that never sends any."""
        down, up = self._bytes_by_site(tailored(algorithm, self.transform), progress)
        return int(down.max()), int(up.max())

    def round_bytes(self, algorithm: Algorithm, progress: Progress, cohort: Cohort) -> int:
        """Bytes of all messages of a round, both ways."""
        each = self._bytes_by_site(tailored(algorithm, self.transform), progress)
        return 0 if algorithm.silent else int(each[:, cohort].sum())

    def _bytes_by_site(self, algorithm: Algorithm, progress: Progress) -> np.ndarray[Any, Any]:
        return bytes_by_site(self._ways_of(algorithm, progress), self._kinds(algorithm))

    def _ways_of(self, algorithm: Algorithm, progress: Progress) -> dict[int, RoundTraffic]:
        """By the kind of message; none for a baseline that never sends any."""
        kinds = () if algorithm.silent else np.unique(self._kinds(algorithm))
        return {int(kind): self._round_traffic(algorithm, progress, int(kind)) for kind in kinds}

    def _refuse_few(self, algorithm: Algorithm, cohort: Cohort | None, where: str) -> None:
        """Refuse a transform that hides sites among each other where too few have patients."""
        if self.transform.fewest > 1 and not (algorithm.pools or algorithm.silent):
            rows = self._training(algorithm).part("train")[1]
            there = np.count_nonzero(rows if cohort is None else rows[cohort])
            refuse_few(self.transform, min(self.largest_cohort, int(there)), where)
            refuse_many(self.transform, self.largest_cohort if cohort is None else len(cohort), where)

    def _refuse_bad_combinations(self, algorithm: Algorithm) -> None:
        aggregator = algorithm.aggregator
        if not (algorithm.pools or algorithm.silent):
            refuse_unseen(self.transform, algorithm)
        self._refuse_few(algorithm, None, "[[transforms]]")
        if not algorithm.pools and self.largest_cohort < aggregator.fewest:
            raise Refusal(
                f"the aggregator needs at least {aggregator.fewest} sites in a round, "
                f"and there are {self.largest_cohort}",
                remedy="expect fewer bad sites, take more sites into a round, or choose another aggregator",
            )
