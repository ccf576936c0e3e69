"""What a secure sum costs a site and the coordinator: `python -m benchmarks.secure_sum` prints one JSON object.

A whole sum of 20 sites with 10 million parameters each, with the most losses that it allows, all parties in one process
and one after the other; every message is turned to JSON and back, its vector handed over as it is. `work_seconds` are
processor seconds of one site for all steps together (the slowest site; `steps` has the median by step). `bytes_ratio`
compares all that a site sends and receives in the protocol with one plain float32 update. The sum is checked against
the plain one. `round_seconds` are the processor seconds of all parties together. `ciphers` are the two candidates for
stretching masks, `commitment_seconds` what a commitment (Pedersen's) to every number of an answer would take, from a
thousand of them; both on the same machine in the same minute.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from wardround.core.contracts import Message
from wardround.privacy.secure_sum import group
from wardround.privacy.secure_sum import server as coordinator
from wardround.privacy.secure_sum import site as sites
from wardround.privacy.secure_sum.fixed_point import decode_sum, encode_answer, from_ring, ring_vector
from wardround.privacy.secure_sum.masks import CHUNK, Ring
from wardround.privacy.secure_sum.messages import STEPS, SumMessage, from_json, to_json
from wardround.privacy.secure_sum.session import Session

FRACTION_BITS, BOUND = 20, 2.0**22
USUAL = tuple(step for step in STEPS if step != "open")
"""Where no site complains about another's shares."""
MOST_WORK, MOST_BYTES = 5.0, 2.2
"""The bars: seconds a site, and times the plain bytes."""


def timed(act: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    started = time.process_time()
    result = act(*given)
    return result, time.process_time() - started


def over_the_wire(message: SumMessage) -> tuple[SumMessage, int]:
    """The message as the other side gets it, and its bytes."""
    text = json.dumps(to_json(message))
    size = len(text.encode()) + (0 if message.vector is None else message.vector.nbytes)
    return from_json(json.loads(text), message.vector), size


class Costs:
    """Processor seconds by site and step, bytes by site."""

    def __init__(self, roster: tuple[str, ...]) -> None:
        self.seconds = {name: dict.fromkeys(USUAL, 0.0) for name in roster}
        self.bytes = dict.fromkeys(roster, 0)
        self.coordinator = 0.0


def vector_of(place: int, entries: int) -> Ring:
    """A site's answer, made when it is needed: twenty of them would fill the memory."""
    return np.random.default_rng(place).integers(-(2**42), 2**42, entries, np.int64).view(np.uint64)


def whole_sum(session: Session, lost: tuple[str, ...]) -> tuple[Ring, Costs]:
    """All steps; the lost ones share their secrets and are gone before they send their vector."""
    signing = {name: Ed25519PrivateKey.generate() for name in session.roster}
    public = {name: key.public_key() for name, key in signing.items()}
    server, costs = coordinator.start_sum(session, public), Costs(session.roster)
    state: dict[str, sites.SumSite] = {}
    asked: dict[str, SumMessage] = {}
    for step in USUAL:
        if step != USUAL[0]:
            (server, asked), seconds = timed(coordinator.advance, server)
            costs.coordinator += seconds
        for name in sorted(asked or session.roster):
            if name in lost and step in ("mask", "agree", "reveal"):
                continue
            given: tuple[Any, ...]
            if step == USUAL[0]:
                act, given = sites.advertise, (session, name, signing[name], public)
            else:
                message, size = over_the_wire(asked[name])
                costs.bytes[name] += size
                act = getattr(sites, step)
                given = (state[name], message)
                if step == "mask":
                    given = (*given, vector_of(session.place(name), session.entries))
            (state[name], said), costs.seconds[name][step] = timed(act, *given)
            said, size = over_the_wire(said)
            costs.bytes[name] += size
            server, seconds = timed(coordinator.receive, server, said)
            costs.coordinator += seconds
    total, seconds = timed(coordinator.unmask_sum, server)
    costs.coordinator += seconds
    return total, costs


def ciphers(entries: int) -> dict[str, float]:
    """Processor seconds to stretch one mask to so many ring elements."""
    zeros, room = bytes(8 * CHUNK), bytearray(8 * CHUNK + 16)
    candidates: dict[str, Callable[[], CipherContext]] = {
        "aes_256_ctr": lambda: Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor(),
        "chacha20": lambda: Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), None).encryptor(),
    }
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(5):  # in turn, so that both meet the same neighbours on the machine
        for name, make in candidates.items():
            source, started = make(), time.process_time()
            for _ in range(0, entries, CHUNK):
                source.update_into(zeros, room)
            found[name].append(time.process_time() - started)
    return {name: round(min(seconds), 4) for name, seconds in found.items()}


def commitments(entries: int) -> float:
    """Processor seconds to commit to so many numbers one by one, as a proof about each of them would have to."""
    other, tried = group.public_point(group.random_scalar()), 1000

    def commit() -> None:
        for number in range(1, tried + 1):
            hidden = group.shared_point(group.random_scalar(), other)
            assert hidden is not None
            group.sum_of(group.public_point(number), hidden)

    return round(timed(commit)[1] * entries / tried, 1)


def encoding(entries: int) -> dict[str, float]:
    """Processor seconds to turn an answer into ring elements, and their sum into numbers again; compiled before."""
    update = jnp.asarray(np.random.default_rng(0).normal(size=entries - 1).astype(np.float32))
    answer = Message({"update": update, "weight": jnp.float32(100.0)})
    there = jax.jit(lambda message: encode_answer(message, FRACTION_BITS, BOUND))
    back = jax.jit(lambda message: decode_sum(message, FRACTION_BITS))
    jax.block_until_ready(back(there(answer)))
    vector, to_ring = timed(lambda: ring_vector(there(answer)))
    template = jax.eval_shape(there, answer)
    _, from_it = timed(lambda: jax.block_until_ready(back(from_ring(vector, template))))
    return {"site_seconds": round(to_ring, 3), "coordinator_seconds": round(from_it, 3)}


def measured(count: int, parameters: int) -> dict[str, Any]:
    entries = parameters + 1  # the sample count
    roster = tuple(f"site-{i:03d}" for i in range(count))
    session = Session("benchmark", 1, "00" * 32, "00" * 16, roster, entries, FRACTION_BITS, BOUND, count)
    lost = roster[1 : 1 + (count - 1) // 3]
    total, costs = whole_sum(session, lost)
    plain = np.zeros(entries, np.uint64)
    for name in set(roster) - set(lost):
        plain += vector_of(session.place(name), entries)
    assert np.array_equal(total, plain), "the sum is not exact"
    stayed = [name for name in roster if name not in lost]
    work = max(sum(costs.seconds[name].values()) for name in stayed)
    ratio = max(costs.bytes[name] for name in stayed) / (4 * parameters)
    return {
        "sites": count,
        "lost": len(lost),
        "parameters": parameters,
        "exact": True,
        "work_seconds": round(work, 3),
        "work_of_bar": round(work / MOST_WORK, 3),
        "bytes_ratio": round(ratio, 4),
        "bytes_of_bar": round(ratio / MOST_BYTES, 4),
        "steps": {step: round(median(costs.seconds[name][step] for name in stayed), 4) for step in USUAL},
        "coordinator_seconds": round(costs.coordinator, 3),
        "round_seconds": round(costs.coordinator + sum(sum(one.values()) for one in costs.seconds.values()), 3),
        "encoding": encoding(entries),
        "ciphers": ciphers(entries),
        "commitment_seconds": commitments(entries),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What a secure sum costs a site and the coordinator.")
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    chosen = parser.parse_args()
    print(json.dumps(measured(chosen.sites, chosen.parameters)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
