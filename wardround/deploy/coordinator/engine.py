"""The deployed engine: the same seam as the simulation, over real sites. It asks; each site answers for itself.

How sites are asked and waited for is in `gather.py`; what a question holds in `protocol/requests.py`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround.core import trees
from wardround.core.chain import ChosenWay, chain, choices_in, choices_told, tailored
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Algorithm, Message, Params, Progress, Query, Report, RoundRecord, Task, Transform
from wardround.core.errors import Refusal
from wardround.core.quality import Quality, quality_of
from wardround.deploy.coordinator.answer_bounds import (
    RowLimits,
    Rows,
    bounded,
    combine_answers_of,
    implausible_losses,
    loss_problem,
    query_check,
    weight_problem,
)
from wardround.deploy.coordinator.events import SiteJoined
from wardround.deploy.coordinator.gather import Absences, Check, GatheredAnswers, Gatherer, accept_any
from wardround.deploy.coordinator.secure_round import sum_answers
from wardround.deploy.coordinator.two_servers.round import choose_and_sum
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import Absence, Reply, answer_problem, number_problem
from wardround.deploy.protocol.reply_form import largest_reply
from wardround.deploy.protocol.requests import (
    AboutModel,
    AskQuery,
    BeginTraining,
    PrepareRows,
    RequestBody,
    Topic,
    TrainRound,
)
from wardround.deploy.protocol.robust_choice import RobustRule
from wardround.deploy.protocol.status import Status
from wardround.deploy.trust.audit_log import BETWEEN
from wardround.deploy.trust.transcript.entries import TranscriptSigner
from wardround.deploy.trust.transcript.writer import TranscriptWriter
from wardround.engine.checks import refuse_over_network, refuse_unseen
from wardround.engine.split_round import (
    answer_shapes,
    arrived_answer,
    combined_answer,
    conclude_round,
    initial_progress,
    kind_at,
    message_of_round,
    row_of,
)
from wardround.privacy.secure_sum.fixed_point import from_ring

UNKNOWN = Task((0,))


@dataclass
class Deployment:
    """Fulfils the Engine contract for the sites that `gatherer` asks; a site's number is its place in `sites`."""

    sites: tuple[str, ...]
    gatherer: Gatherer
    seed: int
    transforms: tuple[Transform, ...] = ()
    task: Task = UNKNOWN
    """What is predicted from what; known when the sites have agreed."""
    members: set[str] | None = None
    """Those who were there when schema and preparation were agreed on; none says all."""
    introductions: Sequence[RequestBody] = ()
    """What a newcomer is asked before its first round: the offer, the schema, the preparation."""
    sums: Path | None = None
    """Where a secure sum that is about to be opened is written down."""
    second: str | None = None
    """The second server, for two servers."""
    rule: RobustRule | None = None
    """How both servers choose."""
    joined: dict[str, Rows] = field(default_factory=dict)
    """Newcomers, and their rows."""
    limits: RowLimits = field(default_factory=RowLimits)
    """What no site may go beyond: the rows that it told."""
    noised: bool = False
    """Whether sites add noise to what they tell, which may then lie outside of its range."""
    watches: str | None = None
    """The site by whose validation loss training is stopped, if by one."""
    signer: TranscriptSigner | None = None
    """Who signs the transcript; without, none is kept."""
    transcript: TranscriptWriter | None = None
    """Where every round of the training is written down for the sites."""
    _begun: dict[Algorithm, set[str]] = field(default_factory=dict)
    _first: dict[Algorithm, Params] = field(default_factory=dict)
    _shapes: dict[Any, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_over_network(self.transform, len(self.sites), self.second)

    @property
    def transform(self) -> Transform:
        return chain(self.transforms)

    # ---- the engine's contract ----

    def begin(self, algorithm: Algorithm, params: Params) -> Progress:
        refuse_pooled(algorithm)
        refuse_unseen(self.transform, algorithm)
        policy = self.gatherer.policy
        if max(policy.quorum, 1) < algorithm.aggregator.fewest <= len(self.sites):
            policy.quorum = algorithm.aggregator.fewest
        self._first[algorithm], self._begun[algorithm] = jax.device_get(params), set()
        self._first[tailored(algorithm, self.transform)] = self._first[algorithm]
        return initial_progress(algorithm, self.transform, params, len(self.sites), row_of(self.task))

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

    def judge(self, algorithm: Algorithm, progress: Progress, part: str) -> Quality:
        """Sums of losses, from every site that is there: predictions and labels stay where they are."""

        def check(reply: Reply) -> str | None:
            return loss_problem(reply, self.limits, part, regression=self.task.regression, noised=self.noised)

        answers, absent = self.gather_about_model("judge", algorithm, progress, part=part, check=check)
        if self.transcript is not None:
            self.transcript.add_losses(model_arrays(algorithm, progress), hashes_of(answers))
        arrays = {site: answers[site].message.arrays for site in self.sites if site in answers}
        told = {site: (float(one["loss"]), int(one["rows"]), int(one["right"])) for site, one in arrays.items()}
        left_out = {site: str(why) for site, why in absent.items() if why.unusable}
        finite = {site: sums for site, sums in told.items() if np.isfinite(sums[0])}
        if any(rows for _, rows, _ in finite.values()):  # else it is the model that has diverged
            left_out |= {site: "its loss is not a finite number" for site in told if site not in finite}
            told = finite
        if self.watches in left_out:
            raise Refusal(
                f"early stopping watches the validation loss of {self.watches}, which cannot be used: "
                f"{left_out[self.watches]}",
                where=f"site {self.watches}",
                remedy="check the rows and the version of wardround there, or stop by the loss of all sites",
            )
        quality = quality_of(told, classes=self.task.classification)
        odd = implausible_losses(quality) if algorithm.personal is None and not self.noised else {}
        return replace(quality, left_out=left_out, implausible=odd)

    def ask(self, query: Query, message: Message) -> Report:
        return self.query(query, message, on="training")

    # ---- questions to all sites ----

    def query(self, query: Query, message: Message, *, on: str) -> Report:
        """Put a question to every site; all of them must answer, since preparation is the same for all."""
        check = query_check(query, message, noised=self.noised)
        answers = self.ask_members(AskQuery(to_json(recipe_of(query)), on), message, check)
        return combine_answers_of(query, {site: one.message for site, one in answers.items()}, self.sites)

    def ask_members(
        self, question: RequestBody, message: Message | None = None, check: Check = accept_any
    ) -> dict[str, Reply]:
        """The answers of all members, however long it takes."""
        members = self.sites if self.members is None else sorted(self.members)
        return self.gatherer.ask_everyone(members, question, message or Message({}), check)

    def ask_about_model(
        self,
        topic: str,
        algorithm: Algorithm,
        progress: Progress,
        *,
        part: str = "test",
        number: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> dict[str, Reply]:
        """Ask every site something about the model as it is now; the quorum must answer, as in a round."""
        return self.gather_about_model(topic, algorithm, progress, part=part, number=number, more=more).answers

    def gather_about_model(
        self,
        topic: str,
        algorithm: Algorithm,
        progress: Progress,
        *,
        part: str = "test",
        number: int | None = None,
        more: Mapping[str, Any] | None = None,
        check: Check = accept_any,
    ) -> GatheredAnswers:
        """The same with the reasons why others gave none; who answers nonsense is left out, and not waited for."""
        arrays = {**model_arrays(algorithm, progress), **(more or {})}
        question = AboutModel(self.method(algorithm), Topic(topic), part)
        return self.gatherer.ask_quorum(
            self.sites,
            question,
            Message(arrays),
            BETWEEN if number is None else number,
            get_ready=lambda sites: self.begin_at(algorithm, sites),
            check=check,
            leaves_out=True,
        )

    def method(self, algorithm: Algorithm) -> TrainRound:
        transforms = [to_json(recipe_of(one)) for one in self.transforms]
        return TrainRound(to_json(recipe_of(algorithm)), transforms, self.seed)

    # ---- newcomers ----

    def begin_at(self, algorithm: Algorithm, sites: Sequence[str]) -> Absences:
        """Tell those who were not told the model before the first round, newcomers too; gives who is not ready."""
        new = [site for site in sites if site not in self._begun[algorithm]]
        unready = self._introduce(new)
        new = [site for site in new if site not in unready]
        if new:
            question = BeginTraining(to_json(recipe_of(algorithm)))
            done, absent = self.gatherer.ask_once(new, question, Message({"first": self._first[algorithm]}))
            self._begun[algorithm] |= set(done)
            unready |= absent
        return unready

    def _introduce(self, sites: Sequence[str]) -> Absences:
        """Let newcomers approve, settle and prepare as the others did; gives who could not, and why."""
        new = [site for site in sites if self.members is not None and site not in self.members]
        unready: Absences = {}
        for question in self.introductions if new else ():
            told, absent = self.gatherer.ask_once(new, question)
            unready |= absent
            new = [site for site in new if site in told]
            if isinstance(question, PrepareRows):
                for site in new:
                    self.joined[site] = self.limits.learn(told[site])
                    self.gatherer.observer(SiteJoined(site, self.joined[site][0]))
        if self.members is not None:
            self.members |= set(new)
        return unready

    # ---- a round ----

    def _round(
        self, algorithm: Algorithm, progress: Progress, number: int, cohort: list[str]
    ) -> tuple[Progress, RoundRecord]:
        started, cpu = time.perf_counter(), time.process_time()
        way = tailored(algorithm, self.transform)
        sent = message_of_round(way, self.transform, progress, seed=self.seed, number=number)
        places = {site: index for index, site in enumerate(self.sites)}
        each = self._site_messages(way, progress, number, [places[site] for site in cohort])
        shapes = self._answer_shapes(algorithm, progress, sent)
        own: dict[str, Message] = {}
        point("coordinator.round.before_asking")
        total: Message | None
        if self.transform.sum_only:
            found = sum_answers(self, algorithm, cohort, number, sent, shapes)
            sizes, absent, hashes = found.bytes_up, found.absent, found.commitments
            total = from_ring(found.total, shapes)
            after = conclude_round(algorithm, self.transform, progress, total)
        elif self.transform.products_only:
            chosen = choose_and_sum(self, algorithm, progress, cohort, number, sent, shapes)
            after, sizes, absent, hashes, total = chosen
        else:
            own = {
                site: self._answer_shapes(way, progress, message, kind_at(way, places[site]))
                for site, message in each.items()
            }
            answers, absent = self.gatherer.ask_quorum(
                cohort,
                self.method(algorithm),
                each.__getitem__ if each else sent,
                number,
                get_ready=lambda sites: self.begin_at(algorithm, sites),
                check=bounded(
                    lambda reply: answer_problem(reply, own.get(str(reply.header.get("site")), shapes)),
                    lambda reply: weight_problem(reply, algorithm, self.limits),
                    lambda reply: self._code_problem(way, progress, number, reply),
                ),
                most=max(largest_reply(Topic.ROUND, sizes_of(one)) for one in (own.values() or [shapes])),
            )
            point("coordinator.round.all_answered")
            sizes = {site: trees.nbytes(one.message) for site, one in answers.items()}
            given = {places[site]: one.message for site, one in answers.items()}
            total = combined_answer(
                *(way, self.transform, progress, given, len(cohort), len(self.sites)),
                seed=self.seed,
                number=number,
            )
            hashes = hashes_of(answers)
            after = conclude_round(algorithm, self.transform, progress, total)
        jax.block_until_ready(after)  # else its time would be counted to whoever looks at it first
        if self.transcript is not None:
            left_out = {site: public_words(absent[site]) for site in cohort if site not in hashes}
            parts = {site: message.arrays for site, message in each.items()}
            self.transcript.add_round(number, sent.arrays, cohort, hashes, left_out, total, after, parts)
        point("coordinator.round.concluded")
        took = sorted(sizes, key=lambda site: places[site])
        traffic = self.gatherer.traffic.take()
        return after, RoundRecord(
            round=number,
            sites=tuple(took),
            count=len(took),
            rows=0,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu,
            bytes_down=traffic.down,
            bytes_up=traffic.up,
            measures={
                **({"compression": choices} if (choices := choices_of(each, own) or choices_in(sent, shapes)) else {}),
                **measures_of({site: absent[site] for site in cohort if site not in sizes}),
                **({"line_bytes": traffic.line} if traffic.line else {}),
                "arrays": {
                    "bytes_down": sum(trees.nbytes(each.get(site, sent)) for site in took),
                    "bytes_up": sum(sizes.values()),
                },
            },
        )

    def _code_problem(self, algorithm: Algorithm, progress: Progress, number: int, reply: Reply) -> str | None:
        """Why an answer that came in a code cannot be used: a code of small numbers may stand for huge ones."""
        if not self.transform.coded:
            return None
        site = list(self.sites).index(str(reply.header.get("site")))
        given = (algorithm, self.transform, progress, reply.message, site)
        return number_problem(arrived_answer(*given, seed=self.seed, number=number))

    def _site_messages(
        self, algorithm: Algorithm, progress: Progress, number: int, cohort: Sequence[int]
    ) -> dict[str, Message]:
        """What each of these sites is sent; nothing where all are sent the same."""
        if algorithm.tailoring is None:
            return {}
        given = (algorithm, self.transform, progress)
        return {self.sites[site]: message_of_round(*given, seed=self.seed, number=number, site=site) for site in cohort}

    def _answer_shapes(self, algorithm: Algorithm, progress: Progress, sent: Message, kind: int = 0) -> Message:
        leaves, structure = jax.tree.flatten(sent)
        known = (algorithm, kind, structure, tuple((np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves))
        if known not in self._shapes:
            kept = algorithm.init_client(self._first[algorithm])
            made = answer_shapes(algorithm, progress.server, kept, row_of(self.task), kind)
            key = jax.random.key(0)
            self._shapes[known] = jax.eval_shape(lambda sent, made: self.transform.up(sent, made, key), sent, made)
        return self._shapes[known]


def choices_of(sent: Mapping[str, Message], shapes: Mapping[str, Message]) -> dict[str, Any]:
    """What was chosen for each site's line, where every site is sent a message of its own."""
    return choices_told([ChosenWay(choices_in(one, shapes[site]), 1, [site]) for site, one in sent.items() if shapes])


def refuse_pooled(algorithm: Algorithm) -> None:
    if algorithm.pools:
        raise Refusal("this algorithm pools all rows in one place", remedy="use it in simulation only, for comparison")


def sizes_of(shapes: Message) -> list[int]:
    """How many bytes the arrays of such an answer have."""
    return [int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)]


def measures_of(absent: Absences) -> dict[str, Any]:
    """Who took no part in a round and why; apart, whose privacy budget was spent."""
    spent = {site: one.why for site, one in absent.items() if one.status is Status.SPENT}
    found = {"absent": {site: str(one) for site, one in absent.items()}, "spent": spent}
    return {key: reasons for key, reasons in found.items() if reasons}


def model_arrays(algorithm: Algorithm, progress: Progress) -> dict[str, Any]:
    """The model as it is now, as sites are told it."""
    return {
        "sent": jax.device_get(algorithm.broadcast(progress.server)).arrays,
        "params": jax.device_get(algorithm.params(progress.server)),
    }


def hashes_of(answers: Mapping[str, Reply]) -> dict[str, str]:
    return {site: one.sha256 for site, one in sorted(answers.items())}


def public_words(absence: Absence) -> str:
    """Why a site took no part, for the other sites: not in its own words, which were for the coordinator."""
    return absence.why if absence.status is None else str(absence.status)
