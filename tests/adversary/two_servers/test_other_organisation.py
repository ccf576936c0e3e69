"""Who may be a second server: another organisation, on another machine, with a key of its own."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.second_server import SECOND, make_second
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import admit, begin_consortium, coordinator_settings
from wardround.deploy.demo import make_site
from wardround.deploy.second.home import begin_second
from wardround.deploy.trust.certificates import make_request, pem


@pytest.fixture
def founded(tmp_path: Path) -> Any:
    words = coordinator_settings("Ebola Network", "coordinator", "localhost:9000", ["localhost"])
    return begin_consortium(tmp_path / "hub", words)


def carried(home: Any, path: Path) -> Path:
    path.write_bytes(home.request_path.read_bytes())
    return path


def test_a_second_server_of_the_same_organisation_is_refused_unless_it_is_a_test(founded, tmp_path) -> None:
    same = begin_second(tmp_path / "same", "own", "localhost:9000", "coordinator", "ebola  network")
    request = carried(same, tmp_path / "same.csr")
    with pytest.raises(Refusal, match=r"hide nothing: it is run by 'ebola  network', as this coordinator is"):
        admit(founded, request)
    assert admit(founded, request, testing=True).path == founded.path / "seconds" / "own.pem"
    # On the same machine, whatever it is called.
    near = begin_second(tmp_path / "near", "near", "localhost:9000", "coordinator", "Ministry")
    with pytest.raises(Refusal, match="lies on this machine"):
        admit(founded, near.request_path)
    # With the key of a site.
    table = tmp_path / "patients.csv"
    table.write_text("age,ebola\n1,no\n")
    site = make_site(tmp_path / "bo", "bo", founded, table)
    csr = tmp_path / "copied.csr"
    csr.write_bytes(pem(make_request(site.key, "copied", "second", "Ministry")))
    with pytest.raises(Refusal, match="the key of another party"):
        admit(founded, csr)


def test_a_second_server_has_a_home_of_its_own_and_is_no_site(founded, tmp_path) -> None:
    with pytest.raises(Refusal, match="already holds a coordinator"):
        begin_second(founded.path, "two", "localhost:9000", "coordinator", "Ministry")
    made = make_second(tmp_path / "two", founded)
    assert not list((founded.path / "sites").glob("*.pem"))
    other = begin_second(tmp_path / "three", SECOND.upper(), "localhost:9000", "coordinator", "Other")
    request = carried(other, tmp_path / "three.csr")
    with pytest.raises(Refusal, match="already a second server called"):
        admit(founded, request)
    assert made.settings.organisation == "Ministry of Health"
