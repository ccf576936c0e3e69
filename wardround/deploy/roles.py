"""Who may do what in a home, by users of the operating system or keys: roles.toml. Without it anybody may, as before.

Names that people type are no proof: with the file, whoever acts is the user of the process, or who owns the key that
signs, and `--by` can name nobody else. It is as strong as the permissions of the file.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from wardround.core.errors import Refusal
from wardround.deploy.settings_files import SettingsFile, read_toml

FILE = "roles.toml"
Role = Literal["submit", "decide", "administer"]
WORDS = {
    "submit": "submit, resume, amend and cancel studies",
    "decide": "approve, deny and withdraw studies",
    "administer": "change data and policy, admit, revoke, trust, restore and leave",
}


class RolesFile(SettingsFile):
    """roles.toml: names of users of the operating system, or keys of persons; whoever is not named may not."""

    submit: list[str] = Field(default_factory=list)
    """Who may submit, resume, amend and cancel studies, at a coordinator."""
    decide: list[str] = Field(default_factory=list)
    """Who may approve, deny, withdraw and reread studies, at a site or second server."""
    administer: list[str] = Field(default_factory=list)
    """Who may change data and policy, join, leave, admit, revoke, pin partners, change keys, accept a restore."""
    keys: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(default_factory=dict)
    """Persons and their public keys (`site person-key`): in the place of `decide`, approvals count only if signed."""


def read_roles(home: Path) -> RolesFile | None:
    """What the home says; none where it binds no roles."""
    path = home / FILE
    return read_toml(path, RolesFile, "remove the file, or restore it from a backup") if path.exists() else None


def acting_person(home: Path, by: str | None, role: Role) -> str | None:
    """The user who acts, if this home binds roles to users and this one may; none where it does not bind them."""
    path, roles = home / FILE, read_roles(home)
    if roles is None:
        return None
    own, allowed = system_user(path), getattr(roles, role)
    if own not in allowed:
        others = f"ask {', '.join(allowed)}" if allowed else "name somebody there"
        raise Refusal(f"{own} may not {WORDS[role]} here", where=str(path), remedy=others)
    if by is not None and by != own:
        raise Refusal(
            f"--by names {by}, but the logged-in user is {own}",
            where=str(path),
            remedy="leave --by out: roles are users",
        )
    return own


def system_user(path: Path) -> str:
    """The name of this process's user: by its number, since the environment says what one likes."""
    found = login_name()
    if found is None:
        raise Refusal(
            "the user of this process is not known to the operating system",
            where=str(path),
            remedy="run the command as a user that is, or remove the file",
        )
    return found


def login_name() -> str | None:
    """Whoever runs this process, as the operating system names them; none where it has no name for them."""
    if sys.platform == "win32":
        return os.getlogin()  # asks the system there, not the terminal
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None
