"""What comes back from a site: how it is made and read, whether it can be used, and what to tell where it cannot."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Message
from wardround.core.errors import Diverged, Refusal
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.protocol.compression import unpack
from wardround.deploy.protocol.requests import Request
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed, decode, encode

HUGE = 1e20
"""Larger numbers are a fault: their squares are not finite any more."""
BOUND = ("study", "round", "nonce")
"""Words of a request that its reply repeats."""


class Reply(NamedTuple):
    """A site's reply, decoded, and how many bytes it took."""

    status: Status
    header: dict[str, Any]
    message: Message
    size: int
    sha256: str = ""
    """Of its bytes, unpacked: the same that the site's audit log tells."""

    @property
    def why(self) -> str:
        """In the site's words, as one line that no terminal obeys."""
        return plain_line(self.header.get("why", ""), LONGEST)


class Absence(NamedTuple):
    """Why there is no answer of a site: in its own words under a status, or in ours where it said nothing."""

    why: str
    status: Status | None = None
    unusable: bool = False
    """It did answer, and the same question would get the same nonsense again."""

    def __str__(self) -> str:
        return self.why if self.status is None or self.unusable else f"{self.status}: {self.why}"


def reply_to(header: Mapping[str, Any], site: str, words: Mapping[str, Any], message: Message | None = None) -> bytes:
    """A reply as bytes, bound to the request with this header (what could be read of it) and to the site."""
    bound = {key: header.get(key) for key in BOUND}
    return encode({**words, **bound, "site": site}, message)


def refusal_to(content: bytes, site: str, why: str) -> bytes:
    """A refusal of a request that nobody has looked at."""
    try:
        header, _ = decode(content)
    except Malformed:
        header = {}
    return reply_to(header, site, {"status": Status.REFUSED, "why": why})


def public_reason(refusal: Refusal, whose: str = "the site") -> str:
    """A refusal as the coordinator is told it: where files lie is nobody else's business."""
    if os.sep not in refusal.where:
        return str(refusal)
    return str(Refusal(refusal.what, where=f"a file of {whose}", remedy=refusal.remedy))


def read_reply(content: bytes, *, most: int = LARGEST_MESSAGE) -> Reply:
    """The reply in these bytes, packed or not; its arrays are views of them. Raises Malformed for anything else.

    `most` is how many bytes such a reply may have: nothing larger is unpacked or looked at.
    """
    plain = unpack(content, most=most)
    header, message = decode(plain, most=most, copies=False)
    try:
        status = Status(header["status"])
    except (KeyError, ValueError):
        raise Malformed(f"{plain_line(header.get('status'), 40)!r} is not a reply status") from None
    return Reply(status, header, message, len(content), sha256=hashlib.sha256(plain).hexdigest())


def is_reply_to(reply: Reply, request: Request, site: str) -> bool:
    """Whether a reply belongs to this request, and is no replay or copy."""
    # A request that could not even be read is refused without any of these.
    bound = tuple(reply.header.get(key) for key in (*BOUND, "site"))
    return reply.status is Status.REFUSED or bound == (request.study, request.round, request.nonce, site)


def too_few_usable(bad: Mapping[str, Absence], number: int, topic: str = "round") -> Refusal:
    """What to tell when so many answers cannot be used that the quorum is out of reach."""
    if bad and all(one.status is Status.DIVERGED for one in bad.values()):
        names = ", ".join(sorted(bad))
        return Diverged(f"training diverged in round {number} at {names}", number, tuple(sorted(bad)))
    return Refusal(
        "; ".join(f"site {site}: {one}" for site, one in sorted(bad.items())),
        where=f"round {number}" if topic == "round" else f"the answer to '{topic}'",
        remedy="check the rows and the version of wardround at this site, lower [deploy] quorum, or leave the "
        "site out with [deploy] sites",
    )


def answer_problem(reply: Reply, shapes: Message) -> str | None:
    """Why an answer cannot be used: other arrays than expected, or numbers that are not finite."""
    if reply.status is Status.DIVERGED:
        return "its training diverged: the answer is not a finite number"
    expected, structure = jax.tree.flatten(shapes)
    given, found = jax.tree.flatten(reply.message)
    if str(structure) != str(found):
        return "its answer does not have the algorithm's arrays"
    for want, got in zip(expected, given, strict=True):
        if np.shape(got) != want.shape or np.asarray(got).dtype != want.dtype:
            return f"its answer has an array of shape {np.shape(got)} where {want.shape} was expected"
    return number_problem(reply.message)


def number_problem(answer: Message) -> str | None:
    """Why the numbers of an answer cannot be used: not finite, or huge."""
    # Smallest and largest tell it all without an array in between: what is not a number passes through both.
    given = map(np.asarray, jax.tree.leaves(answer))
    floats = [one for one in given if one.dtype.kind == "f"]
    ends = [abs(float(end)) for one in floats if one.size for end in (one.min(), one.max())]
    if not all(np.isfinite(ends)):
        return "its answer is not finite"
    largest = max(ends, default=0.0)
    if largest > HUGE:
        return f"its answer has numbers as large as {largest:.0e}"
    return None


def shapes_of(arrays: Any) -> dict[str, list[int]]:
    """Names and shapes of what leaves, for the record; never values."""
    paths = jax.tree_util.tree_leaves_with_path(arrays)
    return {jax.tree_util.keystr(path): list(getattr(leaf, "shape", ())) for path, leaf in paths}
