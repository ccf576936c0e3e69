"""A site's part in a round for two servers: a masked half for the first, a sealed and signed one for the second.

Nothing readable leaves. The site seals only for the key whose fingerprint stands in the approved study, shares its
answer to one model a round, and answers the same request with the same bytes: seed and parcel are on the disk before
they leave, and what was masked with a seed is compared with what was masked with it before.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.halves import ParcelContent, make_parcel, meeting_of, parcel_words, read_seed
from wardround.deploy.protocol.requests import Received, ShareHalves
from wardround.deploy.protocol.robust_choice import bound_of, rule_of, transform_recipes
from wardround.deploy.protocol.status import Status
from wardround.deploy.trust.certificates import Key
from wardround.deploy.trust.pins import smallest_roster
from wardround.privacy.secure_sum.session import model_hash
from wardround.privacy.two_servers.own_products import deal_own
from wardround.privacy.two_servers.protocol import ForA, Meeting, share_update
from wardround.study.file import Study

Header = dict[str, Any]
KEPT_ROUNDS = 3
"""Rounds whose seeds are kept: the coordinator may go back by one after a crash, never by more."""


class KeptHalves(NamedTuple):
    """What a site keeps of a meeting: the seed of its mask and of its deal, the parcel, the hash of what it masked."""

    seed: str
    deal: str
    parcel: dict[str, Any]
    masked: str


@dataclass
class HalvesSite:
    """One study's rounds for two servers at one site."""

    name: str
    study: Study
    folder: Path
    signing: Callable[[], Key]
    """The site's own key."""
    second_key: Callable[[Sequence[str], str], ec.EllipticCurvePublicKey]
    """(roster, certificate) to the second server's key; refused unless it is the pinned one of the approved study."""

    def share(
        self, asked: Received[ShareHalves], message: Message, request: str, answer: Callable[[], Message | None]
    ) -> tuple[Header, Message]:
        """Both halves; `answer` trains and gives the answer, none if it is not finite or longer than the bound.

        `request` is the hash of all that the answer follows from, the same in every attempt at the round.
        """
        meeting = meeting_of(asked.question.meeting, asked.study, asked.round)
        self._refuse_other(meeting, message)
        key, second = self.signing(), self.second_key(meeting.sites, asked.question.second)
        row = read_seed(asked.question.row, "round")
        made = self._answer(meeting, request, answer)
        if made is None:
            return {"status": Status.DIVERGED}, Message({})
        weight, update = made
        kept = self._kept(meeting)
        draw = os.urandom if kept is None else lambda size: bytes.fromhex(kept.seed)
        first, rest = share_update(meeting, self.name, update, draw)
        masked = hashlib.sha256(first.masked.data).hexdigest()
        if kept is not None:
            if kept.masked != masked:
                raise Refusal(
                    "this site's answer changed since it was first shared under the same mask, and the difference of "
                    "the two would tell it",
                    where=f"round {meeting.round}",
                    remedy="start the round again; do not change the data while a study runs",
                )
            return reply(first, bytes.fromhex(kept.deal), kept.parcel)
        deal = deal_own(meeting, self.name, rest.seeds[0], row)
        content = ParcelContent(rest.seeds[0], deal.for_b)
        parcel = make_parcel(meeting, self.name, weight, content, key=key, second=second, draw=os.urandom)
        words = parcel_words(parcel)
        self._keep(meeting, KeptHalves(rest.seeds[0].hex(), deal.for_a.hex(), words, masked))
        return reply(first, deal.for_a, words)

    def _refuse_other(self, meeting: Meeting, message: Message) -> None:
        """Refuse a meeting that is not the approved study's, and a second model for the same round."""
        where = f"two servers, round {meeting.round}"
        if model_hash(message, agreed_in(self.folder)) != meeting.model:
            raise Refusal("the model is not the one that was announced", where=where, remedy="start the round again")
        if meeting.bound != bound_of(transform_recipes(self.study)):
            raise Refusal("the approved study has another bound", where=where, remedy="ask for what was approved")
        strangers = [site for site in meeting.sites if site not in self.study.deploy.sites]
        if strangers or self.name not in meeting.sites:
            wrong = ", ".join(strangers) or f"{self.name} is missing"
            raise Refusal(
                f"the round is not among the sites of the approved study: {wrong}",
                where=where,
                remedy="ask for what was approved",
            )
        fewest = max(rule_of(self.study, sorted(self.study.deploy.sites)).fewest, smallest_roster(self.study))
        if len(meeting.sites) < fewest:
            raise Refusal(
                f"{len(meeting.sites)} sites were to take part, and the approved study needs {fewest}",
                where=where,
                remedy="wait until more sites are connected",
            )
        path = self._round(meeting) / "model"
        if path.exists() and path.read_text() != meeting.model:
            raise Refusal(
                "this site already shared its answer to another model in this round",
                where=where,
                remedy="go on with the next round",
            )

    # ---- what the site must not forget ----

    def _answer(
        self, meeting: Meeting, request: str, answer: Callable[[], Message | None]
    ) -> tuple[float, np.ndarray[Any, Any]] | None:
        """Weight and update; under [privacy] the same noised numbers in every attempt, which one debit pays for."""
        path = self._round(meeting) / "answer"
        if self.study.privacy is not None and path.exists():
            content = path.read_bytes()
            if content[:32].hex() == request and hashlib.sha256(content[64:]).digest() == content[32:64]:
                numbers = np.frombuffer(content[64:], "<f4")
                return float(numbers[0]), numbers[1:]
        made = answer()
        if made is None:
            return None
        weight, update = weight_and_update(made)
        if self.study.privacy is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = np.concatenate([[weight], update]).astype("<f4").tobytes()
            write_whole(path, bytes.fromhex(request) + hashlib.sha256(content).digest() + content)
        return weight, update

    def _round(self, meeting: Meeting) -> Path:
        return self.folder / "halves" / f"{meeting.round:08d}"

    def _path(self, meeting: Meeting) -> Path:
        return self._round(meeting) / f"{meeting.digest.hex()}.json"

    def _kept(self, meeting: Meeting) -> KeptHalves | None:
        path = self._path(meeting)
        return KeptHalves(**json.loads(path.read_bytes())) if path.exists() else None

    def _keep(self, meeting: Meeting, kept: KeptHalves) -> None:
        folder = self._round(meeting)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "model", meeting.model.encode())
        write_whole(self._path(meeting), json.dumps(kept._asdict()).encode())
        point("site.halves.kept")
        for old in sorted(path for path in folder.parent.iterdir() if path.is_dir())[:-KEPT_ROUNDS]:
            shutil.rmtree(old)


def reply(first: ForA, deal: bytes, parcel: dict[str, Any]) -> tuple[Header, Message]:
    return {"parcel": parcel, "deal": deal.hex()}, Message({"masked": first.masked})


def weight_and_update(answer: Message) -> tuple[float, np.ndarray[Any, Any]]:
    """How much the site counts, and its update as one vector, without the weight that it was multiplied by."""
    weight = np.float32(answer.arrays["weight"])
    told = {name: tree for name, tree in answer.arrays.items() if name != "weight"}
    leaves = [np.ravel(np.asarray(leaf, np.float32)) for leaf in jax.tree.leaves(told)]
    vector = np.concatenate(leaves) if leaves else np.zeros(0, np.float32)
    return float(weight), vector / weight if weight > 0 else np.zeros_like(vector)


def charged_halves(asked: Received[ShareHalves], message: Message) -> str:
    """What a debit pays for: all that the answer follows from; attempts at a round differ in their meetings only."""
    words = {**asked.question.method.words(), "round": asked.round}
    return hashlib.sha256(json.dumps([words, model_hash(message)], sort_keys=True).encode()).hexdigest()
