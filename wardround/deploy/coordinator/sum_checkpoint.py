"""What the coordinator must not lose when it is about to open a sum: on the disk before it asks for the first share.

Public keys, commitments, signatures and the sum of the masked vectors. None of it tells an answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from wardround.core.contracts import Message
from wardround.core.files import write_whole
from wardround.deploy.protocol.wire import Malformed, decode, encode
from wardround.privacy.secure_sum.messages import STEPS, SumMessage, VerifyingKey, from_json, to_json
from wardround.privacy.secure_sum.server import Server, ShareVerdict, start_sum
from wardround.privacy.secure_sum.session import Advert, adverts_to_json, session_from_json, session_to_json
from wardround.privacy.secure_sum.shares import DealtShares


def save_sum(path: Path, server: Server, letters: Mapping[str, SumMessage], commitments: Mapping[str, str]) -> None:
    """Write down a sum that is about to be opened, in place of earlier ones, and what each site is asked for it.

    `commitments` are the hashes of the masked answers, which the transcript tells.
    """
    assert server.total is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"*{path.suffix}"):
        old.unlink()
    dealt = {
        site: {
            "commitments": {holder: [part.hex() for part in pair] for holder, pair in one.commitments.items()},
            "seed": one.seed.hex(),
        }
        for site, one in server.dealt.items()
        if site in server.dealers
    }
    words = {
        "session": session_to_json(server.session),
        "adverts": adverts_to_json(server.adverts),
        "dealt": dealt,
        "survivors": sorted(server.survivors),
        "masked": {site: commitments[site] for site in sorted(server.survivors)},
        "signatures": dict(server.signatures),
        "letters": {site: to_json(letter) for site, letter in letters.items()},
    }
    write_whole(path, encode(words, Message({"total": server.total})))


def load_sum(
    path: Path, keys: Mapping[str, VerifyingKey], model: str
) -> tuple[Server, dict[str, SumMessage], dict[str, str]] | None:
    """The sum that was about to be opened, of this model, as it was saved; none where there is none."""
    if not path.exists():
        return None
    try:
        words, message = decode(path.read_bytes())
    except Malformed:
        return None
    session = session_from_json(words["session"])
    if session.model != model:
        return None
    adverts = {
        site: Advert(bytes.fromhex(one["sharing"]), bytes.fromhex(one["masking"]), one["signature"])
        for site, one in words["adverts"].items()
    }
    dealt = {
        site: DealtShares(
            {},
            {holder: (bytes.fromhex(seed), bytes.fromhex(key)) for holder, (seed, key) in one["commitments"].items()},
            bytes.fromhex(one["seed"]),
        )
        for site, one in words["dealt"].items()
    }
    server = replace(
        start_sum(session, {name: keys[name] for name in session.roster}),
        step=STEPS[-1],
        adverts=adverts,
        dealt=dealt,
        verdicts=dict.fromkeys(dealt, ShareVerdict({}, "")),
        survivors=frozenset(words["survivors"]),
        total=np.asarray(message.arrays["total"], np.uint64),
        signatures=words["signatures"],
    )
    return server, {site: from_json(letter) for site, letter in words["letters"].items()}, dict(words["masked"])
