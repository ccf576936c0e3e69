"""Sites that lie: an honest conversation is recorded once, and told again with one site's replies made wrong.

The nonce of a request follows from its words, so a coordinator that starts the same study anew asks the same questions;
the honest answers need not be computed again, and a whole study with a liar takes a fraction of a second.
"""

import hashlib
import json
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.support import in_process
from wardround.core.contracts import Message
from wardround.deploy.coordinator import run_study
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.protocol.compression import PACKED
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.protocol.wire import Malformed, decode, encode
from wardround.runs.folder import RunFolder
from wardround.study.file import Study

Lie = Callable[[bytes], bytes]
BOUND = ("study", "round", "nonce", "site", "status")


class Recorder:
    """Stands before a consortium, passes everything on, and remembers it."""

    def __init__(self, consortium: in_process.Consortium) -> None:
        self.told: dict[tuple[str, str, str], bytes] = {}
        ask = consortium.ask

        def heard(site: str, topic: str, body: bytes, within: float) -> bytes:
            reply = ask(site, topic, body, within)
            self.told[key_of(site, topic, body)] = bytes(reply)
            return reply

        consortium.ask = heard  # type: ignore[method-assign]


def said_without(consortium: in_process.Consortium, study: Study, liar: str) -> dict[tuple[str, str, str], bytes]:
    """All that sites say in a study in which the answers of one of them never arrive."""
    recorder = Recorder(consortium)
    heard = consortium.ask

    def ask(site: str, topic: str, body: bytes, within: float) -> bytes:
        reply = heard(site, topic, body, within)
        return b"" if (site, topic) == (liar, Topic.ROUND) else reply

    consortium.ask = ask  # type: ignore[method-assign]
    consortium.conduct(study)
    return recorder.told


def key_of(site: str, topic: str, body: bytes) -> tuple[str, str, str]:
    if topic == Topic.FINISH:  # the transcript that comes with the model is signed anew each time
        header, message = decode(body)
        model = {name: one for name, one in message.arrays.items() if name != "transcript"}
        body = encode({word: one for word, one in header.items() if word != "nonce"}, Message(model))
    return site, str(topic), hashlib.sha256(body).hexdigest()


def bound_to(body: bytes, reply: bytes) -> bytes:
    """What was said before, as the answer to this request."""
    header, message = decode(reply)
    nonce = decode(body)[0]["nonce"]
    return reply if header["nonce"] == nonce else encode({**header, "nonce": nonce}, message)


class Conversation:
    """A consortium whose sites say again what they said; `liar` tells `lie` whenever it is asked about `topic`."""

    def __init__(self, consortium: in_process.Consortium, told: Mapping[tuple[str, str, str], bytes]) -> None:
        self.consortium, self.told = consortium, told
        self.liar, self.topic, self.lie = "", "", (lambda reply: reply)
        self.lied = 0
        self.last = Path()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consortium, name)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        found = self.told.get(key_of(site, topic, body))
        reply = self.consortium.ask(site, topic, body, within) if found is None else bound_to(body, found)
        if (site, topic) != (self.liar, self.topic):
            return reply
        said = self.lie(reply)
        self.lied += said != reply
        return said

    def tell(self, liar: str, topic: str, lie: Lie) -> None:
        self.liar, self.topic, self.lie, self.lied = liar, topic, lie, 0

    def conduct(self, study: Study, *, again: bool = False) -> Any:
        """The study from its beginning, or (`again`) as a coordinator that was started anew goes on with it."""
        self.last = self.last if again else Path(tempfile.mkdtemp(dir=self.consortium.folder)) / "run"
        folder = RunFolder.create(self.last, resume=again)
        submission = Submission(study, self.consortium.names, "researcher")
        return run_study.conduct(submission, folder, self)

    def rounds(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.last / "rounds.jsonl").read_text().splitlines()]


# ---- lies ----


def with_words(**words: Any) -> Lie:
    """The reply with other words in its header."""

    def lie(reply: bytes) -> bytes:
        header, message = decode(reply)
        return encode({**header, **words}, message)

    return lie


def with_each_word(change: Callable[[Any], Any]) -> Lie:
    """Every word that the reply is not bound by is changed."""

    def lie(reply: bytes) -> bytes:
        header, message = decode(reply)
        return encode({key: one if key in BOUND else change(one) for key, one in header.items()}, message)

    return lie


def with_arrays(change: Callable[[dict[str, Any]], Any]) -> Lie:
    def lie(reply: bytes) -> bytes:
        header, message = decode(reply)
        return encode(header, Message(change(message.arrays), message.meta))

    return lie


def with_each_array(change: Callable[[Any], Any]) -> Lie:
    return with_arrays(lambda arrays: jax.tree.map(lambda one: change(np.array(one)), arrays))


def filled(value: float) -> Lie:
    """Every array holds this one value; those that cannot hold it become floats."""

    def change(one: Any) -> Any:
        whole = one.dtype.kind in "iub" and np.isfinite(value) and abs(value) < 2**62 and value == int(value)
        kind = np.float64 if not whole and one.dtype.kind != "f" else np.int64 if whole else one.dtype
        return np.full(one.shape, value, kind)

    return with_each_array(change)


def overflowing(reply: bytes) -> bytes:
    """Lengths in the header far beyond what is there."""
    return reply[:4] + b"\xff\xff\xff\x7f" + reply[8:]


def bomb(reply: bytes) -> bytes:
    """Megabytes of zeros in kilobytes, not quite a hundredfold: the ratio alone gives nothing away."""
    content = reply[:-1] + bytes(np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8)) + bytes(6_000_000)
    return PACKED + struct.pack("<Q", len(content)) + zlib.compress(content)


def claim(reply: bytes) -> bytes:
    return PACKED + struct.pack("<Q", 1 << 31) + zlib.compress(reply)


def padded(reply: bytes) -> bytes:
    """An honest reply with a hundred megabytes of words that nobody asked for."""
    header, message = decode(reply)
    return encode(header, Message({**message.arrays, "more": np.zeros(100_000_000 // 4, np.float32)}, message.meta))


def nested(depth: int) -> Any:
    found: Any = "deep"
    for _ in range(depth):
        found = {"a": [found]}
    return found


ESCAPES = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://x\x07link\x1b]8;;\x07\r\n\u202egnol\u2066\u200b" + "x" * 5000
LIES: dict[str, Lie] = {
    "nothing": lambda reply: b"",
    "garbage": lambda reply: b"\x00" * len(reply),
    "cut": lambda reply: reply[:-3],
    "more behind": lambda reply: reply + b"x",
    "lengths beyond the end": overflowing,
    "packed bomb": bomb,
    "claim of two gigabytes": claim,
    "no arrays": with_arrays(lambda arrays: {}),
    "one array more": with_arrays(lambda arrays: {**arrays, "more": np.zeros(3)}),
    "arrays of other names": with_arrays(lambda arrays: {f"{name}'": one for name, one in arrays.items()}),
    "arrays in arrays": with_arrays(lambda arrays: {name: {"in": one} for name, one in arrays.items()}),
    "not a number": filled(float("nan")),
    "infinite": filled(float("inf")),
    "huge": filled(1e30),
    "a million million": filled(10**12),
    "below zero": filled(-7),
    "text for numbers": with_each_array(lambda one: np.frombuffer(b"a word", np.uint8)),
    "other types": with_each_array(lambda one: one.astype(np.float16 if one.dtype.kind == "f" else np.float64)),
    "other shapes": with_each_array(lambda one: np.stack([one, one])),
    "no entries": with_each_array(lambda one: one.reshape(-1)[:0]),
    "words that are numbers": with_each_word(lambda one: 7),
    "words that are lists": with_each_word(lambda one: [[], {}]),
    "words nested deeply": with_each_word(lambda one: nested(400)),
    "routing words": lambda reply: encode((told := decode(reply))[0], Message(told[1].arrays, (("phase", "x"),))),
    "diverged": with_words(status="diverged"),
    "a status that nobody knows": with_words(status="fine"),
    "a status of another type": with_words(status=["ok"]),
    "another site's name": with_words(site="kenema"),
    "another study": with_words(study="other"),
    "another round": with_words(round=77),
    "another nonce": with_words(nonce="00" * 16),
}
"""What a site may say instead of an answer, whatever it was asked."""


def changed(lie: Lie, reply: bytes) -> bytes | None:
    """The lie; none where it cannot be told about this reply, or is the truth."""
    try:
        said = lie(reply)
    except (Malformed, ValueError, TypeError, OverflowError):
        return None
    return None if said == reply or is_same(said, reply) else said


def is_same(said: bytes, reply: bytes) -> bool:
    """Whether two messages without arrays say the same: there are two ways to write that there are none."""
    try:
        (header, message), (other, honest) = decode(said), decode(reply)
    except Malformed:
        return False
    return header == other and message.meta == honest.meta and not message.arrays and not honest.arrays


def told_about(told: Mapping[tuple[str, str, str], bytes], site: str, topic: str) -> Sequence[bytes]:
    return [reply for (who, what, _), reply in told.items() if (who, what) == (site, topic)]
