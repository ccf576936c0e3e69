"""Help is quick, since it loads nothing heavy, and complete."""

import subprocess
import sys

import pytest

from tests.support import tiny_study as tiny

COMMANDS = ("demo", "run", "compare", "tune", "check", "list", "report", "bench")
HEAVY = ("jax", "pandas", "numpy", "optuna", "plotly", "sklearn", "scipy", "torch", "safetensors")
PROBE = """
import sys
from wardround.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    code = left.code
print(code, *sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["rum"]])
def test_nothing_heavy_is_loaded_for_help(arguments: list[str]) -> None:
    command = [sys.executable, "-c", PROBE.format(heavy=HEAVY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code = "2" if arguments == ["rum"] else "0"
    assert done.stderr.splitlines()[-1] == code


def test_every_command_is_listed_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    said = tiny.call(capsys, "--help")
    assert said.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in said.out
        own = tiny.call(capsys, command, "--help")
        assert own.code == 0
        assert "--json" in own.out
        assert len(own.out.splitlines()) > 5


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.call(capsys) == tiny.call(capsys, "--help")
