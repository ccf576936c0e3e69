"""A site's half of the secure sum: what it says at each step, and what it refuses to say.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, in the form that also
holds against a coordinator that lies about who is still there, with shares that can be checked (Feldman, FOCS 1987; see
`group`). The steps: advertise keys, share secrets, check the shares, open those that somebody complained about, send
the masked vector, agree on the survivors, reveal. Each function takes the site's state and the coordinator's message
and gives the next state and the answer; nothing is sent here. Go on with the new state only, and never twice from an
old one: a site that lost its state must stay away, which the others bridge. Whoever calls this must also see to it that
a site reveals once a round at most: two opened sums of the same answers with different survivors would tell the
difference. A round that failed before `reveal` may be repeated, in a session with a new nonce.

A complaint names the very bytes that its holder got, and is signed. A dealer opens a share only where these are the
bytes that it sent, so a coordinator that changes shares on the way makes nobody open anything; and only to as many
holders as may collude, who know theirs anyway.

Costs one key agreement with every site for the shares and one for the masks, one stretched mask with every neighbour,
and 64 bytes of share and commitment a secret and site. The shares go to all sites even where masks do not, so that any
third of the sites may drop out.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum import group, shamir
from wardround.privacy.secure_sum.masks import (
    NONCE_BYTES,
    Ring,
    apply_masks,
    derive_key,
    length_prefixed,
    low_bits,
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
    dealers_digest,
    is_masked_pair,
    neighbours_needed,
    pair_purpose,
    parcel_digest,
    read_adverts,
)
from wardround.privacy.secure_sum.shares import (
    SEALED_BYTES,
    Shares,
    is_committed,
    read_pair,
    read_shares,
    shares_to_json,
)

FINISHED = "finished"
NEXT = {"mask": ("open", "mask")}
"""Which steps a site may stand before when it is asked for one, where that is not just the same one."""


class Parcel(NamedTuple):
    """What a dealer keeps of what it dealt to a holder, in case the holder complains."""

    shares: Shares
    digest: str


@dataclass(frozen=True)
class SumSite:
    """A site between two steps. Its secrets are kept out of what is printed, and let go when the sum is done."""

    session: Session
    name: str
    step: str
    keys: Mapping[str, VerifyingKey] = field(repr=False)
    signing: SigningKey = field(repr=False)
    sharing: X25519PrivateKey | None = field(repr=False, default=None)
    masking: int = field(repr=False, default=0)
    seed: int = field(repr=False, default=0)
    adverts: Mapping[str, Advert] = field(repr=False, default_factory=dict)
    parcels: Mapping[str, Parcel] = field(repr=False, default_factory=dict)
    """What this site dealt, by holder; let go when it masks."""
    held: Mapping[str, Shares] = field(repr=False, default_factory=dict)
    """Shares by dealer; after the step "mask" these are the sites with which a mask may have been made."""
    disputed: Mapping[str, tuple[bytes, bytes]] = field(repr=False, default_factory=dict)
    """Dealers of bad shares, and what they committed to."""
    neighbours: frozenset[str] = field(repr=False, default=frozenset())
    """With whom this site has masked."""
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
    sharing, masking = X25519PrivateKey.generate(), group.random_scalar()
    site = SumSite(session, name, "share", keys, signing, sharing, masking, group.random_scalar())
    content = {"sharing": sharing.public_key().public_bytes_raw().hex(), "masking": group.public_point(masking).hex()}
    return site, sign(SumMessage("advertise", session.hex, name, content), signing)


def share(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Split the two secrets among all sites that advertised, each share sealed to its holder and committed to."""
    refuse_unexpected(site, message, "share")
    session, sharing = site.session, sharing_key(site)
    adverts = read_adverts(session, message, site.keys)
    public = sharing.public_key().public_bytes_raw(), group.public_point(site.masking)
    if site.name not in adverts or adverts[site.name][:2] != public:
        raise BadMessage(COORDINATOR, f"it does not pass on the keys of {site.name} as they were sent", step="share")
    refuse_too_few(session, len(adverts), "share", "advertised keys")
    places = {holder: session.place(holder) for holder in adverts}
    of_seed, of_key = (shamir.split(secret, places.values(), session.threshold) for secret in (site.seed, site.masking))
    sealed: dict[str, dict[str, str]] = {}
    commitments: dict[str, list[str]] = {}
    parcels: dict[str, Parcel] = {}
    for holder, place in places.items():
        shares = Shares(of_seed[place], of_key[place])
        commitments[holder] = [group.public_point(one).hex() for one in shares]
        if holder == site.name:
            continue
        # A nonce of its own, in case a state is used twice after all.
        nonce = secrets.token_bytes(NONCE_BYTES)
        key, about = sealing_key(site, sharing, adverts[holder].sharing, site.name, holder)
        closed = seal(key, nonce, b"".join(map(group.to_bytes, shares)), about)
        sealed[holder] = {"nonce": nonce.hex(), "sealed": closed.hex()}
        whole = {**sealed[holder], "commitments": commitments[holder]}
        parcels[holder] = Parcel(shares, parcel_digest(session, site.name, holder, whole))
    mine = Shares(of_seed[places[site.name]], of_key[places[site.name]])
    content = {"sealed": sealed, "commitments": commitments, "seed": group.public_point(site.seed).hex()}
    keys_digest = adverts_digest(session, adverts).hex()
    after = replace(
        site, step="check", adverts=adverts, parcels=parcels, held={site.name: mine}, keys_digest=keys_digest
    )
    return after, sign(SumMessage("share", session.hex, site.name, content), site.signing)


def check(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Open the shares dealt to this site, and complain about those that are not what their dealer committed to."""
    refuse_unexpected(site, message, "check")
    require_fields(message, "shares")
    held, disputed, complaints = dict(site.held), {}, {}
    for dealer, parcel in sorted(read_entries(message, "shares").items()):
        if dealer not in site.adverts or dealer == site.name:
            raise BadMessage(COORDINATOR, f"a share of {dealer}, which advertised no keys", step="check")
        committed = read_commitments(message, parcel, dealer)
        shares = open_parcel(site, message, dealer, parcel)
        if shares is not None and is_committed(shares, committed):
            held[dealer] = shares
        else:
            disputed[dealer] = committed
            complaints[dealer] = parcel_digest(site.session, dealer, site.name, parcel)
    refuse_too_few(site.session, len(held) + len(disputed), "check", "shared their secrets")
    after = replace(site, step="open", held=held, disputed=disputed)
    return after, sign(SumMessage("check", site.session.hex, site.name, {"complaints": complaints}), site.signing)


def open_shares(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Show the shares of those who signed that what this site really sent to them is wrong."""
    refuse_unexpected(site, message, "open")
    require_fields(message, "complaints")
    complaints = read_entries(message, "complaints")
    opened: dict[str, dict[str, str]] = {}
    for holder, words in sorted(complaints.items()):
        if holder not in site.parcels or not isinstance(words, Mapping) or set(words) != {"complaints", "signature"}:
            raise BadMessage(COORDINATOR, f"a complaint of {holder} that cannot be read", step="open")
        content = {"complaints": words["complaints"]}
        said = SumMessage("check", site.session.hex, holder, content, signature=str(words["signature"]))
        if not is_signed(said, site.keys[holder]):
            raise BadMessage(COORDINATOR, f"{holder} has not signed this complaint", step="open")
        parcel = site.parcels[holder]
        if read_entries(said, "complaints").get(site.name) != parcel.digest:
            why = f"{holder} complains about another share than {site.name} dealt to it: it was changed on the way"
            raise BadMessage(COORDINATOR, why, step="open")
        opened[holder] = shares_to_json(parcel.shares)
    if len(opened) > site.session.colluding:
        raise BadMessage(
            COORDINATOR,
            f"{len(opened)} sites complain about {site.name}, and at most {site.session.colluding} may be dishonest",
            step="open",
        )
    sent = SumMessage("open", site.session.hex, site.name, {"opened": opened})
    return replace(site, step="mask"), sign(sent, site.signing)


def mask(site: SumSite, message: SumMessage, vector: Ring) -> tuple[SumSite, SumMessage]:
    """The site's own vector under its own mask and one with every neighbour whose shares are good."""
    session = site.session
    if vector.dtype != np.uint64 or vector.shape != (session.entries,):
        raise Refusal(
            f"the answer has {vector.shape} entries of {vector.dtype}, and {session.entries} of uint64 were agreed",
            where=f"site {site.name}, secure sum of round {session.round}",
            remedy="compare the versions of wardround and the model on both sides",
        )
    held = refuse_mask(site, message)
    plus = [derive_key(group.to_bytes(site.seed), session.digest, b"own mask", site.name.encode())]
    minus: list[bytes] = []
    neighbours = set()
    for peer in sorted(set(held) - {site.name}):
        secret = group.shared_point(site.masking, site.adverts[peer].masking)
        assert secret is not None, "adverts with other keys are not taken"
        if is_masked_pair(session, secret, site.name, peer):
            key = derive_key(secret, session.digest, *pair_purpose(site.name, peer))
            (plus if site.name < peer else minus).append(key)
            neighbours.add(peer)
    masked = low_bits(apply_masks(vector, plus, minus), session.ring_bits)
    sent = SumMessage("mask", session.hex, site.name, {}, masked)
    after = replace(site, step="agree", held=held, parcels={}, disputed={}, neighbours=frozenset(neighbours))
    return after, sign(sent, site.signing)


def refuse_mask(site: SumSite, message: SumMessage) -> dict[str, Shares]:
    """All that can be wrong before the answer is there; gives the shares of those to mask with."""
    refuse_unexpected(site, message, "mask")
    held = shares_of_dealers(site, message)
    refuse_too_few(site.session, len(held), "mask", "dealt good shares", site.session.dealers_needed)
    return held


def agree(site: SumSite, message: SumMessage) -> tuple[SumSite, SumMessage]:
    """Sign who the coordinator says has answered; done once, so that it cannot tell different sites different sets."""
    refuse_unexpected(site, message, "agree")
    require_fields(message, "survivors")
    names = message.content["survivors"]
    if not is_list_of_names(names) or not set(names) <= set(site.held):
        raise BadMessage(COORDINATOR, "the survivors are not sites that shared their secrets", step="agree")
    if site.name not in names:
        raise BadMessage(COORDINATOR, f"it counts {site.name}, which has answered, as lost", step="agree")
    refuse_too_few(site.session, len(names), "agree", "answered")
    needed = neighbours_needed(site.session)
    if len(site.neighbours & set(names)) < needed:
        raise BadMessage(
            COORDINATOR,
            f"{site.name} masks with {len(site.neighbours & set(names))} of the survivors, and {needed} are needed",
            step="agree",
            remedy="repeat the round when more sites are there",
        )
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
        "seeds": {name: group.to_bytes(one.seed).hex() for name, one in site.held.items() if name in survived},
        "keys": {name: group.to_bytes(one.key).hex() for name, one in site.held.items() if name not in survived},
    }
    after = replace(site, step=FINISHED, sharing=None, masking=0, seed=0, held={})
    return after, sign(SumMessage("reveal", site.session.hex, site.name, content), site.signing)


# ---- what the steps share ----


def sharing_key(site: SumSite) -> X25519PrivateKey:
    assert site.sharing is not None, "only a finished site has let its keys go"
    return site.sharing


def refuse_unexpected(site: SumSite, message: SumMessage, step: str) -> None:
    """Refuse a message of another session, from somebody else, or at the wrong moment."""
    if message.sender != COORDINATOR:
        raise BadMessage(message.sender, "only the coordinator leads a secure sum", step=message.step)
    if message.session != site.session.hex:
        raise BadMessage(COORDINATOR, "this belongs to another study, round or attempt", step=message.step)
    if message.step != step or site.step not in NEXT.get(step, (step,)):
        raise BadMessage(
            COORDINATOR,
            f"it asks {site.name} for '{message.step}', and '{site.step}' is next",
            step=message.step,
            remedy="begin the round anew: a step is never done twice",
        )


def refuse_too_few(session: Session, count: int, step: str, what: str, needed: int = 0) -> None:
    if count < max(session.threshold, needed):
        raise BadMessage(
            COORDINATOR,
            f"{count} of {len(session.roster)} sites {what}, and {max(session.threshold, needed)} are needed",
            step=step,
            remedy="repeat the round when more sites are there",
        )


def is_list_of_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(one, str) for one in names) and sorted(set(names)) == names


def sealing_key(site: SumSite, own: X25519PrivateKey, peer: bytes, sender: str, receiver: str) -> tuple[bytes, bytes]:
    """The key for shares on the way from sender to receiver, and what they are bound to."""
    other = receiver if sender == site.name else sender
    secret = shared_secret(own, peer)
    if secret is None:
        raise BadMessage(other, "its sharing key is not valid", step=site.step)
    way = (b"shares", sender.encode(), receiver.encode())
    return derive_key(secret, site.session.digest, *way), length_prefixed(site.session.digest, *way)


def read_commitments(message: SumMessage, parcel: Any, dealer: str) -> tuple[bytes, bytes]:
    """The commitments to both shares in a parcel as it is passed on."""
    if not isinstance(parcel, Mapping) or set(parcel) != {"nonce", "sealed", "commitments"}:
        raise BadMessage(message.sender, f"the share of {dealer} cannot be read", step=message.step)
    return read_pair(message, parcel["commitments"])


def open_parcel(site: SumSite, message: SumMessage, dealer: str, parcel: Mapping[str, Any]) -> Shares | None:
    """The shares in a parcel; none where it was sealed badly, or was changed."""
    nonce = read_bytes(message, parcel["nonce"], NONCE_BYTES, "the nonce")
    content = read_bytes(message, parcel["sealed"], SEALED_BYTES, "the sealed share")
    key, about = sealing_key(site, sharing_key(site), site.adverts[dealer].sharing, dealer, site.name)
    opened = unseal(key, nonce, content, about)
    if opened is None:
        return None
    seed, of_key = (group.scalar_from(opened[begin : begin + group.SCALAR_BYTES]) for begin in (0, group.SCALAR_BYTES))
    return None if seed is None or of_key is None else Shares(seed, of_key)


def shares_of_dealers(site: SumSite, message: SumMessage) -> dict[str, Shares]:
    """The shares of those the coordinator says are left, those opened after a complaint among them."""
    require_fields(message, "dealers", "opened")
    names, opened = message.content["dealers"], read_entries(message, "opened")
    known = {*site.held, *site.disputed}
    if not is_list_of_names(names) or not set(names) <= known or not set(opened) <= set(site.disputed):
        raise BadMessage(COORDINATOR, "the dealers are not sites that shared their secrets", step="mask")
    if site.name not in names:
        raise BadMessage(COORDINATOR, f"it leaves out {site.name}, which has dealt its shares", step="mask")
    found = {dealer: site.held[dealer] for dealer in names if dealer in site.held}
    for dealer in set(names) & set(site.disputed):
        if dealer not in opened:
            raise BadMessage(COORDINATOR, f"{dealer} has not opened the share that was bad", step="mask")
        shares = read_shares(message, opened[dealer], dealer)
        if not is_committed(shares, site.disputed[dealer]):
            raise BadMessage(dealer, f"{dealer} opened a share that it has not committed to", step="mask")
        found[dealer] = shares
    return found


def sign_agreement(site: SumSite, name: str) -> SumMessage:
    """What every survivor signs."""
    dealers = dealers_digest(site.session, site.held).hex()
    content: dict[str, Any] = {"survivors": list(site.survivors), "adverts": site.keys_digest, "dealers": dealers}
    return SumMessage("agree", site.session.hex, name, content)
