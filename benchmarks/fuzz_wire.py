"""Throw damaged and hostile messages at the decoder: none may crash it, none may make it allocate what it announces.

    python -m benchmarks.fuzz_wire 1000000

Each input is a valid message that was damaged (bytes flipped, cut, doubled, joined with another), one whose headers lie
(lengths, offsets, shapes, types, depth), or noise. `Malformed` or a message is right; anything else ends the run and
prints the seed. The process may use little more memory than the largest input needs (RLIMIT_AS), so an allocation from
a header's promise ends the run, too. Whatever is accepted must be the same after it was written and read again.
"""

import json
import random
import resource
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from wardround.core.contracts import Message
from wardround.deploy.protocol.compression import PACKED, unpack
from wardround.deploy.protocol.wire import MAGIC, Malformed, decode, encode

ROOM = 512 << 20
"""Address space beside what the process has when the fuzzing begins."""
NUMBERS = (0, 1, -1, 7, 8, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1, 10**40)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    2**63,
    10**50,
    "",
    "x",
    "F32",
    [],
    [[]],
    {},
    {"d": {}},
    [-1, 2],
)


def seeds() -> list[bytes]:
    """Valid messages of every shape that we send."""
    generator = np.random.default_rng(0)
    header = {"protocol": 1, "study": "triage-0123456789ab", "round": 3, "nonce": "ab" * 16, "status": "ok"}
    trees: list[dict[str, Any]] = [
        {},
        {"rows": np.array([3, 2, 1])},
        {"params": {"dense/kernel": generator.normal(size=(5, 3)).astype(np.float32), "dense/bias": np.zeros(3)}},
        {"mixed": (np.array(True), np.array([], np.float16), (np.uint8(3), {"deep": np.arange(6).reshape(1, 2, 3)}))},
    ]
    return [encode(header, Message(tree, (("site", "a"),))) for tree in trees] + [encode(header)]


def parts(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Header, safetensors' header and numbers of a valid message."""
    (length,) = struct.unpack("<I", content[4:8])
    head, rest = content[8 : 8 + length], content[8 + length :]
    if not rest:
        return head, b"", b""
    (inner,) = struct.unpack("<Q", rest[:8])
    return head, rest[8 : 8 + inner], rest[8 + inner :]


def joined(head: bytes, index: bytes, body: bytes, *, length: int | None = None, inner: int | None = None) -> bytes:
    first = struct.pack("<I", (len(head) if length is None else length) % 2**32)
    second = struct.pack("<Q", (len(index) if inner is None else inner) % 2**64) if index or body else b""
    return MAGIC + first + head + second + index + body


def flipped(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if damaged:
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def spliced(content: bytes, chance: random.Random) -> bytes:
    at, length = chance.randrange(len(content) + 1), chance.randrange(64)
    return (
        content[:at] + content[chance.randrange(len(content)) :][:length] + content[at + chance.choice((0, length)) :]
    )


def noise(_: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"", MAGIC)) + chance.randbytes(chance.randrange(200))


def lying_lengths(content: bytes, chance: random.Random) -> bytes:
    head, index, body = parts(content)
    return joined(head, index, body, length=chance.choice((None, *NUMBERS)), inner=chance.choice((None, *NUMBERS)))


def changed(words: Any, chance: random.Random) -> Any:
    """One value somewhere in JSON replaced by something strange."""
    if isinstance(words, dict) and words and chance.random() < 0.85:
        key = chance.choice(list(words))
        if chance.random() < 0.1:
            return {**words, chance.choice(("", "0", "-1", "00", "__metadata__", "d")): words[key]}
        return {**words, key: changed(words[key], chance)}
    if isinstance(words, list) and words and chance.random() < 0.85:
        at = chance.randrange(len(words))
        return [*words[:at], changed(words[at], chance), *words[at + 1 :]]
    return chance.choice((*STRANGE, *NUMBERS))


def lying_headers(content: bytes, chance: random.Random) -> bytes:
    head, index, body = parts(content)
    if index and chance.random() < 0.7:
        index = json.dumps(changed(json.loads(index), chance)).encode()
    else:
        head = json.dumps(changed(json.loads(head), chance)).encode()
    return joined(head, index, body)


def huge_shapes(content: bytes, chance: random.Random) -> bytes:
    """Arrays that announce terabytes, or nothing along axes without end."""
    shape = [chance.choice((0, 1, 2, *NUMBERS[6:])) for _ in range(chance.randrange(1, 40))]
    kind = chance.choice(("F64", "F32", "BOOL", "U8", "BF16", "F8_E4M3", "C64"))
    offsets = [chance.choice(NUMBERS), chance.choice(NUMBERS)]
    index = json.dumps({"0": {"dtype": kind, "shape": shape, "data_offsets": offsets}}).encode()
    return joined(json.dumps({"arrays": {"d": {"a": 0}}}).encode(), index, chance.randbytes(chance.randrange(40)))


def deep(_: bytes, chance: random.Random) -> bytes:
    times = chance.choice((10, 20, 500, 5_000, 50_000))
    opening, inside, closing = chance.choice(
        (("[", "", "]"), ('{"d":{"a":', "0", "}}"), ('{"t":[', "0", "]}"), ('{"a":', "1", "}"))
    )
    text = opening * times + inside + closing * chance.choice((times, times - 1, 0))
    head = chance.choice((text, f'{{"arrays":{text}}}', f'{{"meta":{text}}}')).encode()
    return joined(head, b"", b"")


def odd_text(content: bytes, chance: random.Random) -> bytes:
    words = (
        b"\xff",
        b"\\ud800",
        b"\\udc00\\ud800",
        b"\\u0000",
        b"\xed\xa0\x80",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
    )
    head, index, body = parts(content)
    word = chance.choice(words)
    text = b'{"why":' + (word if word[:1] in b"N-19" else b'"' + word + b'"') + b"}"
    return joined(chance.choice((text, head.replace(b"triage", word), head.decode().encode("utf-16"))), index, body)


def wrapped(content: bytes, chance: random.Random) -> bytes:
    """A packed message whose length may lie, or which was damaged after packing, or is a bomb."""
    inner = chance.choice((content, content * 50, bytes(chance.choice((10, 10**4, 10**6)))))
    size = chance.choice((len(inner), len(inner), len(inner) + 1, *NUMBERS[:13]))
    whole = PACKED + struct.pack("<Q", max(0, size)) + zlib.compress(inner, 1)
    return flipped(whole, chance) if chance.random() < 0.5 else whole


WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flipped,
    cut,
    spliced,
    noise,
    lying_lengths,
    lying_headers,
    huge_shapes,
    deep,
    odd_text,
    wrapped,
)


def fuzz(count: int, seed: int = 0) -> dict[str, int]:
    """How many inputs were refused and how many were (still) messages; raises for anything else."""
    chance, valid = random.Random(seed), seeds()
    tally = {"refused": 0, "accepted": 0}
    for number in range(count):
        way = WAYS[number % len(WAYS)]
        if way is deep and number % (len(WAYS) * 20) >= len(WAYS):
            way = flipped  # deep nesting is slow to write, not to refuse
        content = way(chance.choice(valid), chance)
        if chance.random() < 0.2:
            content = flipped(content, chance)
        try:
            header, message = decode(unpack(content))
        except Malformed:
            tally["refused"] += 1
            continue
        except BaseException as error:
            raise AssertionError(f"input {number} of seed {seed} ({way.__name__}): {error!r}") from error
        again = encode(header, message)
        assert encode(*decode(again)) == again, f"input {number} of seed {seed} ({way.__name__}) is not the same again"
        tally["accepted"] += 1
    return tally


def limit_memory(room: int = ROOM) -> None:
    """Let a promise of more than `room` bytes fail at once."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    fuzz(1_000, seed + 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit_memory()
    started = time.perf_counter()
    tally = fuzz(count, seed)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps({**tally, "seconds": round(time.perf_counter() - started, 1), "grown_mb": round(grown, 1)}))


if __name__ == "__main__":
    main()
