"""With roles.toml the user of the process acts, whatever is typed; without it nothing changes."""

import os
import pwd
from pathlib import Path

import pytest

from tests.support import small_site
from tests.support import tiny_study as tiny
from wardround.cli.output import person_name
from wardround.core.errors import Refusal
from wardround.deploy.demo import make_coordinator
from wardround.deploy.home import SiteHome
from wardround.deploy.roles import acting_person

OWN = pwd.getpwuid(os.getuid()).pw_name


def test_without_the_file_people_say_who_they_are(tmp_path: Path) -> None:
    assert acting_person(tmp_path, "Fatu Kamara", "decide") is None
    assert person_name("Fatu Kamara", SiteHome(tmp_path)) == "Fatu Kamara"


def test_who_is_named_acts_under_the_systems_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roles.toml").write_text(f'decide = ["{OWN}"]\n')
    monkeypatch.setenv("LOGNAME", "somebody-else")  # what getpass believes
    assert person_name(None, SiteHome(tmp_path)) == OWN
    assert person_name(OWN, SiteHome(tmp_path)) == OWN
    with pytest.raises(Refusal, match=rf"--by names Fatu Kamara, but the logged-in user is {OWN}"):
        person_name("Fatu Kamara", SiteHome(tmp_path))


def test_who_is_not_named_may_not(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text(f'decide = ["fatu"]\nsubmit = ["{OWN}"]\n')
    with pytest.raises(Refusal, match=rf"(?i){OWN} may not approve, deny and withdraw studies here.*ask fatu"):
        person_name(None, SiteHome(tmp_path))
    with pytest.raises(Refusal, match="may not change data and policy, admit, revoke"):
        person_name(None, SiteHome(tmp_path), "administer")
    assert person_name(None, SiteHome(tmp_path), "submit") == OWN


def test_a_mistake_in_the_file_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text("decides = []\n")
    with pytest.raises(Refusal, match=r"(?i)unknown key 'decides'"):
        person_name(None, SiteHome(tmp_path))


def test_no_command_that_changes_something_is_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Resume, cancel, amend, reread, sign, join, and changes of data and policy asked nobody."""
    site, hub = small_site.make(tmp_path), make_coordinator(tmp_path / "hub", 1)
    study = small_site.offered(site).id
    for home in (site, hub):
        (home.path / "roles.toml").write_text('submit = ["fatu"]\ndecide = ["fatu"]\nadminister = ["fatu"]\n')
    commands = [
        *(["site", word, study] for word in ("approve", "deny", "withdraw", "reread")),
        ["site", "policy", "set", "smallest_cell", "5"],
        ["site", "data", "add", "more", "--source", "csv", "--path", str(tmp_path / "patients.csv")],
        ["site", "data", "remove", "patients"],
        ["site", "join", "a.pem", "b.pem"],
        ["site", "trust", "kenema", *["zinc"] * 10],
        *(["site", word] for word in ("rotate-key", "accept-restore", "leave", "distrust-coordinator")),
        ["coordinator", "cancel", study],
        ["coordinator", "amend", study],
        ["coordinator", "resume", study],
        ["coordinator", "sign", str(site.request_path)],
        ["coordinator", "accept", "a.pem"],
        ["coordinator", "renew", "freetown"],
        ["coordinator", "revoke", "freetown"],
    ]
    before = {home.path: home.audit_path.read_bytes() for home in (site, hub)}
    for words in commands:
        home = hub if words[0] == "coordinator" else site
        said = tiny.call(capsys, *words, "--home", home.path)
        assert said.code == 2, words
        assert f"{OWN} may not".casefold() in said.err.casefold(), (words, said.err)
    assert before == {home.path: home.audit_path.read_bytes() for home in (site, hub)}
