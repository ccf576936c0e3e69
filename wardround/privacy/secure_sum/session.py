"""What all parties of one secure sum must agree on before it begins; its digest is bound into every key and message."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.group import is_point
from wardround.privacy.secure_sum.mask_graph import dealers_needed, fewest_neighbours, is_pair
from wardround.privacy.secure_sum.masks import KEY_BYTES, derive_key, digest
from wardround.privacy.secure_sum.messages import (
    COORDINATOR,
    BadMessage,
    SumMessage,
    VerifyingKey,
    is_signed,
    read_bytes,
    read_entries,
    require_fields,
)

FEWEST = 3
"""Sites below which a sum tells too much: of two, each would know the other's."""
RING_BITS = 64
LEAST_RING_BITS = 8


@dataclass(frozen=True)
class Session:
    """One sum of one round of one study among the sites of the roster.

    `model` is the SHA-256 of what the coordinator sent to all sites; a coordinator that sends them different models
    finds no common masks. `nonce` is new for every attempt, so that a repeated round is another session. `entries`
    are the ring elements that each site sends, the sample count among them. `approved` is how many sites the approved
    study names: up to a third of these may collude, also where fewer are on the roster.
    """

    study: str
    round: int
    model: str
    nonce: str
    roster: tuple[str, ...]
    entries: int
    fraction_bits: int
    bound: float
    approved: int
    ring_bits: int = RING_BITS
    """Ring elements are sent, and their sum is opened, modulo 2^ring_bits."""

    def __post_init__(self) -> None:
        if len(self.roster) < FEWEST:
            raise Refusal(
                f"a secure sum of {len(self.roster)} sites would let them compute each other's answers",
                where=f"study {self.study}, round {self.round}",
                remedy=f"let at least {FEWEST} sites take part, or leave out the transform secure_sum",
            )
        if tuple(sorted(set(self.roster))) != self.roster or COORDINATOR in self.roster:
            raise Refusal(
                "the roster of a secure sum must name every site once, in alphabetical order, "
                f"and none may be called {COORDINATOR}",
                where=f"study {self.study}, round {self.round}",
                remedy="sort the names and rename such a site",
            )
        if self.approved < len(self.roster) or self.threshold > len(self.roster):
            raise Refusal(
                f"a secure sum of {len(self.roster)} of {self.approved} sites would not hide answers from the "
                f"coordinator if {self.colluding} of them told it all they know",
                where=f"study {self.study}, round {self.round}",
                remedy=f"wait until at least {smallest_roster(self.approved)} of the study's sites are there",
            )
        if self.entries < 1:
            raise Refusal(
                "a secure sum needs at least one number", where=f"study {self.study}", remedy="send an answer"
            )
        room = 2.0 ** (self.ring_bits - 1)
        if not (
            LEAST_RING_BITS <= self.ring_bits <= RING_BITS
            and self.fraction_bits < self.ring_bits
            and 0 < self.bound * 2.0**self.fraction_bits * len(self.roster) < room
        ):
            raise Refusal(
                f"the sum of {len(self.roster)} answers of up to {self.bound:g} with {self.fraction_bits} binary "
                f"places does not fit into {self.ring_bits} bits",
                where="transform secure_sum",
                remedy="choose a smaller bound or fewer fraction_bits",
            )

    @property
    def colluding(self) -> int:
        """How many sites may tell the coordinator all they know."""
        return most_colluding(self.approved)

    @property
    def threshold(self) -> int:
        """Sites without which nothing is opened."""
        return threshold_of(len(self.roster), self.colluding)

    @property
    def dealers_needed(self) -> int:
        """Sites that must have shared their secrets before one masks."""
        return dealers_needed(len(self.roster), self.threshold, self.colluding)

    @cached_property
    def digest(self) -> bytes:
        return digest(b"session", json.dumps(session_to_json(self), sort_keys=True).encode())

    @property
    def hex(self) -> str:
        return self.digest.hex()

    def place(self, site: str) -> int:
        """The number under which a site holds shares."""
        return self.roster.index(site) + 1


def most_colluding(approved: int) -> int:
    """A third of the approved sites."""
    return approved // 3


def threshold_of(roster: int, colluding: int) -> int:
    """More than two thirds of the roster; and so many that two groups of them have an honest site in common, which
    takes part in one only, and that two honest answers are in every sum."""
    return max(2 * roster // 3 + 1, (roster + colluding) // 2 + 1, colluding + 2, FEWEST)


def smallest_roster(approved: int) -> int:
    """Of how many sites a sum can be at least."""
    colluding = most_colluding(approved)
    return next(size for size in range(FEWEST, approved + FEWEST) if threshold_of(size, colluding) <= size)


def session_to_json(session: Session) -> dict[str, Any]:
    words = {**asdict(session), "roster": list(session.roster), "bound": float(session.bound)}
    if session.ring_bits == RING_BITS:  # as parties say it that know no other
        del words["ring_bits"]
    return words


def session_from_json(words: Any) -> Session:
    """A session as the coordinator proposes it; whether it fits the study is for the site to see."""
    texts, numbers = ("study", "model", "nonce"), ("round", "entries", "fraction_bits", "approved", "ring_bits")
    problem = BadMessage(COORDINATOR, "this does not propose a secure sum", step="advertise")
    if not isinstance(words, Mapping):
        raise problem
    words = {"ring_bits": RING_BITS, **words}
    if set(words) != {*texts, *numbers, "roster", "bound"}:
        raise problem
    if not all(isinstance(words[name], str) for name in texts) or type(words["bound"]) is not float:
        raise problem
    # A bool is an int to Python; and the powers below must not be asked for absurd exponents.
    if not all(type(words[name]) is int and 0 <= words[name] < 2**40 for name in numbers):
        raise problem
    roster = words["roster"]
    if not isinstance(roster, list) or not all(isinstance(site, str) for site in roster):
        raise problem
    return Session(**{**words, "roster": tuple(roster)})


def model_hash(sent: Message, agreed: str = "") -> str:
    """The SHA-256 of what the coordinator sent, for `Session.model`: every site computes it of what it got itself.

    `agreed` is a hash of all that the sites were told before: a sum is of answers to the same question only.
    """
    parts = [json.dumps(sent.meta).encode(), agreed.encode()]
    for path, leaf in jax.tree_util.tree_leaves_with_path(sent.arrays):
        array = np.asarray(leaf)
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        parts += [jax.tree_util.keystr(path).encode(), f"{little.dtype.str}{array.shape}".encode(), little.tobytes()]
    return digest(b"sent", *parts).hex()


class Advert(NamedTuple):
    """A site's public keys of this session: for sealing shares to it (X25519), and for masks (a point of the group)."""

    sharing: bytes
    masking: bytes
    signature: str


def read_advert(message: SumMessage) -> Advert:
    require_fields(message, "sharing", "masking")
    sharing, masking = (read_bytes(message, message.content[name], KEY_BYTES, name) for name in ("sharing", "masking"))
    if not is_point(masking):
        raise BadMessage(message.sender, "its masking key is not valid", step=message.step)
    return Advert(sharing, masking, message.signature)


def read_adverts(session: Session, message: SumMessage, keys: Mapping[str, VerifyingKey]) -> dict[str, Advert]:
    """The adverts that the coordinator passes on, each as its site signed it."""
    require_fields(message, "adverts")
    found: dict[str, Advert] = {}
    for site, words in sorted(read_entries(message, "adverts").items()):
        if site not in session.roster or site not in keys:
            raise BadMessage(message.sender, f"it names {site}, which is not on the roster", step=message.step)
        if not isinstance(words, Mapping) or set(words) != {"sharing", "masking", "signature"}:
            raise BadMessage(message.sender, f"the keys of {site} cannot be read", step=message.step)
        content = {"sharing": words["sharing"], "masking": words["masking"]}
        advertisement = SumMessage("advertise", session.hex, site, content, signature=str(words["signature"]))
        if not is_signed(advertisement, keys[site]):
            raise BadMessage(site, f"its keys of this session are not signed by {site}", step=message.step)
        found[site] = read_advert(advertisement)
    refuse_same_keys(found, message.step)
    return found


def refuse_same_keys(adverts: Mapping[str, Advert], step: str) -> None:
    """A key that two sites use, or one for both purposes, was copied from somebody."""
    seen: dict[bytes, str] = {}
    for site, advert in adverts.items():
        for key in (advert.sharing, advert.masking):
            if key in seen:
                raise BadMessage(site, f"it advertises a key that {seen[key]} advertises too", step=step)
            seen[key] = site


def adverts_to_json(adverts: Mapping[str, Advert]) -> dict[str, dict[str, str]]:
    return {
        site: {"sharing": one.sharing.hex(), "masking": one.masking.hex(), "signature": one.signature}
        for site, one in sorted(adverts.items())
    }


def adverts_digest(session: Session, adverts: Mapping[str, Advert]) -> bytes:
    """Sites sign this later, so that a coordinator that told them different keys is found before anything opens."""
    parts = [part for site, one in sorted(adverts.items()) for part in (site.encode(), one.sharing, one.masking)]
    return digest(b"adverts", session.digest, *parts)


def dealers_digest(session: Session, dealers: Iterable[str]) -> bytes:
    """Sites sign this too: all of them masked with the same sites."""
    return digest(b"dealers", session.digest, *(site.encode() for site in sorted(dealers)))


def is_masked_pair(session: Session, secret: bytes, one: str, other: str) -> bool:
    """Whether two sites mask each other: it follows from what only these two know, and is never told."""
    hashed = derive_key(secret, session.digest, *pair_purpose(one, other)[1:], b"pair")
    return is_pair(hashed, len(session.roster), session.threshold, session.colluding)


def neighbours_needed(session: Session) -> int:
    """With how many survivors a site must have masked before it signs them."""
    return fewest_neighbours(len(session.roster), session.threshold, session.colluding)


def pair_purpose(one: str, other: str) -> tuple[bytes, bytes, bytes]:
    """What the mask of two sites is for: the same words for both."""
    first, second = sorted((one, other))
    return b"pair mask", first.encode(), second.encode()


def parcel_digest(session: Session, dealer: str, holder: str, parcel: Mapping[str, Any]) -> str:
    """Pins down what a dealer sent to a holder, sealed as it is, with the commitments that came with it."""
    text = json.dumps(parcel, sort_keys=True, separators=(",", ":")).encode()
    return digest(b"parcel", session.digest, dealer.encode(), holder.encode(), text).hex()
