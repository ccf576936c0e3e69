"""systemd units for the long-lived processes: started with the machine, started again after a crash, and kept apart.

The same command as by hand stands in the unit. A mistake that a person must fix (exit code 2) is not tried again.
"""

import re
from pathlib import Path
from typing import NamedTuple

from wardround.core.errors import Refusal
from wardround.core.text import plain_line

ROLES = ("site", "second", "coordinator")
SYSTEM, USER = Path("/etc/systemd/system"), Path(".config/systemd/user")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
HARDENING = (
    "NoNewPrivileges=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectSystem=strict",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
)
"""For a unit of the system; what is compiled for training must be allowed to run, so memory may be executable."""


class ServiceUnit(NamedTuple):
    """A unit: its name, where it belongs, and its text."""

    name: str
    path: Path
    text: str


def unit_of(
    role: str,
    party: str,
    home: Path,
    program: Path,
    *,
    system_user: str | None = None,
    options: tuple[str, ...] = (),
    folder: Path | None = None,
) -> ServiceUnit:
    """The unit of a party; with `system_user` one of the whole machine that runs as that user, else one of the user.

    `options` are further words of `ROLE start`.
    """
    name = f"wardround-{role}-{party}"
    if role not in ROLES or not NAME.fullmatch(party):
        raise Refusal(f"no service can be made for {plain_line(role)} '{plain_line(party)}'", remedy="check the home")
    command = " ".join(quoted(word) for word in (str(program), role, "start", "--home", str(home), *options))
    service = [
        "Type=exec",
        f"ExecStart={command}",
        "Restart=on-failure",
        "RestartSec=5",
        "RestartPreventExitStatus=2",
        "TimeoutStopSec=30",
        "UMask=0077",
    ]
    if system_user is not None:
        service += [f"User={system_user}", f"ReadWritePaths={quoted(str(home))}", *HARDENING]
    lines = [
        "[Unit]",
        f"Description=wardround {role} {party}",
        "After=network-online.target",
        "Wants=network-online.target",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        *service,
        "",
        "[Install]",
        f"WantedBy={'default.target' if system_user is None else 'multi-user.target'}",
        "",
    ]
    place = folder or (Path.home() / USER if system_user is None else SYSTEM)
    return ServiceUnit(name, place / f"{name}.service", "\n".join(lines))


def quoted(word: str) -> str:
    """A word as systemd reads it back: percent signs and dollars mean themselves."""
    if any(ord(letter) < 32 for letter in word):
        raise Refusal("a path with control characters cannot stand in a unit", where=word, remedy="rename the folder")
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return plain if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", plain) else f'"{plain}"'


def next_steps(unit: ServiceUnit, *, system: bool) -> list[str]:
    """What is left to be done by hand."""
    if system:
        return ["systemctl daemon-reload", f"systemctl enable --now {unit.name}", f"journalctl -u {unit.name} -f"]
    return [
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {unit.name}",
        "loginctl enable-linger        # so that it runs while nobody is logged in",
        f"journalctl --user -u {unit.name} -f",
    ]
