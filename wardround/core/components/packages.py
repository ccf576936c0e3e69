"""Packages of others that bring components: what they announce in their metadata, read without importing any of them.

A package announces each component by an entry point of the group `wardround.components`, whose name is KIND.NAME and
whose value is MODULE:NAME. So kind, name, package and version are known before a line of the package runs, and a site
can decide about it by its policy first.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from types import ModuleType
from typing import Any, NamedTuple

from wardround import __version__
from wardround.core.errors import Refusal

GROUP = "wardround.components"
NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Names of components: plain letters only, so that no two look alike."""


class Package(NamedTuple):
    """An installed distribution."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def key(self) -> str:
        """The name as package indexes compare it: `Fed_Extras` and `fed-extras` are one package."""
        return re.sub(r"[-_.]+", "-", self.name).lower()


OWN = Package("wardround", __version__)


class Announcement(NamedTuple):
    """A component that a package says it has; `fault` says what is wrong with the announcement itself."""

    kind: str
    name: str
    package: Package
    value: str
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' of {self.package}" if self.name else str(self.package)


@cache
def announcements() -> tuple[Announcement, ...]:
    """All that the installed packages announce, once a process: code that is loaded stays what it was."""
    found: dict[str, list[Announcement]] = {}
    for one in distributions():
        if has_announcements(one):
            said = one.metadata
            package = Package(*(str(said[key]) if key in said else "unknown" for key in ("Name", "Version")))
            # The first on the path is the one that Python imports.
            found.setdefault(package.key, list(read_announcements(one, package)))
    return tuple(sorted(one for many in found.values() for one in many))


def has_announcements(one: Distribution) -> bool:
    """Whether a package has anything for us; its text is looked at first, so that no other package can break this."""
    try:
        return GROUP in (one.read_text("entry_points.txt") or "")
    except (OSError, UnicodeDecodeError):
        return False


def read_announcements(one: Distribution, package: Package) -> Iterator[Announcement]:
    try:
        entries = [entry for entry in one.entry_points if entry.group == GROUP]
    except Exception as error:
        yield Announcement("", "", package, "", f"its entry points cannot be read ({in_a_line(error)})")
        return
    for entry in entries:
        kind, _, name = entry.name.partition(".")
        fault = "" if NAME.fullmatch(name) else f"'{entry.name}' is not KIND.NAME in small letters, digits and _"
        yield Announcement(kind, name, package, entry.value, fault or fault_in_place(package, name, entry.value))


def fault_in_place(package: Package, name: str, value: str) -> str:
    """The rules of our own rooms: a module's name is its factory's name is the key in a study file."""
    if package.key == OWN.key:
        return "a package of another calls itself wardround"
    module, _, factory = value.replace(" ", "").partition(":")
    if factory != name or module.rpartition(".")[2] != name:
        return f"'{value}' should be a module and a function of its name, such as package.{name}:{name}"
    return ""


def import_factory(one: Announcement) -> tuple[ModuleType, Callable[..., Any]]:
    """Run the package's module; whatever goes wrong there is told in one line."""
    if one.fault:
        raise Refusal(one.fault)
    refuse_other_version(one.package)
    place, _, name = one.value.replace(" ", "").partition(":")
    try:
        with redirect_stdout(sys.stderr):  # what it prints must not spoil what we print
            module = importlib.import_module(place)
            factory = getattr(module, name)
    except (Exception, SystemExit) as error:
        raise Refusal(f"importing {place} failed ({in_a_line(error)})") from error
    if not callable(factory) or getattr(factory, "__module__", "") != place:
        raise Refusal(f"{place} holds no function {name} of its own")
    return module, factory


def refuse_other_version(package: Package) -> None:
    """What is decided about is the version that was found: a package replaced since then is not loaded."""
    try:
        now = version(package.name)
    except PackageNotFoundError:
        now = ""
    if now != package.version:
        is_now = f"is {now} now" if now else "is gone now"
        raise Refusal(f"it was {package.version} when this process began and {is_now}: start again")


def in_a_line(error: BaseException, longest: int = 200) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return words if len(words) <= longest else words[: longest - 3] + "..."
