"""What a message between coordinator and site looks like as bytes: a JSON header, and arrays in safetensors.

Nothing else is ever decoded: no code, no pickles. Sizes are checked against what is there before anything is allocated,
so that an attacker's header cannot ask for memory. Every message is bound to its study, round, sender and a nonce by
the header, over a channel that TLS keeps from being read or changed. Arrays are copied once when they are written and
once when they are read, or not at all where a view of them will do.

Layout: 4 bytes "WR1\\n", 4 bytes length of the header (little-endian), the header, then safetensors to the end.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

import jax
import numpy as np

from wardround import __version__
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.text import plain_line

MAGIC = b"WR1\n"
PROTOCOL = 2
"""What requests and answers mean. A party talks to its own number and the neighbouring ones, so that a consortium can
be upgraded one party after the other; what may change within a number is in docs/decisions/0024-protocol-version.md."""
LARGEST_HEADER = 1 << 22
DEEPEST = 16
"""Nesting of the arrays' structure; a model is one dictionary in another."""
LARGEST_MESSAGE = 1 << 31
MOST_AXES = 32
ALIGNED = 16
"""The arrays begin at a multiple of this, so that they can be read where they are."""
TYPES = {
    "BOOL": np.dtype("?"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
"""What an array may hold, by safetensors' names: truth values, integers, floats."""
WORDS = {dtype: word for word, dtype in TYPES.items()}
HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
Leaf = np.ndarray[Any, Any]


class Malformed(Exception):
    """Bytes that are no message of ours."""


def is_spoken(number: Any) -> bool:
    """Whether a party that speaks this protocol is understood here."""
    return type(number) is int and abs(number - PROTOCOL) <= 1  # `type` and not isinstance: true is no number


def require_spoken(header: Mapping[str, Any], who: str) -> None:
    """Refuse a coordinator that `who` does not understand."""
    if not is_spoken(header.get("protocol")):
        theirs = plain_line(header.get("protocol"), 40)
        version = f" (wardround {plain_line(header['wardround'], 40)})" if "wardround" in header else ""
        raise Refusal(
            f"the coordinator speaks protocol {theirs}{version}, but {who} speaks {PROTOCOL} (wardround {__version__})",
            remedy="upgrade the older one; neighbouring protocols understand each other",
        )


def encode(header: Mapping[str, Any], message: Message | None = None) -> bytes:
    """The message as bytes; the header must be plain JSON."""
    return b"".join(pieces(header, message))


def digest(header: Mapping[str, Any], message: Message | None = None) -> str:
    """The SHA-256 of the message as bytes, which need not be put together for it."""
    found = hashlib.sha256()
    for piece in pieces(header, message):
        found.update(piece)
    return found.hexdigest()


def size(header: Mapping[str, Any], message: Message | None = None) -> int:
    """How many bytes the message takes."""
    return sum(len(piece) for piece in pieces(header, message))


def pieces(header: Mapping[str, Any], message: Message | None = None) -> list[bytes | memoryview]:
    """The message as bytes, in pieces: the large ones are views of its arrays."""
    leaves: list[Leaf] = []
    structure = _describe(message.arrays, leaves) if message is not None else None
    words = {**header, "arrays": structure, "meta": [list(pair) for pair in message.meta] if message else []}
    text = json.dumps(words, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(text) > LARGEST_HEADER:
        raise ValueError("the header of a message is too long")
    index = _index(leaves) if leaves else b""
    if len(index) > LARGEST_HEADER:
        raise ValueError("a message holds too many arrays")
    text += b" " * (-(8 + len(text) + len(index)) % ALIGNED)
    bodies = [leaf.reshape(-1).view(np.uint8).data for leaf in leaves]
    return [MAGIC, struct.pack("<I", len(text)), text, index, *bodies]


def start(content: bytes | memoryview) -> memoryview:
    """All of a message that was decoded before up to its arrays: the header, with the nonce in it."""
    view = memoryview(content)
    return view[: 8 + struct.unpack("<I", view[4:8])[0]]


def array_ends(content: bytes | memoryview) -> list[int]:
    """Where in a message of ours ends what stands before its arrays, and where each array; nothing for other bytes."""
    view = memoryview(content)
    if view.nbytes < 8 or bytes(view[:4]) != MAGIC:
        return []
    place = start(view).nbytes
    if place + 8 > view.nbytes:
        return [view.nbytes]
    (length,) = struct.unpack("<Q", view[place : place + 8])
    body = place + 8 + length
    if length > LARGEST_HEADER or body > view.nbytes:
        return []
    try:
        ends = [body + int(entry["data_offsets"][1]) for entry in _parse_header(view[place + 8 : body]).values()]
    except (Malformed, KeyError, TypeError, ValueError, IndexError):
        return []
    sound = all(one <= two for one, two in pairwise([body, *ends])) and ends[-1:] == [view.nbytes]
    return [body, *ends] if sound else []


def decode(
    content: bytes | bytearray | memoryview, *, most: int = LARGEST_MESSAGE, copies: bool = True
) -> tuple[dict[str, Any], Message]:
    """Header and message; whatever is not exactly one raises Malformed, and nothing else.

    Without `copies` the arrays are views of the content, only to be read.
    """
    header, rest = decode_header(content, most=most)
    return header, decode_arrays(header, rest, copies=copies)


def decode_header(
    content: bytes | bytearray | memoryview, *, most: int = LARGEST_MESSAGE
) -> tuple[dict[str, Any], memoryview]:
    """The header, and where the arrays lie, which are not looked at yet."""
    view = memoryview(content)
    if view.nbytes > most:
        raise Malformed(f"the message has {view.nbytes} bytes, and {most} are allowed")
    if view.nbytes < 8 or bytes(view[:4]) != MAGIC:
        raise Malformed("this is not a message of this version of wardround")
    (length,) = struct.unpack("<I", view[4:8])
    if length > LARGEST_HEADER or 8 + length > view.nbytes:
        raise Malformed("the header is longer than the message")
    return _parse_header(view[8 : 8 + length]), view[8 + length :].toreadonly()


def decode_arrays(header: dict[str, Any], rest: memoryview, *, copies: bool = True) -> Message:
    """The message that belongs to a header, from which what only describes the arrays is taken out."""
    structure, meta = header.pop("arrays", None), header.pop("meta", [])
    leaves = _parse_arrays(rest, copies=copies)
    used: set[int] = set()
    arrays = {} if structure is None else _rebuild(structure, leaves, used, 0)
    if not isinstance(arrays, dict) or len(used) != len(leaves):
        raise Malformed("the arrays do not match the header")
    if not isinstance(meta, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in meta
    ):
        raise Malformed("the routing metadata are not pairs of strings")
    return Message(arrays, tuple((str(a), str(b)) for a, b in meta))


def _describe(tree: Any, leaves: list[Leaf]) -> Any:
    """The structure of a tree in JSON; its arrays are put into `leaves`."""
    if isinstance(tree, Mapping):
        return {"d": {str(key): _describe(value, leaves) for key, value in tree.items()}}
    if isinstance(tree, list | tuple):
        return {"t": [_describe(value, leaves) for value in tree]}
    array = tree if isinstance(tree, np.ndarray) else np.asarray(jax.device_get(tree))
    dtype = array.dtype.newbyteorder("<")
    if dtype not in WORDS:
        raise TypeError(f"an array of {array.dtype} cannot be sent")
    # ascontiguousarray would make a single number an array of one.
    leaves.append(np.asarray(array, dtype, order="C"))
    return len(leaves) - 1


def _index(leaves: list[Leaf]) -> bytes:
    """What safetensors puts before the numbers: type, shape and place of every array."""
    entries, end = {}, 0
    for number, leaf in enumerate(leaves):
        begin, end = end, end + leaf.nbytes
        entries[str(number)] = {"dtype": WORDS[leaf.dtype], "shape": leaf.shape, "data_offsets": (begin, end)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _parse_header(content: memoryview) -> dict[str, Any]:
    """A JSON object; only finite numbers and whole characters, since nothing else could be written again."""
    try:
        text = str(content, "utf-8")
        found = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        if HALF_A_CHARACTER.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Malformed("the header is not JSON") from None
    if not isinstance(found, dict):
        raise Malformed("the header is not a JSON object")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number


def _rebuild(structure: Any, leaves: Mapping[int, Any], used: set[int], depth: int) -> Any:
    if depth > DEEPEST:
        raise Malformed("the arrays are nested too deeply")
    if isinstance(structure, bool):
        raise Malformed("the arrays do not match the header")
    if isinstance(structure, int):
        if structure not in leaves or structure in used:
            raise Malformed("the arrays do not match the header")
        used.add(structure)
        return leaves[structure]
    if isinstance(structure, dict) and len(structure) == 1:
        ((kind, parts),) = structure.items()
        if kind == "d" and isinstance(parts, dict):
            return {key: _rebuild(part, leaves, used, depth + 1) for key, part in parts.items()}
        if kind == "t" and isinstance(parts, list):
            return tuple(_rebuild(part, leaves, used, depth + 1) for part in parts)
    raise Malformed("the arrays do not match the header")


def _parse_arrays(content: memoryview, *, copies: bool) -> dict[int, Leaf]:
    """The arrays by number: each begins where the one before ends, and the last ends with the message."""
    if not content:
        return {}
    if content.nbytes < 8:
        raise Malformed("the arrays cannot be read")
    (length,) = struct.unpack("<Q", content[:8])
    if length > LARGEST_HEADER or 8 + length > content.nbytes:
        raise Malformed("the arrays cannot be read")
    entries, body = _parse_header(content[8 : 8 + length]), content[8 + length :]
    arrays: dict[int, Leaf] = {}
    end = 0
    for number, (name, entry) in enumerate(entries.items()):
        if name != str(number):
            raise Malformed("the arrays do not match the header")
        dtype, shape, count = _parse_entry(entry)
        begin, end = end, end + count * dtype.itemsize
        if entry["data_offsets"] != [begin, end] or end > body.nbytes:
            raise Malformed("the arrays are not where they should be")
        view = np.frombuffer(body[begin:end], dtype).reshape(shape)
        # A copy of its own: writable, aligned, and the message's memory is given back.
        arrays[number] = view.copy() if copies or not view.flags.aligned else view
        if dtype.kind == "b" and np.any(arrays[number].view(np.uint8) > 1):
            raise Malformed("a boolean is neither true nor false")
    if not arrays or end != body.nbytes:
        raise Malformed("the arrays do not fill the message")
    return arrays


def _parse_entry(entry: Any) -> tuple[np.dtype[Any], list[int], int]:
    """Type, shape and number of entries of an array as its header tells them; nothing is allocated for it yet."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Malformed("the arrays do not match the header")
    word, shape = entry["dtype"], entry["shape"]
    if not isinstance(word, str) or word not in TYPES or not isinstance(shape, list) or len(shape) > MOST_AXES:
        raise Malformed("an array has a type that is not supported")
    # `type` and not isinstance: true is no length.
    if not all(type(axis) is int and 0 <= axis <= LARGEST_MESSAGE for axis in shape):
        raise Malformed("an array has an invalid shape")
    if 0 in shape and math.prod(axis for axis in shape if axis) > LARGEST_MESSAGE:
        raise Malformed("an array has an invalid shape")  # nothing there, but NumPy counts its strides
    return TYPES[word], shape, math.prod(shape)
