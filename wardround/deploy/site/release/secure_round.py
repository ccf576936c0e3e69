"""A site's part in a round of which only the sum is opened: it masks its answer, and reveals once a round at most.

The steps are those of `wardround.privacy.secure_sum.site`. What happens between them is kept in memory only: a process
that was started again has lost its secrets and stays out of that attempt, which the others bridge or repeat. That a
round was revealed is on the disk before anything of it leaves, so no second sum of the same answers is ever opened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.requests import Received, SecureStep
from wardround.deploy.protocol.status import Status
from wardround.deploy.trust.certificates import Key, check_issued
from wardround.privacy.secure_sum.fixed_point import ring_vector
from wardround.privacy.secure_sum.messages import SumMessage, from_json, to_json
from wardround.privacy.secure_sum.session import Session, model_hash, session_from_json
from wardround.privacy.secure_sum.site import SumSite, advertise, agree, mask, reveal, share

Header = dict[str, Any]
PublicKeys = dict[str, ec.EllipticCurvePublicKey]


def keys_of(certificates: Mapping[str, Any], authority: x509.Certificate, roster: tuple[str, ...]) -> PublicKeys:
    """The sites' long-term public keys, of certificates that the consortium's authority signed for these names."""
    keys: PublicKeys = {}
    for name in roster:
        try:
            certificate = x509.load_pem_x509_certificate(str(certificates[name]).encode())
        except (KeyError, ValueError):
            raise Refusal(
                f"the round came without the certificate of {name}", remedy="ask the coordinator to fix it"
            ) from None
        issued = check_issued(certificate, authority, where=f"site {name}")
        key = certificate.public_key()
        if (issued.name, issued.role) != (name, "site") or not isinstance(key, ec.EllipticCurvePublicKey):
            raise Refusal(f"the certificate sent for {name} belongs to someone else", remedy="find out who sent it")
        keys[name] = key
    return keys


@dataclass
class SecureSite:
    """One study's secure sums at one site; `answer` trains and gives the fixed answer, none if it is not finite."""

    name: str
    folder: Path
    signing: Callable[[], tuple[Key, x509.Certificate]]
    """The site's own key, and the certificate of the consortium's authority."""
    roster_keys: Callable[[tuple[str, ...], Mapping[str, Any]], PublicKeys]
    """The keys of a roster with its certificates; refused unless they are the approved study's."""
    state: SumSite | None = None

    def step(
        self,
        asked: Received[SecureStep],
        message: Message,
        precision: tuple[int, float],
        answer: Callable[[], Message | None],
    ) -> tuple[Header, Message]:
        """One step of the attempt that the header proposes; gives this site's letter."""
        session = session_from_json(asked.question.session)
        self._refuse_other(session, asked, precision)
        step = asked.question.step
        if step == "advertise":
            key, _ = self.signing()
            keys = self.roster_keys(session.roster, asked.question.certificates or {})
            self.state, letter = advertise(session, self.name, key, keys)
            return letter_reply(letter)
        state = self.state
        if state is None or state.session != session:
            raise Refusal(
                "this site no longer takes part in this attempt",
                where=f"secure sum of round {session.round}",
                remedy="start the round again",
            )
        request = from_json(asked.question.letter)
        if step == "mask":
            # What the masks are bound to must be what this site got itself.
            if model_hash(message) != session.model:
                raise Refusal("the model is not the one that was announced", remedy="start the round again")
            made = answer()
            if made is None:
                self.state = None
                return {"status": Status.DIVERGED}, Message({})
            self.state, letter = mask(state, request, ring_vector(made))
        elif step == "reveal":
            after, letter = reveal(state, request)
            self._record(session)
            self.state = after
        else:
            self.state, letter = {"share": share, "agree": agree}[step](state, request)
        return letter_reply(letter)

    def _refuse_other(self, session: Session, asked: Received[SecureStep], precision: tuple[int, float]) -> None:
        if (session.study, session.round) != (asked.study, asked.round):
            raise Refusal("the secure sum belongs to another study or round", remedy="start the round again")
        if (session.fraction_bits, session.bound) != precision:
            raise Refusal("the approved study has another precision", remedy="ask for what was approved")

    def _record(self, session: Session) -> None:
        """Refuse a second opening of the same round, and write the first one down."""
        path = self.folder / "revealed" / f"{session.round:08d}"
        if path.exists() and path.read_bytes() != session.digest:
            raise Refusal(
                "this round was already opened: a second sum over other sites would reveal a single answer",
                where=f"round {session.round}",
                remedy="go on with the next round",
            )
        path.parent.mkdir(exist_ok=True)
        write_whole(path, session.digest)
        point("site.reveal.recorded")


def letter_reply(letter: SumMessage) -> tuple[Header, Message]:
    arrays = {} if letter.vector is None else {"vector": letter.vector}
    return {"letter": to_json(letter)}, Message(arrays)
