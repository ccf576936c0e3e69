"""The two shares that a holder has of a dealer: how they travel, and how they are compared with their commitments."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wardround.privacy.secure_sum import group
from wardround.privacy.secure_sum.messages import BadMessage, SumMessage, read_bytes

SEALED_BYTES = 2 * group.SCALAR_BYTES + 16
"""Both shares, and the tag that shows they are unchanged."""


class Shares(NamedTuple):
    """What a holder has of one dealer: of the scalar behind its own mask, and of its masking key."""

    seed: int
    key: int


class DealtShares(NamedTuple):
    """What a site dealt: by holder the sealed shares and the commitments to them, and one to the seed itself."""

    sealed: Mapping[str, Mapping[str, str]]
    commitments: Mapping[str, tuple[bytes, bytes]]
    seed: bytes


def parcel_for(dealt: DealtShares, holder: str) -> dict[str, Any]:
    """What a dealer sealed for this holder, with the commitments to it."""
    return {**dealt.sealed[holder], "commitments": [one.hex() for one in dealt.commitments[holder]]}


def shares_to_json(shares: Shares) -> dict[str, str]:
    return {"seed": group.to_bytes(shares.seed).hex(), "key": group.to_bytes(shares.key).hex()}


def read_shares(message: SumMessage, words: Any, dealer: str) -> Shares:
    """Shares that were opened; whether they are the right ones is for `is_committed` to say."""
    if not isinstance(words, Mapping) or set(words) != {"seed", "key"}:
        raise BadMessage(message.sender, f"the opened shares of {dealer} cannot be read", step=message.step)
    seed, key = (read_scalar(message, words[name]) for name in ("seed", "key"))
    return Shares(seed, key)


def read_scalar(message: SumMessage, text: Any) -> int:
    found = group.scalar_from(read_bytes(message, text, group.SCALAR_BYTES, "a share"))
    if found is None:
        raise BadMessage(message.sender, "a share is larger than the group's order", step=message.step)
    return found


def read_pair(message: SumMessage, pair: Any) -> tuple[bytes, bytes]:
    """Two points, to the shares of a seed and of a key."""
    if not isinstance(pair, list) or len(pair) != 2:
        raise BadMessage(message.sender, "a commitment cannot be read", step=message.step)
    seed, key = (read_bytes(message, one, group.POINT_BYTES, "a commitment") for one in pair)
    return seed, key


def is_committed(shares: Shares, commitments: tuple[bytes, bytes]) -> bool:
    return tuple(group.public_point(one) for one in shares) == commitments
