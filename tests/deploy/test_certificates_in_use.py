"""Certificates age while parties are away: nobody is locked out for good, and whoever was shut out is told."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support import tiny_study as tiny
from tests.support.life import LocalParty
from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import admit, revoke
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.demo import make_coordinator
from wardround.deploy.doctor import examine_home
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.enrolment import authority_words, join
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.enrolment import begin_site, site_settings
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.transport.in_process import InProcess
from wardround.deploy.transport.site_register import SiteRegister
from wardround.deploy.trust.audit_log import verify
from wardround.deploy.trust.certificates import check_issued, pem, read_certificate, sign

pytest.importorskip("nvflare", reason="the network needs wardround[deploy]")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def one_cell_at_a_time() -> Iterator[None]:
    """Coordinators that never listen leave their cell's name behind."""
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    yield
    CoreCell.ALL_CELLS.pop("server", None)


@pytest.fixture
def hub(tmp_path: Path) -> CoordinatorHome:
    return make_coordinator(tmp_path / "hub", 1)


@pytest.fixture
def site(tmp_path: Path, hub: CoordinatorHome) -> SiteHome:
    home = begin_site(tmp_path / "bo", site_settings("bo", hub.settings.listen, hub.own_name), [])
    join(home, admit(hub, home.request_path).path, hub.authority_path)
    return home


def age(home: CoordinatorHome | SiteHome, authority: Path, days: int = 95) -> None:
    """Let a party's certificate be one that was signed so many days ago; the network looks at the real clock."""
    own = read_certificate(home.certificate_path)
    hosts = ("localhost",) if isinstance(home, CoordinatorHome) else ()
    signed = sign(authority, own, hosts=hosts, now=datetime.now(UTC) - timedelta(days=days))
    home.certificate_path.write_bytes(pem(signed))


def is_valid(home: CoordinatorHome | SiteHome) -> bool:
    try:
        check_issued(read_certificate(home.certificate_path), read_certificate(home.authority_path), where="here")
    except Refusal:
        return False
    return True


def test_a_coordinator_that_was_off_when_its_certificate_ended_starts_again(hub: CoordinatorHome) -> None:
    from wardround.deploy.coordinator.service import Coordinator

    age(hub, hub.path)
    assert not is_valid(hub)
    coordinator = Coordinator(hub, party=LocalParty())  # type: ignore[arg-type]
    assert is_valid(hub)
    assert not coordinator.is_outdated()
    assert verify(hub.audit_path, hub.public_keys()) == []


def test_a_running_coordinator_starts_anew_when_its_certificate_was_renewed(hub: CoordinatorHome) -> None:
    """Who listens keeps the certificate that it began with, so `work` returns instead of waiting for the end of it."""
    from wardround.deploy.coordinator.consortium import sign_own
    from wardround.deploy.coordinator.service import Coordinator

    coordinator = Coordinator(hub, party=LocalParty())  # type: ignore[arg-type]
    assert sign_own(hub) is None
    coordinator.work()
    assert coordinator.is_outdated()
    assert not coordinator.stopped.is_set()


def test_a_study_under_way_does_not_outlast_the_certificate(
    hub: CoordinatorHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left, as at a crash, three days before the certificate in use ends, and only if there is a new one."""
    from wardround.deploy.coordinator.consortium import sign_own
    from wardround.deploy.coordinator.service import Coordinator

    coordinator = Coordinator(hub, party=LocalParty())  # type: ignore[arg-type]
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=88))
    coordinator.look(wait=True)
    assert not coordinator.stopped.is_set()
    sign_own(hub)
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=80))
    coordinator.look(wait=True)
    assert not coordinator.stopped.is_set()
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=88))
    coordinator.look(wait=True)
    assert coordinator.stopped.is_set()
    assert coordinator.restarts


def test_without_the_authority_an_ended_certificate_is_refused_with_the_way_out(
    tmp_path: Path, hub: CoordinatorHome, capsys: Capture
) -> None:
    from wardround.deploy.coordinator.service import Coordinator

    stick = tmp_path / "stick"
    stick.mkdir()
    for name in ("authority.key", "issued.json"):
        (hub.path / name).rename(stick / name)
    (stick / "authority.pem").write_bytes(hub.authority_path.read_bytes())
    age(hub, stick)
    with pytest.raises(Refusal, match=r"expired on .*`wardround coordinator renew`"):
        Coordinator(hub)
    waiting = hub.request_path(hub.own_name)
    assert waiting.exists()
    said = tiny.call(capsys, "coordinator", "renew", "--home", hub.path, "--json")
    assert said.json["waiting"] == str(waiting)
    # by the authority's owner, and back
    out = tmp_path / "signed"
    signed = ["authority", "sign", waiting, "--coordinator", "--folder", stick, "--out", out]
    assert tiny.call(capsys, *signed).code == 0
    assert tiny.call(capsys, "coordinator", "accept", out / f"{hub.own_name}.pem", "--home", hub.path).code == 0
    assert is_valid(hub)
    # or with the stick in this machine
    age(hub, stick)
    assert not is_valid(hub)
    assert tiny.call(capsys, "coordinator", "renew", "--authority", stick, "--home", hub.path).code == 0
    assert is_valid(hub)


def test_a_site_that_was_away_too_long_comes_back_with_one_file(
    tmp_path: Path, hub: CoordinatorHome, site: SiteHome, capsys: Capture
) -> None:
    age(site, hub.path)
    hub.site_certificate("bo").write_bytes(site.certificate_path.read_bytes())
    assert not is_valid(site)
    (found,) = [one for one in examine_home(hub.path) if one.name == "site bo"]
    assert "wardround coordinator renew bo" in found.remedy
    said = tiny.call(capsys, "coordinator", "renew", "bo", "--home", hub.path, "--json").json
    posted = tmp_path / "bo.pem"
    posted.write_bytes(Path(said["certificate"]).read_bytes())
    key = site.key_path.read_bytes()
    assert tiny.call(capsys, "site", "join", posted, "--home", site.path).code == 0
    assert is_valid(site)
    assert site.key_path.read_bytes() == key
    revoke(hub, "bo", by="anna")
    assert "was revoked" in tiny.call(capsys, "coordinator", "renew", "bo", "--home", hub.path).err
    assert "no site called 'boo'" in tiny.call(capsys, "coordinator", "renew", "boo", "--home", hub.path).err


def test_the_words_of_the_authority_are_shown_and_compared(
    tmp_path: Path, hub: CoordinatorHome, capsys: Capture
) -> None:
    home = begin_site(tmp_path / "kenema", site_settings("kenema", hub.settings.listen, hub.own_name), [])
    said = tiny.call(capsys, "coordinator", "sign", home.request_path, "--home", hub.path)
    words = authority_words(read_certificate(hub.authority_path))
    assert words in said.out
    other = make_coordinator(tmp_path / "other", 1)
    wrong = authority_words(read_certificate(other.authority_path))
    asked = ["site", "join", hub.site_certificate("kenema"), hub.authority_path, "--home", home.path]
    refused = tiny.call(capsys, *asked, "--words", wrong)
    assert refused.code == 2
    assert words in refused.err
    assert not home.has_joined
    assert words in tiny.call(capsys, *asked, "--words", words).out


def test_a_first_certificate_needs_the_authority(hub: CoordinatorHome, tmp_path: Path, capsys: Capture) -> None:
    home = begin_site(tmp_path / "kenema", site_settings("kenema", hub.settings.listen, hub.own_name), [])
    made = admit(hub, home.request_path).path
    assert "knows no authority yet" in tiny.call(capsys, "site", "join", made, "--home", home.path).err


def test_whoever_was_shut_out_is_told_and_the_doctor_there_finds_it(hub: CoordinatorHome, site: SiteHome) -> None:
    handler = RequestHandler(HomeAccess(site))
    transport = InProcess({"bo": handler.answer}, SiteRegister(hub, hub.log()))
    told: list[bytes] = []

    def ask(name: str, topic: str, body: bytes) -> None:
        assert name == "bo"
        told.append(handler.answer(topic, "server", body))

    revoke(hub, "bo", by="anna", why="left the consortium")
    maintenance = Maintenance(hub, transport, lambda site, why: None)
    for _ in range(2):
        for thread in maintenance.tell_revoked(ask, "bo"):
            thread.join()
    assert len(told) == 2
    (found,) = [one for one in examine_home(site.path) if one.name == "membership"]
    assert found.state == "wrong"
    assert "left the consortium" in found.what
    assert site.audit_path.read_text().count("told of revocation") == 1
