"""`wardround site` from an empty folder to a withdrawal, and every mistake in one paragraph with exit code 2."""

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_site as small
from tests.support import tiny_study as tiny
from wardround.deploy.home import SiteHome
from wardround.deploy.party import decisions
from wardround.deploy.trust.audit_log import sent_entry
from wardround.deploy.trust.certificates import make_authority, new_key, pem, read_request, sign
from wardround.deploy.trust.log_heads import countersign

INIT = ("site", "init", "freetown", "--coordinator", "hub.example.org:8002", "--server-name", "hub")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SiteHome:
    monkeypatch.setenv("WARDROUND_HOME", str(tmp_path / "site"))
    return small.make(tmp_path)


def test_from_nothing_to_an_approved_study_and_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WARDROUND_HOME", str(tmp_path / "site"))

    def call(*arguments: Any) -> Any:
        said = tiny.call(capsys, *arguments)
        assert said.code == 0, said
        return said

    began = call(*INIT, "--purpose", "triage research")
    assert "request.csr to the coordinator" in began.out
    make_authority(tmp_path / "ca", "West")
    request = read_request((tmp_path / "site" / "request.csr").read_bytes(), "test")
    (tmp_path / "freetown.pem").write_bytes(pem(sign(tmp_path / "ca", request)))
    assert (
        "belongs to the consortium until"
        in call("site", "join", tmp_path / "freetown.pem", tmp_path / "ca" / "authority.pem").out
    )
    small.patients().to_csv(tmp_path / "patients.csv", index=False)
    added = call(
        "site", "data", "add", "patients", "--source", "csv", "--path", tmp_path / "patients.csv", "--allow", "all"
    )
    assert "patients: 100 rows, 5 columns. Nothing was copied." in added.out
    assert "Warning: patient_id may identify patients" in added.out
    assert call("site", "policy", "--json").json["columns"] == ["age", "pulse", "sex", "outcome"]
    assert call("site", "policy", "set", "smallest_cell", "1", "--json").json == {"smallest_cell": 1}
    assert "No study has been offered yet." in call("site", "studies").out
    study = small.offered(SiteHome(tmp_path / "site")).id
    listed = call("site", "studies").out
    assert f"{study}: waiting for your decision since" in listed
    assert f"from anna; next: wardround site approve {study}" in listed
    assert call("site", "studies", "triage", "--json").json["columns"] == ["age", "pulse", "sex", "outcome"]
    approved = call("site", "approve", "triage", "--by", "ben", "--yes").out
    for part in ("Who asks", "What is read", "What leaves", "per round", "What it costs in privacy", "ben approved"):
        assert part in approved
    assert call("site", "studies", "--json").json["studies"][0]["state"] == "ok"
    facts = {
        "study": study,
        "topic": "round",
        "round": 3,
        "to": "server",
        "bytes": 1234,
        "arrays": {"['update']['w']": [4, 2], "['weight']": []},
    }
    SiteHome(tmp_path / "site").log().append(sent_entry(facts))
    assert "it gets no more answers" in call("site", "withdraw", "triage", "--by", "ben", "--why", "moved").out
    diary = call("site", "log").out
    for part in (
        "freetown was set up",
        "freetown joined with a certificate",
        f"anna offered {study}.",
        f"ben approved {study} on the dataset patients",
        f"Sent 1.23 kB to server: round 3 of {study} with update/w (4 x 2 numbers), weight (one number).",
        f"ben withdrew from {study} (moved).",
        "Sent 1 message, 1.23 kB in all.",
        "none changed, moved or missing; signed by its owner.",
    ):
        assert part in diary
    entries = call("site", "log", "--study", "triage", "--json").json["entries"]
    assert [entry["kind"] for entry in entries] == ["offered", "approved", "sent", "withdrawn"]
    assert call("audit", "verify", tmp_path / "site" / "audit.jsonl").code == 0


def test_an_edited_log_is_told_everywhere(home, tmp_path, capsys):
    log = home.audit_path
    log.write_bytes(log.read_bytes().replace(b"freetown", b"freetowm", 1))
    for arguments in (
        ("site", "log"),
        ("audit", "show", log),
        ("audit", "verify", log),
        ("audit", "verify", log, "--json"),
    ):
        said = tiny.call(capsys, *arguments)
        assert said.code == 2
        assert "its content was changed" in said.out
    assert "do not rely on it" in tiny.call(capsys, "audit", "show", log).out


def test_a_rollback_is_told_with_the_head_that_the_other_side_kept(home, tmp_path, capsys):
    hub = new_key(tmp_path / "hub.key")
    old = {path: path.read_bytes() for path in home.path.glob("audit.jsonl*")}
    home.log().append(sent_entry({"study": "x", "bytes": 1}))
    kept = tmp_path / "freetown.json"
    kept.write_text(json.dumps(countersign(home.log().head(), "hub", hub).content()))
    verify = ("audit", "verify", home.audit_path, "--head", kept)
    fine = tiny.call(capsys, *verify)
    assert fine.code == 0
    assert "The countersignatures of hub were not checked" in fine.out
    for path, content in old.items():
        path.write_bytes(content)
    assert tiny.call(capsys, "audit", "verify", home.audit_path).code == 0
    said = tiny.call(capsys, *verify)
    assert said.code == 2
    assert "its end is missing" in said.out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (INIT, "already holds a site"),
        (("site", "join", "absent.pem", "absent.pem"), "there is no certificate"),
        (("site", "data", "add", "x", "--source", "csv", "--path", "absent.csv"), "there is no such file"),
        (("site", "data", "add", "x", "--source", "csv"), "'path' is missing"),
        (("site", "data", "add", "x", "--source", "csv", "--setting", "nonsense"), "is not a setting"),
        (("site", "data", "remove", "x"), "no dataset called 'x'"),
        (("site", "policy", "set", "smalest_cell", "3"), "did you mean 'smallest_cell'"),
        (("site", "approve", "sepsis", "--yes"), "no study called 'sepsis' was offered"),
        (("site", "approve", "triage", "--by", "anna", "--yes"), "submitted this study and cannot approve it"),
        (("site", "approve", "triage", "--by", "ben"), "not an interactive terminal"),
        (("site", "approve", "triage", "--by", "ben", "--yes", "--until", "soon"), "is not a date"),
        (("site", "approve", "triage", "--by", "ben", "--yes", "--data", "other"), "no dataset called 'other'"),
        (("site", "withdraw", "triage", "--by", "ben"), "only an approved study"),
        (("site", "studies", "--home", "nowhere"), "wardround site init"),
        (("audit", "show", "absent.jsonl"), "no such ledger or audit log"),
    ],
)
def test_a_mistake_is_one_paragraph_and_code_2(home, tmp_path, monkeypatch, capsys, arguments, what):
    monkeypatch.chdir(tmp_path)
    small.offered(home)
    for more in ((), ("--json",)):
        said = tiny.call(capsys, *arguments, *more)
        assert said.code == 2
        assert what in said.err.replace("wardround: ", "").lower() or what in said.err
        assert "Traceback" not in said.err
        assert len(said.err.strip().splitlines()) == 1
        if more:
            assert what.lower() in json.loads(said.out)["error"].lower()
    assert decisions.decisions(home) == {}


def test_a_policy_that_forbids_is_shown_and_refuses(home, capsys):
    small.offered(home)
    tiny.call(capsys, "site", "policy", "set", "purposes", "sepsis")
    said = tiny.call(capsys, "site", "approve", "triage", "--by", "ben", "--yes")
    assert said.code == 2
    assert "Your policy does not allow it" in said.out
    assert "the purpose 'triage research' is not among the policy's purposes (sepsis)" in said.err
    denied = tiny.call(capsys, "site", "deny", "triage", "--by", "ben", "--why", "another purpose", "--json")
    assert denied.json == {"study": denied.json["study"], "state": "denied", "by": "ben"}


def test_columns_that_are_withheld_are_told_with_the_command_that_allows_them(tmp_path, home, capsys):
    tiny.call(capsys, "site", "policy", "set", "columns", "age")
    path = tmp_path / "patients.csv"
    said = tiny.call(capsys, "site", "data", "add", "more", "--source", "csv", "--path", path)
    assert "To allow them: wardround site policy set columns 'age,pulse,sex,outcome'" in said.out
    wrong = tiny.call(capsys, "site", "data", "add", "third", "--source", "csv", "--path", path, "--allow", "height")
    assert wrong.code == 2
    assert list(tiny.call(capsys, "site", "data", "list", "--json").json["data"]) == ["patients", "more"]
    assert tiny.call(capsys, "site", "data", "remove", "more").code == 0
    semicolons = tmp_path / "semi.csv"
    small.patients().to_csv(semicolons, index=False, sep=";")
    add = ("site", "data", "add", "semi", "--source", "csv", "--path", semicolons)
    assert "say what separates" in tiny.call(capsys, *add).err
    assert tiny.call(capsys, *add, "--setting", "separator=;", "--json").json["rows"] == 100


def test_names_from_outside_cannot_draw_on_the_terminal(home, capsys):
    small.offered(home, submitter="an\x1b[2Jna\n\u202eevil")
    for arguments in (("site", "studies"), ("site", "studies", "triage"), ("site", "log")):
        said = tiny.call(capsys, *arguments)
        assert said.code == 0
        assert "\x1b" not in said.out
        assert "\u202e" not in said.out
        assert "na evil" in said.out


@pytest.mark.parametrize(("answer", "state"), [(b"n\n", None), (b"\n", None), (b"y\n", "approved")])
def test_on_a_terminal_a_person_is_asked(home, monkeypatch, capsys, answer, state):
    """A real terminal on the other end; only y approves."""
    study = small.offered(home).id
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    with os.fdopen(theirs, "r") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        said = tiny.call(capsys, "site", "approve", "triage", "--by", "ben")
    os.close(ours)
    assert "Approve this study as ben?" in said.out + said.err
    decision = decisions.read_decision(home, study)
    assert (decision.state if decision else None) == state
    assert said.code == (0 if state else 1)
    assert ("No decision was made." in said.out) == (state is None)
