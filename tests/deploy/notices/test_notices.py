"""Notices reach people by mail, web address or program, once, and say nothing about patients or why a study failed."""

import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_site
from tests.support import tiny_study as tiny
from wardround.cli.consortium.notices import told_when_over
from wardround.cli.services import PLAIN, party_announcer
from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import StudyEnded, StudyOffered
from wardround.deploy.coordinator.queue import enqueue
from wardround.deploy.demo import make_coordinator
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.notices.notice import Notifier
from wardround.deploy.notices.settings import read_notices
from wardround.deploy.notices.watch import notice_coordinator, notice_event

Capture = pytest.CaptureFixture[str]


@contextmanager
def web() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A web address on loopback, and what was posted to it."""
    posted: list[dict[str, Any]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def post_office() -> Iterator[tuple[str, list[str]]]:
    """A mail server that takes everything."""
    letters: list[str] = []

    class Clerk(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline().strip():
                word = line.split()[0].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    content = []
                    while (part := self.rfile.readline()) != b".\r\n":
                        content.append(part.decode())
                    letters.append("".join(content))
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Clerk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", letters
    finally:
        server.shutdown()
        server.server_close()


def settings(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "notices.toml").write_text(text, encoding="utf-8")


def test_without_a_file_nothing_is_sent(tmp_path: Path) -> None:
    assert Notifier(tmp_path, "x").notify("study waits", study="s") is None
    assert list(tmp_path.iterdir()) == []


def test_a_web_address_hears_of_a_study_once(tmp_path: Path) -> None:
    with web() as (url, posted):
        settings(tmp_path, f'[webhook]\nurl = "{url}"\n')
        for _ in range(2):  # also after a restart
            notifier = Notifier(tmp_path, "the site bo")
            thread = notifier.notify("study waits", command="wardround site approve triage-1", study="triage-1")
            if thread is not None:
                thread.join()
    (one,) = posted
    assert one["text"] == "the site bo: the study triage-1 waits for a decision."
    assert one["command"] == "wardround site approve triage-1"


def test_a_letter_says_what_to_do(tmp_path: Path) -> None:
    with post_office() as (server, letters):
        settings(
            tmp_path,
            f'[email]\nserver = "{server}"\nsender = "a@example.org"\nrecipients = ["b@example.org"]\n'
            'security = "none"\n',
        )
        thread = Notifier(tmp_path, "the coordinator hub").notify(
            "study failed", command="wardround coordinator status", study="triage-1"
        )
        assert thread is not None
        thread.join()
    assert "Subject: wardround: triage-1 failed" in letters[0]
    assert "wardround coordinator status" in letters[0]


def test_a_program_of_the_site_is_given_the_notice(tmp_path: Path) -> None:
    out = tmp_path / "heard.json"
    code = f"import sys, pathlib; pathlib.Path({str(out)!r}).write_text(sys.stdin.read())"
    settings(tmp_path, f"[command]\nrun = {json.dumps([sys.executable, '-c', code])}\n")
    notifier = Notifier(tmp_path, "the site bo")
    party_announcer(notifier, PLAIN.event_log("bo"))("ended", {"study": "triage-1", "state": "finished"})
    for thread in threading.enumerate():
        if thread.name == "wardround notice":
            thread.join()
    assert json.loads(out.read_text())["title"] == "triage-1 finished"


def test_why_a_study_failed_is_not_sent_anywhere(tmp_path: Path) -> None:
    with web() as (url, posted):
        settings(tmp_path, f'[webhook]\nurl = "{url}"\n')
        notifier = Notifier(tmp_path, "the coordinator hub")
        notice_event(notifier, StudyOffered("triage-1", ("bo",)))
        notice_event(notifier, StudyEnded("triage-1", "failed", "site bo: Mrs Sesay's age is 'old'", "/home/x"))
        for thread in threading.enumerate():
            if thread.name == "wardround notice":
                thread.join()
    assert sorted(one["event"] for one in posted) == ["study failed", "study waits"]
    assert "Sesay" not in json.dumps(posted)
    assert "/home" not in json.dumps(posted)


def test_events_that_nobody_wants_are_not_sent(tmp_path: Path) -> None:
    settings(tmp_path, 'events = ["study failed"]\n[command]\nrun = ["false"]\n')
    assert Notifier(tmp_path, "x").notify("study waits", study="s") is None


def test_what_cannot_be_sent_is_told_and_stops_nothing(tmp_path: Path) -> None:
    settings(tmp_path, '[command]\nrun = ["/nowhere/at/all"]\n')
    said: list[str] = []
    thread = Notifier(tmp_path, "x", said.append).notify("study waits", study="s")
    assert thread is not None
    thread.join()
    assert "command" in said[0]


@pytest.mark.parametrize("text", ['[webhook]\nurl = "file:///etc/passwd"', "[command]\nrun = []", 'evnts = ["x"]'])
def test_settings_that_cannot_be(tmp_path: Path, text: str) -> None:
    settings(tmp_path, text)
    with pytest.raises(Refusal):
        read_notices(tmp_path)


def test_missing_sites_and_old_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_coordinator(tmp_path / "hub", 1)
    study = enqueue(home, small_site.study(deploy={"sites": ["bo", "kenema"]}), "anna")
    with web() as (url, posted):
        settings(home.path, f'missing_after = 60\n[webhook]\nurl = "{url}"\n')
        notifier = Notifier(home.path, "the coordinator hub")
        status = {
            "queue": [study],
            "present": ["bo"],
            "since": 0.0,
            "connections": {"kenema": {"here": False, "since": 1.0}},
        }
        for _ in range(2):
            look_and_wait(notifier, home, status)
        assert [(one["event"], one["name"]) for one in posted] == [("site missing", "kenema")]
        look_and_wait(notifier, home, {**status, "present": ["bo", "kenema"]})  # it came back, and left again
        look_and_wait(notifier, home, status)
        assert len(posted) == 2
        monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=80))
        look_and_wait(notifier, home, {})
    assert posted[-1]["event"] == "certificate ages"
    assert posted[-1]["command"] == "wardround coordinator renew"


def look_and_wait(notifier: Notifier, home: CoordinatorHome, status: dict[str, Any]) -> None:
    notice_coordinator(notifier, home, status)
    for thread in threading.enumerate():
        if thread.name == "wardround notice":
            thread.join()


def test_a_test_notice_by_command(tmp_path: Path, capsys: Capture) -> None:
    home = make_coordinator(tmp_path / "hub", 1)
    refused = tiny.call(capsys, "coordinator", "notify", "--home", home.path)
    assert "no notices are sent" in refused.err
    with web() as (url, posted):
        settings(home.path, f'[webhook]\nurl = "{url}"\n')
        assert tiny.call(capsys, "coordinator", "notify", "--home", home.path).code == 0
    assert posted[0]["event"] == "test"
    assert "Webhook" in tiny.call(capsys, "coordinator", "notify", "--home", home.path).err  # nobody listens any more


def test_the_end_of_a_long_simulation(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with web() as (url, posted):
        settings(tmp_path, f'longer_than = 0\n[webhook]\nurl = "{url}"\n')
        monkeypatch.setenv("WARDROUND_NOTICES", str(tmp_path / "notices.toml"))
        assert tiny.call(capsys, "run", tmp_path / "none.toml").code == 2
        with told_when_over(["compare", "study.toml"]):
            pass
        assert tiny.call(capsys, "list").code == 0  # nobody waits for that
        settings(tmp_path, f'longer_than = 60\n[webhook]\nurl = "{url}"\n')
        with told_when_over(["compare", "study.toml"]):
            pass
    assert [one["event"] for one in posted] == ["simulation failed", "simulation ended"]
    assert posted[1]["title"] == "wardround compare study.toml ended"
