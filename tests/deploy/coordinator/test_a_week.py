"""A consortium of five lives through approvals, denials, mended data, outages, renewals and a withdrawn site.

By commands only, with a clock that is told what time it is. Processes are played by handlers in this one; what they
know is on their disks, so each is started anew from there whenever the story says so.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_study as tiny
from tests.support.life import NAMES, Capture, Living
from wardround.core import clock
from wardround.deploy.trust.certificates import read_certificate


class Calendar:
    """Moves the clock of all parties."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + self.ahead)

    def pass_days(self, days: float) -> None:
        self.ahead += timedelta(days=days)


def expect(said: tiny.Said, code: int = 0) -> tiny.Said:
    assert said.code == code, said
    return said


def approvals(living: Living, name: str) -> list[str]:
    lines = living.homes[name].audit_path.read_bytes().splitlines()
    return [one["study"] for one in (json.loads(line)["entry"] for line in lines) if one["kind"] == "approved"]


def until_of(path: Path) -> datetime:
    return read_certificate(path).not_valid_after_utc


def hub(living: Living, capsys: Capture, *words: Any) -> tiny.Said:
    """A command at the coordinator's machine while its process runs."""
    with living.at_work():
        return living.hub(capsys, *words)


def test_a_quarter_of_renewals(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that connect are renewed in time, one that is away comes back with one file, a revoked one does not."""
    calendar, living = Calendar(monkeypatch), Living(tmp_path, ("bo", "kenema", "makeni"))
    care = living.coordinator.maintenance
    calendar.pass_days(65)
    living.begin()  # a coordinator that is started anew renews its own
    assert until_of(living.home.certificate_path) > clock.now() + timedelta(days=80)
    before = until_of(living.homes["kenema"].certificate_path)
    care.visit("bo")
    assert until_of(living.homes["bo"].certificate_path) > clock.now() + timedelta(days=80)
    assert until_of(living.homes["kenema"].certificate_path) == before
    calendar.pass_days(30)  # kenema was off all the time
    assert "expired" in living.site(capsys, "kenema", "status").out
    assert "wardround coordinator renew kenema" in hub(living, capsys, "status").out
    made = expect(hub(living, capsys, "renew", "kenema", "--json")).json["certificate"]
    expect(living.site(capsys, "kenema", "join", made))
    care.visit("kenema")
    assert until_of(living.homes["kenema"].certificate_path) > clock.now() + timedelta(days=80)
    expect(hub(living, capsys, "revoke", "makeni", "--why", "merged with bo"))
    living.coordinator._told.clear()
    for thread in care.tell_revoked(lambda site, topic, body: living.party.ask(site, topic, body, within=1), "makeni"):
        thread.join()
    assert "merged with bo" in living.site(capsys, "makeni", "status").out
    expect(tiny.call(capsys, "doctor", "--home", living.homes["makeni"].path), 2)
    expect(hub(living, capsys, "renew", "makeni"), 2)
    for home in (living.home, *living.homes.values()):
        expect(tiny.call(capsys, "audit", "verify", home.audit_path))


class Week:
    """The story, day by day; each gives the studies that the next day needs."""

    def __init__(self, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calendar, self.living = Calendar(monkeypatch), Living(folder)
        self.capsys, self.monkeypatch = capsys, monkeypatch
        for name in NAMES:
            expect(self.at(name, "policy", "set", "expires", "2090-12-31"))

    def at(self, name: str, *words: str) -> tiny.Said:
        return self.living.site(self.capsys, name, *words)

    def hub(self, *words: str) -> tiny.Said:
        return hub(self.living, self.capsys, *words)

    def run(self, name: str, **tables: Any) -> str:
        study = self.living.run(self.capsys, self.living.study_file(name, **tables))
        self.living.turn()
        return study

    def approve(self, study: str, *names: str, code: int = 0) -> list[tiny.Said]:
        said = [self.at(name, "approve", study, "--yes", "--by", f"admin of {name}") for name in names]
        return [expect(one, code) for one in said]

    def monday(self) -> str:
        """Two studies at once; three tables do not fit, which their administrators are told before they approve."""
        living = self.living
        right = {
            "kenema": living.spoil("kenema", "temperature", "high"),
            "makeni": living.spoil("makeni", "ebola", None),
            "bo": living.spoil("bo", "temperature", "low"),
        }
        living.party.away.add("waterloo")  # an outage
        triage = self.run("triage", study={"rounds": 2}, deploy={"quorum": 3, "deadline": 1.0})
        other = self.run("other", study={"seed": 7}, deploy={"quorum": 4, "deadline": 1.0})
        for name, table in right.items():
            (refused,) = self.approve(triage, name, code=2)
            assert "your data do not fit" in refused.err.casefold()
            table.to_csv(living.tables[name], index=False)
        self.approve(triage, "bo", "freetown", "kenema")
        expect(self.at("makeni", "deny", triage, "--by", "admin", "--why", "short of staff"))
        living.turn()
        if living.state(triage) == "queued":  # waterloo has its time to decide
            living.coordinator.desk.standings[triage].clock = lambda: 1e12
            living.turn()
        assert (living.state(triage), living.state(other)) == ("finished", "queued")
        # with one approval each, whatever had to be mended
        assert [approvals(living, name).count(triage) for name in ("bo", "freetown", "kenema")] == [1, 1, 1]
        return other

    def tuesday(self, other: str) -> None:
        """An upgrade: all processes are new, what waits goes on waiting. Two sites say no, which is too many."""
        living = self.living
        self.calendar.pass_days(1)
        living.party.away.clear()
        for name in NAMES:
            living.restart(name)
        living.begin()
        living.turn()
        assert "finished, says the coordinator" in self.at("makeni", "studies").out
        self.approve(other, "bo", "freetown", "kenema")
        for name in ("makeni", "waterloo"):
            expect(self.at(name, "deny", other, "--by", "admin"))
        living.turn()
        assert living.state(other) == "failed"

    def wednesday(self, other: str) -> None:
        """Amended without those who said no, by the command that the status tells; nobody else is asked again."""
        self.calendar.pass_days(1)
        shown = self.hub("status").out
        command = re.search(rf"coordinator (amend {other}[^`]*)`", shown)
        assert command is not None, shown
        amended = expect(self.hub(*command[1].split(), "--by", "Anna Sesay", "--json")).json["study"]
        self.living.turn()
        assert self.living.state(amended) == "finished"
        assert [approvals(self.living, name).count(amended) for name in ("bo", "freetown", "kenema")] == [1, 1, 1]

    def thursday(self) -> None:
        """A study that should not be is cancelled, and a site withdraws from another in the middle of a round."""
        living = self.living
        self.calendar.pass_days(1)
        wrong = self.run("wrong")
        expect(self.hub("cancel", wrong, "--why", "wrong outcome"))
        living.turn()
        assert "wrong outcome" in self.at("bo", "studies").out
        last = self.run("last", study={"rounds": 3}, deploy={"quorum": 2, "deadline": 1.0})
        self.approve(last, *NAMES)
        ask = living.party.ask

        def withdraw_in_a_round(target: str, topic: str, body: bytes, *, within: float) -> bytes:
            reply = ask(target, topic, body, within=within)
            if (target, topic) == ("makeni", "round"):
                living.party.ask = ask  # type: ignore[method-assign]
                expect(self.at("makeni", "withdraw", last, "--by", "admin", "--why", "consent revoked"))
            return reply

        living.party.ask = withdraw_in_a_round  # type: ignore[method-assign]
        living.turn()
        assert living.state(last) == "finished"
        rounds = (living.home.folder(last) / "run" / "rounds.jsonl").read_text().splitlines()
        assert "makeni" not in json.loads(rounds[-1])["sites"]

    def sunday(self) -> None:
        """Everybody's log is whole, and nobody has anything left to do."""
        self.calendar.pass_days(3)
        for home in (self.living.home, *self.living.homes.values()):
            expect(tiny.call(self.capsys, "audit", "verify", home.audit_path))
        studies = self.hub("status", "--json").json["studies"]
        states = sorted(one["state"] for one in studies)
        assert states == ["amended", "cancelled", "finished", "finished", "finished"]
        assert all(not one["next"] for one in studies)


@pytest.mark.slow
def test_a_week_in_the_life_of_five_hospitals(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    week = Week(tmp_path, capsys, monkeypatch)
    other = week.monday()
    week.tuesday(other)
    week.wednesday(other)
    week.thursday()
    week.sunday()
