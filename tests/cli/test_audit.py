"""`wardround audit verify` on a real ledger, whole and with one byte changed."""

import json
from pathlib import Path

import pytest

from wardround.cli.app import main
from wardround.incentives.ledger import Ledger
from wardround.incentives.ledger_entries import LedgerEntry
from wardround.incentives.ledger_keys import make_key, read_key


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    """A ledger of three entries by one site, and the folder with its public key."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "va.pem").write_text(make_key(tmp_path / "va.key"))
    key, ledger = read_key(tmp_path / "va.key"), Ledger(tmp_path / "ledger.jsonl")
    for number in (1, 2, 3):
        ledger.append(
            LedgerEntry("va", "triage", number, "answered", {"weight": 0.5}, "2031-05-01T12:00:00+00:00"), key
        )
    return tmp_path / "ledger.jsonl", tmp_path / "keys"


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_a_whole_ledger_is_said_to_be_whole(written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("audit", "verify", written[0], "--keys", written[1]) == 0
    assert "every entry is as its site signed it" in capsys.readouterr().out


def test_an_edit_is_found_at_its_line(written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    lines = written[0].read_text().splitlines(keepends=True)
    written[0].write_text(lines[0] + lines[1].replace("0.5", "0.9") + lines[2])
    assert call("audit", "verify", written[0], "--keys", written[1], "--json") == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert 2 in {finding["line"] for finding in findings}


@pytest.mark.parametrize("missing", ["ledger", "keys"])
def test_a_wrong_path_is_told(missing: str, written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    ledger, keys = (path.with_name("absent") if missing in path.name else path for path in written)
    assert call("audit", "verify", ledger, "--keys", keys) == 2
    told = capsys.readouterr().err
    assert "there " in told.lower()
    assert "Traceback" not in told
