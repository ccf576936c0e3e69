"""Puts a study before its sites, and knows who approved it, who will not take part, and whom it still waits for.

A site that denies the study, or refuses it, is left out as long as enough others are left; what one site says changes
nothing at another. An offer is written down once for each site, however often its decision is looked for.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from wardround.core.errors import Refusal
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.coordinator.events import ApprovalPending, Observer, SitesAwaited
from wardround.deploy.coordinator.gather import Gatherer, WaitPolicy, problem_of, reasons_of
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.coordinator.studies.traffic import StudyTraffic
from wardround.deploy.protocol.replies import Absence, Reply, is_reply_to, read_reply, too_few_usable
from wardround.deploy.protocol.reply_form import largest_reply
from wardround.deploy.protocol.requests import NOTHING, Topic, request_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed
from wardround.deploy.transport.contract import Transport, ask_at_most
from wardround.deploy.transport.transfers.mail import MOST_AT_ONCE

PAUSE = 0.5
"""Seconds until a decision is looked for again, at first."""
LONGEST_PAUSE = 5.0
FINAL = (Status.DENIED, Status.WITHDRAWN, Status.REFUSED)
"""What leaves a site out when it says it to the offer."""
NOT_OFFERED = "it is not connected, and was not offered the study yet"


@dataclass
class Standing:
    """How a study stands with all who are asked to approve it."""

    submission: Submission
    policy: WaitPolicy
    clock: Callable[[], float] = time.monotonic
    approved: set[str] = field(default_factory=set)
    left_out: dict[str, Absence] = field(default_factory=dict)
    """Who said no, and why."""
    nonsense: dict[str, Absence] = field(default_factory=dict)
    """Who said what cannot be understood: asked again it would say the same."""
    pending: dict[str, str] = field(default_factory=dict)
    """Why the others have not decided yet, in words."""
    offered: set[str] = field(default_factory=set)
    """Whom this process sent the offer."""
    _enough_since: float | None = None

    def __post_init__(self) -> None:
        self.pending = dict.fromkeys(self.submission.parties, NOT_OFFERED)

    def take(self, site: str, absence: Absence | None) -> None:
        """A site's answer to the offer: none for a yes."""
        self.approved.discard(site)
        self.left_out.pop(site, None)
        self.pending.pop(site, None)
        if absence is None:
            self.approved.add(site)
        elif absence.unusable:
            self.nonsense[site] = absence
        elif absence.status in FINAL:
            self.left_out[site] = absence
        else:
            self.pending[site] = str(absence)

    def drop(self, gone: Mapping[str, str]) -> None:
        """These were shut out of the consortium."""
        for site in gone.keys() & {*self.pending, *self.approved}:
            self.take(site, Absence(gone[site], Status.REFUSED))

    def require(self) -> None:
        """Refuse to go on where too many said no, or somebody nothing that can be understood."""
        if self.nonsense:
            raise too_few_usable(self.nonsense, 0, Topic.OFFER)
        second, sites = self.submission.study.deploy.second, self.submission.sites
        if second is not None and second in self.left_out:
            raise Refusal(
                f"the study is {self.left_out[second]}",
                where=f"second server {second}",
                remedy="amend the study with `wardround coordinator amend`, or name another second server",
            )
        out = sorted(set(sites) & self.left_out.keys())
        needed = max(self.policy.quorum, self.policy.fewest)
        if len(sites) - len(out) < needed:
            names = " ".join(f"--without {site}" for site in out)
            told = "; ".join(f"site {site}: {self.left_out[site]}" for site in out)
            raise Refusal(
                f"{needed} of {len(sites)} sites must take part, and {len(out)} will not ({told})",
                where=self.submission.id,
                remedy=f"amend it with `wardround coordinator amend {self.submission.id} {names}`: who approved it and"
                " whom the change does not concern is not asked again",
            )

    def is_settled(self) -> bool:
        """Whether it can begin: everybody decided, or the quorum did and the others had their time."""
        second, policy = self.submission.study.deploy.second, self.policy
        waiting = set(self.submission.sites) & self.pending.keys()
        count = len(self.approved & set(self.submission.sites))
        if count < max(policy.quorum, policy.fewest) or (second is not None and second not in self.approved):
            self._enough_since = None
            return False
        now = self.clock()
        self._enough_since = now if self._enough_since is None else self._enough_since
        return not waiting or now - self._enough_since > self.submission.study.deploy.deadline


def ask_offer(
    transport: Transport, traffic: StudyTraffic, standing: Standing, site: str, within: float
) -> Absence | None:
    """What a site says to the offer: none for a yes. It is in the log before it is sent for the first time."""
    asked = request_of(standing.submission.offer_to(site), NOTHING, study=standing.submission.id, number=0)
    room = largest_reply(Topic.OFFER)
    try:
        if site not in standing.offered:
            traffic.add(down=transport.announce(Topic.OFFER, {site: asked.body}))
            traffic.save()
            standing.offered.add(site)
        reply = read_reply(ask_at_most(transport, site, Topic.OFFER, asked.body, within, room), most=room)
    except Malformed as error:
        return Absence(f"its answer cannot be read: {error}", unusable=True)
    except Exception as error:  # what cannot be written down is not sent; a line that breaks is mended by itself
        return Absence(plain_line(error, LONGEST))
    if not is_reply_to(reply, asked, site):
        return Absence("its answer belongs to another request (a replay or a copy)", unusable=True)
    return absence_in(reply)


def absence_in(reply: Reply) -> Absence | None:
    if not reply.status.is_answer:
        return Absence(reply.why, reply.status)
    wrong = problem_of(Topic.OFFER, reply, lambda reply: None)
    return None if wrong is None else Absence(wrong, unusable=True)


def gather_approvals(gatherer: Gatherer, submission: Submission, standing: Standing | None, *, began: bool) -> set[str]:
    """Who approved the study, by how it stands, or after it was put before everybody and decided by enough.

    One that `began` is not waited for: it is offered once more to those who are there.
    """
    if standing is None or (began and not standing.offered):
        standing = Standing(submission, gatherer.policy)
        offer_study(gatherer, standing, wait=not began)
    gone = {site: one for site, one in standing.left_out.items() if one.status is not None and one.status.is_departure}
    gatherer.gone.update(gone)  # nobody waits in this study for those who said no
    return standing.approved & set(submission.sites)


def offer_study(gatherer: Gatherer, standing: Standing, *, wait: bool = True) -> None:
    """Put the study before all and wait until it can begin.

    Those who have not approved it some time after the quorum are not waited for: they may join later.
    """
    pause, transport, traffic = PAUSE, gatherer.transport, gatherer.traffic
    while True:
        if transport.stopped.is_set():
            raise KeyboardInterrupt
        standing.drop(transport.revoked())
        here, within = sorted(standing.pending.keys() & transport.present()), gatherer.policy.deadline
        ask = partial(ask_offer, transport, traffic, standing, within=within)
        with ThreadPoolExecutor(max(1, min(MOST_AT_ONCE, len(here)))) as threads:
            said = threads.map(ask, here)
            for site, absence in zip(here, said, strict=True):
                standing.take(site, absence)
        if not wait:
            break
        standing.require()
        if standing.is_settled():
            break
        second = standing.submission.study.deploy.second
        if second is not None and second in standing.pending.keys() - transport.present():
            gatherer.observer(SitesAwaited((second,), 1))
        announce(gatherer.observer, standing)
        gatherer.rest(pause)
        pause = min(LONGEST_PAUSE, 1.5 * pause)


def announce(observer: Observer, standing: Standing) -> None:
    """Whom the study waits for, and who is left out."""
    reasons = {**standing.pending, **reasons_of(standing.left_out)}
    observer(ApprovalPending(tuple(sorted(standing.pending)), reasons, about=standing.submission.id))
