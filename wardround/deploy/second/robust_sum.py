"""The second server opens one robust sum: it checks every party by itself, and never opens a round twice.

It unseals what the sites sealed for it, leaves out whose parts do not fit, opens the inner products together with what
the first server sent, chooses by the rule of the approved study, and gives its half of the sum with these weights and
no others: there is no way to ask for other weights. That a round is closed is on the disk before anything of it leaves.
The same request again gets the same answer, since nothing here is drawn.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.halves import (
    BadParcel,
    ParcelContent,
    SealedParcel,
    meeting_of,
    open_parcel,
    parcel_of,
    read_seed,
    second_reply_digest,
)
from wardround.deploy.protocol.requests import SMALL, OpenSum, Received
from wardround.deploy.protocol.robust_choice import (
    RobustChoice,
    RobustRule,
    State,
    bound_of,
    rule_of,
    transform_recipes,
)
from wardround.deploy.trust.certificates import Key
from wardround.deploy.trust.pins import Partner, pinned_key, smallest_roster
from wardround.privacy.secure_sum.masks import Ring
from wardround.privacy.two_servers.gram import Gram, drop_implausible
from wardround.privacy.two_servers.own_products import (
    Blinds,
    check_sums,
    coefficients_of,
    mask_products,
    summands_of,
)
from wardround.privacy.two_servers.protocol import Meeting, Roll, half_of_b, open_gram
from wardround.study.file import Study

MOST_ATTEMPTS = 10
"""Requests for one round that are looked at: each that fails tells the first server who was left out."""
TOO_LONG = (
    "its update is longer than the bound, or its products with others are such as no updates of that length can have"
)
WRONG_DEAL = "it dealt wrong products of its mask"
Words = dict[str, Any]


class RoundClosed(Refusal):
    """The round was opened already, for another request."""


@dataclass
class RobustSums:
    """One approved study's openings at the second server."""

    study: Study
    folder: Path
    key: Key
    authority: x509.Certificate
    require_membership: Callable[[Sequence[str]], None]
    """Refuses while the membership log cannot be believed, or says that one of these is shut out."""
    partners: Callable[[], Mapping[str, Partner]]
    """The keys that are pinned here, by name; a pin follows a new key that the old one signed."""

    def open(self, asked: Received[OpenSum], message: Message, request: str) -> tuple[Words, Message]:
        """`request` is the hash of all that was asked."""
        meeting = meeting_of(asked.question.meeting, asked.study, asked.round)
        rule = rule_of(self.study, sorted(self.study.deploy.sites))
        roll = self._checked_roll(meeting, asked.question, rule)
        self._refuse_closed(meeting, request)
        self._count_attempt(meeting, request)
        problems: dict[str, str] = {}
        parcels = self._parcels(meeting, asked.question, roll, problems)
        usable = Roll(tuple(site for site in roll.sites if site not in problems), {})
        fewest = max(rule.fewest, asked.question.quorum, smallest_roster(self.study))
        if len(usable.sites) < fewest:
            return unopened(problems)
        gram, of_b = self._products(meeting, asked.question, message, roll, usable, parcels, problems)
        if len(gram.sites) < fewest:
            return unopened(problems)
        rows = {site: parcels[site][0].weight for site in gram.sites}
        chosen = rule.choose(self._state_before(meeting.round, rule), gram, rows)
        weights = chosen.weights
        self._refuse_difference(meeting, weights)
        self._close(meeting, request, chosen)
        point("second.sum.closed")
        seeds = {site: (parcels[site][1].seed,) for site in gram.sites}
        half = half_of_b(meeting, seeds, weights or {})[: None if weights else 0]
        words: Words = {"opened": True, "left_out": problems, "sites": list(gram.sites), "weights": weights}
        signed = second_reply_digest(meeting, words, of_b, hashlib.sha256(half.data).hexdigest())
        words["signature"] = self.key.sign(signed, ec.ECDSA(SHA256())).hex()
        return words, Message({"gram": of_b, "half": half})

    # ---- what is asked must be what was approved ----

    def _checked_roll(self, meeting: Meeting, question: OpenSum, rule: RobustRule) -> Roll:
        where = f"second server, round {meeting.round}"
        if not 1 <= meeting.round <= self.study.study.rounds:
            raise Refusal(f"the approved study has {self.study.study.rounds} rounds", where=where)
        if meeting.bound != bound_of(transform_recipes(self.study)):
            raise Refusal("the approved study has another bound", where=where)
        strangers = [site for site in meeting.sites if site not in rule.sites]
        if strangers:
            raise Refusal(f"these are no sites of the approved study: {', '.join(strangers)}", where=where)
        roll = tuple(question.roll)
        if list(roll) != [site for site in meeting.sites if site in roll] or set(question.parcels) != set(roll):
            raise Refusal(
                "the roll is not the sites whose parcels came, once each and in the order of the meeting", where=where
            )
        if len(roll) < rule.fewest:
            raise Refusal(
                f"a sum of {len(roll)} sites was asked for, and with fewer than {rule.fewest} single answers could be "
                "told",
                where=where,
            )
        return Roll(roll, {})

    def _parcels(
        self, meeting: Meeting, question: OpenSum, roll: Roll, problems: dict[str, str]
    ) -> dict[str, tuple[SealedParcel, ParcelContent]]:
        """What the sites sealed; who sent what does not fit is put into `problems`."""
        found: dict[str, tuple[SealedParcel, ParcelContent]] = {}
        self.require_membership(roll.sites)
        partners = self.partners()
        for site in roll.sites:
            # Another key than the pinned one is no site's mistake: the whole request is refused.
            sender = pinned_key(self.study, site, question.certificates, self.authority, role="site", partners=partners)
            try:
                parcel = parcel_of(question.parcels[site])
                if parcel.site != site or not parcel.weight > 0:
                    raise BadParcel("its parcel is in another's name, or says that it has no patients")
                found[site] = parcel, open_parcel(meeting, parcel, key=self.key, sender=sender)
            except BadParcel as bad:
                problems[site] = str(bad)
        return found

    def _products(
        self,
        meeting: Meeting,
        question: OpenSum,
        message: Message,
        roll: Roll,
        usable: Roll,
        parcels: Mapping[str, tuple[SealedParcel, ParcelContent]],
        problems: dict[str, str],
    ) -> tuple[Gram, Ring]:
        """The opened products of all whose parts fit, and this server's summand of them."""
        blinds, gram_of_a, sums_of_a = arrays_of(message, meeting, roll)
        rows = [roll.sites.index(site) for site in usable.sites]
        if len(rows) < len(roll.sites):
            blinds = Blinds(blinds.updates[rows], blinds.check)
        seeds = {site: (parcels[site][1].seed,) for site in usable.sites}
        deals = {site: parcels[site][1].deal for site in usable.sites}
        found = mask_products(meeting, seeds, blinds, usable)
        coefficients = coefficients_of(meeting, read_seed(question.check, "check", where="second server"), roll)
        # The check vector has a part of everybody on the first server's roll, also of those left out here.
        wrong = found.check != sums_of_a[rows] + check_sums(meeting, deals, coefficients, roll, usable.sites)
        problems |= {site: WRONG_DEAL for site, one in zip(usable.sites, wrong, strict=True) if one}
        of_b = found.gram + summands_of(meeting, deals, usable)
        opened = open_gram(meeting, gram_of_a[np.ix_(rows, rows)], of_b, usable)
        honest = opened.select([site for site in usable.sites if site not in problems])
        gram, too_long = drop_implausible(honest)
        problems |= dict.fromkeys(too_long, TOO_LONG)
        last = [usable.sites.index(site) for site in gram.sites]
        return gram, of_b[np.ix_(last, last)]

    # ---- what must not be forgotten ----

    def _refuse_closed(self, meeting: Meeting, request: str) -> None:
        own = self._record(meeting.round)
        if own is not None and own["request"] != request:
            raise RoundClosed(
                f"round {meeting.round} was already opened: a second sum over other sites would tell a single answer",
                where="second server",
                remedy="go on with the next round",
            )

    def _refuse_difference(self, meeting: Meeting, weights: Mapping[str, int] | None) -> None:
        """Refuse the same model in two rounds with other sites in the sum: the difference could be one answer."""
        for path in (self.folder / "closed").glob("*.json") if weights else ():
            other = json.loads(path.read_bytes())
            if int(path.stem) == meeting.round or other["model"] != meeting.model or not other["chosen"]:
                continue
            if other["chosen"] != sorted(chosen_of(weights)):
                raise RoundClosed(
                    f"this model was already opened in round {int(path.stem)}, with other sites in the sum: the "
                    "difference of the two sums could tell a single answer",
                    where="second server",
                    remedy="go on with the next round",
                )

    def _record(self, number: int) -> dict[str, Any] | None:
        path = self.folder / "closed" / f"{number:08d}.json"
        return json.loads(path.read_bytes()) if path.exists() else None

    def _count_attempt(self, meeting: Meeting, request: str) -> None:
        folder = self.folder / "attempts" / f"{meeting.round:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / request).exists():
            return
        if sum(1 for _ in folder.iterdir()) >= MOST_ATTEMPTS:
            raise RoundClosed(
                f"{MOST_ATTEMPTS} attempts at round {meeting.round} have failed, and each tells something",
                where="second server",
                remedy="go on with the next round, and find out who sends what does not fit",
            )
        write_whole(folder / request, b"")

    def _close(self, meeting: Meeting, request: str, chosen: RobustChoice) -> None:
        state = chosen.state
        (self.folder / "closed").mkdir(parents=True, exist_ok=True)
        words = {
            "request": request,
            "model": meeting.model,
            "chosen": sorted(chosen_of(chosen.weights)),
            "state": {key: value.tolist() for key, value in state.items()},
            "kinds": {key: str(value.dtype) for key, value in state.items()},
        }
        write_whole(self.folder / "closed" / f"{meeting.round:08d}.json", json.dumps(words).encode())

    def _state_before(self, number: int, rule: RobustRule) -> State:
        """What the rule kept after the last round before this one."""
        before = sorted(int(path.stem) for path in (self.folder / "closed").glob("*.json") if int(path.stem) < number)
        words = self._record(before[-1]) if before else None
        if words is None:
            return rule.start()
        return {key: np.asarray(value, words["kinds"][key]) for key, value in words["state"].items()}


def chosen_of(weights: Mapping[str, int] | None) -> list[str]:
    return [site for site, weight in (weights or {}).items() if weight]


def unopened(problems: Mapping[str, str]) -> tuple[Words, Message]:
    """Who was left out, and nothing else: the first server may try again without them."""
    return {"opened": False, "left_out": dict(problems), "sites": [], "weights": None}, Message({})


def refuse_size(question: OpenSum, content: int) -> None:
    """Before the arrays are looked at: refuse more bytes than those of the meeting that the request names."""
    count, entries = len(question.roll), question.meeting.get("entries")
    numbers = (count + 1) * entries + count * count + count if type(entries) is int else 0
    most = SMALL + 8 * numbers
    if content > most:
        raise Refusal(f"the request has {content} bytes, and {most} are allowed", where="second server")


def arrays_of(message: Message, meeting: Meeting, roll: Roll) -> tuple[Blinds, Ring, Ring]:
    """The first server's arrays, if they have the right shapes."""
    count = len(roll.sites)
    shapes = {
        "updates": (count, meeting.entries),
        "check": (meeting.entries,),
        "gram": (count, count),
        "sums": (count,),
    }
    arrays = message.arrays
    if set(arrays) != set(shapes) or any(
        np.shape(arrays[name]) != shape or np.asarray(arrays[name]).dtype != np.uint64 for name, shape in shapes.items()
    ):
        raise Refusal("the arrays do not have the shapes of the meeting", where=f"second server, round {meeting.round}")
    return Blinds(arrays["updates"], arrays["check"]), arrays["gram"], arrays["sums"]
