"""`wardround coordinator` and `retrain` on the command line, up to a study over real processes and mutual TLS."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.support import tiny_study as tiny
from wardround.cli.consortium.status import status_lines
from wardround.cli.consortium.studies import for_sites
from wardround.cli.study_progress import event_sentence, write_pages
from wardround.deploy.coordinator.queue import queued_studies
from wardround.deploy.demo import make_coordinator
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.decisions import offers
from wardround.deploy.site.approvals import approve
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.study.file import parse_study, read_study

Capture = pytest.CaptureFixture[str]
PURPOSE = "triage research"
PATIENCE = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def consortium(folder: Path, capsys: Capture, *sites: str) -> tuple[Path, int]:
    """A coordinator's home and sites that have joined, made with the commands that people use."""
    port, hub = free_port(), folder / "hub"
    listen = f"127.0.0.1:{port}"
    assert (
        tiny.call(capsys, "coordinator", "init", "West Africa", "--name", "hub", "--listen", listen, "--home", hub).code
        == 0
    )
    frame = tiny.patients(100)
    for site in sites:
        home = folder / site
        begin = ["site", "init", site, "--coordinator", listen, "--server-name", "hub", "--purpose", PURPOSE]
        assert tiny.call(capsys, *begin, "--home", home).code == 0
        assert tiny.call(capsys, "coordinator", "sign", home / "request.csr", "--home", hub).code == 0
        certificate = hub / "sites" / f"{site}.pem"
        assert tiny.call(capsys, "site", "join", certificate, hub / "authority.pem", "--home", home).code == 0
        frame[frame["hospital"] == site].drop(columns="hospital").to_csv(folder / f"{site}.csv", index=False)
        add = ["site", "data", "add", "patients", "--source", "csv", "--path", folder / f"{site}.csv"]
        assert tiny.call(capsys, *add, "--allow", "all", "--home", home).code == 0
    return hub, port


def study_file(folder: Path, **tables: Any) -> Path:
    words = {
        "study": {"rounds": 2, "purpose": PURPOSE},
        "data": {"site": None, "preparation": {"smallest_cell": 10}},
        **tables,
    }
    return Path(tiny.write_study(folder, **words))


# ---- without a network ----


def test_init_and_sign_say_what_to_do_next(tmp_path: Path, capsys: Capture) -> None:
    hub = tmp_path / "hub"
    init = ["coordinator", "init", "West Africa", "--name", "hub", "--listen", "0.0.0.0:8002", "--home", hub]
    said = tiny.call(capsys, *init)
    assert said.code == 2
    assert "--host" in said.err
    assert not hub.exists()
    made = tiny.call(capsys, *init, "--host", "hub.example.org")
    assert made.code == 0
    assert "site init NAME --coordinator hub.example.org:8002 --server-name hub" in made.out
    assert tiny.call(capsys, *init, "--host", "hub.example.org").code == 2
    start = [
        "site",
        "init",
        "bo",
        "--coordinator",
        "hub.example.org:8002",
        "--server-name",
        "hub",
        "--home",
        tmp_path / "bo",
    ]
    assert tiny.call(capsys, *start).code == 0
    signed = tiny.call(capsys, "coordinator", "sign", tmp_path / "bo" / "request.csr", "--home", hub, "--json").json
    assert signed["site"] == "bo"
    assert len(signed["fingerprint"].split()) == 10
    words = tiny.call(capsys, "coordinator", "sign", tmp_path / "bo" / "request.csr", "--home", hub).out
    assert "bo renewed until" in words
    assert signed["fingerprint"] in words
    assert "by phone" in words


def test_several_requests_are_signed_together_or_not_at_all(tmp_path: Path, capsys: Capture) -> None:
    hub = make_coordinator(tmp_path / "hub", 8002)
    for name in ("bo", "kenema"):
        at = ["--coordinator", "hub.example.org:8002", "--server-name", "hub", "--home", tmp_path / name]
        assert tiny.call(capsys, "site", "init", name, *at).code == 0
    paths = [tmp_path / name / "request.csr" for name in ("bo", "kenema")]
    for wrong in (paths[0], tmp_path / "nobody.csr"):
        assert tiny.call(capsys, "coordinator", "sign", *paths, wrong, "--home", hub.path).code == 2
        assert list((hub.path / "sites").glob("*.pem")) == []
    signed = tiny.call(capsys, "coordinator", "sign", *paths, "--home", hub.path, "--json").json["signed"]
    assert [one["site"] for one in signed] == ["bo", "kenema"]
    assert signed[0]["fingerprint"] != signed[1]["fingerprint"]


def test_status_and_revocation(tmp_path: Path, capsys: Capture) -> None:
    hub, _ = consortium(tmp_path, capsys, "bo", "kenema")
    facts = tiny.call(capsys, "coordinator", "status", "--home", hub, "--json").json
    assert [site["name"] for site in facts["sites"]] == ["bo", "kenema"]
    assert not facts["running"]
    assert tiny.call(capsys, "coordinator", "revoke", "kenema", "--by", "anna", "--home", hub).code == 0
    said = tiny.call(capsys, "coordinator", "status", "--home", hub).out
    assert "is not running" in said
    assert "kenema: revoked on" in said
    missing = tiny.call(capsys, "coordinator", "status", "--home", tmp_path / "nowhere")
    assert missing.code == 2
    assert "coordinator init" in missing.err


def test_a_study_that_cannot_work_is_not_queued(tmp_path: Path, capsys: Capture) -> None:
    hub, _ = consortium(tmp_path, capsys)
    none = tiny.call(capsys, "coordinator", "run", study_file(tmp_path), "--by", "anna", "--home", hub)
    assert none.code == 2
    assert "consortium has no sites" in none.err.lower()
    (tmp_path / "more").mkdir()
    hub, _ = consortium(tmp_path / "more", capsys, "bo")
    for tables, said in (
        ({"deploy": {"sites": ["boo"]}}, "did you mean 'bo'"),
        ({"data": {"target": None, "site": None}}, "does not name the outcome column"),
        ({"data": {"site": None, "partition": {"name": "iid", "sites": 2}}}, "there is nothing to partition"),
    ):
        refused = tiny.call(capsys, "coordinator", "run", study_file(tmp_path, **tables), "--by", "a", "--home", hub)
        assert refused.code == 2
        assert said in refused.err
    assert queued_studies(CoordinatorHome(hub)) == []


def test_places_of_the_coordinators_rows_are_not_told_to_sites(tmp_path: Path) -> None:
    here = read_study(study_file(tmp_path))
    assert str(tmp_path) in json.dumps(here.model_dump(mode="json"))
    told = for_sites(here)
    assert str(tmp_path) not in json.dumps(told.model_dump(mode="json"))
    assert "path" not in told.data.settings
    assert told.data.settings["target"] == "outcome"
    assert told.study == here.study
    secret = parse_study(
        {
            "study": {"name": "s"},
            "data": {"source": "sql", "url": "postgresql://u:pw@h/d", "query": "q", "target": "t"},
        },
        where="here",
    )
    assert "pw" not in json.dumps(for_sites(secret).model_dump(mode="json"))


def test_sites_are_asked_for_groups_of_ten_unless_the_study_says_otherwise() -> None:
    words: dict[str, Any] = {"study": {"name": "s"}, "data": {"source": "csv", "target": "y"}}
    assert for_sites(parse_study(words, where="here")).data.preparation.smallest_cell == 10
    for name, cell in (("evidence", 10), ("ndoye", None)):
        asked = for_sites(parse_study({**words, "partners": {"name": name}}, where="here")).partners
        assert asked is not None
        assert asked.settings.get("smallest_cell") == cell
    words["data"]["preparation"] = {"smallest_cell": 3}
    assert for_sites(parse_study(words, where="here")).data.preparation.smallest_cell == 3


def test_what_sites_say_is_shown_as_plain_text(capsys: Capture) -> None:
    from wardround.cli.operations.event_log import EventLog
    from wardround.cli.study_progress import announcer
    from wardround.deploy.coordinator.events import AnswersGathered, Event, RoundDone, SiteWarning, StudyEnded

    announce = announcer(EventLog())
    for _ in range(2):
        announce(SiteWarning("bo", "bad\x1b[31m\nwardround: all is well"))
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1  # in one line, and once
    assert "\x1b" not in err
    done = RoundDone(2, 5, ("a",), {"absent": {"b": "it was late"}})
    assert event_sentence(done) == "round 2 of 5: 1 site (without b: it was late)"
    late = {"b": "it was late"}
    assert event_sentence(AnswersGathered("round", 2, ("a",), late)) == "round 2: no answer from b: it was late"
    assert event_sentence(AnswersGathered("judge", 2, ("a",), late)) == ""
    assert event_sentence(StudyEnded("s", "failed", "no site is left", "/runs/s")) == "s failed: no site is left"
    assert event_sentence(StudyEnded("s", "finished", "", "/runs/s")) == "s finished: /runs/s"
    assert event_sentence(Event()) == ""


def test_a_card_that_fails_does_not_stop_the_coordinator(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "result.json").write_text("{}")
    write_pages(tmp_path)
    err = capsys.readouterr().err
    assert "model card could not be written" in err


def test_status_tells_lateness_traffic_and_epsilon() -> None:
    site = {"name": "bo", "present": True, "late": "it did not answer within 60 s", "warning": "", "revoked": ""}
    study = {"study": "s-1", "state": "running", "round": 3, "rounds": 9, "seconds_a_site": 60.0, "why": ""}
    facts = {
        "consortium": "c",
        "listen": "h:1",
        "running": True,
        "sites": [{**site, "until": "2031-01-01"}],
        "studies": [{**study, "bytes_down": 1500, "bytes_up": 2_000_000, "epsilon": 3.0}],
    }
    text = "\n".join(status_lines(facts))
    for words in (
        "bo: connected, it did not answer within 60 s",
        "round 3 of 9",
        "1.5 kB",
        "2 MB",
        "epsilon 3",
        "deadline per site: 60 s",
    ):
        assert words in text


def test_retrain_from_the_command_line(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path)
    assert tiny.call(capsys, "run", study, "--out", tmp_path / "out").code == 0
    wrong = tiny.call(capsys, "retrain", tmp_path / "out", "--without", "makany")
    assert wrong.code == 2
    assert "did you mean 'makeni'" in wrong.err
    said = tiny.call(capsys, "retrain", tmp_path / "out", "--without", "makeni", "--json")
    assert said.code == 0
    folder = Path(said.json["folder"])
    assert folder == tmp_path / "out-without-makeni"
    assert {"model.safetensors", "report.html", "model_card.md"} <= {path.name for path in folder.iterdir()}
    before, after = (load_file(one / "model.safetensors") for one in (tmp_path / "out", folder))
    assert any((before[name] != after[name]).any() for name in before)
    assert "1 site was left out" in (folder / "model_card.md").read_text()
    assert "makeni" not in (folder / "model_card.md").read_text()


# ---- over real processes ----


@contextmanager
def at_work(*arguments: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """One of our commands in a process of its own, killed at the end."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from wardround.cli.app import main; main()", *(str(one) for one in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(happened: Callable[[], bool], *processes: "subprocess.Popen[str]") -> None:
    """Wait for something that must happen; a process that ends meanwhile says why."""
    last = time.monotonic() + PATIENCE
    while not happened():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < last, "nothing happened"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="nvflare is not installed: wardround[deploy]")
def test_a_study_from_run_to_report(tmp_path: Path, capsys: Capture) -> None:
    """`coordinator run` with nobody listening: it is the coordinator until the study has ended."""
    hub, _ = consortium(tmp_path, capsys, "bo")
    file = study_file(tmp_path)
    run = ["coordinator", "run", file, "--by", "anna", "--home", hub, "--json"]
    join = ["site", "join", hub / "sites" / "bo.pem", "--start", "--home", tmp_path / "bo"]
    with at_work(*join) as site, at_work(*run) as coordinator:
        home = SiteHome(tmp_path / "bo")
        until(lambda: bool(offers(home)), site, coordinator)
        status = tiny.call(capsys, "coordinator", "status", "--home", hub, "--json").json
        assert status["running"]
        assert status["studies"][0]["state"] == "queued"
        second = tiny.call(capsys, "coordinator", "start", "--home", hub)
        assert second.code == 2
        assert "already running" in second.err
        approve(home, offers(home)[0].id, by="boss")
        out, err = coordinator.communicate(timeout=PATIENCE)
    assert coordinator.returncode == 0, err
    told = json.loads(out)
    assert told["state"] == "finished"
    folder = Path(told["folder"])
    assert {"model.safetensors", "result.json", "report.html", "model_card.md"} <= {p.name for p in folder.iterdir()}
    assert "round 2 of 2: 1 site" in err
    # What was approved names who takes part, and the site has seen the same members as the coordinator has written.
    deploy = offers(home)[0].study["deploy"]
    assert (deploy["sites"], deploy["fingerprints"]) == (["bo"], {"bo": fingerprint(home.key.public_key())})
    assert home.membership_path.read_bytes() == CoordinatorHome(hub).membership_path.read_bytes()
    done = tiny.call(capsys, "coordinator", "status", "--home", hub, "--json").json["studies"][0]
    assert (done["state"], done["round"]) == ("finished", 2)
    log = [json.loads(line)["entry"] for line in home.audit_path.read_bytes().splitlines()]
    sent = [one for one in log if one["kind"] == "sent" and one.get("study") == done["study"]]
    assert done["bytes_up"] == sum(one["bytes"] for one in sent)
    traffic = json.loads((folder / "result.json").read_text())["methods"][0]["meters"]["traffic"]
    assert (traffic["bytes_down"], traffic["bytes_up"]) == (done["bytes_down"], done["bytes_up"])
    again = tiny.call(capsys, "coordinator", "run", file, "--by", "anna", "--home", hub)
    assert again.code == 2
    assert "already finished" in again.err


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="nvflare is not installed: wardround[deploy]")
def test_start_stops_when_told_and_resume_queues_again(tmp_path: Path, capsys: Capture) -> None:
    hub, _ = consortium(tmp_path, capsys, "bo")
    home = CoordinatorHome(hub)
    nothing = tiny.call(capsys, "coordinator", "resume", "--home", hub)
    assert nothing.code == 2
    assert "There is no such study" in nothing.err
    with at_work("coordinator", "start", "--home", hub) as coordinator:
        status = lambda: tiny.call(capsys, "coordinator", "status", "--home", hub, "--json").json  # noqa: E731
        until(lambda: status()["running"] and bool(home.status()), coordinator)
        queued = tiny.call(capsys, "coordinator", "run", study_file(tmp_path), "--by", "anna", "--home", hub, "--json")
        assert queued.json["state"] == "queued"
        # Nobody is at the site, so the study waits to be approved.
        until(lambda: queued.json["study"] in home.status()["offers"], coordinator)
        assert status()["studies"][0]["state"] == "queued"
        coordinator.send_signal(signal.SIGTERM)
        coordinator.communicate(timeout=PATIENCE)
        assert coordinator.returncode == 0
    name = queued.json["study"]
    assert queued_studies(home) == [name], "a study stays in the queue when its coordinator stops"
    # A study that failed left the queue; resume puts it back, for a coordinator that is running again.
    (hub / "queue" / f"{name}.json").unlink()
    (home.folder(name) / "state.json").write_text('{"state": "failed", "why": "bo withdrew", "at": 0}')
    failed = tiny.call(capsys, "coordinator", "status", "--home", hub).out
    assert "failed" in failed
    assert "bo withdrew" in failed
    from wardround.deploy.coordinator.consortium import lock_home

    with lock_home(home):  # so that resume leaves it to this one
        resumed = tiny.call(capsys, "coordinator", "resume", "tiny", "--home", hub, "--json").json
    assert resumed["study"] == name
    assert queued_studies(home) == [name]
    assert not (home.folder(name) / "state.json").exists()
