"""A copy of a home, and a home from it: everything that matters, nothing outside, and a site that notices."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.support import in_process
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.home import SiteHome
from wardround.deploy.operations.archive import ABOUT, FORMAT, read_backup, write_backup
from wardround.deploy.trust.audit_log import event_entry


@pytest.fixture
def consortium(tmp_path: Path) -> in_process.Consortium:
    return in_process.Consortium(tmp_path / "c", ("bo",))


def contents(home: Path) -> dict[str, bytes]:
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_what_comes_back_is_what_was_there_but_for_what_is_of_the_moment(
    consortium: in_process.Consortium, tmp_path: Path
) -> None:
    home = consortium.homes["bo"].path
    (home / "transfers").mkdir()
    (home / "transfers" / "x.part").write_bytes(b"half")
    (home / "status.json").write_text("{}")
    facts = write_backup(home, tmp_path / "bo.tgz")
    assert (tmp_path / "bo.tgz").stat().st_mode & 0o777 == 0o600
    read_backup(tmp_path / "bo.tgz", tmp_path / "again", "site")
    expected = {name: content for name, content in contents(home).items() if name.split("/")[0] != "transfers"}
    del expected["status.json"]
    assert contents(tmp_path / "again") == expected
    assert facts["files"] == len(expected)
    assert (tmp_path / "again" / "key.pem").stat().st_mode & 0o077 == 0
    assert SiteHome(tmp_path / "again").settings.name == "bo"


def test_the_end_of_a_log_is_read_before_the_log(consortium: in_process.Consortium, tmp_path: Path) -> None:
    """Of a party at work: a log that is longer than its signed end is what an interrupted append leaves, and mended."""
    write_backup(consortium.homes["bo"].path, tmp_path / "bo.tgz")
    with tarfile.open(tmp_path / "bo.tgz") as archive:
        names = archive.getnames()
    assert names[0] == ABOUT
    heads = [place for place, name in enumerate(names) if ".head" in name]
    assert max(heads) < names.index("audit.jsonl")


def test_a_site_that_goes_on_from_an_older_copy_notices(consortium: in_process.Consortium, tmp_path: Path) -> None:
    warnings: dict[str, str] = {}
    carer = Maintenance(consortium.home, consortium.transport, warnings.__setitem__)
    home = consortium.homes["bo"]
    home.log().append(event_entry("started", version="1"))
    write_backup(home.path, tmp_path / "bo.tgz")
    home.log().append(event_entry("started", version="2"))
    carer.maintain("bo")
    assert warnings == {"bo": ""}
    home.path.rename(tmp_path / "lost")
    read_backup(tmp_path / "bo.tgz", home.path, "site")
    consortium.restart("bo")
    carer.maintain("bo")
    assert "accept-restore" in warnings["bo"]


def test_nothing_is_overwritten_and_nothing_is_half_written(consortium: in_process.Consortium, tmp_path: Path) -> None:
    home, copy = consortium.homes["bo"].path, tmp_path / "bo.tgz"
    write_backup(home, copy)
    before = contents(home)
    with pytest.raises(Refusal, match="is not empty"):
        read_backup(copy, home, "site")
    with pytest.raises(Refusal, match=r"(?i)there is a file"):
        write_backup(home, copy)
    with pytest.raises(Refusal, match=r"(?i)copy inside the home"):
        write_backup(home, home / "x.tgz")
    with pytest.raises(Refusal, match=r"copy of a site.*wardround site restore"):
        read_backup(copy, tmp_path / "new", "coordinator")
    copy.write_bytes(copy.read_bytes()[:-2000])
    with pytest.raises(Refusal, match=r"(?i)cannot be read"):
        read_backup(copy, tmp_path / "new", "site")
    with pytest.raises(Refusal, match=r"(?i)not the home of a party"):
        write_backup(tmp_path, tmp_path / "x.tgz")
    assert contents(home) == before
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_a_copy_that_was_tampered_with_writes_nowhere_else(tmp_path: Path, name: str, kind: bytes) -> None:
    copy = tmp_path / "bad.tgz"
    with tarfile.open(copy, "w:gz") as archive:
        about = json.dumps({"format": FORMAT, "role": "site"}).encode()
        entry = tarfile.TarInfo(ABOUT)
        entry.size = len(about)
        archive.addfile(entry, io.BytesIO(about))
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(Refusal, match=r"(?i)no file of a home"):
        read_backup(copy, tmp_path / "home", "site")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tgz"]


def test_what_is_no_copy_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 100)
    with pytest.raises(Refusal, match=r"(?i)cannot be read"):
        read_backup(tmp_path / "x", tmp_path / "home", "site")
    with tarfile.open(tmp_path / "y", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("site.toml"))
    with pytest.raises(Refusal, match=r"(?i)not a copy of a home"):
        read_backup(tmp_path / "y", tmp_path / "home", "site")
