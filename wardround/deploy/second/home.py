"""The second server's home and how it begins: its own key, its own audit log, its own decisions."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from wardround.deploy.home import PartyHome, PartySettings, how_to_begin
from wardround.deploy.party.enrolment import begin
from wardround.deploy.settings_files import read_toml, validate
from wardround.deploy.trust.certificates import check_title


class SecondSettings(PartySettings):
    """second.toml"""

    organisation: str
    """Who runs it; not who runs the coordinator."""

    @property
    def certified_organisation(self) -> str:
        return self.organisation


@dataclass(frozen=True)
class SecondHome(PartyHome):
    """A second server's home: like a site's, but without data and policy."""

    role = "second"
    title = "second server"

    @cached_property
    def settings(self) -> SecondSettings:
        return read_toml(self.settings_path, SecondSettings, how_to_begin(self.role))


def begin_second(path: Path, name: str, coordinator: str, server_name: str, organisation: str) -> SecondHome:
    """Make a second server's home with a key of its own and a request to be signed."""
    check_title(organisation, "organisation", "wardround second init")
    given = {"name": name, "coordinator": coordinator, "server_name": server_name, "organisation": organisation}
    words = validate(given, SecondSettings, "wardround second init")
    home = SecondHome(path)
    remedy = "choose a new folder with --home, on a machine of the organisation that runs the second server"
    begin(home, words, {}, {"organisation": organisation}, remedy=remedy)
    return home
