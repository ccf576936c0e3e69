"""Homes are read key by key, and whatever is missing or broken is told in one paragraph."""

import json
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome, SiteHome, home_path, keys_in
from wardround.deploy.settings_files import toml_lines, toml_text
from wardround.deploy.trust.certificates import make_authority, make_request, new_key, pem, sign
from wardround.runs.json_files import read_json, write_json

SITE = 'name = "freetown"\ncoordinator = "hub.example.org:8002"\nserver_name = "hub"\n'


def site(folder: Path, text: str | bytes) -> SiteHome:
    (folder / "site.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return SiteHome(folder)


def test_a_site_and_a_coordinator_are_read(tmp_path):
    words = site(tmp_path, SITE).settings
    assert (words.name, words.coordinator, words.server_name) == ("freetown", "hub.example.org:8002", "hub")
    (tmp_path / "coordinator.toml").write_text('consortium = "West"\nname = "hub"\n')
    hub = CoordinatorHome(tmp_path)
    assert (hub.settings.listen, hub.settings.hosts, hub.own_name) == ("127.0.0.1:8002", [], "hub")
    assert hub.site_certificate("bo") == tmp_path / "sites" / "bo.pem"
    assert hub.revoked() == {}
    hub.write_revoked({"1f": {"site": "bo"}})
    assert hub.revoked() == {"1f": {"site": "bo"}}
    assert hub.status() == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (SITE.replace("coordinator", "coordinater"), "did you mean 'coordinator'"),
        (SITE.replace('server_name = "hub"\n', ""), "'server_name' is missing"),
        (SITE.replace(":8002", ""), "write HOST:PORT"),
        (SITE.replace(":8002", ":80020"), "write HOST:PORT"),
        (SITE.replace(":8002", ":0"), "write HOST:PORT"),
        (SITE.replace("hub.example.org", "hub example"), "write HOST:PORT"),
        (SITE.replace('"freetown"', '"../etc"'), "'../etc' cannot be the name"),
        (SITE.replace('"freetown"', '"server"'), "'server' cannot be the name"),
        (SITE.replace('"freetown"', "7"), "'name' cannot be 7"),
        (SITE + "x", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_name(tmp_path, text, what):
    with pytest.raises(Refusal) as refused:
        _ = site(tmp_path, text).settings
    assert what in str(refused.value)
    assert "site.toml" in str(refused.value)
    assert "\n" not in str(refused.value).replace(SITE, "")


def test_a_missing_home_says_how_to_begin(tmp_path):
    with pytest.raises(Refusal, match="wardround site init"):
        _ = SiteHome(tmp_path / "nowhere").settings
    with pytest.raises(Refusal, match="wardround coordinator init"):
        _ = CoordinatorHome(tmp_path).settings


def test_addresses_may_be_numbers_too(tmp_path):
    for address in ("10.0.0.7:1", "[::1]:65535", "localhost:8002"):
        assert site(tmp_path, SITE.replace("hub.example.org:8002", address)).settings.coordinator == address


def test_the_home_is_given_or_told_by_the_environment_or_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WARDROUND_HOME", raising=False)
    assert home_path(None) == tmp_path / "wardround-site"
    monkeypatch.setenv("WARDROUND_HOME", str(tmp_path / "there"))
    assert home_path(None) == tmp_path / "there"
    assert home_path(Path("given")) == tmp_path / "given"


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1))))
def test_what_is_written_as_toml_is_read_back(words):
    words = {key: value for key, value in words.items() if encodable(key) and encodable(value)}
    assert tomllib.loads(toml_lines(words)) == words


def encodable(value: object) -> bool:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_lists_and_numbers_as_toml():
    for value in (["a", 'b"\\', "\x7f\x00\n"], [], 0.1, 1e-30, True):
        assert tomllib.loads(f"value = {toml_text(value)}")["value"] == value


def test_json_is_written_whole_and_damage_is_told(tmp_path):
    path = tmp_path / "deep" / "status.json"
    write_json(path, {"a": "é"})
    assert read_json(path, "") == {"a": "é"}
    assert sorted(one.name for one in path.parent.iterdir()) == ["status.json"]
    for content in (b"", b"[]", b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(Refusal, match="is damaged"):
            read_json(path, "")
    with pytest.raises(Refusal, match="cannot be written"):
        write_json(path / "below", {})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": json.loads("NaN")})


def test_keys_are_found_by_the_name_in_the_certificate(tmp_path):
    """The name of a file proves nothing; a certificate's name was signed by the authority."""
    make_authority(tmp_path / "ca", "West")
    key, other = new_key(tmp_path / "key.pem"), new_key(tmp_path / "other.pem")
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "some.pem").write_bytes(pem(sign(tmp_path / "ca", make_request(key, "bo"))))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "kenema.pem").write_bytes(other.public_key().public_bytes(serialization.Encoding.PEM, form))
    (folder / "readme.pem").write_text("nothing")
    assert keys_in(folder) == {"bo": [key.public_key()], "kenema": [other.public_key()]}
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
