"""Messages as bytes: what is written can be read, by others too, and nothing else can."""

import importlib.util
import json
import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from tests.support.amount import examples
from wardround.core.contracts import Message
from wardround.deploy.protocol.wire import DEEPEST, LARGEST_HEADER, MAGIC, Malformed, decode, encode

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("fuzz_wire", ROOT / "benchmarks" / "fuzz_wire.py")
assert _spec is not None
assert _spec.loader is not None
fuzzing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzzing)

TREE = {"params": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.float64(0.5)}, "rows": (3, 4)}


def message(head: Any, index: Any = None, body: bytes = b"", **lengths: int) -> bytes:
    """A message with these headers, whatever they say."""
    text = b"" if index is None else json.dumps(index).encode()
    return bytes(fuzzing.joined(json.dumps(head).encode(), text, body, **lengths))


def one_array(**changes: Any) -> bytes:
    """Two floats, told as such unless a change lies."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return message({"arrays": {"d": {"a": 0}}}, {"0": entry}, np.array([1, 2], np.float32).tobytes())


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def test_a_message_is_the_same_again() -> None:
    header, got = decode(encode({"round": 3, "why": "größer"}, Message(TREE, (("site", "a"),))))
    assert header == {"round": 3, "why": "größer"}
    assert got.meta == (("site", "a"),)
    assert same(TREE, got.arrays)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        hnp.arrays(
            st.sampled_from([np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float32, np.float64]),
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        ),
        max_size=12,
    )
)
def test_every_array_is_the_same_again_and_is_safetensors(arrays: list[Any]) -> None:
    """Bit for bit, NaN included; and safetensors' own reader, which has no line in common with ours, agrees."""
    content = encode({}, Message({"list": tuple(arrays)}))
    assert same(tuple(arrays), decode(content)[1].arrays["list"])
    (length,) = struct.unpack("<I", content[4:8])
    theirs = load(content[8 + length :]) if arrays else {}
    assert all(same(array, theirs[str(number)]) for number, array in enumerate(arrays))


def test_what_was_written_is_laid_out_as_the_docstring_says() -> None:
    """By hand: magic, length, header; then 8 bytes of length, safetensors' header padded to 8, two floats."""
    content = encode({"a": 1}, Message({"x": np.array([1, -2], np.float32)}))
    head = b'{"a":1,"arrays":{"d":{"x":0}},"meta":[]}'
    index = b'{"0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    index += b" " * (-len(index) % 8)
    body = bytes.fromhex("0000803f" + "000000c0")
    assert content == MAGIC + struct.pack("<I", len(head)) + head + struct.pack("<Q", len(index)) + index + body


def test_arrays_of_any_order_and_of_jax_travel() -> None:
    odd = {"t": np.asfortranarray(TREE["params"]["kernel"]), "big": np.arange(3, dtype=">i4"), "j": jnp.ones(2)}  # type: ignore[index]
    got = decode(encode({}, Message(odd)))[1].arrays
    assert got["t"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert got["big"].tolist() == [0, 1, 2]
    assert got["big"].dtype == np.int32
    assert got["j"].dtype == np.float32


def test_decoded_arrays_are_our_own() -> None:
    """Writable, and independent of the bytes they came in."""
    content = bytearray(encode({}, Message({"x": np.zeros(3)})))
    got = decode(content)[1].arrays["x"]
    content[-8:] = b"\xff" * 8
    got += 1
    assert got.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "thing",
    ["word", object(), np.array(["word"]), 1j, np.longdouble(1)],
    ids=["text", "object", "texts", "complex", "long"],
)
def test_what_is_no_number_cannot_travel(thing: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        encode({}, Message({"x": thing}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_header_must_be_json(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"loss": value})


def test_the_frames_for_the_lies_below_are_true() -> None:
    assert decode(one_array())[1].arrays["a"].tolist() == [1, 2]
    assert decode(message(NAMED, {"0": ONE}, b"\7"))[1].arrays["a"] == 7
    assert decode(message(NAMED, {"0": {**ONE, "dtype": "BOOL"}}, b"\1"))[1].arrays["a"]
    assert decode(fuzzing.joined(b'{"a":1e99,"b":"\\ud83d\\ude00"}', b"", b""))[0] == {"a": 1e99, "b": "😀"}


ONE = {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}
NAMED = {"arrays": {"d": {"a": 0}}}
DEEP = '{"d":{"a":' * (DEEPEST + 2) + '{"t":[]}' + "}}" * (DEEPEST + 2)
LIES: dict[str, bytes] = {
    "nothing": b"",
    "another magic": b"WR2\n" + encode({})[4:],
    "cut in the header": encode({"a": 1})[:12],
    "header longer than the message": message({}, length=100),
    "header of four gigabytes": message({}, length=2**32 - 1),
    "more behind": encode({}) + b"x",
    "no object": message([1]),
    "NaN": fuzzing.joined(b'{"a":NaN}', b"", b""),
    "infinite": fuzzing.joined(b'{"a":1e999}', b"", b""),
    "half a character": fuzzing.joined(b'{"a":"\\ud800"}', b"", b""),
    "no UTF-8": fuzzing.joined(b'{"a":"\xff"}', b"", b""),
    "UTF-16": fuzzing.joined('{"a":1}'.encode("utf-16"), b"", b""),
    "half a message": encode({}, Message(TREE))[:-1],
    "index longer than the message": message(NAMED) + struct.pack("<Q", 2**63),
    "offsets that overlap": one_array(data_offsets=[0, 4]),
    "offsets beyond the end": one_array(data_offsets=[0, 2**40], shape=[2**38]),
    "negative offsets": one_array(data_offsets=[-8, 0]),
    "offsets of another kind": one_array(data_offsets=["0", "8"]),
    "a shape too large": one_array(shape=[3]),
    "a shape too small": one_array(shape=[1]),
    "a negative shape": one_array(shape=[-2]),
    "a true shape": one_array(shape=[True, 2]),
    "a shape of floats": one_array(shape=[2.0]),
    "a shape without end": one_array(shape=[0, 2**31, 2**31, 2**31], data_offsets=[0, 0]),
    "too many axes": one_array(shape=[1] * 40 + [2]),
    "an unknown type": one_array(dtype="BF16"),
    "no type": one_array(dtype=None),
    "more keys": one_array(code="import os"),
    "metadata": message({"arrays": {"d": {}}}, {"__metadata__": {"a": "b"}}),
    "a number that is none": message(NAMED, {"00": ONE}, b"\1"),
    "neither true nor false": message(NAMED, {"0": {**ONE, "dtype": "BOOL"}}, b"\2"),
    "an array twice": message({"arrays": {"d": {"a": 0, "b": 0}}}, {"0": ONE}, b"\1"),
    "an array that nobody names": message({"arrays": {"d": {}}}, {"0": ONE}, b"\1"),
    "an array that is not there": message(NAMED),
    "a structure of another kind": message({"arrays": {"pickle": "x"}}),
    "true for an array": message({"arrays": {"d": {"a": True}}}),
    "no dictionary on top": message({"arrays": {"t": []}}),
    "nested too deeply": message({"arrays": json.loads(DEEP)}),
    "routing words of another kind": message({"meta": [["a", 1]]}),
    "nested without end": fuzzing.joined(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"", b""),
}


@pytest.mark.parametrize("lie", LIES)
def test_whatever_is_no_message_is_refused(lie: str) -> None:
    with pytest.raises(Malformed):
        decode(LIES[lie])


def test_a_message_larger_than_allowed_is_refused() -> None:
    content = encode({}, Message({"x": np.zeros(100)}))
    assert decode(content, most=len(content))
    with pytest.raises(Malformed, match="are allowed"):
        decode(content, most=len(content) - 1)


def test_a_header_that_would_be_refused_is_not_written() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode({"a": "x" * LARGEST_HEADER})


def test_arrays_are_copied_once_each_way() -> None:
    """Beyond the result itself nothing of its size is ever allocated."""
    sent = Message({"x": np.ones(2_000_000, np.float32)})
    tracemalloc.start()
    try:
        content = encode({}, sent)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        decode(content)
        read = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert written < 8_000_000 * 1.1
    assert read < 8_000_000 * 1.1


def test_twenty_thousand_damaged_and_hostile_messages() -> None:
    """In a process that may not take much memory, so that a promise in a header would end it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz_wire", "20000", "3"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["refused"] + told["accepted"] == 20_000
    assert told["refused"] > 10_000
    assert told["accepted"] > 500, "a fuzzer that hits nothing valid shows nothing"
    assert told["grown_mb"] < 100


def test_the_memory_limit_of_the_fuzzer_is_a_limit() -> None:
    """The control: in that process an allocation of the announced size does fail."""
    code = "from benchmarks.fuzz_wire import *; limit_memory(); bytearray(1 << 30)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr
