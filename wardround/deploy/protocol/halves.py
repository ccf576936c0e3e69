"""What a site sends for the two servers: its masked update for the first, and a signed, sealed parcel for the second.

The parcel travels through the first server, who cannot read it. It holds the seed of the mask and the site's summands;
beside it stand, readable and signed, how many patients the site has and a commitment to the seed.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.masks import KEY_BYTES, Ring, digest
from wardround.privacy.two_servers.envelope import open_envelope, seal_for
from wardround.privacy.two_servers.protocol import Meeting, commitment

MEETING = ("nonce", "sites", "entries", "bound", "model")
"""What the words of a meeting hold; study and round stand in every request."""


class SealedParcel(NamedTuple):
    """A site's parcel for the second server."""

    site: str
    weight: float
    commitment: bytes
    sealed: bytes
    signature: bytes


class ParcelContent(NamedTuple):
    """What only the second server reads: the seed of the site's mask, and its summands of the products."""

    seed: bytes
    deal: Ring


class BadParcel(Exception):
    """A parcel that cannot be used, and why."""


def meeting_words(meeting: Meeting) -> dict[str, Any]:
    words = {name: getattr(meeting, name) for name in MEETING}
    return {**words, "sites": list(meeting.sites)}


def meeting_of(words: Mapping[str, Any], study: str, number: int) -> Meeting:
    """The meeting that a request speaks of; refused where its words are not what they should be."""
    kinds = {"nonce": str, "sites": list, "entries": int, "bound": float, "model": str}
    right = set(words) == set(kinds) and all(type(words[name]) is kind for name, kind in kinds.items())
    if not right or not all(isinstance(site, str) for site in words["sites"]):
        raise Refusal("the words of the meeting cannot be read", remedy="install the same version of wardround")
    sites = tuple(words["sites"])
    if list(sites) != sorted(set(sites)):
        raise Refusal("the sites of a meeting must be named once each, in order", remedy="start the round again")
    return Meeting(study, number, words["nonce"], sites, words["entries"], words["bound"], 1, words["model"])


# ---- at a site ----


def make_parcel(
    meeting: Meeting,
    site: str,
    weight: float,
    content: ParcelContent,
    *,
    key: ec.EllipticCurvePrivateKey,
    second: ec.EllipticCurvePublicKey,
    draw: Callable[[int], bytes],
) -> SealedParcel:
    """Seal the content for the second server, and sign all of it."""
    pinned = commitment(meeting, site, content.seed)
    about = about_parcel(meeting, site, weight, pinned)
    sealed = seal_for(second, content.seed + content.deal.astype("<u8").tobytes(), about, draw)
    return SealedParcel(site, weight, pinned, sealed, key.sign(digest(about, sealed), ec.ECDSA(SHA256())))


def about_parcel(meeting: Meeting, site: str, weight: float, pinned: bytes) -> bytes:
    return digest(b"two servers parcel", meeting.digest, site.encode(), weight.hex().encode(), pinned)


# ---- at the second server ----


def open_parcel(
    meeting: Meeting, parcel: SealedParcel, *, key: ec.EllipticCurvePrivateKey, sender: ec.EllipticCurvePublicKey
) -> ParcelContent:
    """What the site sealed; raises BadParcel where it is not what it signed and committed to."""
    about = about_parcel(meeting, parcel.site, parcel.weight, parcel.commitment)
    try:
        sender.verify(parcel.signature, digest(about, parcel.sealed), ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise BadParcel("its signature does not fit what was sent in its name") from None
    content = open_envelope(key, parcel.sealed, about)
    if content is None or len(content) != KEY_BYTES + 8 * (len(meeting.sites) + 1):
        raise BadParcel("what it sealed for the second server cannot be opened")
    seed = content[:KEY_BYTES]
    if commitment(meeting, parcel.site, seed) != parcel.commitment:
        raise BadParcel("its halves do not belong together: the seed is not the one it committed to")
    return ParcelContent(seed, np.frombuffer(content[KEY_BYTES:], "<u8").astype(np.uint64))


# ---- on the way ----


def parcel_words(parcel: SealedParcel) -> dict[str, Any]:
    texts = {name: base64.b64encode(getattr(parcel, name)).decode() for name in ("commitment", "sealed", "signature")}
    return {"site": parcel.site, "weight": parcel.weight, **texts}


def parcel_of(words: Any) -> SealedParcel:
    """Raises BadParcel where these are no words of a parcel."""
    try:
        texts = {name: base64.b64decode(words[name], validate=True) for name in ("commitment", "sealed", "signature")}
        site, weight = words["site"], words["weight"]
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise BadParcel("its parcel for the second server cannot be read") from None
    if not isinstance(site, str) or not isinstance(weight, float) or not math.isfinite(weight):
        raise BadParcel("its parcel for the second server cannot be read")
    return SealedParcel(site, weight, **texts)


def read_seed(text: str, of: str, *, where: str = "") -> bytes:
    """A seed that came in a message, of the round or of the check of its sums."""
    try:
        seed = bytes.fromhex(text)
    except ValueError:
        seed = b""
    if len(seed) != KEY_BYTES:
        raise Refusal(
            f"the seed of the {of} cannot be read", where=where, remedy="install the same version of wardround"
        )
    return seed


def second_reply_digest(meeting: Meeting, words: Mapping[str, Any], gram: Ring, half: str) -> bytes:
    """What the second server signs: who counts, the weights, its summand of the products, the hash of its half."""
    said = [*words["sites"], "|", *(f"{site}={weight}" for site, weight in sorted((words["weights"] or {}).items()))]
    return digest(
        b"two servers opened",
        meeting.digest,
        *(one.encode() for one in said),
        gram.astype("<u8").tobytes(),
        half.encode(),
    )
