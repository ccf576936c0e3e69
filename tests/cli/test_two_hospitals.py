"""The tutorial of two hospitals, typed as it stands: its commands, its study, its tables, in three folders."""

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the network needs wardround[deploy]")
ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from wardround.cli.app import main; main()"]


class Walk:
    """Three people: what each types runs in a folder of its own; what stays in its terminal goes on beside."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        text = (ROOT / "docs/tutorial/two-hospitals.md").read_text().replace("\\\n", " ")
        text = text.replace("hub.example.org", "localhost").replace("8002", str(port))
        self.commands = [
            shlex.split(line.split(" #")[0])[1:]
            for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
            for line in block.splitlines()
            if line.strip()
        ]
        self.folders = {name: folder / name for name in ("hub", "north", "south")}
        for name, path in self.folders.items():
            path.mkdir()
            rows = (ROOT / "examples/patients.csv").read_text().splitlines(keepends=True)
            own = [row for row in rows if row.lower().startswith(("hospital", name))]
            (path / "patients.csv").write_text("".join(own)) if name != "hub" else None
        (study,) = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
        (self.folders["hub"] / "study.toml").write_text(study)
        self.beside: list[subprocess.Popen[str]] = []

    def command(self, *beginning: str) -> list[str]:
        (found,) = [words for words in self.commands if words[: len(beginning)] == list(beginning)]
        self.commands.remove(found)
        return found

    def type(self, where: str, words: list[str], *more: str) -> str:
        done = subprocess.run(
            [*PROGRAM, *words, *more],
            cwd=self.folders[where],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leave_running(self, where: str, words: list[str]) -> "subprocess.Popen[str]":
        with (self.folders[where] / "terminal.txt").open("w") as file:
            begun = subprocess.Popen(
                [*PROGRAM, *words], cwd=self.folders[where], stdout=file, stderr=file, stdin=subprocess.DEVNULL
            )
        self.beside.append(begun)
        return begun

    def hand_over(self, giver: str, file: str, taker: str, name: str = "") -> None:
        path = self.folders[giver] / file
        (self.folders[taker] / (name or path.name)).write_bytes(path.read_bytes())

    def terminal(self, where: str) -> str:
        return (self.folders[where] / "terminal.txt").read_text()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    made = Walk(tmp_path)
    yield made
    for process in made.beside:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_tutorial_ends_with_a_model_at_both_hospitals(walk: Walk) -> None:
    walk.type("hub", walk.command("coordinator", "init"))
    for site in ("north", "south"):
        walk.type(site, walk.command("site", "init", site))
        walk.hand_over(site, "wardround-site/request.csr", "hub", f"{site}.csr")
    walk.type("hub", walk.command("coordinator", "sign"))
    runs = walk.leave_running("hub", walk.command("coordinator", "run"))
    people = {"north": "Fatu Kamara", "south": "Mariama Bah"}
    for site in people:
        for file in (f"sites/{site}.pem", "authority.pem"):
            walk.hand_over("hub", f"wardround-coordinator/{file}", site)
        walk.leave_running(site, walk.command("site", "join", f"{site}.pem"))
    for site, person in people.items():
        end = time.monotonic() + 180
        while "Anna Sesay asks for intensive" not in walk.terminal(site):
            assert time.monotonic() < end, (walk.terminal(site), walk.terminal("hub"))
            time.sleep(0.2)
        # "y" at a terminal, and no to the telephone
        walk.type(site, walk.command("site", "approve", "intensive", "--by", person), "--yes")
    assert runs.wait(300) == 0, walk.terminal("hub")
    assert walk.commands == []  # nothing was left out, and nothing else was typed
    assert "report.html" in walk.terminal("hub")
    models = [next((walk.folders[site] / "wardround-site/studies").glob("*/model.safetensors")) for site in people]
    assert models[0].read_bytes() == models[1].read_bytes()
    for site in people:
        assert "finished, says the coordinator" in walk.type(site, ["site", "studies"])
