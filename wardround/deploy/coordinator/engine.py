"""The deployed engine: the same seam as the simulation, over real sites. It asks; each site answers for itself.

A round waits for every site of its cohort until a deadline. Sites that went away, are late or answer nonsense are left
out of the round and named with the reason; with fewer answers than the quorum the round waits for sites to come back.
Asking twice costs nothing: a site gives the same bytes for the same request.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround import __version__
from wardround.core.contracts import Algorithm, Message, Params, Progress, Query, Report, RoundRecord, Task, Transform
from wardround.core.errors import Refusal
from wardround.core.recipes import recipe_of, to_json
from wardround.deploy.coordinator.gather import Patience
from wardround.deploy.coordinator.secure_round import summed
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import Answer, Judged, misfit, spoilt
from wardround.deploy.protocol.wire import PROTOCOL, Malformed, decode, digest, encode, size
from wardround.deploy.site.study_worker import chained
from wardround.deploy.trust.audit_log import BETWEEN
from wardround.engine.checks import refuse_over_network, refuse_unseen
from wardround.engine.split_round import (
    answer_shapes,
    combine_answers,
    concluding_program,
    initial_progress,
    message_of_round,
)
from wardround.privacy.secure_sum.fixed_point import from_ring

PAUSE = 0.2
"""Seconds between two looks at who has come back."""
MOST_AT_ONCE = 64
"""Sites that are waited for at the same time."""
LONGEST_PAUSE = 5.0
"""Seconds, at most, until sites that are there but cannot answer yet are asked again."""
Ask = Callable[[str, str, bytes, float], bytes]
"""(site, topic, request, seconds) to the answer; raises an exception with the reason when there is none."""


@dataclass
class Deployment:
    """Fulfils the Engine contract for sites that answer through `ask`. `told` hears of everything worth knowing."""

    study: str
    sites: tuple[str, ...]
    task: Task
    ask_site: Ask
    seed: int
    patience: Patience
    transforms: tuple[Transform, ...] = ()
    present: Callable[[], frozenset[str]] = frozenset
    told: Callable[[str, Mapping[str, Any]], None] = lambda word, facts: None
    stopped: threading.Event = field(default_factory=threading.Event)
    revoked: Callable[[], Mapping[str, str]] = dict
    gone: dict[str, str] = field(default_factory=dict)
    """Sites that left for good (withdrew, were revoked), and why: nobody waits for them any more."""
    spent: dict[str, str] = field(default_factory=dict)
    """Sites without privacy budget for another round, and in whose words: they are still told the model."""
    members: set[str] | None = None
    """Those who were there when schema and preparation were agreed on; none says all."""
    introductions: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """What a newcomer is told before its first round: the offer, the schema, the preparation."""
    certificates: Callable[[], Mapping[str, str]] = dict
    """The sites' certificates in PEM: for a secure sum, in which sites check each other."""
    announce: Callable[[str, Mapping[str, bytes]], None] = lambda topic, bodies: None
    """Hears the topic, and what is about to be sent to whom, before it is."""
    kept: Path | None = None
    """Where a secure sum that is about to be opened is written down."""
    joined: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Newcomers, and their rows for training, validation and test."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further words of every request: which course it belongs to, while partners are chosen."""
    _begun: dict[Algorithm, set[str]] = field(default_factory=dict)
    _first: dict[Algorithm, Params] = field(default_factory=dict)
    _shapes: dict[Any, Message] = field(default_factory=dict)
    _asking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_AT_ONCE))

    def __post_init__(self) -> None:
        refuse_over_network(self.transform, len(self.sites))

    @property
    def transform(self) -> Transform:
        return chained(self.transforms)

    @property
    def row(self) -> tuple[Any, Any]:
        label = np.float32 if self.task.regression else np.int32
        return jax.ShapeDtypeStruct(self.task.shape, np.float32), jax.ShapeDtypeStruct((), label)

    # ---- the engine's contract ----

    def begin(self, algorithm: Algorithm, params: Params) -> Progress:
        if algorithm.pools:
            raise Refusal(
                "this algorithm puts all rows in one place", remedy="use it in simulation only, for comparison"
            )
        refuse_unseen(self.transform, algorithm.aggregator)
        if max(self.patience.quorum, 1) < algorithm.aggregator.fewest <= len(self.sites):
            self.patience.quorum = algorithm.aggregator.fewest
        self._first[algorithm], self._begun[algorithm] = jax.device_get(params), set()
        return initial_progress(algorithm, self.transform, params, len(self.sites), self.row)

    def train(
        self, algorithm: Algorithm, progress: Progress, rounds: Sequence[tuple[int, np.ndarray[Any, Any]]]
    ) -> tuple[Progress, list[RoundRecord]]:
        records = []
        for number, cohort in rounds:
            if number > 1:
                point("coordinator.checkpoint.saved")
            progress, record = self._round(algorithm, progress, number, [self.sites[int(site)] for site in cohort])
            records.append(record)
        return progress, records

    def evaluate(self, algorithm: Algorithm, progress: Progress, part: str) -> Any:
        """Sums of losses, from every site that is there: predictions and labels stay where they are."""
        answers = self.about_model("judge", algorithm, progress, part=part)
        rows = {site: int(one.message.arrays["rows"]) for site, one in answers.items()}
        told = {site: one.message.arrays for site, one in answers.items() if rows[site]}
        return Judged(
            {site: float(arrays["loss"]) for site, arrays in told.items()},
            {site: rows[site] for site in told},
            {site: int(arrays["right"]) for site, arrays in told.items()},
        )

    def ask(self, query: Query, message: Message) -> Report:
        return self.query(query, message, on="training")

    # ---- what lies beneath ----

    def query(self, query: Query, message: Message, *, on: str) -> Report:
        """Put a question to every site; all of them must answer, since preparation is the same for all."""
        answers = self.everyone("query", {"query": to_json(recipe_of(query)), "on": on}, message)
        return query.combine([answers[site].message for site in self.sites if site in answers])

    def everyone(self, topic: str, words: Mapping[str, Any], message: Message) -> dict[str, Answer]:
        """Ask all sites and wait, however long it takes, until each has answered."""
        missing, answers = set(self.sites if self.members is None else self.members), {}
        pause = 0.0
        while missing:
            self.gone.update(self.revoked())
            for site, why in self.gone.items():
                if site in missing:
                    raise Refusal(f"the site has left the study: {why}", where=f"site {site}", remedy="offer it anew")
            pause = self._rest(pause)
            self._wait_for(sorted(missing), 1)
            got, refusals = self._gather(sorted(missing), topic, words, message, 0)
            for site, why in refusals.items():
                if why.startswith("refused: "):
                    raise Refusal(why.removeprefix("refused: "), where=f"site {site}")
            if refusals:
                self.told("missing", {"missing": refusals})
            answers.update(got)
            missing -= set(got)
        return answers

    def about_model(
        self, topic: str, algorithm: Algorithm, progress: Progress, *, part: str = "test", number: int | None = None
    ) -> dict[str, Answer]:
        """Ask every site something about the model as it is now; the quorum must answer, as in a round."""
        arrays = {
            "sent": jax.device_get(algorithm.broadcast(progress.server)).arrays,
            "params": jax.device_get(algorithm.params(progress.server)),
        }
        words = {**self.method(algorithm), "part": part}
        asked = BETWEEN if number is None else number
        return self._quorum(algorithm, self.sites, topic, words, Message(arrays), asked)[0]

    def method(self, algorithm: Algorithm) -> dict[str, Any]:
        return {
            "algorithm": to_json(recipe_of(algorithm)),
            "transforms": [to_json(recipe_of(one)) for one in self.transforms],
            "seed": self.seed,
        }

    def _begin_at(self, algorithm: Algorithm, sites: Sequence[str]) -> dict[str, str]:
        """Tell those who were not told the model before the first round, newcomers too; gives who is not ready."""
        new = [site for site in sites if site not in self._begun[algorithm]]
        unready = self._introduce(new)
        new = [site for site in new if site not in unready]
        if new:
            words = {"algorithm": to_json(recipe_of(algorithm))}
            done, why = self._gather(new, "begin", words, Message({"first": self._first[algorithm]}), 0)
            self._begun[algorithm] |= set(done)
            unready |= why
        return unready

    def _introduce(self, sites: Sequence[str]) -> dict[str, str]:
        """Let newcomers approve, settle and prepare as the others did; gives who could not, and why."""
        new = [site for site in sites if self.members is not None and site not in self.members]
        unready: dict[str, str] = {}
        for topic, words in self.introductions if new else ():
            told, why = self._gather(new, topic, words, Message({}), 0)
            unready |= why
            new = [site for site in new if site in told]
            if topic == "prepare":
                for site in new:
                    train, validation, test = (int(rows) for rows in np.asarray(told[site].message.arrays["rows"]))
                    self.joined[site] = (train, validation, test)
                    self.told("joined", {"site": site, "rows": train})
        if self.members is not None:
            self.members |= set(new)
        return unready

    def _round(
        self, algorithm: Algorithm, progress: Progress, number: int, cohort: list[str]
    ) -> tuple[Progress, RoundRecord]:
        started, cpu = time.perf_counter(), time.process_time()
        sent = message_of_round(algorithm, self.transform, progress, seed=self.seed, number=number)
        shapes = self._answer_shapes(algorithm, progress, sent)
        point("coordinator.round.before_asking")
        places = {site: index for index, site in enumerate(self.sites)}
        if self.transform.sum_only:
            found = summed(self, algorithm, cohort, number, sent, shapes)
            after, sizes, reasons = progress, found.bytes_up, found.reasons
            if found.total is not None:
                after = summed_up(algorithm, self.transform, progress, from_ring(found.total, shapes))
        else:
            answers, reasons = self._quorum(
                algorithm, cohort, "round", self.method(algorithm), sent, number, lambda answer: misfit(answer, shapes)
            )
            point("coordinator.round.all_answered")
            sizes = {site: one.size for site, one in answers.items()}
            given = {places[site]: one.message for site, one in answers.items()}
            after = combine_answers(algorithm, self.transform, progress, given, len(cohort), len(self.sites))
        jax.block_until_ready(after)  # else its time would be counted to whoever looks at it first
        point("coordinator.round.concluded")
        took = sorted(sizes, key=lambda site: places[site])
        absent = {site: reasons[site] for site in cohort if site not in sizes}
        return after, RoundRecord(
            round=number,
            sites=tuple(took),
            count=len(took),
            rows=0,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu,
            bytes_down=size({}, sent) * len(took),
            bytes_up=sum(sizes.values()),
            measures={"absent": absent} if absent else {},
        )

    def _quorum(
        self,
        algorithm: Algorithm,
        cohort: Sequence[str],
        topic: str,
        words: Mapping[str, Any],
        message: Message,
        number: int,
        wrong: Callable[[Answer], str | None] = lambda answer: None,
    ) -> tuple[dict[str, Answer], dict[str, str]]:
        """Ask until the quorum has answered; the answers, and for every other site the reason why there is none."""
        answers: dict[str, Answer] = {}
        reasons: dict[str, str] = {}
        bad: dict[str, str] = {}
        pause = 0.0
        while True:
            self.gone.update(self.revoked())
            left = {**self.gone, **(self.spent if topic == "round" else {})}
            staying = self.patience.staying(cohort, left, number)
            quorum = min(self.patience.quorum, len(staying))
            # The same question gets the same answer, so nobody who gave nonsense is asked again.
            missing = [site for site in staying if site not in answers and site not in bad]
            if len(answers) + len(missing) < quorum:
                raise spoilt(bad, number)
            if not missing or (pause and len(answers) >= quorum):
                break
            pause = self._rest(pause)
            self._wait_for(missing, quorum - len(answers))
            here = [site for site in missing if site in self.present()]
            unready = self._begin_at(algorithm, here)
            ready = [site for site in here if site not in unready]
            got, refused = self._gather(ready, topic, words, message, number, wrong)
            bad |= {site: one.wrong for site, one in got.items() if one.wrong is not None}
            answers.update({site: one for site, one in got.items() if site not in bad})
            away = {site: "it was not connected" for site in missing if site not in here}
            reasons = {**reasons, **away, **unready, **refused, **bad, **left, **self.gone}
            late = {site: why for site, why in reasons.items() if site not in answers}
            given = self.patience.deadline
            self.told(topic, {"round": number, "answered": sorted(answers), "missing": late, "seconds": given})
        return answers, reasons

    def _rest(self, before: float) -> float:
        """Wait a little longer each time before asking again, and not at all the first time; gives the next wait."""
        if before > PAUSE / 2 and self.stopped.wait(before - PAUSE / 2):
            raise KeyboardInterrupt
        return min(LONGEST_PAUSE, 2 * before) if before else PAUSE / 2

    def _answer_shapes(self, algorithm: Algorithm, progress: Progress, sent: Message) -> Message:
        leaves, structure = jax.tree.flatten(sent)
        known = (algorithm, structure, tuple((np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves))
        if known not in self._shapes:
            made = answer_shapes(algorithm, progress.server, algorithm.init_client(self._first[algorithm]), self.row)
            key = jax.random.key(0)
            self._shapes[known] = jax.eval_shape(lambda sent, made: self.transform.up(sent, made, key), sent, made)
        return self._shapes[known]

    def _wait_for(self, sites: Sequence[str], fewest: int) -> None:
        """Until so many of these are connected."""
        waiting = False
        while len(self.present() & set(sites)) < min(max(fewest, 1), len(sites)):
            if not self.revoked().keys().isdisjoint(sites):
                return
            if not waiting:
                waiting = True
                self.told("waiting", {"for": [site for site in sites if site not in self.present()], "fewest": fewest})
            if self.stopped.wait(PAUSE):
                raise KeyboardInterrupt

    def rest(self) -> None:
        """Wait a moment, unless we are to stop."""
        if self.stopped.wait(PAUSE):
            raise KeyboardInterrupt

    def _gather(
        self,
        sites: Sequence[str],
        topic: str,
        words: Mapping[str, Any] | Callable[[str], Mapping[str, Any]],
        message: Message,
        number: int,
        wrong: Callable[[Answer], str | None] = lambda answer: None,
    ) -> tuple[dict[str, Answer], dict[str, str]]:
        """The answers that came in time, and for every other site why there is none; `words` may differ by site."""
        if self.stopped.is_set():
            raise KeyboardInterrupt
        answers: dict[str, Answer] = {}
        reasons: dict[str, str] = {}
        if not sites:
            return answers, reasons
        if callable(words):
            bodies = {site: self._body(words(site), message, number) for site in sites}
        else:
            bodies = dict.fromkeys(sites, self._body(words, message, number))
        try:
            self.announce(topic, {site: body for site, (_, body) in bodies.items()})
        except Exception as error:  # what cannot be written down is not sent
            return answers, dict.fromkeys(sites, str(error))

        def one(site: str) -> None:
            started = time.monotonic()
            try:
                nonce, body = bodies[site]
                content = self.ask_site(site, topic, body, self.patience.deadline)
                told, answer = decode(content, copies=False)
            except Malformed as error:
                reasons[site] = f"its answer cannot be read: {error}"
                return
            except Exception as error:
                reasons[site] = str(error)
                return
            self.patience.took(time.monotonic() - started)
            bound = tuple(told.get(key) for key in ("study", "round", "site", "nonce"))
            # A request that could not even be read is refused without any of these.
            if bound != (self.study, number, site, nonce) and told.get("status") != "refused":
                reasons[site] = "its answer belongs to another request (a replay, or a copy)"
            elif told.get("status") in ("ok", "diverged"):
                found = Answer(told, answer, len(content))
                answers[site] = found._replace(wrong=wrong(found))  # here, while others are still on their way
                point("coordinator.round.one_answered")
            else:
                reasons[site] = f"{told.get('status')}: {told.get('why', '')}"
                if told.get("status") in ("withdrawn", "denied"):
                    self.gone[site] = reasons[site]
                elif told.get("status") == "spent":
                    self.spent[site] = reasons[site]

        asked = [self._asking.submit(one, site) for site in sites]
        wait(asked)
        for each in asked:
            each.result()
        return answers, reasons

    def _body(self, words: Mapping[str, Any], message: Message, number: int) -> tuple[str, bytes]:
        """A request as bytes, and its nonce."""
        own = {"protocol": PROTOCOL, "wardround": __version__, "study": self.study, "round": number}
        header = {**own, **self.more, **words}
        # The nonce is the same for the same question and for no other: asked again, a site must recognise it.
        nonce = digest(header, message)[:32]
        return nonce, encode({**header, "nonce": nonce}, message)


def summed_up(algorithm: Algorithm, transform: Transform, progress: Progress, total: Message) -> Progress:
    """The server's step from a sum of which nobody knows the parts."""
    after: Progress = concluding_program(algorithm, transform)(replace(progress, clients=()), total)
    return replace(after, clients=progress.clients)
