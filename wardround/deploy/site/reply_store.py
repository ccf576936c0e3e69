"""A site's replies: the same request, known by all of its bytes, gets the same bytes, whichever side crashed.

What could not be made again is on the disk, under the hash of its request and its own, before it leaves. What comes
out the same if it is made again stays in memory only, the last one of each topic.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.protocol.replies import shapes_of
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.protocol.wire import decode
from wardround.deploy.trust.transcript.entries import digest_of

REPLIES = 8
"""Replies kept on disk of what is asked every round, so that a coordinator that lost the last can ask again."""
REPEATABLE = ("round", "halves", "judge")
"""Answers that come out the same, bit for bit, if they are made again, unless noise is in them: from the request, the
rows and what is kept, which is on the disk. The last one stays in memory only; for a process that was started again
it is made anew, and recognised by its hash in the audit log as one that has left already. All others are saved."""
EVERY_ROUND = ("round", "secure", "halves", "judge")
"""Replies to all other questions are kept until the study is deleted: they are few."""
BOUND = ("study", "round", "nonce", "site", "status")
IN_TRANSCRIPT = (Topic.ROUND, Topic.SECURE, Topic.HALVES, Topic.JUDGE)
"""Topics whose answers stand in a transcript."""
KEY_NAME = "request.key"
NONCE = bytes(12)
"""Always the same: nothing is enciphered, and no tag is shown."""


class RequestTag:
    """Names the requests of one study by all of their bytes, many megabytes of a model included, as fast as memory is.

    A keyed universal hash (GMAC, NIST SP 800-38D) in place of SHA-256: two requests of the same name are as improbable
    as a guess of the key, for whoever knows neither key nor tags. The key is the site's own, one a study, and the tag
    is hashed with it once more before it is written anywhere, so nothing that a coordinator may see tells of it. If the
    key is lost, every request counts as another one, and what was answered is not answered again.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / KEY_NAME
        if not path.exists():
            write_whole(path, secrets.token_bytes(32))
            path.chmod(0o600)
        self._key = path.read_bytes()
        self._hash = AESGCM(self._key)

    def name(self, content: bytes) -> str:
        return hashlib.sha256(self._key + self._hash.encrypt(NONCE, b"", content)).hexdigest()


class StoredReply(NamedTuple):
    """A reply as bytes, their hash, and what the record tells of it: names and shapes of arrays, which words."""

    reply: bytes
    sha256: str
    shapes: dict[str, list[int]]
    words: list[str]


def store_reply(reply: bytes, sha256: str, words: Mapping[str, Any], answer: Message) -> StoredReply:
    return StoredReply(reply, sha256, shapes_of(answer.arrays), sorted(set(words) - set(BOUND)))


class ReplyStore:
    """Of one site; `again` says of an answer that it is the same if it is made again."""

    def __init__(self) -> None:
        self._last: dict[tuple[Path, str], tuple[str, StoredReply]] = {}

    def find(
        self, folder: Path, topic: str, request: str, *, again: bool, once: Callable[[str], bool] = lambda sha256: False
    ) -> StoredReply | None:
        """What was said to this request before; `once` tells of a hash that has left and must not be followed by
        another answer."""
        if not again:
            return load_reply(folder, f"{topic}-{request}", once)
        last, told = self._last.get((folder, topic), ("", None))
        return told if last == request else None

    def keep(self, folder: Path, topic: str, request: str, told: StoredReply, *, again: bool) -> None:
        """Returns when a crash can no longer make it be forgotten, where that matters."""
        if again:
            self._last[folder, topic] = request, told
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{topic}-{request}.{told.sha256}", told.reply)
        if topic in EVERY_ROUND:
            forget_old(folder, f"{topic}-")

    def forget(self, folder: Path) -> None:
        """Nothing is to be said again of this study."""
        for one in [one for one in self._last if one[0] == folder]:
            del self._last[one]


def load_reply(folder: Path, name: str, once: Callable[[str], bool]) -> StoredReply | None:
    """The reply that was saved under a name; one that is not what its file's name says is taken away.

    Unless that one has left and holds noise: whoever asks must not get a second answer to the same question.
    """
    if not folder.is_dir():
        return None  # nothing was ever saved
    for path in [one.path for one in os.scandir(folder) if one.name.startswith(f"{name}.")]:
        with open(path, "rb") as file:
            reply = file.read()
        sha256 = hashlib.sha256(reply).hexdigest()
        if path.endswith(f"{name}.{sha256}"):
            return store_reply(reply, sha256, *decode(reply, copies=False))
        if once(path.rpartition(".")[2]):
            raise Refusal(
                "the answer to this request was sent and its stored copy is damaged; there must not be a second one",
                where=path,
                remedy="restore the file from a backup, or start the study again",
            )
        os.unlink(path)  # left by a death in the midst of a save
    return None


def forget_old(folder: Path, prefix: str) -> None:
    """Keep the last replies only, to what is asked every round."""
    found = [one for one in os.scandir(folder) if one.name.startswith(prefix)]
    if len(found) > REPLIES:
        for old in sorted(found, key=lambda one: one.stat().st_mtime_ns)[:-REPLIES]:
            os.unlink(old.path)


def sent_facts(
    study: str, topic: str, number: Any, to: str, told: StoredReply, claim: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A reply as the record tells it: how large, which arrays of which shapes, which further words; no value.

    `claim` is the place on the study's list of releases that it uses up, and by which request.
    """
    return {
        **(claim or {}),
        "study": study,
        "topic": topic,
        "round": number,
        "to": to,
        "bytes": len(told.reply),
        "sha256": told.sha256,
        "arrays": told.shapes,
        "words": told.words,
    }


def asked_facts(topic: str, header: Mapping[str, Any], message: Message) -> dict[str, Any]:
    """What the audit log keeps of a request beside its answer: the hash of the model in it, and its course."""
    course = {"course": header["course"]} if header.get("course") is not None else {}
    return {"asked": digest_of(message.arrays), **course} if topic in IN_TRANSCRIPT and message.arrays else course
