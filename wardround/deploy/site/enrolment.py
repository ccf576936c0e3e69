"""How a site begins: with a key of its own, and a policy that allows no column yet."""

from collections.abc import Sequence
from pathlib import Path

from wardround.deploy.home import SiteHome, SiteSettings
from wardround.deploy.party.enrolment import begin
from wardround.deploy.settings_files import validate
from wardround.deploy.site.policy_file import first_policy, policy_text


def begin_site(path: Path, words: SiteSettings, purposes: Sequence[str] = ()) -> SiteHome:
    home = SiteHome(path)
    begin(home, words, {home.policy_path.name: policy_text(first_policy(purposes)).encode()}, {})
    return home


def site_settings(name: str, coordinator: str, server_name: str) -> SiteSettings:
    words = {"name": name, "coordinator": coordinator, "server_name": server_name}
    return validate(words, SiteSettings, "wardround site init")
