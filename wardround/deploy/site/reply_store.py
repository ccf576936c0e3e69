"""A site's replies: the same request gets the same bytes, whichever side crashed in between.

What could not be made again is on the disk, under the hash of its request and its own, before it leaves. What comes
out the same if it is made again stays in memory only, the last one of each topic.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.protocol.wire import decode

REPLIES = 8
"""Replies kept on disk of what is asked every round, so that a coordinator that lost the last can ask again."""
REPEATABLE = ("round", "halves", "judge")
"""Answers that come out the same, bit for bit, if they are made again, unless noise is in them: from the request, the
rows and what is kept, which is on the disk. The last one stays in memory only; for a process that was started again
it is made anew, and recognised by its hash in the audit log as one that has left already. All others are saved."""
EVERY_ROUND = ("round", "secure", "halves", "judge")
"""Replies to all other questions are kept until the study is deleted: they are few."""
BOUND = ("study", "round", "nonce", "site", "status")


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


def shapes_of(arrays: Any) -> dict[str, list[int]]:
    """Names and shapes of what leaves, for the record; never values."""
    paths = jax.tree_util.tree_leaves_with_path(arrays)
    return {jax.tree_util.keystr(path): list(getattr(leaf, "shape", ())) for path, leaf in paths}
