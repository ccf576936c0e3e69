"""The folders in which a party keeps all it knows: plain files, written whole, readable by a person.

A home is made by `init` and never moved by the program. TOML files are for people and checked key by key; JSON files
are the program's. A file that is missing or broken is told in one paragraph, never guessed.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import AfterValidator, Field

from wardround.core.errors import Refusal
from wardround.deploy.settings_files import SettingsFile, read_toml
from wardround.deploy.trust.audit_log import AuditLog
from wardround.deploy.trust.certificates import (
    Key,
    Role,
    certificate_summary,
    check_name,
    read_certificate,
    read_key,
)
from wardround.runs.json_files import read_json, write_json

HOME = "WARDROUND_HOME"
"""The environment variable that names the home where no --home does."""
ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")


def check_address(value: str) -> str:
    """HOST:PORT, as given, or a refusal."""
    found = ADDRESS.fullmatch(value)
    if not found or not 0 < int(found["port"]) < 65536:
        raise ValueError(f"'{value}' is not an address: write HOST:PORT, such as hub.example.org:8002")
    return value


def check_party(value: str) -> str:
    try:
        return check_name(value, "party")
    except Refusal as refusal:
        raise ValueError(refusal.what) from None


Address = Annotated[str, AfterValidator(check_address)]
Name = Annotated[str, AfterValidator(check_party)]


class PartySettings(SettingsFile):
    """Of whoever connects to a coordinator: site.toml, second.toml."""

    name: Name
    coordinator: Address
    """Where the coordinator listens."""
    server_name: Name
    """The name in the coordinator's certificate: nobody else is talked to."""

    @property
    def certified_organisation(self) -> str:
        """What stands in this party's certificate."""
        return "wardround"


class SiteSettings(PartySettings):
    """site.toml"""

    watts_per_core: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 15.0
    """What a busy core of this site's computer draws, for the energy that studies use here."""
    grams_per_kwh: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 480.0
    """Of CO2, of this site's electricity."""


class CoordinatorSettings(SettingsFile):
    """coordinator.toml"""

    consortium: str
    name: Name
    listen: Address = "127.0.0.1:8002"
    hosts: list[str] = Field(default_factory=list)
    """Names and addresses under which sites reach it; they stand in its certificate."""
    organisation: str = ""
    """Who runs it, where that is not the consortium itself: a second server must be run by somebody else."""
    studies_at_once: Annotated[int, Field(ge=1, le=16)] = 2
    """Studies that are conducted side by side; one that waits for sites which are away does not count."""


@dataclass(frozen=True)
class Home(ABC):
    """What both kinds of home have."""

    path: Path

    @property
    def key_path(self) -> Path:
        return self.path / "key.pem"

    @property
    def certificate_path(self) -> Path:
        return self.path / "certificate.pem"

    @property
    def authority_path(self) -> Path:
        return self.path / "authority.pem"

    @property
    def audit_path(self) -> Path:
        return self.path / "audit.jsonl"

    @property
    def transfers_path(self) -> Path:
        """What came over a slow line: goes on after a restart, and may be deleted at any time."""
        return self.path / "transfers"

    @property
    def membership_path(self) -> Path:
        """The membership log: the coordinator's own, or a site's copy of it."""
        return self.path / "membership.jsonl"

    @cached_property
    def key(self) -> Key:
        return read_key(self.key_path)

    def own_keys(self) -> list[ec.EllipticCurvePublicKey]:
        """The own key, and those that it replaced."""
        former = [key for keys in keys_in(self.path / "former").values() for key in keys]
        return [self.key.public_key(), *former]

    def public_keys(self) -> dict[str, list[ec.EllipticCurvePublicKey]]:
        """The own keys under the own name, and that of every certificate that is kept here."""
        keys: dict[str, list[ec.EllipticCurvePublicKey]] = {self.own_name: self.own_keys()}
        for name, found in self.other_keys().items():
            keys.setdefault(name, []).extend(found)
        return keys

    @abstractmethod
    def other_keys(self) -> dict[str, list[ec.EllipticCurvePublicKey]]:
        """The keys of those whom this party deals with."""

    @property
    @abstractmethod
    def own_name(self) -> str: ...

    def log(self) -> AuditLog:
        """The audit log, signed with the own key."""
        return AuditLog(self.audit_path, self.own_name, self.key)

    def folder(self, study: str) -> Path:
        return self.path / "studies" / study

    def status(self) -> dict[str, Any]:
        """What the running process last said of itself; nothing before it ever ran."""
        path = self.path / "status.json"
        return read_json(path, "") if path.exists() else {}

    def write_status(self, words: Mapping[str, Any]) -> None:
        write_json(self.path / "status.json", words, wait=False)  # told anew all the time


@dataclass(frozen=True)
class PartyHome(Home):
    """The home of a site or a second server: who connects out to a coordinator and decides about studies."""

    role: ClassVar[Role]
    """In its certificate, in its audit log and on the command line; its settings are in ROLE.toml."""
    title: ClassVar[str]
    """In sentences."""

    @property
    @abstractmethod
    def settings(self) -> PartySettings: ...

    @property
    def settings_path(self) -> Path:
        return self.path / f"{self.role}.toml"

    @property
    def own_name(self) -> str:
        return self.settings.name

    @property
    def request_path(self) -> Path:
        return self.path / "request.csr"

    @property
    def partners_path(self) -> Path:
        """The fingerprints of other sites that are pinned here."""
        return self.path / "partners.json"

    @property
    def coordinator_path(self) -> Path:
        """The coordinator's certificate, as it last showed it."""
        return self.path / "coordinator.pem"

    @property
    def new_key_path(self) -> Path:
        """A key that is to replace the present one as soon as it is certified."""
        return self.path / "key.new.pem"

    @property
    def rotation_path(self) -> Path:
        """The request for a certificate of the new key, which the present one vouches for."""
        return self.path / "rotation.json"

    @property
    def distrust_path(self) -> Path:
        """Says that this party left its consortium, or no longer answers its coordinator."""
        return self.path / "distrusted.json"

    @property
    def revocation_path(self) -> Path:
        """Says that the coordinator told this party that it was shut out."""
        return self.path / "revoked.json"

    @property
    def restored_path(self) -> Path:
        """Says that the audit log was rolled back, by a restore from a backup or otherwise, and what became of it."""
        return self.path / "restored.json"

    @property
    def membership_state_path(self) -> Path:
        """What was seen of the membership log, and what other sites say of it."""
        return self.path / "membership.json"

    def begun_at(self) -> datetime:
        """When this home was made."""
        return datetime.fromtimestamp(self.settings_path.stat().st_mtime, UTC)

    def own_keys(self) -> list[ec.EllipticCurvePublicKey]:
        """Also one that was asked to be certified."""
        pending = [read_key(self.new_key_path).public_key()] if self.new_key_path.exists() else []
        return [*super().own_keys(), *pending]

    @property
    def witness_path(self) -> Path:
        """The last head of the coordinator's audit log that was countersigned here."""
        return self.path / "coordinator.head.json"

    def other_keys(self) -> dict[str, list[ec.EllipticCurvePublicKey]]:
        return keys_of([self.coordinator_path] if self.coordinator_path.exists() else [])

    @property
    def has_joined(self) -> bool:
        """Whether the coordinator has signed."""
        return self.certificate_path.exists() and self.authority_path.exists()


@dataclass(frozen=True)
class SiteHome(PartyHome):
    """A site's home."""

    role = "site"
    title = "site"

    @cached_property
    def settings(self) -> SiteSettings:
        return read_toml(self.settings_path, SiteSettings, how_to_begin(self.role))

    @property
    def policy_path(self) -> Path:
        return self.path / "policy.toml"

    @property
    def data_path(self) -> Path:
        return self.path / "data.toml"


@dataclass(frozen=True)
class CoordinatorHome(Home):
    """A coordinator's home; the consortium's authority (authority.key) may lie in it, or elsewhere."""

    @cached_property
    def settings(self) -> CoordinatorSettings:
        return read_toml(self.path / "coordinator.toml", CoordinatorSettings, how_to_begin("coordinator"))

    @property
    def own_name(self) -> str:
        return self.settings.name

    def other_keys(self) -> dict[str, list[ec.EllipticCurvePublicKey]]:
        """Of the sites, those they replaced included, and of second servers."""
        keys = keys_of(self.party_certificates())
        for name, found in keys_in(self.path / "sites" / "former").items():
            keys.setdefault(name, []).extend(found)
        return keys

    def site_certificate(self, site: str) -> Path:
        return self.path / "sites" / f"{check_name(site)}.pem"

    def second_certificate(self, name: str) -> Path:
        """Of a second server: a party, but no site."""
        return self.path / "seconds" / f"{check_name(name)}.pem"

    def party_certificate(self, name: str) -> Path:
        """Of a second server of this name, or of a site."""
        second = self.second_certificate(name)
        return second if second.exists() else self.site_certificate(name)

    def party_certificates(self) -> list[Path]:
        """Of all sites, then of all second servers, the revoked ones too."""
        return [path for room in ("sites", "seconds") for path in sorted((self.path / room).glob("*.pem"))]

    def former_certificate(self, site: str, serial: str) -> Path:
        return self.path / "sites" / "former" / f"{check_name(site)}-{serial}.pem"

    def site_names(self) -> list[str]:
        """Sites with a certificate that were not revoked."""
        revoked = self.revoked()
        return sorted(one.stem for one in (self.path / "sites").glob("*.pem") if one.stem not in revoked)

    def second_names(self) -> list[str]:
        """Second servers with a certificate that were not revoked."""
        revoked = self.revoked()
        return sorted(one.stem for one in (self.path / "seconds").glob("*.pem") if one.stem not in revoked)

    def request_path(self, name: str) -> Path:
        """A request that waits for the authority, which is elsewhere."""
        return self.path / "requests" / f"{check_name(name, 'party')}.json"

    def delivery_path(self, site: str) -> Path:
        """Says that a site has not got its new certificate yet."""
        return self.path / "deliveries" / check_name(site)

    def statement_path(self, site: str) -> Path:
        """A site's last signed statement of how far it has seen the membership log."""
        return self.path / "heads" / f"{check_name(site)}.membership.json"

    def witness_path(self, site: str) -> Path:
        """The last head of a site's audit log that was countersigned here."""
        return self.path / "heads" / f"{check_name(site)}.json"

    def revoked(self) -> dict[str, Any]:
        """Names of sites that are shut out for good, each with the time, who did it and why."""
        path = self.path / "revoked.json"
        return read_json(path, "") if path.exists() else {}

    def write_revoked(self, revoked: Mapping[str, Any]) -> None:
        write_json(self.path / "revoked.json", revoked)


def how_to_begin(role: Role) -> str:
    return f"create one with `wardround {role} init`, or name another folder with --home or {HOME}"


def home_path(given: Path | None, default: str = "wardround-site") -> Path:
    """--home, or what the environment says, or a folder here."""
    return (given or Path(os.environ.get(HOME) or default)).expanduser().absolute()


def keys_in(folder: Path) -> dict[str, list[ec.EllipticCurvePublicKey]]:
    """Public keys by name: of certificates (the name is theirs) and bare keys (the file's name) in a folder."""
    return keys_of(sorted(folder.glob("*.pem")))


def keys_of(paths: Sequence[Path]) -> dict[str, list[ec.EllipticCurvePublicKey]]:
    """The same of single files."""
    keys: dict[str, list[ec.EllipticCurvePublicKey]] = {}
    for path in paths:
        content = path.read_bytes()
        if b"BEGIN CERTIFICATE" in content:
            certificate = read_certificate(path)
            name, key = certificate_summary(certificate).name, certificate.public_key()
        elif b"BEGIN PUBLIC KEY" in content:
            try:
                name, key = path.stem, serialization.load_pem_public_key(content)  # type: ignore[assignment]
            except ValueError:
                raise Refusal("this is not a public key", where=str(path), remedy="ask for it again") from None
        else:
            continue
        if isinstance(key, ec.EllipticCurvePublicKey):
            keys.setdefault(name, []).append(key)
    return keys
