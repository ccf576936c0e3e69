"""The unit of a service: the command as by hand, quoted as systemd reads it, and accepted by systemd itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from wardround.core.errors import Refusal
from wardround.deploy.operations.units import next_steps, quoted, unit_of

PROGRAM = Path(shutil.which("true") or "/bin/true")


def words_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_the_command_is_that_by_hand() -> None:
    unit = unit_of("site", "freetown", Path("/srv/free town"), PROGRAM, options=("--metrics=127.0.0.1:9464",))
    words = words_of(unit.text)
    assert words["ExecStart"] == f'{PROGRAM} site start --home "/srv/free town" --metrics=127.0.0.1:9464'
    assert (words["RestartPreventExitStatus"], words["WantedBy"]) == ("2", "default.target")
    assert unit.path == Path.home() / ".config/systemd/user/wardround-site-freetown.service"
    assert "User" not in words
    assert "systemctl --user enable --now wardround-site-freetown" in next_steps(unit, system=False)


def test_a_service_of_the_machine_writes_to_its_home_only() -> None:
    words = words_of(unit_of("coordinator", "hub", Path("/srv/hub"), PROGRAM, system_user="wardround").text)
    assert (words["User"], words["ReadWritePaths"], words["ProtectSystem"]) == ("wardround", "/srv/hub", "strict")
    assert words["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize(
    ("word", "expected"),
    [("/a/b", "/a/b"), ("100%", "100%%"), ("$HOME x", '"$$HOME x"'), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"')],
)
def test_words_mean_themselves(word: str, expected: str) -> None:
    assert quoted(word) == expected


@pytest.mark.parametrize("party", ["", "a\nUser=root", "../x", "a b"])
def test_a_name_cannot_add_to_a_unit(party: str) -> None:
    with pytest.raises(Refusal, match="No service can be made"):
        unit_of("site", party, Path("/srv/x"), PROGRAM)
    with pytest.raises(Refusal, match="control characters"):
        quoted("/srv/x\nUser=root")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("user", [None, "root"])
def test_systemd_accepts_it(tmp_path: Path, user: str | None) -> None:
    home = tmp_path / "a home with 100% $signs"
    unit = unit_of("site", "freetown", home, PROGRAM, system_user=user, folder=tmp_path)
    unit.path.write_text(unit.text)
    done = subprocess.run(["systemd-analyze", "verify", str(unit.path)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.path.name in line]) == (0, [])
    broken = tmp_path / "broken.service"
    broken.write_text(unit.text.replace("Type=exec", "Type=nonsense"))
    told = subprocess.run(["systemd-analyze", "verify", str(broken)], capture_output=True, text=True, check=False)
    assert "nonsense" in told.stderr or "Type" in told.stderr  # the control: it does look
