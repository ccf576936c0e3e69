"""A site's half of the secure sum: what it says at each step, and what it refuses to say.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, in the form that also
holds against a coordinator that lies about who is still there. The steps: advertise keys, share secrets, send the
masked vector, agree on the survivors, reveal. Each function takes the site's state and the coordinator's message and
gives the next state and the answer; nothing is sent here. Go on with the new state only, and never twice from an old
one: a site that lost its state must stay away, which the others bridge. Whoever calls this must also see to it that a
site reveals once a round at most: two opened sums of the same answers with different survivors would tell the
difference. A round that failed before `reveal` may be repeated, in a session with a new nonce.

Costs one key agreement with every site, one stretched mask with every neighbour, and 33 bytes of share a secret and
site. The shares go to all sites even where masks do not, so that any third of the sites may drop out.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum import shamir
from wardround.privacy.secure_sum.masks import (
    KEY_BYTES,
    NONCE_BYTES,
    Ring,
    apply_masks,
    derive_key,
    length_prefixed,
    seal,
    shared_secret,
    unseal,
)
from wardround.privacy.secure_sum.messages import (
    COORDINATOR,
    BadMessage,
    SigningKey,
    SumMessage,
    VerifyingKey,
    is_signed,
    read_bytes,
    read_entries,
    require_fields,
    sign,
)
from wardround.privacy.secure_sum.session import (
    Advert,
    Session,
    adverts_digest,
    commitment,
    mask_graph,
    pair_purpose,
    read_adverts,
)

SEALED_BYTES = 2 * shamir.SHARE_BYTES + 16
"""Both shares, and the tag that shows they are unchanged."""
FINISHED = "finished"


class Shares(NamedTuple):
    """What a holder has of one dealer: of the seed of its own mask, and of its masking key."""

    seed: bytes
    key: bytes


@dataclass(frozen=True)
class SumSite:
    """A site between two steps. Its secrets are kept out of what is printed, and let go when the sum is done."""

    session: Session
    name: str
    step: str
    keys: Mapping[str, VerifyingKey] = field(repr=False)
    signing: SigningKey = field(repr=False)
    sharing: X25519PrivateKey | None = field(repr=False, default=None)
    masking: X25519PrivateKey | None = field(repr=False, default=None)
    seed: bytes = field(repr=False, default=b"")
    adverts: Mapping[str, Advert] = field(repr=False, default_factory=dict)
    held: Mapping[str, Shares] = field(repr=False, default_factory=dict)
    """Shares by dealer; after the step "mask" these are the sites with which a mask may have been made."""
    survivors: tuple[str, ...] = ()
    keys_digest: str = ""
    """The digest of all keys that the coordinator passed on."""


def advertise(
    session: Session, name: str, signing: SigningKey, keys: Mapping[str, VerifyingKey]
) -> tuple[SumSite, SumMessage]:
    """Begin: new keys for this session, signed with the site's long-term key. `keys` are those of all sites."""
    missing = [site for site in session.roster if site not in keys]
    if missing or name not in session.roster:
        raise Refusal(
            f"the long-term key of {', '.join(missing)} is not known" if missing else f"{name} is not on the roster",
            where=f"secure sum of study {session.study}, round {session.round}",
            remedy="let the coordinator pass on the certificates of all sites that take part",
        )
    sharing, masking = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    site = SumSite(session, name, "share", keys, signing, sharing, masking, secrets.token_bytes(KEY_BYTES))
    content = {
        "sharing": sharing.public_key().public_bytes_raw().hex(),
        "masking": masking.public_key().public_bytes_raw().hex(),
    }
    return site, sign(SumMessage("advertise", session.hex, name, content), signing)


def share(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Split the two secrets among all sites that advertised, each share sealed to its holder."""
    refuse_unexpected(site, message, "share")
    session, own = site.session, secrets_of(site)
    adverts = read_adverts(session, message, site.keys)
    public = own.sharing.public_key().public_bytes_raw(), own.masking.public_key().public_bytes_raw()
    if site.name not in adverts or adverts[site.name][:2] != public:
        raise BadMessage(COORDINATOR, f"it does not pass on the keys of {site.name} as they were sent", step="share")
    refuse_too_few(session, len(adverts), "share", "advertised keys")
    places = {holder: session.place(holder) for holder in adverts}
    of_seed = shamir.split(site.seed, places.values(), session.threshold)
    of_key = shamir.split(own.masking.private_bytes_raw(), places.values(), session.threshold)
    sealed: dict[str, dict[str, str]] = {}
    commitments: dict[str, list[str]] = {}
    mine: Shares | None = None
    for holder, place in places.items():
        shares = Shares(*(part[place].to_bytes(shamir.SHARE_BYTES, "big") for part in (of_seed, of_key)))
        commitments[holder] = share_commitments(session, site.name, holder, shares)
        if holder == site.name:
            mine = shares
            continue
        # A nonce of its own, in case a state is used twice after all.
        nonce = secrets.token_bytes(NONCE_BYTES)
        key, about = sealing_key(site, own.sharing, adverts[holder].sharing, site.name, holder)
        sealed[holder] = {"nonce": nonce.hex(), "sealed": seal(key, nonce, shares_to_bytes(shares), about).hex()}
    assert mine is not None
    seed = commitment(session, "seed", site.name, "", site.seed).hex()
    content = {"sealed": sealed, "commitments": commitments, "seed": seed}
    keys_digest = adverts_digest(session, adverts).hex()
    after = replace(site, step="mask", adverts=adverts, held={site.name: mine}, keys_digest=keys_digest)
    return after, sign(SumMessage("share", session.hex, site.name, content), site.signing)


def mask(site: SumSite, message: SumMessage, vector: Ring) -> tuple[SumSite, SumMessage]:
    """The site's own vector under its own mask and one with every neighbour that shared its secrets."""
    refuse_unexpected(site, message, "mask")
    session, own = site.session, secrets_of(site)
    if vector.dtype != np.uint64 or vector.shape != (session.entries,):
        raise Refusal(
            f"the answer has {vector.shape} entries of {vector.dtype}, and {session.entries} of uint64 were agreed",
            where=f"site {site.name}, secure sum of round {session.round}",
            remedy="compare the versions of wardround and the model on both sides",
        )
    held = {**site.held, **open_shares(site, own.sharing, message)}
    refuse_too_few(session, len(held), "mask", "shared their secrets")
    plus = [derive_key(site.seed, session.digest, b"own mask", site.name.encode())]
    minus: list[bytes] = []
    for peer in sorted(mask_graph(session, site.adverts)[site.name] & set(held)):
        secret = shared_secret(own.masking, site.adverts[peer].masking)
        if secret is None:
            raise BadMessage(peer, "its masking key is not valid", step="mask")
        key = derive_key(secret, session.digest, *pair_purpose(site.name, peer))
        (plus if site.name < peer else minus).append(key)
    sent = SumMessage("mask", session.hex, site.name, {}, apply_masks(vector, plus, minus))
    return replace(site, step="agree", held=held), sign(sent, site.signing)


def agree(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Sign who the coordinator says has answered; done once, so that it cannot tell different sites different sets."""
    refuse_unexpected(site, message, "agree")
    require_fields(message, "survivors")
    names = message.content["survivors"]
    well_formed = isinstance(names, list) and all(isinstance(one, str) for one in names)
    if not well_formed or sorted(set(names)) != names or not set(names) <= set(site.held):
        raise BadMessage(COORDINATOR, "the survivors are not sites that shared their secrets", step="agree")
    if site.name not in names:
        raise BadMessage(COORDINATOR, f"it counts {site.name}, which has answered, as lost", step="agree")
    refuse_too_few(site.session, len(names), "agree", "answered")
    after = replace(site, step="reveal", survivors=tuple(names))
    return after, sign(sign_agreement(after, site.name), site.signing)


def reveal(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Open the own masks of those who answered and the masking keys of those who did not: of no site both."""
    refuse_unexpected(site, message, "reveal")
    require_fields(message, "signatures")
    signatures = read_entries(message, "signatures")
    for peer, signature in signatures.items():
        if peer not in site.survivors:
            raise BadMessage(
                COORDINATOR, f"{peer} signs that it answered, but is not among the survivors", step="reveal"
            )
        statement = replace(sign_agreement(site, peer), signature=str(signature))
        if not is_signed(statement, site.keys[peer]):
            raise BadMessage(peer, f"{peer} has not signed the same survivors and keys", step="reveal")
    refuse_too_few(site.session, len(signatures), "reveal", "signed the same survivors")
    survived = set(site.survivors)
    content = {
        "seeds": {dealer: shares.seed.hex() for dealer, shares in site.held.items() if dealer in survived},
        "keys": {dealer: shares.key.hex() for dealer, shares in site.held.items() if dealer not in survived},
    }
    after = replace(site, step=FINISHED, sharing=None, masking=None, seed=b"", held={})
    return after, sign(SumMessage("reveal", site.session.hex, site.name, content), site.signing)


# ---- what the steps share ----


class Secrets(NamedTuple):
    sharing: X25519PrivateKey
    masking: X25519PrivateKey


def secrets_of(site: SumSite) -> Secrets:
    assert site.sharing is not None, "only a finished site has let its keys go"
    assert site.masking is not None
    return Secrets(site.sharing, site.masking)


def refuse_unexpected(site: SumSite, message: SumMessage, step: str) -> None:
    """Refuse a message of another session, from somebody else, or at the wrong moment."""
    if message.sender != COORDINATOR:
        raise BadMessage(message.sender, "only the coordinator leads a secure sum", step=message.step)
    if message.session != site.session.hex:
        raise BadMessage(COORDINATOR, "this belongs to another study, round or attempt", step=message.step)
    if message.step != step or site.step != step:
        raise BadMessage(
            COORDINATOR,
            f"it asks {site.name} for '{message.step}', and '{site.step}' is next",
            step=message.step,
            remedy="begin the round anew: a step is never done twice",
        )


def refuse_too_few(session: Session, count: int, step: str, what: str) -> None:
    if count < session.threshold:
        raise BadMessage(
            COORDINATOR,
            f"{count} of {len(session.roster)} sites {what}, and {session.threshold} are needed",
            step=step,
            remedy="repeat the round when more sites are there",
        )


def sealing_key(site: SumSite, own: X25519PrivateKey, peer: bytes, sender: str, receiver: str) -> tuple[bytes, bytes]:
    """The key for shares on the way from sender to receiver, and what they are bound to."""
    other = receiver if sender == site.name else sender
    secret = shared_secret(own, peer)
    if secret is None:
        raise BadMessage(other, "its sharing key is not valid", step=site.step)
    way = (b"shares", sender.encode(), receiver.encode())
    return derive_key(secret, site.session.digest, *way), length_prefixed(site.session.digest, *way)


def shares_to_bytes(shares: Shares) -> bytes:
    return shares.seed + shares.key


def share_commitments(session: Session, dealer: str, holder: str, shares: Shares) -> list[str]:
    """The commitments to both shares of a holder."""
    return [
        commitment(session, "seed share", dealer, holder, shares.seed).hex(),
        commitment(session, "key share", dealer, holder, shares.key).hex(),
    ]


def open_shares(site: SumSite, own: X25519PrivateKey, message: SumMessage) -> dict[str, Shares]:
    """The shares dealt to this site, each as its dealer committed to it."""
    require_fields(message, "shares")
    found: dict[str, Shares] = {}
    for dealer, words in read_entries(message, "shares").items():
        if dealer not in site.adverts or dealer == site.name:
            raise BadMessage(COORDINATOR, f"a share of {dealer}, which advertised no keys", step="mask")
        if not isinstance(words, Mapping) or set(words) != {"nonce", "sealed", "commitments"}:
            raise BadMessage(COORDINATOR, f"the share of {dealer} cannot be read", step="mask")
        nonce = read_bytes(message, words["nonce"], NONCE_BYTES, "the nonce")
        content = read_bytes(message, words["sealed"], SEALED_BYTES, "the sealed share")
        key, about = sealing_key(site, own, site.adverts[dealer].sharing, dealer, site.name)
        opened = unseal(key, nonce, content, about)
        if opened is None:
            raise BadMessage(dealer, f"the share that {dealer} dealt to {site.name} was changed", step="mask")
        shares = Shares(opened[: shamir.SHARE_BYTES], opened[shamir.SHARE_BYTES :])
        if words["commitments"] != share_commitments(site.session, dealer, site.name, shares):
            raise BadMessage(dealer, f"{dealer} dealt {site.name} a share it has not committed to", step="mask")
        found[dealer] = shares
    return found


def sign_agreement(site: SumSite, name: str) -> SumMessage:
    """What every survivor signs."""
    content: dict[str, Any] = {"survivors": list(site.survivors), "adverts": site.keys_digest}
    return SumMessage("agree", site.session.hex, name, content)
