"""What a site has said it says again, from memory or from the disk; a damaged reply is never sent."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site.reply_store import REPLIES, ReplyStore, StoredReply, sent_facts, store_reply


def told(value: float) -> StoredReply:
    words, answer = {"status": "ok", "extra": 1}, Message({"update": {"w": np.full((2, 3), value)}})
    reply = encode(words, answer)
    return store_reply(reply, hashlib.sha256(reply).hexdigest(), words, answer)


def test_what_cannot_be_made_again_is_on_the_disk(tmp_path: Path) -> None:
    ReplyStore().keep(tmp_path / "replies", "query", "ab" * 32, told(1.0), again=False)
    assert ReplyStore().find(tmp_path / "replies", "query", "ab" * 32, again=False) == told(1.0)
    assert ReplyStore().find(tmp_path / "replies", "query", "cd" * 32, again=False) is None
    assert ReplyStore().find(tmp_path / "nowhere", "query", "ab" * 32, again=False) is None


def test_what_can_be_made_again_is_remembered_until_the_next(tmp_path: Path) -> None:
    replies = ReplyStore()
    replies.keep(tmp_path, "round", "first", told(1.0), again=True)
    replies.keep(tmp_path, "judge", "other", told(3.0), again=True)
    assert replies.find(tmp_path, "round", "first", again=True) == told(1.0)
    replies.keep(tmp_path, "round", "second", told(2.0), again=True)
    assert replies.find(tmp_path, "round", "first", again=True) is None
    assert replies.find(tmp_path, "round", "second", again=True) == told(2.0)
    assert list(tmp_path.iterdir()) == []
    replies.forget(tmp_path)
    assert replies.find(tmp_path, "judge", "other", again=True) is None


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: bytes(len(raw)), lambda raw: b""])
def test_a_damaged_reply_is_taken_away(tmp_path: Path, damage) -> None:
    replies = ReplyStore()
    replies.keep(tmp_path, "query", "ab" * 32, told(1.0), again=False)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert replies.find(tmp_path, "query", "ab" * 32, again=False) is None
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_reply_that_has_left_is_not_followed_by_another(tmp_path: Path) -> None:
    """Under noise from the operating system another answer would tell more than was charged."""
    replies = ReplyStore()
    replies.keep(tmp_path, "round", "ab" * 32, told(1.0), again=False)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"torn")
    with pytest.raises(Refusal, match="there must not be a second one"):
        replies.find(tmp_path, "round", "ab" * 32, again=False, once=lambda sha256: sha256 == told(1.0).sha256)
    assert list(tmp_path.iterdir()) == [path], "there is still something to restore"
    assert replies.find(tmp_path, "round", "ab" * 32, again=False, once=lambda sha256: False) is None


def test_only_the_last_are_kept_of_what_is_asked_every_round(tmp_path: Path) -> None:
    replies = ReplyStore()
    for number in range(REPLIES + 3):
        replies.keep(tmp_path, "secure", f"{number:064x}", told(number), again=False)
        replies.keep(tmp_path, "query", f"{number:064x}", told(number), again=False)
    kept = [number for number in range(REPLIES + 3) if replies.find(tmp_path, "secure", f"{number:064x}", again=False)]
    assert kept == list(range(3, REPLIES + 3))
    assert sum(1 for path in tmp_path.iterdir() if path.name.startswith("query-")) == REPLIES + 3


def test_the_record_tells_shapes_and_names_and_no_value() -> None:
    entry = sent_facts("s", "round", 3, "server", told(1.5))
    assert entry["arrays"] == {"['update']['w']": [2, 3]}
    assert entry["words"] == ["extra"]
    assert entry["sha256"] == hashlib.sha256(told(1.5).reply).hexdigest()
    assert "1.5" not in str(entry)
