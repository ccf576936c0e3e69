"""The coordinator's half of the secure sum: passes messages on, adds masked vectors up, and opens only their sum.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, with shares that are
checked before anything depends on them (`group`). `receive` reads one site's message of the step at hand, `advance`
ends the step and gives the message for every site, `unmask_sum` the sum. What it ever holds: public keys, sealed
shares, masked vectors' sum, and after the last step one secret a site, of which none tells an answer. Sites that say
nothing are left behind at any step, as long as the threshold is kept. A site whose shares are not of one secret is
refused when it deals them, one that dealt another share than it committed to when it cannot open it: both before
anybody masks.

Costs 2 (n + 1) multiplications of points a dealer, one mask a survivor, and for every site lost after it shared its
secrets one a neighbour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum import group, shamir
from wardround.privacy.secure_sum.masks import NONCE_BYTES, Ring, apply_masks, derive_key, low_bits, signed_from
from wardround.privacy.secure_sum.messages import (
    COORDINATOR,
    STEPS,
    BadMessage,
    SumMessage,
    VerifyingKey,
    is_signed,
    read_bytes,
    read_entries,
    require_fields,
)
from wardround.privacy.secure_sum.session import (
    Advert,
    Session,
    adverts_digest,
    adverts_to_json,
    dealers_digest,
    is_masked_pair,
    pair_purpose,
    parcel_digest,
    read_advert,
    refuse_same_keys,
)
from wardround.privacy.secure_sum.shares import (
    SEALED_BYTES,
    DealtShares,
    Shares,
    is_committed,
    parcel_for,
    read_pair,
    read_scalar,
    read_shares,
    shares_to_json,
)


class ShareVerdict(NamedTuple):
    """What a holder says of its shares: whose are bad, by what it got, signed."""

    complaints: Mapping[str, str]
    signature: str


class RevealedShares(NamedTuple):
    """What a site revealed: by dealer its share of the seed, or of the key."""

    seeds: Mapping[str, int]
    keys: Mapping[str, int]


@dataclass(frozen=True)
class Server:
    """The coordinator between two messages. `adverts`, `dealt`, ... are by site; who is not there was lost before."""

    session: Session
    keys: Mapping[str, VerifyingKey] = field(repr=False)
    step: str = STEPS[0]
    adverts: Mapping[str, Advert] = field(repr=False, default_factory=dict)
    dealt: Mapping[str, DealtShares] = field(repr=False, default_factory=dict)
    verdicts: Mapping[str, ShareVerdict] = field(repr=False, default_factory=dict)
    opened: Mapping[str, Mapping[str, Shares]] = field(repr=False, default_factory=dict)
    """By dealer, the shares that it opened, by holder."""
    survivors: frozenset[str] = frozenset()
    total: Ring | None = field(repr=False, default=None)
    signatures: Mapping[str, str] = field(repr=False, default_factory=dict)
    revealed: Mapping[str, RevealedShares] = field(repr=False, default_factory=dict)

    @property
    def senders(self) -> frozenset[str]:
        """Sites whose message of this step has come."""
        return frozenset(getattr(self, HEARD[self.step]))

    @property
    def expected_senders(self) -> frozenset[str]:
        """Sites that may write in this step: those heard in the one before."""
        before = {
            "advertise": self.session.roster,
            "share": self.adverts,
            "check": self.dealt,
            "open": self.accused,
            "mask": self.dealers,
            "agree": self.survivors,
            "reveal": self.signatures,
        }
        return frozenset(before[self.step])

    @property
    def remaining(self) -> frozenset[str]:
        """Sites that are still in, as far as this step tells."""
        return self.dealers if self.step == "open" else self.senders

    @property
    def fewest(self) -> int:
        """How many of these are needed to go on."""
        return self.session.dealers_needed if self.step in ("check", "open") else self.session.threshold

    @property
    def accused(self) -> frozenset[str]:
        """Sites that are there, and about whose shares somebody complained."""
        named = {dealer for verdict in self.verdicts.values() for dealer in verdict.complaints}
        return frozenset(named & set(self.verdicts))

    @property
    def dealers(self) -> frozenset[str]:
        """Sites with which all others mask: those who are there, and have opened what somebody complained about."""
        return frozenset(self.verdicts) - (self.accused - set(self.opened))


HEARD = {
    "advertise": "adverts",
    "share": "dealt",
    "check": "verdicts",
    "open": "opened",
    "mask": "survivors",
    "agree": "signatures",
    "reveal": "revealed",
}


def start_sum(session: Session, keys: Mapping[str, VerifyingKey]) -> Server:
    """Begin; `keys` are the long-term public keys of the sites on the roster."""
    missing = [site for site in session.roster if site not in keys]
    if missing:
        raise Refusal(
            f"the long-term key of {', '.join(missing)} is not known",
            where=f"secure sum of study {session.study}, round {session.round}",
            remedy="issue certificates to all sites first",
        )
    return Server(session, keys)


def receive(server: Server, message: SumMessage) -> Server:
    """Count one site's message in; a faulty one is refused and changes nothing."""
    refuse_message(server, message)
    return READERS[server.step](server, message)


def advance(server: Server) -> tuple[Server, dict[str, SumMessage]]:
    """End the step: those not heard so far are lost. Gives what to ask each of the others for next."""
    assert server.step != STEPS[-1], "after the last step the sum is opened"
    refuse_too_few(server)
    step = STEPS[STEPS.index(server.step) + 1]
    if step == "open" and not server.accused:
        step = "mask"
    after = replace(server, step=step)
    asked = partial(SumMessage, step, server.session.hex, COORDINATOR)
    senders = sorted(after.expected_senders)
    if step in EACH:
        return after, {site: asked(EACH[step](server, site)) for site in senders}
    same: dict[str, Any] = {"signatures": dict(server.signatures)}
    if step == "share":
        same = {"adverts": adverts_to_json(server.adverts)}
    elif step == "agree":
        same = {"survivors": sorted(server.survivors)}
    return after, dict.fromkeys(senders, asked(same))


def unanswered_complaints(server: Server) -> dict[str, str]:
    """Sites that are left out because of their shares, and why."""
    return {
        dealer: f"{', '.join(sorted(complaints_about(server, dealer)))} got a wrong share of its secrets, "
        "and it has not opened the right one"
        for dealer in sorted(server.accused - set(server.opened))
    }


def unmask_sum(server: Server) -> Ring:
    """The sum of the survivors' vectors modulo 2^ring_bits, as numbers with a sign, after the last step."""
    assert server.step == STEPS[-1], "the sum is opened after the last step"
    assert server.total is not None
    refuse_too_few(server)
    session = server.session
    # One set of holders for all secrets, so that their weights are computed once.
    holders = sorted(server.revealed)[: session.threshold]
    by = shamir.weights([session.place(holder) for holder in holders])
    plus: list[bytes] = []
    minus: list[bytes] = []
    for dealer in sorted(server.survivors):
        seed = shamir.join({session.place(one): server.revealed[one].seeds[dealer] for one in holders}, by)
        assert group.public_point(seed) == server.dealt[dealer].seed, "shares were checked when they were dealt"
        minus.append(derive_key(group.to_bytes(seed), session.digest, b"own mask", dealer.encode()))
    for lost in sorted(server.dealers - server.survivors):
        key = shamir.join({session.place(one): server.revealed[one].keys[lost] for one in holders}, by)
        assert group.public_point(key) == server.adverts[lost].masking, "shares were checked when they were dealt"
        for peer in sorted(server.survivors):
            secret = group.shared_point(key, server.adverts[peer].masking)
            assert secret is not None, "adverts with other keys are not taken"
            if is_masked_pair(session, secret, lost, peer):
                mask = derive_key(secret, session.digest, *pair_purpose(lost, peer))
                # The peer added it where its own name comes first.
                (minus if peer < lost else plus).append(mask)
    return signed_from(apply_masks(server.total, plus, minus), session.ring_bits)


# ---- one message ----


def refuse_message(server: Server, message: SumMessage) -> None:
    """What is wrong with a message whatever its content: session, sender, order, signature."""
    sender, step = message.sender, message.step
    if message.session != server.session.hex:
        raise BadMessage(sender, "this belongs to another study, round or attempt", step=step)
    if sender not in server.session.roster:
        raise BadMessage(sender, "it is not on the roster of this round", step=step)
    if step != server.step:
        raise BadMessage(
            sender,
            f"its message for '{step}' comes while '{server.step}' is under way",
            step=step,
            remedy="nothing needs to be done: the message is a copy, too late or too early, and is not counted",
        )
    if sender not in server.expected_senders:
        raise BadMessage(sender, "it was lost in an earlier step and cannot come back in this round", step=step)
    if not is_signed(message, server.keys[sender]):
        raise BadMessage(sender, f"the signature is not {sender}'s", step=step)
    if sender in server.senders:
        raise BadMessage(
            sender, "this is a second message for the same step", step=step, remedy="nothing: the first one counts"
        )
    if (message.vector is not None) != (step == "mask"):
        raise BadMessage(sender, "a vector belongs to the step 'mask' and to no other", step=step)


def receive_advert(server: Server, message: SumMessage) -> Server:
    adverts = {**server.adverts, message.sender: read_advert(message)}
    refuse_same_keys(adverts, message.step)
    return replace(server, adverts=adverts)


def receive_shares(server: Server, message: SumMessage) -> Server:
    require_fields(message, "sealed", "commitments", "seed")
    sealed, pinned = read_entries(message, "sealed"), read_entries(message, "commitments")
    if set(pinned) != set(server.adverts) or set(sealed) != set(server.adverts) - {message.sender}:
        words = "it did not deal one share to each site that advertised keys"
        raise BadMessage(message.sender, words, step=message.step)
    for one in sealed.values():
        if not isinstance(one, Mapping) or set(one) != {"nonce", "sealed"}:
            raise BadMessage(message.sender, "a share cannot be read", step=message.step)
        read_bytes(message, one["nonce"], NONCE_BYTES, "the nonce")
        read_bytes(message, one["sealed"], SEALED_BYTES, "the sealed share")
    commitments = {holder: read_pair(message, pair) for holder, pair in pinned.items()}
    seed = read_bytes(message, message.content["seed"], group.POINT_BYTES, "the commitment to the seed")
    secrets = (seed, server.adverts[message.sender].masking)
    for kind, what in enumerate(("mask", "key")):
        places = {server.session.place(holder): pair[kind] for holder, pair in commitments.items()}
        if not group.are_shares({0: secrets[kind], **places}, server.session.threshold):
            words = f"the shares that {message.sender} dealt of its {what} do not fit together"
            raise BadMessage(message.sender, words, step=message.step)
    return replace(server, dealt={**server.dealt, message.sender: DealtShares(dict(sealed), commitments, seed)})


def receive_verdict(server: Server, message: SumMessage) -> Server:
    require_fields(message, "complaints")
    complaints = read_entries(message, "complaints")
    for dealer, digest in complaints.items():
        if dealer not in server.dealt or dealer == message.sender:
            raise BadMessage(message.sender, f"it complains about {dealer}, which dealt it nothing", step=message.step)
        parcel = parcel_for(server.dealt[dealer], message.sender)
        if digest != parcel_digest(server.session, dealer, message.sender, parcel):
            words = f"it complains about another share than {dealer} dealt to it"
            raise BadMessage(message.sender, words, step=message.step)
    verdict = ShareVerdict(dict(complaints), message.signature)
    return replace(server, verdicts={**server.verdicts, message.sender: verdict})


def receive_opened(server: Server, message: SumMessage) -> Server:
    require_fields(message, "opened")
    opened = read_entries(message, "opened")
    if set(opened) != complaints_about(server, message.sender):
        raise BadMessage(message.sender, "it does not open the shares that it was asked for", step=message.step)
    shares = {holder: read_shares(message, words, message.sender) for holder, words in opened.items()}
    for holder, one in shares.items():
        if not is_committed(one, server.dealt[message.sender].commitments[holder]):
            words = f"{message.sender} opened a share for {holder} that it has not committed to"
            raise BadMessage(message.sender, words, step=message.step)
    return replace(server, opened={**server.opened, message.sender: shares})


def receive_vector(server: Server, message: SumMessage) -> Server:
    require_fields(message)
    vector = message.vector
    assert vector is not None
    if vector.dtype != np.dtype("<u8") or vector.shape != (server.session.entries,):
        words = f"a vector of {vector.shape} {vector.dtype}, and {server.session.entries} ring elements were agreed"
        raise BadMessage(message.sender, words, step=message.step)
    if low_bits(vector, server.session.ring_bits).max() != vector.max():
        words = f"its vector has numbers of more than {server.session.ring_bits} bits"
        raise BadMessage(message.sender, words, step=message.step)
    total = np.array(vector, np.uint64) if server.total is None else server.total + vector
    return replace(server, survivors=server.survivors | {message.sender}, total=total)


def receive_agreement(server: Server, message: SumMessage) -> Server:
    agreed_on = {
        "survivors": sorted(server.survivors),
        "adverts": adverts_digest(server.session, server.adverts).hex(),
        "dealers": dealers_digest(server.session, server.dealers).hex(),
    }
    if message.content != agreed_on:
        raise BadMessage(message.sender, "it signs other survivors or other keys", step=message.step)
    return replace(server, signatures={**server.signatures, message.sender: message.signature})


def receive_revealed(server: Server, message: SumMessage) -> Server:
    require_fields(message, "seeds", "keys")
    lost = server.dealers - server.survivors
    parts: list[dict[str, int]] = []
    for name, kind, dealers in (("seeds", 0, server.survivors), ("keys", 1, lost)):
        revealed = read_entries(message, name)
        if set(revealed) != dealers:
            words = f"it reveals {name} of {len(revealed)} sites, not exactly of the {len(dealers)} that were asked for"
            raise BadMessage(message.sender, words, step=message.step)
        shares = {dealer: read_scalar(message, revealed[dealer]) for dealer in sorted(dealers)}
        for dealer, value in shares.items():
            if group.public_point(value) != server.dealt[dealer].commitments[message.sender][kind]:
                raise BadMessage(message.sender, f"its share of {dealer}'s secret is wrong", step=message.step)
        parts.append(shares)
    return replace(server, revealed={**server.revealed, message.sender: RevealedShares(*parts)})


READERS = {
    "advertise": receive_advert,
    "share": receive_shares,
    "check": receive_verdict,
    "open": receive_opened,
    "mask": receive_vector,
    "agree": receive_agreement,
    "reveal": receive_revealed,
}


# ---- between the steps ----


def parcels_for(server: Server, holder: str) -> dict[str, Any]:
    shares = {dealer: parcel_for(dealt, holder) for dealer, dealt in server.dealt.items() if dealer != holder}
    return {"shares": shares}


def complaints_about(server: Server, dealer: str) -> set[str]:
    return {holder for holder, verdict in server.verdicts.items() if dealer in verdict.complaints}


def complaints_for(server: Server, dealer: str) -> dict[str, Any]:
    """The complaints that a dealer must answer, as their holders signed them."""
    verdicts = {holder: server.verdicts[holder] for holder in sorted(complaints_about(server, dealer))}
    said = {
        holder: {"complaints": dict(one.complaints), "signature": one.signature} for holder, one in verdicts.items()
    }
    return {"complaints": said}


def dealers_for(server: Server, holder: str) -> dict[str, Any]:
    """With whom to mask, and the shares that were opened for this holder."""
    opened = {
        dealer: shares_to_json(shares[holder])
        for dealer, shares in server.opened.items()
        if holder in shares and dealer in server.dealers
    }
    return {"dealers": sorted(server.dealers), "opened": opened}


EACH = {"check": parcels_for, "open": complaints_for, "mask": dealers_for}
"""Steps in which every site is told something of its own."""


def refuse_too_few(server: Server) -> None:
    heard, session = server.remaining, server.session
    if len(heard) < server.fewest:
        lost = sorted(set(session.roster) - heard)
        raise Refusal(
            f"only {len(heard)} of {len(session.roster)} sites answered in the step '{server.step}' of the secure sum, "
            f"and {server.fewest} are needed; lost were {', '.join(lost[:20])}",
            where=f"study {session.study}, round {session.round}",
            remedy="repeat the round when more sites are there; nothing of this one was opened",
        )
