"""What a message between coordinator and site looks like as bytes: a JSON header, and arrays in safetensors.

Nothing else is ever decoded: no code, no pickles. Sizes are checked against what is there before anything is allocated,
so that an attacker's header cannot ask for memory. Every message is bound to its study, round, sender and a nonce by
the header, over a channel that TLS keeps from being read or changed.

Layout: 4 bytes "WR1\\n", 4 bytes length of the header (little-endian), the header, then safetensors to the end.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from wardround.core.contracts import Message

MAGIC = b"WR1\n"
LARGEST_HEADER = 1 << 22
DEEPEST = 16
"""Nesting of the arrays' structure; a model is one dictionary in another."""
LARGEST_MESSAGE = 1 << 31
KINDS = frozenset("bfiu")
"""Booleans, floats, signed and unsigned integers: what a message may hold."""


class Malformed(Exception):
    """Bytes that are no message of ours."""


def encode(header: Mapping[str, Any], message: Message | None = None) -> bytes:
    """The message as bytes; the header must be plain JSON."""
    leaves: list[np.ndarray[Any, Any]] = []
    structure = _described(message.arrays, leaves) if message is not None else None
    words = {**header, "arrays": structure, "meta": [list(pair) for pair in message.meta] if message else []}
    text = json.dumps(words, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(text) > LARGEST_HEADER:
        raise ValueError("the header of a message is too long")
    body = save({str(index): leaf for index, leaf in enumerate(leaves)}) if leaves else b""
    return b"".join((MAGIC, struct.pack("<I", len(text)), text, body))


def decode(content: bytes | bytearray | memoryview, *, most: int = LARGEST_MESSAGE) -> tuple[dict[str, Any], Message]:
    """Header and message; whatever is not exactly one raises Malformed, and nothing else."""
    content = bytes(content)
    if len(content) > most:
        raise Malformed(f"a message of {len(content)} bytes, and {most} are allowed")
    if len(content) < 8 or content[:4] != MAGIC:
        raise Malformed("this is no message of wardround, or of another version")
    (length,) = struct.unpack("<I", content[4:8])
    if length > LARGEST_HEADER or 8 + length > len(content):
        raise Malformed("the header is longer than the message")
    try:
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError):
        raise Malformed("the header is no JSON") from None
    if not isinstance(header, dict):
        raise Malformed("the header is no JSON object")
    structure, meta = header.pop("arrays", None), header.pop("meta", [])
    leaves = _arrays(content[8 + length :])
    used: set[int] = set()
    arrays = {} if structure is None else _rebuilt(structure, leaves, used, 0)
    if not isinstance(arrays, dict) or len(used) != len(leaves):
        raise Malformed("the arrays do not fit the header")
    if not isinstance(meta, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in meta
    ):
        raise Malformed("the routing words are no pairs of words")
    return header, Message(arrays, tuple((str(a), str(b)) for a, b in meta))


def _described(tree: Any, leaves: list[np.ndarray[Any, Any]]) -> Any:
    """The structure of a tree in JSON; its arrays are put into `leaves`."""
    if isinstance(tree, Mapping):
        return {"d": {str(key): _described(value, leaves) for key, value in tree.items()}}
    if isinstance(tree, list | tuple):
        return {"t": [_described(value, leaves) for value in tree]}
    array = np.asarray(jax.device_get(tree))
    if array.dtype.kind not in KINDS:
        raise TypeError(f"an array of {array.dtype} cannot travel")
    leaves.append(np.array(array, order="C"))
    return len(leaves) - 1


def _rebuilt(structure: Any, leaves: Mapping[int, Any], used: set[int], depth: int) -> Any:
    if depth > DEEPEST:
        raise Malformed("the arrays are nested too deeply")
    if isinstance(structure, bool):
        raise Malformed("the arrays do not fit the header")
    if isinstance(structure, int):
        if structure not in leaves or structure in used:
            raise Malformed("the arrays do not fit the header")
        used.add(structure)
        return leaves[structure]
    if isinstance(structure, dict) and len(structure) == 1:
        ((kind, parts),) = structure.items()
        if kind == "d" and isinstance(parts, dict):
            return {key: _rebuilt(part, leaves, used, depth + 1) for key, part in parts.items()}
        if kind == "t" and isinstance(parts, list):
            return tuple(_rebuilt(part, leaves, used, depth + 1) for part in parts)
    raise Malformed("the arrays do not fit the header")


def _arrays(content: bytes) -> dict[int, np.ndarray[Any, Any]]:
    if not content:
        return {}
    try:
        found = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError):
        raise Malformed("the arrays cannot be read") from None
    arrays: dict[int, np.ndarray[Any, Any]] = {}
    for name, array in found.items():
        if not (name.isascii() and name.isdigit()) or str(int(name)) != name or array.dtype.kind not in KINDS:
            raise Malformed("the arrays do not fit the header")
        arrays[int(name)] = array
    return arrays
