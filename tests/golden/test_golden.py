"""What people and peers see stays as it is, unless changed on purpose: WARDROUND_GOLDEN=write makes the files anew.

Figures may differ a little between machines: JSON is compared with a tolerance, and numbers in text are masked.
"""

import hashlib
import html
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

from tests.support import tiny_study as tiny
from wardround.cli.app import app
from wardround.core.contracts import Message
from wardround.deploy.protocol.wire import encode

FILES = Path(__file__).parent / "files"
VOLATILE = {
    "seconds",
    "cpu_seconds",
    "compile_seconds",
    "watt_hours",
    "co2_grams",
    "joules",
    "kwh",
    "energy",
    "privacy",
}
"""Keys whose numbers depend on the clock or on random bits of the operating system: only that they are there counts."""
NUMBER = re.compile(r"[-−+]?\d[\d,.]*(?:e[-+]?\d+)?")
UNIT = re.compile(r"# (ms|s|min|h|of time|[nµmk]?g|[nµmk]?Wh)\b")
"""Of time, energy and carbon dioxide: how much it was depends on the machine."""
COMPARED = {"compare": {"methods": ["local", "fed_avg", "fine_tune"], "repeats": 2}, "study": {"user": "bo"}}
STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "run": ("run", {}),
    "compare": ("compare", COMPARED),
    "partners": ("partners", {"study": {"user": "bo"}, "partners": {"name": "ndoye"}}),
}


def settle(value: Any, key: str = "") -> Any:
    """JSON without what differs from run to run."""
    if key in VOLATILE:
        return "measured"
    if isinstance(value, dict):
        return {name: settle(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [settle(one) for one in value]
    return value


def alike(a: Any, b: Any, at: str = "") -> list[str]:
    """Where two JSON values differ by more than rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        wrong = [f"{at}: keys {sorted(a.keys() ^ b.keys())}"] if list(a) != list(b) else []
        return wrong + [one for key in a if key in b for one in alike(a[key], b[key], f"{at}/{key}")]
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return [f"{at}: {len(a)} and {len(b)} items"]
        return [one for i, (x, y) in enumerate(zip(a, b, strict=True)) for one in alike(x, y, f"{at}/{i}")]
    if isinstance(a, float) and isinstance(b, float):
        return [] if math.isclose(a, b, rel_tol=2e-2, abs_tol=2e-2) else [f"{at}: {a} and {b}"]
    if isinstance(a, str) and isinstance(b, str):
        return [] if NUMBER.sub("#", a) == NUMBER.sub("#", b) else [f"{at}: {a!r} and {b!r}"]
    return [] if a == b and type(a) is type(b) else [f"{at}: {a!r} and {b!r}"]


def text_of(page: str) -> str:
    """The words of an HTML page, line by line, with masked numbers."""
    page = re.sub(r"<(script|style|svg)\b.*?</\1>", "", page, flags=re.S)
    words = html.unescape(re.sub(r"<[^>]+>", "\n", page))
    return masked("\n".join(line.strip() for line in words.splitlines() if line.strip()))


def masked(text: str) -> str:
    """Hashes, dates and numbers as marks."""
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "HASH", text)
    text = re.sub(r"/\S*/(?=run\b|patients\.csv)", "", text)
    text = re.sub(r"^Usage: \S+", "Usage: wardround", text, flags=re.M)
    return UNIT.sub("# measured", NUMBER.sub("#", text))


def check_text(name: str, text: str) -> None:
    path = FILES / name
    if os.environ.get("WARDROUND_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.rstrip() + "\n", encoding="utf-8")
    assert UNIT.sub("# measured", path.read_text(encoding="utf-8")).splitlines() == text.rstrip().splitlines(), (
        f"{name} changed"
    )


def check_json(name: str, value: Any) -> None:
    path = FILES / name
    value = json.loads(json.dumps(settle(value)))
    if os.environ.get("WARDROUND_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert alike(json.loads(path.read_text(encoding="utf-8")), value) == []


@pytest.fixture(scope="module", params=STUDIES)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    from wardround.cli.app import main

    command, tables = STUDIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    study = tiny.write_study(folder, tiny.patients(40), **tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["wardround", command, "study.toml"])  # the manifest tells the command
        with pytest.raises(SystemExit) as left:
            main([command, str(study), "--out", str(folder / "run"), "--json"])
    assert not left.value.code
    return request.param, folder / "run"


def test_results_and_pages(finished: tuple[str, Path]) -> None:
    name, folder = finished
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.name == "manifest.json":
            content = dict.fromkeys(content, "there")
        if path.name == "model_card.json":
            content = json.loads(re.sub(r"[0-9a-f]{64}", "HASH", json.dumps(content)))
            content["versions"] = sorted(content.get("versions", {}))
        check_json(f"{name}-{path.name}", content)
    for path in sorted(folder.glob("*.html")):
        check_text(f"{name}-{path.name}.txt", text_of(path.read_text(encoding="utf-8")))
    for path in sorted(folder.glob("*.md")):
        check_text(f"{name}-{path.name}.txt", masked(path.read_text(encoding="utf-8")))
    if (folder / "rounds.jsonl").exists():
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
        check_json(f"{name}-round.json", rounds[-1])


def test_a_message_is_these_bytes() -> None:
    arrays = {"update": {"dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}, "weight": np.float32(3)}
    header = {"protocol": 1, "study": "tiny-0123", "round": 4, "site": "bo", "nonce": "ab", "status": "ok"}
    content = encode(header, Message(arrays, (("phase", "one"),)))
    check_text("message.txt", f"{len(content)} bytes, {hashlib.sha256(content).hexdigest()}")


def test_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command's help, whole."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    pages = []

    def visit(command: Any, words: tuple[str, ...]) -> None:
        pages.append(f"$ wardround {' '.join((*words, '--help'))}\n{tiny.call(capsys, *words, '--help').out}")
        for name in sorted(getattr(command, "commands", {})):
            visit(command.commands[name], (*words, name))

    visit(typer.main.get_command(app), ())
    check_text("help.txt", re.sub(r"^Usage: \S+", "Usage: wardround", "\n".join(pages), flags=re.M))
