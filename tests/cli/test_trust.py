"""Words over the telephone, an authority on a stick, a new key, leaving: with the commands that people use."""

import json
from pathlib import Path

import pytest

from tests.support import tiny_study as tiny
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.trust.certificates import PASSPHRASE, read_certificate
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.membership import STATEMENT_SEAL, MembershipLog
from wardround.runs.json_files import write_file

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE, raising=False)


def begin_site(folder: Path, capsys: Capture, name: str) -> Path:
    home = folder / name
    words = ["site", "init", name, "--coordinator", "hub.example.org:8002", "--server-name", "hub", "--home", home]
    made = tiny.call(capsys, *words, "--json").json
    assert made["fingerprint"] == fingerprint(SiteHome(home).key.public_key())
    assert len(made["fingerprint"].split()) == 10
    return home


def test_partners_are_pinned_by_the_words_they_read_out(tmp_path: Path, capsys: Capture) -> None:
    bo, kenema = (begin_site(tmp_path, capsys, name) for name in ("bo", "kenema"))
    words = fingerprint(SiteHome(kenema).key.public_key())
    typo = tiny.call(capsys, "site", "trust", "kenema", words.split()[0] + "x", "--by", "anna", "--home", bo)
    assert typo.code == 2
    assert f"did you mean '{words.split()[0]}'?" in typo.err
    said = tiny.call(capsys, "site", "trust", "kenema", *words.upper().split(), "--by", "anna", "--home", bo)
    assert said.code == 0
    assert "kenema is pinned as compared by anna" in said.out
    listed = tiny.call(capsys, "site", "partners", "--home", bo)
    assert words in listed.out
    assert "compared by anna" in listed.out
    facts = tiny.call(capsys, "site", "partners", "--home", bo, "--json").json
    assert [(one["name"], one["fingerprint"], one["compared"]) for one in facts["partners"]] == [
        ("kenema", words, True)
    ]
    again = tiny.call(capsys, "site", "trust", "makeni", words, "--by", "anna", "--home", bo)
    assert "no two sites have the same key" in again.err


def test_the_authority_lives_on_a_stick(tmp_path: Path, capsys: Capture) -> None:
    stick, public, hub = tmp_path / "stick", tmp_path / "public", tmp_path / "hub"
    (tmp_path / "secret").write_text("correct horse\n")
    secret = ["--passphrase-file", tmp_path / "secret"]
    forgotten = tiny.call(capsys, "authority", "init", "West", "--folder", tmp_path / "open")
    assert forgotten.code == 2
    assert "say --without-passphrase" in forgotten.err
    assert not (tmp_path / "open").exists(), "nothing half-written"
    there = ["coordinator", "init", "West", "--authority", tmp_path / "open", "--home", tmp_path / "none"]
    assert "say --without-passphrase" in tiny.call(capsys, *there).err
    assert not (tmp_path / "none").exists()
    warned = tiny.call(capsys, "authority", "init", "West", "--folder", tmp_path / "open", "--without-passphrase")
    assert "Warning: the authority's key is not encrypted" in warned.out
    made = tiny.call(capsys, "authority", "init", "West", "--folder", stick, *secret)
    assert made.code == 0
    assert "Warning" not in made.out
    public.mkdir()
    (public / "authority.pem").write_bytes((stick / "authority.pem").read_bytes())
    words = ["coordinator", "init", "West", "--name", "hub", "--host", "hub.example.org", "--home", hub]
    begun = tiny.call(capsys, *words, "--authority", public, "--json").json
    assert begun["waiting"] == str(hub / "requests" / "hub.json")
    assert begun["warnings"] == []
    unsigned = tiny.call(capsys, "coordinator", "start", "--home", hub)
    assert unsigned.code == 2
    assert "`wardround coordinator accept`" in unsigned.err, "it is not told to ask itself"
    sign = ["authority", "sign", begun["waiting"], "--folder", stick, "--out", tmp_path]
    assert "sign it with --coordinator" in tiny.call(capsys, *sign, *secret).err
    locked = tiny.call(capsys, *sign, "--coordinator")
    assert locked.code == 2
    assert "no passphrase was given" in locked.err
    assert tiny.call(capsys, *sign, *secret, "--coordinator").code == 0
    assert tiny.call(capsys, "coordinator", "accept", tmp_path / "hub.pem", "--home", hub).code == 0
    assert read_certificate(CoordinatorHome(hub).certificate_path)
    bo = begin_site(tmp_path, capsys, "bo")
    queued = tiny.call(capsys, "coordinator", "sign", bo / "request.csr", "--home", hub)
    assert "The request of bo waits for the authority" in queued.out
    assert "bo: " in tiny.call(capsys, "coordinator", "requests", "--home", hub).out
    sign[2] = str(hub / "requests" / "bo.json")
    assert fingerprint(SiteHome(bo).key.public_key()) in tiny.call(capsys, *sign, *secret).out
    assert tiny.call(capsys, "coordinator", "accept", tmp_path / "bo.pem", "--home", hub).code == 0
    joined = tiny.call(capsys, "site", "join", hub / "sites" / "bo.pem", hub / "authority.pem", "--home", bo)
    assert joined.code == 0
    assert fingerprint(SiteHome(bo).key.public_key()) in joined.out
    assert "bo (site)" in tiny.call(capsys, "authority", "show", "--folder", stick).out


def test_a_job_of_flare_names_the_keys_of_its_sites(tmp_path: Path, capsys: Capture) -> None:
    hub = tmp_path / "hub"
    assert tiny.call(capsys, "coordinator", "init", "West", "--name", "hub", "--home", hub).code == 0
    sites = {name: begin_site(tmp_path, capsys, name) for name in ("bo", "kenema", "makeni")}
    for home in sites.values():
        assert tiny.call(capsys, "coordinator", "sign", home / "request.csr", "--home", hub).code == 0
    tables = {"data": {"site": None}, "transforms": [{"name": "secure_sum"}]}
    study = tiny.write_study(tmp_path, **tables)  # type: ignore[arg-type]
    export = ["flare", "export", study, "--out", tmp_path / "job", *(word for one in sites for word in ("--site", one))]
    refused = tiny.call(capsys, *export)
    assert refused.code == 2
    assert "names the fingerprints of their keys" in refused.err
    assert tiny.call(capsys, *export, "--home", hub).code == 0
    text = "".join(path.read_text() for path in (tmp_path / "job").rglob("*.json"))
    assert all(fingerprint(SiteHome(home).key.public_key()) in text for home in sites.values())


def check_membership_log(hub: Path, capsys: Capture) -> None:
    """It has no head beside it; an edit, and an end that a site has seen and that is gone, are found."""
    log = hub / "membership.jsonl"
    content = log.read_bytes()
    whole = tiny.call(capsys, "audit", "verify", log)
    assert whole.code == 0, whole.out
    assert "3 changes of membership, none changed or moved" in whole.out
    for change, why in (
        (content.replace(b'"admitted"', b'"revoked"'), "hash"),
        (content[: content.rindex(b"\n", 0, -1) + 1], "what bo saw"),
    ):
        seen = MembershipLog(log).head("bo", SiteHome(hub.parent / "bo").key, STATEMENT_SEAL)
        write_file(CoordinatorHome(hub).statement_path("bo"), seen.to_bytes())
        log.write_bytes(change)
        found = tiny.call(capsys, "audit", "verify", log)
        assert found.code == 2
        assert why in found.out
        log.write_bytes(content)
    CoordinatorHome(hub).statement_path("bo").unlink()


def test_a_new_key_and_the_end(tmp_path: Path, capsys: Capture) -> None:
    hub = tmp_path / "hub"
    begun = tiny.call(capsys, "coordinator", "init", "West", "--name", "hub", "--home", hub)
    assert begun.out.count("Warning:") == 2, "not encrypted, and on the machine that listens"
    bo = begin_site(tmp_path, capsys, "bo")
    assert tiny.call(capsys, "coordinator", "sign", bo / "request.csr", "--home", hub).code == 0
    join = ["site", "join", hub / "sites" / "bo.pem", hub / "authority.pem", "--home", bo]
    assert tiny.call(capsys, *join).code == 0
    old = fingerprint(SiteHome(bo).key.public_key())
    rotate = ["site", "rotate-key", "--by", "anna", "--home", bo]
    assert "Made a new key" in tiny.call(capsys, *rotate).out
    again = tiny.call(capsys, *rotate)
    assert "There is already a new key that waits to be signed" in again.out
    assert "Made" not in again.out
    new = tiny.call(capsys, *rotate, "--json").json
    assert new["fingerprint"] != old == fingerprint(SiteHome(bo).key.public_key())
    signed = tiny.call(capsys, "coordinator", "sign", new["request"], "--home", hub)
    assert "bo has a new key until" in signed.out
    assert tiny.call(capsys, *join).code == 0
    assert fingerprint(SiteHome(bo).key.public_key()) == new["fingerprint"]
    kinds = [json.loads(line)["entry"]["kind"] for line in (hub / "membership.jsonl").read_text().splitlines()]
    assert kinds == ["coordinator", "admitted", "rotated"]
    check_membership_log(hub, capsys)
    assert tiny.call(capsys, "site", "members", "--home", bo).code == 0
    assert tiny.call(capsys, "site", "log", "--home", bo).code == 0, "the log still verifies"
    said = tiny.call(capsys, "site", "distrust-coordinator", "--by", "anna", "--why", "lied", "--home", bo)
    assert "bo no longer answers hub" in said.out
    assert "site leave" in tiny.call(capsys, *join).err
    assert tiny.call(capsys, "site", "start", "--home", bo).code == 2
    assert tiny.call(capsys, "site", "leave", "--by", "anna", "--home", bo).code == 0
    assert not SiteHome(bo).has_joined
    assert tiny.call(capsys, *join).code == 0, "and it may come back, if it wants to"
