"""The coordinator's half of the secure sum: passes messages on, adds masked vectors up, and opens only their sum.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017. `receive` reads one
site's message of the step at hand, `advance` ends the step and gives the message for every site, `unmask_sum` the sum.
What it ever holds: public keys, sealed shares, masked vectors' sum, and after the last step one secret a site, of which
none tells an answer. Sites that say nothing are left behind at any step, as long as the threshold is kept.

Costs one mask a survivor, and for every site lost after it shared its secrets one a neighbour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum import shamir
from wardround.privacy.secure_sum.masks import KEY_BYTES, NONCE_BYTES, Ring, apply_masks, derive_key, shared_secret
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
    commitment,
    mask_graph,
    pair_purpose,
    read_advert,
    refuse_same_keys,
)
from wardround.privacy.secure_sum.site import SEALED_BYTES


class DealtShares(NamedTuple):
    """What a site dealt: by holder the sealed shares and the commitments to them, and one to the seed itself."""

    sealed: Mapping[str, Mapping[str, str]]
    commitments: Mapping[str, tuple[str, str]]
    seed: bytes


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
    survivors: frozenset[str] = frozenset()
    total: Ring | None = field(repr=False, default=None)
    signatures: Mapping[str, str] = field(repr=False, default_factory=dict)
    revealed: Mapping[str, RevealedShares] = field(repr=False, default_factory=dict)

    @property
    def senders(self) -> frozenset[str]:
        """Sites whose message of this step has come."""
        by_step = (self.adverts, self.dealt, self.survivors, self.signatures, self.revealed)
        return frozenset(by_step[STEPS.index(self.step)])

    @property
    def expected_senders(self) -> frozenset[str]:
        """Sites that may write in this step: those heard in the one before."""
        before = (self.session.roster, self.adverts, self.dealt, self.survivors, self.signatures)
        return frozenset(before[STEPS.index(self.step)])


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
    after = replace(server, step=step)
    asked = partial(SumMessage, step, server.session.hex, COORDINATOR)
    if step == "share":
        same: dict[str, Any] = {"adverts": adverts_to_json(server.adverts)}
    elif step == "mask":
        return after, {site: asked({"shares": shares_for(server, site)}) for site in sorted(server.dealt)}
    elif step == "agree":
        same = {"survivors": sorted(server.survivors)}
    else:
        same = {"signatures": dict(server.signatures)}
    return after, {site: asked(same) for site in sorted(after.expected_senders)}


def unmask_sum(server: Server) -> Ring:
    """The sum of the survivors' vectors modulo 2^64, after the last step."""
    assert server.step == STEPS[-1], "the sum is opened after the last step"
    assert server.total is not None
    refuse_too_few(server)
    session, graph = server.session, mask_graph(server.session, server.adverts)
    # One set of holders for all secrets, so that their weights are computed once.
    holders = sorted(server.revealed)[: session.threshold]
    by = shamir.weights([session.place(holder) for holder in holders])
    plus: list[bytes] = []
    minus: list[bytes] = []
    for dealer in sorted(server.survivors):
        seed = shamir.join({session.place(one): server.revealed[one].seeds[dealer] for one in holders}, by)
        if seed is None or commitment(session, "seed", dealer, "", seed) != server.dealt[dealer].seed:
            raise BadMessage(
                dealer, f"the shares that {dealer} dealt of its mask do not fit together", step=server.step
            )
        minus.append(derive_key(seed, session.digest, b"own mask", dealer.encode()))
    for lost in sorted(set(server.dealt) - server.survivors):
        key = shamir.join({session.place(one): server.revealed[one].keys[lost] for one in holders}, by)
        private = None if key is None else X25519PrivateKey.from_private_bytes(key)
        if private is None or private.public_key().public_bytes_raw() != server.adverts[lost].masking:
            raise BadMessage(lost, f"the shares that {lost} dealt of its key do not fit together", step=server.step)
        for peer in sorted(graph[lost] & server.survivors):
            secret = shared_secret(private, server.adverts[peer].masking)
            if secret is None:
                raise BadMessage(peer, "its masking key is not valid", step=server.step)
            mask = derive_key(secret, session.digest, *pair_purpose(lost, peer))
            # The peer added it where its own name comes first.
            (minus if peer < lost else plus).append(mask)
    return apply_masks(server.total, plus, minus)


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
        raise BadMessage(
            message.sender, "it did not deal one share to each site that advertised keys", step=message.step
        )
    for words in sealed.values():
        if not isinstance(words, Mapping) or set(words) != {"nonce", "sealed"}:
            raise BadMessage(message.sender, "a share cannot be read", step=message.step)
        read_bytes(message, words["nonce"], NONCE_BYTES, "the nonce")
        read_bytes(message, words["sealed"], SEALED_BYTES, "the sealed share")
    commitments: dict[str, tuple[str, str]] = {}
    for holder, pair in pinned.items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadMessage(message.sender, "a commitment cannot be read", step=message.step)
        first, second = (read_bytes(message, one, KEY_BYTES, "a commitment").hex() for one in pair)
        commitments[holder] = first, second
    seed = read_bytes(message, message.content["seed"], KEY_BYTES, "the commitment to the seed")
    return replace(server, dealt={**server.dealt, message.sender: DealtShares(dict(sealed), commitments, seed)})


def receive_vector(server: Server, message: SumMessage) -> Server:
    require_fields(message)
    vector = message.vector
    assert vector is not None
    if vector.dtype != np.dtype("<u8") or vector.shape != (server.session.entries,):
        words = f"a vector of {vector.shape} {vector.dtype}, and {server.session.entries} ring elements were agreed"
        raise BadMessage(message.sender, words, step=message.step)
    total = np.array(vector, np.uint64) if server.total is None else server.total + vector
    return replace(server, survivors=server.survivors | {message.sender}, total=total)


def receive_agreement(server: Server, message: SumMessage) -> Server:
    agreed_on = {
        "survivors": sorted(server.survivors),
        "adverts": adverts_digest(server.session, server.adverts).hex(),
    }
    if message.content != agreed_on:
        raise BadMessage(message.sender, "it signs other survivors or other keys", step=message.step)
    return replace(server, signatures={**server.signatures, message.sender: message.signature})


def receive_revealed(server: Server, message: SumMessage) -> Server:
    require_fields(message, "seeds", "keys")
    lost = frozenset(server.dealt) - server.survivors
    parts: list[dict[str, int]] = []
    for name, kind, dealers in (("seeds", 0, server.survivors), ("keys", 1, lost)):
        revealed = read_entries(message, name)
        if set(revealed) != dealers:
            words = f"it reveals {name} of {len(revealed)} sites, not exactly of the {len(dealers)} that were asked for"
            raise BadMessage(message.sender, words, step=message.step)
        shares = {dealer: read_bytes(message, revealed[dealer], shamir.SHARE_BYTES, "a share") for dealer in dealers}
        words = ("seed share", "key share")[kind]
        for dealer, value in shares.items():
            pinned = server.dealt[dealer].commitments[message.sender][kind]
            if commitment(server.session, words, dealer, message.sender, value).hex() != pinned:
                raise BadMessage(message.sender, f"its share of {dealer}'s secret is wrong", step=message.step)
        parts.append({dealer: int.from_bytes(value, "big") for dealer, value in shares.items()})
    return replace(server, revealed={**server.revealed, message.sender: RevealedShares(*parts)})


READERS = {
    "advertise": receive_advert,
    "share": receive_shares,
    "mask": receive_vector,
    "agree": receive_agreement,
    "reveal": receive_revealed,
}


# ---- between the steps ----


def shares_for(server: Server, holder: str) -> dict[str, dict[str, Any]]:
    """What every other dealer sealed for this holder."""
    return {
        dealer: {**dealt.sealed[holder], "commitments": list(dealt.commitments[holder])}
        for dealer, dealt in server.dealt.items()
        if dealer != holder
    }


def refuse_too_few(server: Server) -> None:
    heard, session = server.senders, server.session
    if len(heard) < session.threshold:
        lost = sorted(set(session.roster) - heard)
        raise Refusal(
            f"only {len(heard)} of {len(session.roster)} sites answered in the step '{server.step}' of the secure sum, "
            f"and {session.threshold} are needed; lost were {', '.join(lost[:20])}",
            where=f"study {session.study}, round {session.round}",
            remedy="repeat the round when more sites are there; nothing of this one was opened",
        )
