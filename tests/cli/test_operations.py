"""Commands and lines for whoever runs a party as a service; and that the container files say nothing unknown."""

import csv
import json
import re
import shlex
import shutil
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.support import tiny_study as tiny
from wardround.cli.app import app, main
from wardround.cli.operations import event_log
from wardround.cli.operations.audit_export import COLUMNS, csv_text
from wardround.cli.operations.event_log import EventLog
from wardround.cli.operations.printed_pages import LETTERS, LINES, pdf_bytes
from wardround.deploy.demo import make_coordinator
from wardround.deploy.trust.audit_log import sent_entry

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


# ---- units, copies ----


def test_a_unit_is_printed_and_nothing_is_written(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    home = make_coordinator(tmp_path / "hub", 8002)
    assert call("coordinator", "install-service", "--print", "--home", home.path) == 0
    assert f"coordinator start --home {home.path}" in capsys.readouterr().out
    assert not (tmp_path / "user").exists()
    assert call("coordinator", "install-service", "--home", home.path) == 0
    assert "systemctl --user enable --now wardround-coordinator-coordinator" in capsys.readouterr().out
    assert list((tmp_path / "user").rglob("*.service"))
    assert call("site", "install-service", "--print", "--home", home.path) == 2
    assert "there is no site.toml" in capsys.readouterr().err.lower()


def test_a_home_is_copied_and_made_again_by_commands(tmp_path: Path, capsys: Capture) -> None:
    home = make_coordinator(tmp_path / "hub", 8002)
    copy = tmp_path / "hub.tgz"
    assert call("coordinator", "backup", copy, "--home", home.path) == 0
    assert "holds the private key" in capsys.readouterr().out
    assert call("coordinator", "restore", copy, "--home", tmp_path / "again", "--json") == 0
    assert json.loads(capsys.readouterr().out)["role"] == "coordinator"
    assert (tmp_path / "again" / "key.pem").read_bytes() == home.key_path.read_bytes()


# ---- audit logs ----


def test_an_audit_log_becomes_a_table_and_a_page(tmp_path: Path, capsys: Capture) -> None:
    home = make_coordinator(tmp_path / "hub", 8002)
    words = {"study": "ebola-1", "topic": "round", "to": "bo", "bytes": 812, "sha256": "ab", "why": "=1+1 <b>"}
    home.log().append(sent_entry(words))
    assert call("audit", "export", home.audit_path, "--out", tmp_path / "a.csv", "--study", "ebola-1") == 0
    [row] = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    assert (row["number"], row["kind"], row["topic"], row["to"], row["bytes"]) == ("2", "sent", "round", "bo", "812")
    assert row["why"] == "'=1+1 <b>", "a spreadsheet must not compute it"
    assert call("audit", "export", home.audit_path, "--out", tmp_path / "a.html") == 0
    page = (tmp_path / "a.html").read_text()
    assert page.count("<tr>") == 3
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    assert "none changed, moved or missing" in page
    assert call("audit", "export", home.audit_path, "--out", tmp_path / "a.pdf") == 0
    [sheet] = text_of_pdf((tmp_path / "a.pdf").read_bytes())
    assert sheet[0].startswith("Audit log ")
    assert sheet[0].endswith("page 1 of 1")
    assert any("2  " in line and "topic round  to bo  bytes 812  sha256 ab  why =1+1 <b>" in line for line in sheet)
    assert call("audit", "export", home.audit_path, "--out", tmp_path / "a.doc") == 2
    assert "name a file .csv, .html or .pdf" in capsys.readouterr().err
    lines = home.audit_path.read_text().replace('"bytes":812', '"bytes":811')
    home.audit_path.write_text(lines)
    assert call("audit", "export", home.audit_path, "--out", tmp_path / "b.html") == 2
    assert "none changed" not in (tmp_path / "b.html").read_text()


def text_of_pdf(content: bytes) -> list[list[str]]:
    """The lines of each page, read as a reader does: from the end, by the table of objects."""
    start = int(content.rpartition(b"startxref\n")[2].split()[0])
    count, rows = re.match(rb"xref\n0 (\d+)\n((?:\d{10} \d{5} [nf] \n)+)trailer", content[start:]).groups()  # type: ignore[union-attr]
    places = [int(row[:10]) for row in rows.splitlines()][1:]
    assert len(places) == int(count) - 1
    bodies = [content[place:].partition(b"endobj")[0] for place in places]
    assert all(body.startswith(b"%d 0 obj\n" % number) for number, body in enumerate(bodies, start=1))
    pages = [int(one) for one in re.findall(rb"(\d+) 0 R", re.search(rb"/Kids \[(.*?)\]", bodies[1])[1])]  # type: ignore[index]
    sheets = []
    for page in pages:
        found = bodies[int(re.search(rb"/Contents (\d+) 0 R", bodies[page - 1])[1]) - 1]  # type: ignore[index]
        size = int(re.search(rb"/Length (\d+)", found)[1])  # type: ignore[index]
        packed = found.partition(b"stream\n")[2]
        text = zlib.decompress(packed[:size])
        shown = re.findall(rb"^\((.*)\) Tj T\*$", text, re.M)
        sheets.append([re.sub(rb"\\(.)", rb"\1", line).decode("cp1252") for line in shown])
    return sheets


def test_a_pdf_holds_every_character_on_numbered_pages() -> None:
    lines = [f"{number} (Zoë) C:\\home" for number in range(200)] + ["中" + "x" * 1000]
    sheets = text_of_pdf(pdf_bytes("Audit log", lines))
    assert [sheet[0] for sheet in sheets] == [
        f"Audit log  page {one} of {len(sheets)}" for one in range(1, len(sheets) + 1)
    ]
    assert all(len(sheet) <= LINES + 2 for sheet in sheets)
    body = [line for sheet in sheets for line in sheet[2:]]
    assert body[:200] == lines[:200]
    assert max(map(len, body)) == LETTERS
    assert "".join(line.removeprefix("    ") for line in body[200:]) == "\\u4e2d" + "x" * 1000


def test_a_table_without_entries_has_its_heading() -> None:
    assert csv_text([]) == ",".join(COLUMNS) + "\n"


# ---- lines ----


def test_events_are_lines_of_json(capsys: Capture) -> None:
    log = EventLog("json", None, "bo")
    log.write(
        "refused round: \x1b[31mno\n", "refused", {"topic": "round", "why": "\x1b[31mno", "missing": {"a": ("b",)}}
    )
    err = capsys.readouterr().err
    told = json.loads(err)
    assert told.pop("time")
    assert told == {
        "party": "bo",
        "event": "refused",
        "words": "refused round: [31mno",
        "topic": "round",
        "why": "[31mno",
        "missing": {"a": ["b"]},
    }
    assert "\x1b" not in err


def test_a_log_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "LARGEST_FILE", 2000)
    log = EventLog("text", tmp_path / "site.log")
    for number in range(400):
        log.write(f"round {number}", "round")
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["site.log", *(f"site.log.{number}" for number in range(1, event_log.OLDER_FILES + 1))]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 2000
    assert (tmp_path / "site.log").read_text().splitlines()[-1].endswith("round 399")


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--metrics", "0.0.0.0:9464"), "not an address of this machine"), (("--log-format", "xml"), "no log format")],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, capsys: Capture, words: tuple[str, ...], told: str) -> None:
    home = make_coordinator(tmp_path / "hub", 8002)
    assert call("coordinator", "start", "--home", home.path, *words) == 2
    assert told in capsys.readouterr().err


# ---- containers ----


def parses(words: list[str]) -> None:
    """Raises where the program would not know a word of a command; nothing is run."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("wardround", words, resilient_parsing=False)
    while hasattr(group, "resolve_command"):
        _, group, words = group.resolve_command(context, [*context._protected_args, *context.args])
        context = group.make_context(group.name, words, parent=context)


def test_every_command_of_the_compose_file_is_one_the_program_knows() -> None:
    compose = yaml.safe_load((ROOT / "containers" / "compose.yaml").read_text())
    assert set(compose["services"]) == {"coordinator", "freetown", "kenema"}
    for name, service in compose["services"].items():
        parses(service["command"])
        assert service["read_only"], name
        homes = [one for one in service["volumes"] if one.endswith(":/home/party/home")]
        assert homes == [f"./homes/{name}:/home/party/home"], "each has a home of its own"


def test_every_command_of_the_how_to_is_one_the_program_knows() -> None:
    text = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    found = []
    for line in blocks.splitlines():
        words = shlex.split(line, comments=True)
        if "compose" in words and "run" in words:
            found.append(words[words.index("--rm") + 2 :])
        elif "wardround" in words:
            found.append(words[words.index("wardround") + 1 :])
    assert len(found) >= 12
    for words in found:
        parses(words)
    with pytest.raises(Exception, match="nonsense"):
        parses(["site", "start", "--nonsense"])


def test_the_image_copies_what_the_package_needs() -> None:
    text = (ROOT / "containers" / "Containerfile").read_text()
    copied = [word for line in text.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]]
    assert {"pyproject.toml", "README.md", "wardround", "requirements/deploy.lock"} <= set(copied)
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert all((ROOT / one).exists() and f"!{one}" in allowed for one in copied)


def test_the_files_for_containers_agree_with_each_other_and_with_the_package() -> None:
    """No engine builds them here: what can be read is compared."""
    image = (ROOT / "containers" / "Containerfile").read_text()
    said = dict(re.findall(r"^(FROM|USER|VOLUME|ENTRYPOINT|ENV WARDROUND_HOME)[ =](.+)$", image, re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = tuple(map(int, re.search(r"python:(\d+)\.(\d+)", said["FROM"]).groups()))  # type: ignore[union-attr]
    assert python >= tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    assert json.loads(said["ENTRYPOINT"])[0] in project["scripts"]
    assert re.search(rf"useradd .*\b{said['USER']}\b", image), "nobody runs as root"
    home = said["ENV WARDROUND_HOME"]
    assert said["VOLUME"] == home
    assert f"-m 700 {home}" in image
    compose = yaml.safe_load((ROOT / "containers" / "compose.yaml").read_text())
    listens = make_listen(compose["services"]["coordinator"])
    for name, service in compose["services"].items():
        build = (ROOT / "containers" / service["build"]["context"]).resolve()
        assert build == ROOT
        assert (build / service["build"]["dockerfile"]).exists()
        assert any(one.endswith(f":{home}") for one in service["volumes"]), name
        metrics = service["command"][service["command"].index("--metrics") + 1]
        assert f"http://{metrics}/health" in service["healthcheck"]["test"][-1]
        compile(service["healthcheck"]["test"][-1], name, "exec")
        assert ("ports" in service) == (name == "coordinator"), "nothing listens at a site"
    guide = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
    assert f"--listen 0.0.0.0:{listens}" in guide
    assert "coordinator:" + str(listens) in guide


def test_the_commands_for_containers_make_a_site_that_has_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in turn, with the home and the folders that the compose file mounts for its service."""
    from wardround.deploy.home import SiteHome
    from wardround.deploy.site.policy_file import read_policy

    compose = yaml.safe_load((ROOT / "containers" / "compose.yaml").read_text())
    page = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text().split("## Containers")[1]
    monkeypatch.chdir(tmp_path)
    ran = 0
    for line in re.search(r"```sh\n(.*?)```", page, re.DOTALL)[1].splitlines():  # type: ignore[index]
        words = shlex.split(line, comments=True)
        if words[0] == "mkdir":
            for name in words[2 : words.index("&&")]:
                (tmp_path / name).mkdir(parents=True)
        elif words[0] == "cp" and words[1].startswith("/where"):
            shutil.copy(ROOT / "examples" / "patients.csv", words[2])
        elif words[0] == "cp":
            for one in words[1:-1]:
                shutil.copy(one, words[-1])
        elif "run" in words:
            service, *rest = words[words.index("--rm") + 1 :]
            mounts = dict(one.split(":")[1::-1] for one in compose["services"][service]["volumes"])
            monkeypatch.setenv("WARDROUND_HOME", mounts["/home/party/home"])
            for inside, outside in mounts.items():
                rest = [re.sub(f"^{inside}/", f"{outside}/", word) for word in rest]
            said = tiny.call(capsys, *rest)
            assert said.code == 0, (line, said.err)
            ran += 1
    assert ran == 5
    home = SiteHome(tmp_path / "homes" / "freetown")
    assert home.has_joined
    assert "lactate" in read_policy(home.policy_path).columns


def make_listen(service: dict[str, Any]) -> int:
    outside, inside = service["ports"][0].split(":")
    assert outside == inside
    return int(inside)
