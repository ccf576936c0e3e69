"""A checkpoint is whole or not there, and comes back bit for bit."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from wardround.core.contracts import Progress
from wardround.core.errors import Refusal
from wardround.engine.checkpoint import names_of, read_checkpoint, read_header, write_checkpoint, write_whole


def state() -> Progress:
    """Scalars, several types, odd values, an empty part, and an array of no rows."""
    odd = np.array([[-0.0, 1e-45], [np.inf, np.nan]], np.float32)
    return Progress(
        server={"params": {"dense/kernel": jnp.asarray(odd)}, "count": jnp.int32(7), "rate": jnp.float32(0.1)},
        aggregator=(),
        transform=(jnp.array([True, False]), jnp.arange(3, dtype=jnp.uint8)),
        clients={"control": jnp.zeros((0, 2))},
    )


def same_bits(one: Any, two: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(
        np.asarray(p).tobytes() == np.asarray(q).tobytes() and p.dtype == q.dtype and p.shape == q.shape
        for p, q in pairs
    )


def test_comes_back_bit_for_bit_with_its_header(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    header = {"round": 3, "best_loss": 0.1 + 0.2, "identity": "ä", "best_round": None}
    write_checkpoint(path, state(), header)
    restored, told = read_checkpoint(path, state())
    assert told == header == read_header(path)
    assert same_bits(restored, state())
    assert str(jax.tree.structure(restored)) == str(jax.tree.structure(state()))
    assert [path.name] == [p.name for p in tmp_path.iterdir()]


def test_arrays_that_are_not_contiguous_are_stored_as_they_read(tmp_path: Path) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3).T
    write_checkpoint(tmp_path / "s", {"a": table}, {})
    assert np.array_equal(read_checkpoint(tmp_path / "s", {"a": table})[0]["a"], table)


def test_names_are_unique_also_for_a_bare_array() -> None:
    names = names_of(state())
    assert len(set(names)) == len(names) == 6
    assert names_of(np.zeros(2)) == ["value"]


def test_a_number_that_a_disk_changed_is_noticed(tmp_path: Path) -> None:
    """The file still reads as a checkpoint of the right shape: only its hash tells."""
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, {"a": np.full(4, 1.5, np.float32)}, {})
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Refusal, match="checkpoint cannot be read"):
        read_header(path)


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 100, -1])
def test_a_torn_file_is_refused(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, state(), {"round": 3})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(Refusal, match=r"checkpoint cannot be read.*state\.safetensors"):
        read_checkpoint(path, state())


@pytest.mark.parametrize("content", [b"garbage", b"\x00" * 64, b"\xff" * 64, b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_garbage_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    path.write_bytes(content)
    with pytest.raises(Refusal, match="checkpoint cannot be read"):
        read_header(path)


def test_a_file_of_another_kind_or_none_is_refused(tmp_path: Path) -> None:
    save_file({"a": np.zeros(2)}, tmp_path / "model.safetensors")
    for name in ("model.safetensors", "missing.safetensors"):
        with pytest.raises(Refusal, match="checkpoint cannot be read"):
            read_header(tmp_path / name)


@pytest.mark.parametrize(
    "template",
    [
        {"a": np.zeros((3, 2), np.float32)},
        {"a": np.zeros(6, np.float32)},
        {"a": np.zeros((2, 3), np.float64)},
        {"b": np.zeros((2, 3), np.float32)},
        {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1)},
    ],
)
def test_a_state_of_another_form_is_refused(template: Any, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "s", {"a": np.zeros((2, 3), np.float32)}, {})
    with pytest.raises(Refusal, match="does not fit this study"):
        read_checkpoint(tmp_path / "s", template)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_last_complete_one(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, state(), {"round": 3})
    before = path.read_bytes()

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space"):
            write_checkpoint(path, {"a": jnp.ones(1000)}, {"round": 4})
    assert path.read_bytes() == before
    assert read_header(path) == {"round": 3}
    write_checkpoint(path, state(), {"round": 5})
    assert read_header(path) == {"round": 5}


def test_the_content_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync of the file, then rename, then fsync of the folder: any other order can lose both files in a crash."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append("fsync")
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        steps.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_whole(tmp_path / "file", b"content")
    assert steps == ["fsync", "replace", "fsync"]
    assert (tmp_path / "file").read_bytes() == b"content"
