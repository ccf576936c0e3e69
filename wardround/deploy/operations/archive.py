"""A copy of a home in one file, and a home from such a copy.

All that a party is: its key, its decisions, its logs. What is only for the moment (transfers, status, locks) is left
out. Signed ends are read before the logs they belong to, so a copy of a party at work is one that fits together. A
party that goes on from an older copy has forgotten what it did since: `accept-restore` says what that means.
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from wardround import __version__
from wardround.core.clock import timestamp
from wardround.core.errors import Refusal

FORMAT = 1
ABOUT = "wardround-home.json"
LEFT_OUT = ("transfers", "status.json", "coordinator.lock", "faults.log", "faults.log.1")
SETTINGS = {"site": "site.toml", "second": "second.toml", "coordinator": "coordinator.toml"}
LARGEST_ABOUT = 1 << 16


def role_of(home: Path) -> str:
    """Whose home it is."""
    for role, name in SETTINGS.items():
        if (home / name).is_file():
            return role
    raise Refusal("this is not the home of a party", where=str(home), remedy="name another folder with --home")


def files_of(home: Path) -> Iterator[Path]:
    """What a copy holds, ends of logs before the logs."""
    found = [path for path in sorted(home.rglob("*")) if path.is_file() and not path.is_symlink()]
    kept = [path for path in found if path.relative_to(home).parts[0] not in LEFT_OUT]
    yield from sorted(kept, key=lambda path: ".head" not in path.name)


def write_backup(home: Path, out: Path) -> dict[str, Any]:
    """Write the copy; gives what it holds. It holds the private key: readable by its owner alone."""
    role = role_of(home)
    if out.exists():
        raise Refusal("there is a file of this name already", where=str(out), remedy="choose another name")
    if home in out.absolute().parents:
        raise Refusal("a copy inside the home would be copied, too", where=str(out), remedy="write it elsewhere")
    facts: dict[str, Any] = {"format": FORMAT, "role": role, "wardround": __version__, "time": timestamp("seconds")}
    count = 0
    partial = out.with_name(f"{out.name}.partial")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                add_bytes(archive, ABOUT, json.dumps(facts).encode())
                for path in files_of(home):
                    add_bytes(archive, path.relative_to(home).as_posix(), path.read_bytes(), path)
                    count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Refusal(
            f"the copy cannot be written: {error.strerror}", where=str(out), remedy="free some room"
        ) from None
    return {**facts, "files": count, "bytes": out.stat().st_size}


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes, like: Path | None = None) -> None:
    """A file as it was read: one that grows meanwhile is cut where it ended."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    if like is not None:
        entry.mtime, entry.mode = int(like.stat().st_mtime), like.stat().st_mode & 0o700
    archive.addfile(entry, io.BytesIO(content))


def read_backup(backup: Path, home: Path, role: str) -> dict[str, Any]:
    """Make the home of such a party from a copy, in a folder that is new or empty; gives what the copy says."""
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise Refusal(
            "the folder is not empty", where=str(home), remedy="move the old home away, or choose another with --home"
        )
    partial = home.with_name(f"{home.name}.partial")
    try:
        with tarfile.open(backup, "r:gz") as archive:
            facts = read_about(archive, backup)
            if facts["role"] != role:
                remedy = f"use `wardround {facts['role']} restore`"
                raise Refusal(f"this is the copy of a {facts['role']}", where=str(backup), remedy=remedy)
            partial.mkdir(parents=True, mode=0o700)
            for entry in archive:
                if entry.name != ABOUT:
                    write_entry(archive, entry, partial, backup)
        if role_of(partial) != role:
            raise Refusal("the copy is not of the party that it names", where=str(backup), remedy="use another copy")
        partial.replace(home)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise Refusal(f"this copy cannot be read: {error}", where=str(backup), remedy="use another copy") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return facts


def read_about(archive: tarfile.TarFile, backup: Path) -> dict[str, Any]:
    """What the copy says of itself, which stands first in it."""
    first = archive.next()
    content = archive.extractfile(first) if first is not None and first.isreg() else None
    try:
        if first is None or first.name != ABOUT or content is None or first.size > LARGEST_ABOUT:
            raise ValueError
        facts: dict[str, Any] = json.loads(content.read())
        if facts["format"] != FORMAT or facts["role"] not in SETTINGS:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise Refusal(
            "this is not a copy of a home that this version can read",
            where=str(backup),
            remedy="use what `backup` wrote, with the same or a later version of wardround",
        ) from None
    return facts


def write_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, home: Path, backup: Path) -> None:
    """One file, inside the home and nowhere else."""
    name = PurePosixPath(entry.name)
    if not entry.isreg() or name.is_absolute() or ".." in name.parts or not name.parts:
        raise Refusal("this copy holds something that is no file of a home", where=str(backup), remedy="do not use it")
    content = archive.extractfile(entry)
    assert content is not None
    path = home.joinpath(*name.parts)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path, "xb", opener=lambda file, flags: os.open(file, flags, 0o600)) as file:
        file.write(content.read())
    os.utime(path, (entry.mtime, entry.mtime))
