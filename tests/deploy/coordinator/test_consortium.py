"""A consortium begins once, admits a key under a name for good, and shuts it out for good."""

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import (
    admit,
    begin_consortium,
    coordinator_settings,
    is_running,
    lock_home,
    revoke,
)
from wardround.deploy.coordinator.status import coordinator_status
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.trust.audit_log import verify
from wardround.deploy.trust.certificates import (
    certificate_summary,
    check_issued,
    make_request,
    new_key,
    pem,
    read_certificate,
)


def begun(folder: Path, hosts: tuple[str, ...] = ("hub.example.org",)) -> CoordinatorHome:
    return begin_consortium(folder / "hub", coordinator_settings("West Africa", "hub", "0.0.0.0:8002", list(hosts)))


def request(folder: Path, name: str, role: str = "site", key: ec.EllipticCurvePrivateKey | None = None) -> Path:
    path = folder / f"{name}-{len(list(folder.iterdir()))}.csr"
    made = key or ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(pem(make_request(made, name, role)))  # type: ignore[arg-type]
    return path


def test_a_home_has_all_it_needs_and_its_keys_are_private(tmp_path: Path) -> None:
    home = begun(tmp_path)
    authority, own = read_certificate(home.authority_path), read_certificate(home.certificate_path)
    issued = check_issued(own, authority, where="here")
    assert (issued.name, issued.role) == ("hub", "coordinator")
    assert timedelta(days=89) < issued.until - datetime.now(UTC) <= timedelta(days=90)
    assert home.settings.hosts == ["hub.example.org"]
    for name in ("authority.key", "key.pem"):
        assert stat.S_IMODE(os.stat(home.path / name).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(home.path).st_mode) == 0o700
    assert verify(home.audit_path, home.public_keys()) == []


def test_an_interrupted_beginning_goes_on(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    new_key(tmp_path / "hub" / "authority.key")  # killed before the authority's certificate was written
    key = new_key(tmp_path / "hub" / "key.pem")
    home = begun(tmp_path)
    assert read_certificate(home.certificate_path).public_key() == key.public_key()
    check_issued(read_certificate(home.certificate_path), read_certificate(home.authority_path), where="here")
    with pytest.raises(Refusal, match="already holds a coordinator"):
        begun(tmp_path)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "thesis.docx").write_text("mine")
    with pytest.raises(Refusal, match=r"thesis\.docx"):
        begun(tmp_path)
    assert os.listdir(tmp_path / "hub") == ["thesis.docx"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("", "hub", "127.0.0.1:1", []), "does not fit into a certificate"),
        (("x" * 65, "hub", "127.0.0.1:1", []), "does not fit into a certificate"),
        (("c", "server", "127.0.0.1:1", []), "'server' cannot be the name"),
        (("c", "hub", "127.0.0.1", []), "not an address"),
        (("c", "hub", "0.0.0.0:8002", []), "ites need a host name"),
        (("c", "hub", "0.0.0.0:8002", ["høst.example"]), "not a host name"),
        (("c", "hub", "0.0.0.0:8002", ["a b"]), "not a host name"),
    ],
)
def test_words_that_cannot_be(words: tuple[str, str, str, list[str]], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        coordinator_settings(*words)


def test_where_it_listens_is_a_name_too() -> None:
    assert coordinator_settings("c", "hub", "127.0.0.1:8002", []).hosts == ["127.0.0.1"]
    assert coordinator_settings("c", "hub", "hub.org:1", ["other.org", "hub.org"]).hosts == ["other.org", "hub.org"]


def test_a_signed_site_belongs_to_the_consortium(tmp_path: Path) -> None:
    home, key = begun(tmp_path), ec.generate_private_key(ec.SECP256R1())
    made = admit(home, request(tmp_path, "bo", key=key))
    certificate = read_certificate(home.site_certificate("bo"))
    issued = check_issued(certificate, read_certificate(home.authority_path), where="here")
    assert (issued.name, issued.role, made.renewed) == ("bo", "site", False)
    assert certificate.public_key() == key.public_key()
    again = admit(home, request(tmp_path, "bo", key=key))
    assert again.renewed
    assert again.fingerprint == made.fingerprint
    assert certificate_summary(read_certificate(again.path)).serial != issued.serial


def test_a_name_is_never_given_to_a_second_key(tmp_path: Path) -> None:
    home = begun(tmp_path)
    admit(home, request(tmp_path, "bo"))
    before = home.site_certificate("bo").read_bytes()
    for name, said in (("bo", "with another key"), ("BO", "here is already a site called 'bo'")):
        with pytest.raises(Refusal, match=said):
            admit(home, request(tmp_path, name))
    assert home.site_certificate("bo").read_bytes() == before
    assert sorted(path.name for path in (home.path / "sites").iterdir()) == ["bo.pem"]


def test_requests_that_are_none(tmp_path: Path) -> None:
    home = begun(tmp_path)
    (tmp_path / "bad.csr").write_text("hello")
    for path, said in (
        (tmp_path / "bad.csr", "is not a certificate request"),
        (tmp_path / "absent.csr", "cannot be read"),
        (request(tmp_path, "hub"), "coordinator's own name"),
        (request(tmp_path, "evil", role="coordinator"), "role 'coordinator'"),
    ):
        with pytest.raises(Refusal, match=said):
            admit(home, path)
    assert list((home.path / "sites").iterdir()) == []


def test_a_revoked_name_is_gone_for_good(tmp_path: Path) -> None:
    home, key = begun(tmp_path), ec.generate_private_key(ec.SECP256R1())
    admit(home, request(tmp_path, "bo", key=key))
    with pytest.raises(Refusal, match="did you mean 'bo'"):
        revoke(home, "boo", by="anna")
    revoke(home, "bo", by="anna", why="key stolen")
    entry = home.revoked()["bo"]
    assert (entry["by"], entry["why"]) == ("anna", "key stolen")
    assert entry["serial"] == certificate_summary(read_certificate(home.site_certificate("bo"))).serial
    with pytest.raises(Refusal, match="already revoked"):
        revoke(home, "bo", by="anna")
    for own in (key, None):  # neither the stolen key nor a new one
        with pytest.raises(Refusal, match="old key could still use the name"):
            admit(home, request(tmp_path, "bo", key=own))
    assert coordinator_status(home)["sites"][0]["revoked"].startswith(str(datetime.now(UTC).year))
    assert verify(home.audit_path, home.public_keys()) == []


HOLD = """
import sys, time
from pathlib import Path
from wardround.deploy.coordinator.consortium import lock_home
from wardround.deploy.home import CoordinatorHome
with lock_home(CoordinatorHome(Path(sys.argv[1]))):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_only_one_process_is_the_coordinator_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    home = begun(tmp_path)
    assert not is_running(home)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(home.path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            assert is_running(home)
            with pytest.raises(Refusal, match="already running"), lock_home(home):
                pass
        finally:
            other.kill()
    assert not is_running(home)
    with lock_home(home):
        assert is_running(home)
