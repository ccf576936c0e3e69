"""notices.toml: which events somebody wants to hear of, and how. A folder without this file sends nothing."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from wardround.deploy.settings_files import SettingsFile, read_toml

FILE = "notices.toml"
PASSWORD = "WARDROUND_SMTP_PASSWORD"
"""The environment variable with the password of the mail server."""
EventName = Literal[
    "study waits",
    "study failed",
    "study ended",
    "certificate ages",
    "site missing",
    "revoked",
    "simulation ended",
    "simulation failed",
    "test",
]
ALL: tuple[EventName, ...] = (
    *("study waits", "study failed", "study ended", "certificate ages", "site missing", "revoked"),
    *("simulation ended", "simulation failed"),
)


def check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{value}' is not an address of the web: write https://...")
    return value


class EmailSettings(SettingsFile):
    """[email]: through a mail server of your own."""

    server: str
    """HOST:PORT."""
    sender: str
    recipients: list[str] = Field(min_length=1)
    user: str = ""
    """Who logs in, if anybody; the password is in WARDROUND_SMTP_PASSWORD."""
    security: Literal["starttls", "tls", "none"] = "starttls"


class WebhookSettings(SettingsFile):
    """[webhook]: one JSON object by POST."""

    url: Annotated[str, AfterValidator(check_url)]


class CommandSettings(SettingsFile):
    """[command]: a program of your own, which gets one JSON object on its standard input."""

    run: list[str] = Field(min_length=1)


class NoticeSettings(SettingsFile):
    """notices.toml"""

    events: list[EventName] = Field(default_factory=lambda: list(ALL))
    missing_after: float = Field(default=3600.0, ge=0)
    """Seconds for which a site that a study needs may be away before somebody hears of it."""
    longer_than: float = Field(default=60.0, ge=0)
    """Seconds that a simulation must have taken for its end to be told."""
    email: EmailSettings | None = None
    webhook: WebhookSettings | None = None
    command: CommandSettings | None = None


def read_notices(folder: Path) -> NoticeSettings | None:
    """The settings of a folder; none where it has none."""
    return read_notice_file(folder / FILE) if (folder / FILE).exists() else None


def read_notice_file(path: Path) -> NoticeSettings:
    return read_toml(path, NoticeSettings, "write one, see docs/how-to/notices.md")
