"""Lists of packages with their versions, as a policy writes them: fed-extras>=1.2,<2, or "*" for all."""

from collections.abc import Sequence
from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator

from wardround.core.components.packages import Package

ANY = "*"


def check_requirement(word: str) -> str:
    """A name and versions and nothing more; PEP 508 would also know addresses, extras and markers."""
    try:
        meant = None if word == ANY else Requirement(word)
    except InvalidRequirement:
        raise ValueError(f"{word!r} is not a package: write it like fed-extras>=1.2,<2") from None
    if meant is not None and (meant.url or meant.extras or meant.marker):
        raise ValueError(f"{word!r} holds more than a package and its versions")
    return word


Versions = Annotated[str, AfterValidator(check_requirement)]


def is_allowed(package: Package, allowed: Sequence[str], denied: Sequence[str]) -> bool:
    """What is denied stays denied; test versions (1.3rc1) are allowed only where a list names one, or no version."""
    return not any(is_covered(one, package, denies=True) for one in denied) and any(
        is_covered(one, package, denies=False) for one in allowed
    )


def is_covered(word: str, package: Package, *, denies: bool) -> bool:
    """Whether a word means this package in the version that is installed."""
    if word == ANY:
        return True
    meant = Requirement(word)
    if Package(meant.name, "").key != package.key:
        return False
    try:
        tests = True if denies else meant.specifier.prereleases
        return not meant.specifier or meant.specifier.contains(Version(package.version), prereleases=bool(tests))
    except InvalidVersion:
        return denies  # nobody knows which it is
