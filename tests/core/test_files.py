"""A file is replaced whole or not at all, and a line is added whole or taken back."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from wardround.core.files import append_line, write_whole


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """The system itself refuses to let a file grow, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def watched(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """The order in which the system is asked for these."""
    steps: list[str] = []
    for name in names:
        real = getattr(os, name)

        def call(*arguments: Any, real: Any = real, name: str = name) -> Any:
            steps.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, call)
    return steps


def test_the_content_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync of the file, rename, fsync of the folder: in another order a crash could lose both files."""
    (tmp_path / "file").write_bytes(b"old")
    steps = watched(monkeypatch, "fsync", "replace")
    write_whole(tmp_path / "file", b"new")
    assert steps == ["fsync", "replace", "fsync"]
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"old")
    with no_file_longer_than(10), pytest.raises(OSError, match="too large"):
        write_whole(tmp_path / "file", b"n" * 5000)
    assert (tmp_path / "file").read_bytes() == b"old"
    write_whole(tmp_path / "file", b"n" * 5000)
    assert (tmp_path / "file").read_bytes() == b"n" * 5000


def test_a_line_is_written_and_then_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = watched(monkeypatch, "pwrite", "fsync")
    with opened(tmp_path / "lines") as file:
        append_line(file, b"one\n")
        append_line(file, b"two\n")
    assert steps == ["pwrite", "fsync"] * 2
    assert (tmp_path / "lines").read_bytes() == b"one\ntwo\n"


def test_a_line_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    """Ten bytes are allowed and eight are there: the system writes two of the next line, then refuses."""
    with opened(tmp_path / "lines") as file:
        append_line(file, b"one two\n")
        with no_file_longer_than(10), pytest.raises(OSError, match="too large"):
            append_line(file, b"three\n")
        assert (tmp_path / "lines").read_bytes() == b"one two\n"
        append_line(file, b"three\n")
    assert (tmp_path / "lines").read_bytes() == b"one two\nthree\n"


def test_a_system_that_writes_a_byte_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, place: pwrite(file, content[:1], place))
    with opened(tmp_path / "lines") as file:
        append_line(file, b"one\n")
        append_line(file, b"two\n")
    assert (tmp_path / "lines").read_bytes() == b"one\ntwo\n"
