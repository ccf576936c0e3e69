"""What the doctor finds: each fault made for real in a home, a file or a socket, and found by name."""

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import small_site
from wardround.cli.app import main
from wardround.core.errors import Refusal
from wardround.deploy import doctor
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.enrolment import join
from wardround.deploy.transport import connectivity
from wardround.deploy.transport.connectivity import Diagnosis, check_free, diagnose, diagnose_steps
from wardround.deploy.trust.certificates import SKEW, make_authority, make_request, new_key, pem, read_request, sign
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.membership_witness import trouble
from wardround.deploy.trust.pins import FIRST_USE, Partner, trust, write_partner


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*doctor.PROXIES, "no_proxy", "no_grpc_proxy", "WARDROUND_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(tmp_path: Path) -> CoordinatorHome:
    """A coordinator's home, as its beginning makes it."""
    home = CoordinatorHome(tmp_path / "hub")
    make_authority(home.path, "test")
    request = make_request(new_key(home.key_path), "hub", "coordinator")
    home.certificate_path.write_bytes(pem(sign(home.path, request, hosts=("localhost", "127.0.0.1"))))
    write_words(home)
    (home.path / "sites").mkdir()
    return home


def write_words(home: CoordinatorHome, listen: str = "127.0.0.1:0", hosts: str = '["localhost"]') -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = listen.replace(":0", f":{probe.getsockname()[1]}")
    words = f'consortium = "test"\nname = "hub"\nlisten = "{listen}"\nhosts = {hosts}\n'
    (home.path / "coordinator.toml").write_text(words, encoding="utf-8")
    home.__dict__.pop("words", None)


@pytest.fixture
def site(tmp_path: Path, hub: CoordinatorHome) -> SiteHome:
    """A site's home with data, signed by the coordinator."""
    home = small_site.make(tmp_path)
    signed(home, hub)
    return SiteHome(home.path)


def signed(home: SiteHome, hub: CoordinatorHome, **more: Any) -> None:
    certificate = sign(hub.path, read_request(home.request_path.read_bytes(), "here"), **more)
    home.certificate_path.write_bytes(pem(certificate))
    home.authority_path.write_bytes(hub.authority_path.read_bytes())


def found(path: Path, name: str) -> Diagnosis:
    (one,) = [one for one in doctor.examine_home(path) if one.name == name]
    return one


def states(path: Path) -> dict[str, str]:
    return {one.name: one.state for one in doctor.examine_home(path)}


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_coordinator_in_good_health(hub: CoordinatorHome) -> None:
    told = states(hub.path)
    assert told.pop("authority") == "look"  # its key is not encrypted, as the tutorial makes it
    assert set(told.values()) == {"ok"}


def test_an_authority_that_is_locked_or_elsewhere(hub: CoordinatorHome, monkeypatch: pytest.MonkeyPatch) -> None:
    key = hub.path / "authority.key"
    assert "not encrypted, and lies on the machine that listens" in found(hub.path, "authority").sentence
    key.unlink()
    assert found(hub.path, "authority's key") == Diagnosis("authority's key", "ok", "it is kept elsewhere")
    new_key(key, "a long passphrase")
    assert "encrypted" in found(hub.path, "authority's key").what
    assert found(hub.path, "authority's key").state == "look"
    monkeypatch.setenv("WARDROUND_PASSPHRASE", "a long passphrase")
    assert found(hub.path, "authority's key").state == "ok"


def test_partners_that_nobody_called_and_a_log_in_trouble(site: SiteHome) -> None:
    words = [fingerprint(ec.generate_private_key(ec.SECP256R1()).public_key()) for _ in range(2)]
    write_partner(site, Partner("kenema", words[0], FIRST_USE, "2026-01-01", "anna"))
    trust(site, "bo", words[1], by="anna")
    assert found(site.path, "partners").sentence.startswith("not compared yet: kenema")
    trust(site, "kenema", words[0], by="anna")
    assert found(site.path, "partners") == Diagnosis("partners", "ok", "2 compared by phone")
    assert found(site.path, "membership log").state == "ok"
    trouble(site, "kenema was shown another entry 6 than this site: two stories", {})
    assert "two stories" in found(site.path, "membership log").sentence
    assert found(site.path, "membership log").state == "wrong"


def test_a_site_whose_coordinator_cannot_be_found_is_otherwise_well(site: SiteHome) -> None:
    """The small site's coordinator is hub.example.org, a name that is never given to anybody (RFC 2606)."""
    told = states(site.path)
    assert told.pop("name") == "wrong"
    assert set(told.values()) == {"ok"}
    assert "hub.example.org" in found(site.path, "name").sentence


def test_a_folder_with_no_home_in_it(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="neither a site nor a coordinator"):
        doctor.examine_home(tmp_path)


def test_settings_that_are_wrong(site: SiteHome) -> None:
    change(site.path / "site.toml", "hub.example.org:8002", "hub.example.org")
    assert "is not an address" in found(site.path, "settings").sentence


def test_a_key_that_others_can_read(site: SiteHome) -> None:
    site.key_path.chmod(0o640)
    assert found(site.path, "key") == Diagnosis(
        "key", "wrong", f"{site.key_path} can be read by others (mode 640)", f"chmod 600 {site.key_path}"
    )


def test_a_key_that_is_missing(hub: CoordinatorHome) -> None:
    (hub.path / "authority.key").unlink()
    (hub.path / "issued.json").write_text("{}")  # it has signed from here
    assert "no private key" in found(hub.path, "authority's key").sentence.lower()


def test_no_certificate_yet(site: SiteHome) -> None:
    site.certificate_path.unlink()
    assert found(site.path, "certificate").state == "wrong"
    assert "have the request signed" in found(site.path, "certificate").sentence
    assert "name" not in states(site.path), "without a certificate there is nothing to connect with"


def test_a_certificate_of_another_name_key_or_consortium(site: SiteHome, hub: CoordinatorHome, tmp_path: Path) -> None:
    key = new_key(tmp_path / "other.key")
    site.certificate_path.write_bytes(pem(sign(hub.path, make_request(key, "freetown"))))
    assert "belongs to another key" in found(site.path, "certificate").sentence
    site.certificate_path.write_bytes(pem(sign(hub.path, make_request(site.key, "bo"))))
    assert "is for the site 'bo', but this is the site 'freetown'" in found(site.path, "certificate").sentence
    make_authority(tmp_path / "else", "else")
    site.certificate_path.write_bytes(pem(sign(tmp_path / "else", make_request(site.key, "freetown"))))
    assert "not signed by this consortium" in found(site.path, "certificate").sentence


def test_a_certificate_that_ended_or_soon_will(site: SiteHome, hub: CoordinatorHome) -> None:
    now = datetime.now(UTC)
    signed(site, hub, now=now - timedelta(days=91))
    assert found(site.path, "certificate").state == "wrong"
    signed(site, hub, now=now - timedelta(days=80))  # 90 - 80 days, less the moment since
    assert found(site.path, "certificate").what.startswith("expires in 9 days")
    assert found(site.path, "certificate").state == "look"


def test_a_clock_that_is_behind(site: SiteHome, hub: CoordinatorHome) -> None:
    """Signed a day and an hour from now, by the signer's clock: so one of the two clocks is wrong."""
    signed(site, hub, now=datetime.now(UTC) + timedelta(hours=25, minutes=30))
    clock = found(site.path, "clock")
    assert clock.state == "wrong"
    assert "signed 25 h later" in clock.what
    assert found(site.path, "certificate").state == "ok", "it is valid from two days before"
    signed(site, hub, now=datetime.now(UTC) + SKEW + timedelta(hours=3))
    assert "is not valid before" in found(site.path, "certificate").sentence


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({}, "ok"),
        ({"http_proxy": "http://proxy:3128"}, "look"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "intranet,example.org"}, "ok"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "ample.org"}, "look"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "ok"),
    ],
    ids=str,
)
def test_proxies_that_grpc_would_obey(environment: dict[str, str], state: str) -> None:
    assert doctor.check_proxy("hub.example.org:8002", environment).state == state


def test_a_version_of_the_network_that_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.1" if name == "nvflare" else version(name))
    (told,) = [one for one in doctor.check_versions() if one.name == "network"]
    assert told.what == "nvflare 2.1, and 2.9.0 is needed"
    pinned = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"nvflare=={doctor.NETWORK}"' in pinned


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    assert doctor.check_disk(tmp_path / "nowhere").state == "wrong"
    if os.path.exists("/dev/full"):
        assert doctor.check_disk(Path("/proc")).state == "wrong"


@pytest.mark.parametrize(("free", "state"), [(10**11, "ok"), (10**9, "look"), (10**8, "wrong")])
def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert doctor.check_disk(tmp_path).state == state


def test_data_that_went_away(site: SiteHome, tmp_path: Path) -> None:
    assert found(site.path, "data patients") == Diagnosis("data patients", "ok", "100 rows, 5 columns")
    (tmp_path / "patients.csv").unlink()
    assert found(site.path, "data patients").state == "wrong"


def test_sites_whose_certificates_end(hub: CoordinatorHome, tmp_path: Path) -> None:
    for name, days in (("old", 91), ("soon", 70), ("new", 0)):
        request = make_request(new_key(tmp_path / f"{name}.key"), name)
        certificate = sign(hub.path, request, now=datetime.now(UTC) - timedelta(days=days))
        hub.site_certificate(name).write_bytes(pem(certificate))
    told = states(hub.path)
    assert (told["site old"], told["site soon"], told.get("site new")) == ("wrong", "look", None)


def test_what_the_running_coordinator_warns_of(hub: CoordinatorHome) -> None:
    hub.write_status({"warnings": {"bo": "the coordinator runs wardround 2, but this site runs 1"}})
    assert found(hub.path, "site bo").what == "the coordinator runs wardround 2, but this site runs 1"


def test_a_coordinator_that_other_machines_cannot_reach(hub: CoordinatorHome) -> None:
    write_words(hub, hosts='["hub.example.org"]')
    assert found(hub.path, "connection").state == "look"
    assert "0.0.0.0" in found(hub.path, "connection").remedy


# ---- lines ----


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


def at(door: socket.socket) -> str:
    return f"127.0.0.1:{door.getsockname()[1]}"


def files(site: SiteHome) -> connectivity.Files:
    return doctor.files(site)


def served(door: socket.socket, said: bytes) -> None:
    """Whoever connects is told this, and cut off."""

    def serve() -> None:
        with suppress(OSError):
            line, _ = door.accept()
            with line:
                line.recv(2000)
                line.sendall(said)

    threading.Thread(target=serve, daemon=True).start()


def test_a_port_at_which_nothing_listens(site: SiteHome, door: socket.socket) -> None:
    address = at(door)
    door.close()
    last = diagnose(address, files(site))
    assert (last.name, last.state) == ("connection", "wrong")
    assert "refused" in last.sentence


def test_a_firewall_that_drops(site: SiteHome) -> None:
    """A queue that is full looks the same as a firewall: the connection is neither taken nor refused."""
    with socket.socket() as busy, socket.socket() as first, socket.socket() as second:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(busy.getsockname())
        last = diagnose(at(busy), files(site), within=1)
    assert "did not answer within 1 s; most likely a firewall drops the connection" in last.sentence


def test_something_that_does_not_speak_tls(site: SiteHome, door: socket.socket) -> None:
    served(door, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "does not use TLS" in diagnose(at(door), files(site)).sentence


def test_a_line_that_is_cut(site: SiteHome, door: socket.socket) -> None:
    served(door, b"")
    assert "closed during the TLS handshake" in diagnose(at(door), files(site)).sentence


def test_each_step_is_told_up_to_the_first_that_fails(site: SiteHome, door: socket.socket) -> None:
    served(door, b"")
    assert [(one.name, one.state) for one in diagnose_steps(at(door), files(site))] == [
        ("name", "ok"),
        ("connection", "ok"),
        ("tls", "wrong"),
    ]


def test_a_key_that_does_not_belong_to_the_certificate(
    site: SiteHome, hub: CoordinatorHome, door: socket.socket
) -> None:
    authority, certificate, _ = files(site)
    assert "do not work together" in diagnose(at(door), (authority, certificate, hub.key_path)).sentence


def test_an_address_in_use(hub: CoordinatorHome, door: socket.socket) -> None:
    with pytest.raises(Refusal, match="in use"):
        check_free(at(door))
    write_words(hub, listen=at(door))
    assert "in use" in found(hub.path, "connection").sentence
    with pytest.raises(Refusal, match=r"annot listen at 192\.0\.2\.1"):  # never this machine's (RFC 5737)
        check_free("192.0.2.1:8002")


# ---- the command ----


def test_the_command_says_what_is_wrong_and_ends_with_2(
    site: SiteHome, hub: CoordinatorHome, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--home", str(hub.path)])
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "No errors found."
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--home", str(site.path)])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 2
    assert sum(line.startswith("Error") for line in lines) == 1
    assert any(line.startswith("Error   name: ") and "Fix: " in line for line in lines)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--home", str(site.path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert {"name": "disk", "state": "ok"}.items() <= told["findings"][2].items()


def test_joining_by_hand_and_by_the_doctors_word_agree(site: SiteHome) -> None:
    """What `site join` takes in, the doctor finds sound."""
    assert join(site, site.certificate_path, site.authority_path).name == "freetown"
    assert found(site.path, "certificate").state == "ok"
