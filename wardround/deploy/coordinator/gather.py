"""Asks sites and gathers their answers: how long each is given, how many must answer, and why others did not.

A site that went away, is late or answers nonsense is left out with the reason; with fewer answers than the quorum one
waits for sites to come back. Asking twice costs nothing: a site gives the same bytes for the same request. So whoever
answered nonsense is not asked again. An answer has the form of its topic before it is used, so none can raise.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.coordinator.events import (
    AnswersGathered,
    AnswersMissing,
    Observer,
    SitesAwaited,
    SitesReturned,
    ignore,
)
from wardround.deploy.coordinator.studies.interruption import traffic_of
from wardround.deploy.coordinator.studies.traffic import StudyTraffic
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import Absence, Reply, is_reply_to, read_reply, too_few_usable
from wardround.deploy.protocol.reply_form import form_problem, largest_reply
from wardround.deploy.protocol.requests import NOTHING, Request, RequestBody, Topic, request_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed
from wardround.deploy.transport.contract import Transport
from wardround.deploy.transport.transfers.mail import Mail, TimedReply

PAUSE = 0.2
"""Seconds between two looks at who has come back."""
AT_WORK = 4
"""Answers that are looked at, at the same time."""
LONGEST_PAUSE = 5.0
"""Seconds, at most, until sites that are there but cannot answer yet are asked again."""
NOT_CONNECTED = Absence("it was not connected")
Check = Callable[[Reply], str | None]
"""Why an answer cannot be used; none if it can."""
RequestBodies = RequestBody | Callable[[str], RequestBody]
"""The same for all sites, or one for each."""
Messages = Message | Callable[[str], Message]
"""In the same way."""
Absences = dict[str, Absence]


def accept_any(reply: Reply) -> str | None:
    """Takes any answer that has the form of its topic."""
    return None


class GatheredAnswers(NamedTuple):
    """The answers that came, and for every other site why there is none."""

    answers: dict[str, Reply]
    absent: Absences


@dataclass
class WaitPolicy:
    """A site is given `floor` seconds, or `factor` times what the slowest usable answer took, whichever is longer.

    Never more than `most` times the floor: a site that answers as late as it may would else stretch every round, each
    time further. `quorum` sites must answer, or all that are left where they are fewer; with fewer than `fewest` left a
    study ends.
    """

    quorum: int
    floor: float = 60.0
    factor: float = 5.0
    most: float = 10.0
    fewest: int = 1
    _slowest: float = 0.0

    @property
    def deadline(self) -> float:
        return min(self.most * self.floor, max(self.floor, self.factor * self._slowest))

    def record(self, seconds: float) -> None:
        """A usable answer took so long."""
        self._slowest = max(0.8 * self._slowest, seconds)

    def require_remaining(self, cohort: Sequence[str], left: Mapping[str, Absence], number: int) -> list[str]:
        """Those of a round's sites who have not left for good; refused where they are too few to go on."""
        here = [site for site in cohort if site not in left]
        fewest = max(1, min(self.fewest, len(cohort)))
        if len(here) >= fewest:
            return here
        why = "; ".join(f"{site}: {left[site]}" for site in cohort if site in left)
        if fewest > 1:
            raise Refusal(
                f"only {len(here)} of the {fewest} sites that a round needs are left ({why})",
                where=f"round {number}",
                remedy="offer the study again to other sites, or with a smaller [deploy] quorum",
            )
        raise Refusal(
            f"no site is left in this study ({why})",
            where=f"round {number}",
            remedy='let each site train alone with [algorithm] name = "local", or offer the study again',
        )


@dataclass
class Gatherer:
    """Asks the sites of one study over a transport, and remembers who has left it."""

    study: str
    transport: Transport
    policy: WaitPolicy
    observer: Observer = ignore
    gone: Absences = field(default_factory=dict)
    """Sites that left for good (withdrew, were revoked): nobody waits for them any more."""
    spent: Absences = field(default_factory=dict)
    """Sites without privacy budget for another round: they are still told the model."""
    course: int | None = None
    """Which training all requests belong to, while partners are chosen."""
    _judges: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_WORK))
    _mail: Mail = field(init=False)
    traffic: StudyTraffic = field(init=False)

    def __post_init__(self) -> None:
        self.traffic = traffic_of(self.transport)
        self._mail = Mail(self.transport)

    def ask_once(
        self,
        sites: Sequence[str],
        questions: RequestBodies,
        message: Messages = NOTHING,
        number: int = 0,
        check: Check = accept_any,
        most: int | None = None,
    ) -> GatheredAnswers:
        """Ask these sites at the same time; returns when each has answered or has used up its time.

        What has not the form of its topic, does not pass `check` or has more than `most` bytes is no answer.
        """
        if self.transport.stopped.is_set():
            raise KeyboardInterrupt
        gathered = GatheredAnswers({}, {})
        if not sites:
            return gathered
        topic, requests = self._requests(sites, questions, message, number)
        room = largest_reply(topic) if most is None else most
        try:
            told = self.transport.announce(topic, {site: one.body for site, one in requests.items()})
            self.traffic.add(down=told)
        except Exception as error:  # what cannot be written down is not sent
            return GatheredAnswers({}, dict.fromkeys(sites, Absence(str(error))))

        def judge(site: str, answer: Future[TimedReply]) -> None:
            try:
                content, took, moved = answer.result()
                self.traffic.add(line=moved)
                reply = read_reply(content, most=room)
            except Malformed as error:
                gathered.absent[site] = Absence(f"its answer cannot be read: {error}", unusable=True)
                return
            except Exception as error:
                gathered.absent[site] = Absence(plain_line(error, LONGEST))
                return
            if not is_reply_to(reply, requests[site], site):
                why = "its answer belongs to another request (a replay or a copy)"
                gathered.absent[site] = Absence(why, unusable=True)
            elif reply.status.is_answer:
                if topic is not Topic.OFFER:
                    self.traffic.count_answer(site, topic, reply)
                wrong = problem_of(topic, reply, check)  # while others are still on their way
                if wrong is None:
                    self.policy.record(took)
                    gathered.answers[site] = reply
                    point("coordinator.round.one_answered")
                else:
                    told = reply.status if reply.status is Status.DIVERGED else None
                    gathered.absent[site] = Absence(wrong, told, unusable=True)
            else:
                gathered.absent[site] = absence = Absence(reply.why, reply.status)
                if reply.status.is_departure:
                    self.gone[site] = absence
                elif reply.status is Status.SPENT:
                    self.spent[site] = absence

        bodies = {site: requests[site].body for site in sites}
        asked = self._mail.ask_all(topic, bodies, lambda: self.policy.deadline, room)
        judged = [self._judges.submit(judge, site, answer) for site, answer in asked]
        for one in judged:
            one.result()
        return gathered

    def _requests(
        self, sites: Sequence[str], questions: RequestBodies, message: Messages, number: int
    ) -> tuple[Topic, dict[str, Request]]:
        """What each site is asked: made once where all are asked the same."""
        if isinstance(questions, RequestBody) and isinstance(message, Message):
            return questions.topic, dict.fromkeys(sites, self._request(questions, message, number))
        each = {site: questions if isinstance(questions, RequestBody) else questions(site) for site in sites}
        own = {site: message if isinstance(message, Message) else message(site) for site in sites}
        return each[sites[0]].topic, {site: self._request(one, own[site], number) for site, one in each.items()}

    def _request(self, question: RequestBody, message: Message, number: int) -> Request:
        return request_of(question, message, study=self.study, number=number, course=self.course)

    def ask_everyone(
        self,
        sites: Sequence[str],
        question: RequestBody,
        message: Message = NOTHING,
        check: Check = accept_any,
        *,
        number: int = 0,
        most: int | None = None,
    ) -> dict[str, Reply]:
        """Ask these sites and wait, however long it takes, until each has answered; nonsense of one ends the study."""
        missing, answers = set(sites), {}
        pause = 0.0
        while missing:
            for site, why in self.departed_sites().items():
                if site in missing:
                    raise Refusal(
                        f"the site has left the study: {why}", where=f"site {site}", remedy="offer the study again"
                    )
            pause = self.pause_before_asking_again(pause)
            self.wait_for(sorted(missing), 1)
            got, absent = self.ask_once(sorted(missing), question, message, number, check, most)
            nonsense = {site: absence for site, absence in absent.items() if absence.unusable}
            if nonsense:
                raise too_few_usable(nonsense, 0, question.topic)
            for site, absence in absent.items():
                if absence.status is Status.REFUSED:
                    raise Refusal(absence.why, where=f"site {site}")
            if absent:
                self.observer(AnswersMissing(reasons_of(absent)))
            answers.update(got)
            missing -= set(got)
        return answers

    def ask_quorum(
        self,
        cohort: Sequence[str],
        question: RequestBody,
        message: Messages,
        number: int,
        *,
        get_ready: Callable[[Sequence[str]], Absences],
        check: Check = accept_any,
        most: int | None = None,
        leaves_out: bool = False,
    ) -> GatheredAnswers:
        """Ask until the quorum has answered; `get_ready` begins with newcomers, and gives who could not.

        With `leaves_out` a site that answers nonsense is not counted among those who must answer, unless all do.
        """
        answers: dict[str, Reply] = {}
        reasons: Absences = {}
        bad: Absences = {}
        refused: dict[str, float] = {}
        pause = 0.0
        while True:
            left = {**self.departed_sites(), **(self.spent if question.topic is Topic.ROUND else {})}
            staying = self.policy.require_remaining(cohort, left, number)
            usable = [site for site in staying if site not in bad]
            quorum = min(self.policy.quorum, max(1, len(usable)) if leaves_out else len(staying))
            # The same question gets the same answer, so nobody who gave nonsense is asked again.
            missing = [site for site in usable if site not in answers]
            if len(answers) + len(missing) < quorum:
                raise too_few_usable(bad, number, question.topic)
            if not missing or (pause and len(answers) >= quorum):
                break
            pause = self.pause_before_asking_again(pause)
            self.wait_for(missing, quorum - len(answers))
            here = [site for site in missing if site in self.transport.present()]
            unready = get_ready(here)
            ready = [site for site in here if site not in unready]
            got, absent = self.ask_once(ready, question, message, number, check, most)
            answers.update(got)
            away = {site: NOT_CONNECTED for site in missing if site not in here}
            bad |= {site: one for site, one in {**unready, **absent}.items() if one.unusable}
            bad |= self._for_good({**unready, **absent}, refused)
            reasons = {**reasons, **away, **unready, **absent, **left, **self.gone}
            late = reasons_of({site: why for site, why in reasons.items() if site not in answers})
            answered = tuple(sorted(answers))
            self.observer(AnswersGathered(question.topic, number, answered, late, self.policy.deadline))
        return GatheredAnswers(answers, reasons)

    def _for_good(self, absent: Absences, since: dict[str, float]) -> Absences:
        """Who has refused for as long as a site is given to answer: asked again it would say the same."""
        now = time.monotonic()
        refusing = {site: one for site, one in absent.items() if one.status is Status.REFUSED}
        return {site: one for site, one in refusing.items() if now - since.setdefault(site, now) > self.policy.deadline}

    # ---- waiting ----

    def departed_sites(self) -> Absences:
        """Sites that left the study for good, up to this moment."""
        self.gone.update({site: Absence(why) for site, why in self.transport.revoked().items()})
        return self.gone

    def wait_for(self, sites: Sequence[str], fewest: int) -> None:
        """Until so many of these are connected."""
        told = False
        while len(self.transport.present() & set(sites)) < min(max(fewest, 1), len(sites)):
            if not self.transport.revoked().keys().isdisjoint(sites):
                return
            if not told:
                told = True
                here = self.transport.present()
                self.observer(SitesAwaited(tuple(site for site in sites if site not in here), fewest))
            self.rest()
        if told:
            self.observer(SitesReturned())

    def pause_before_asking_again(self, before: float) -> float:
        """Wait a little longer each time, and not at all the first time; gives the next wait."""
        if before > PAUSE / 2:
            self.rest(before - PAUSE / 2)
        return min(LONGEST_PAUSE, 2 * before) if before else PAUSE / 2

    def rest(self, seconds: float = PAUSE) -> None:
        """Wait a moment, unless we are to stop."""
        if self.transport.stopped.wait(seconds):
            raise KeyboardInterrupt


def problem_of(topic: Topic, reply: Reply, check: Check) -> str | None:
    """Why an answer cannot be used; whatever it makes our own checks raise is the answer's fault."""
    try:
        return form_problem(topic, reply) or check(reply)
    except Exception as error:
        return f"its answer does not make sense ({type(error).__name__})"


def reasons_of(absent: Mapping[str, Absence]) -> dict[str, str]:
    return {site: str(absence) for site, absence in absent.items()}
