"""Writes the dependency lock of a deployed party, and its software bill of materials.

    python requirements/lock.py lock     # requirements/deploy.lock: every package, its version and the file's SHA-256
    python requirements/lock.py sbom     # requirements/sbom.json: CycloneDX, from the lock and the installed metadata

The versions are those installed here, which are the ones that were tested; pip tells the hashes and installs nothing.
A wheel is made for one platform: the lock is for the one that it names, and another platform makes its own.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK, BILL = ROOT / "requirements" / "deploy.lock", ROOT / "requirements" / "sbom.json"
EXTRA = "deploy"
LINE = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[A-Za-z0-9.+!]+) --hash=sha256:(?P<hash>[0-9a-f]{64})")


class Pinned(NamedTuple):
    """One line of the lock."""

    name: str
    version: str
    sha256: str


def declared() -> list[Requirement]:
    """What pyproject.toml asks for at a deployed party."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(one) for one in (*project["dependencies"], *project["optional-dependencies"][EXTRA])]


def installed() -> dict[str, str]:
    """The versions of everything that a deployed party needs, directly or not."""
    waiting, seen = declared(), dict[tuple[str, frozenset[str]], str]()
    while waiting:
        one = waiting.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen[name, extras] = metadata.version(name)
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append(needed)
    return dict(sorted((name, version) for (name, _), version in seen.items()))


def find_hashes(versions: dict[str, str]) -> list[Pinned]:
    """What pip would install for these versions, file by file."""
    with tempfile.TemporaryDirectory() as folder:
        pins, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        pins.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        command = ["install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", str(report)]
        subprocess.run([sys.executable, "-m", "pip", *command, "-r", str(pins)], check=True)
        return pinned_in(json.loads(report.read_text()))


def pinned_in(report: dict[str, Any]) -> list[Pinned]:
    """From pip's report; where a file lies is nobody's business."""
    found = [
        Pinned(
            canonicalize_name(one["metadata"]["name"]),
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in report["install"]
    ]
    return sorted(found)


def lock_text(pinned: list[Pinned]) -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    head = f"# Made by `make lock` for Python {python} on {platform.system()} {platform.machine()}.\n"
    head += "# Install: pip install --require-hashes -r requirements/deploy.lock && pip install --no-deps .\n"
    return head + "".join(f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n" for one in pinned)


def read_lock(path: Path = LOCK) -> list[Pinned]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    return [Pinned(one["name"], one["version"], one["hash"]) for one in found if one is not None]


def licence_of(name: str) -> str:
    """In the words of the package's own metadata."""
    words = metadata.metadata(name)
    told = words.get("License-Expression") or next(
        (one.rpartition(" :: ")[2] for one in words.get_all("Classifier", []) if one.startswith("License :: ")), ""
    )
    first = (words.get("License") or "").strip().partition("\n")[0]
    return told or (first if len(first) <= 80 else "") or "not stated"


def bill(pinned: list[Pinned]) -> dict[str, Any]:
    """CycloneDX 1.5; the same lock gives the same bytes, so it holds no time and its number follows from its words."""
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{one.name}@{one.version}",
            "name": one.name,
            "version": one.version,
            "purl": f"pkg:pypi/{one.name}@{one.version}",
            "hashes": [{"alg": "SHA-256", "content": one.sha256}],
            "licenses": [{"license": {"name": licence_of(one.name)}}],
        }
        for one in pinned
    ]
    version = re.search(r'__version__ = "(.+)"', (ROOT / "wardround" / "__init__.py").read_text())
    assert version is not None
    own = {"type": "application", "bom-ref": "wardround", "name": "wardround", "version": version[1]}
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }


def main(what: str) -> None:
    if what == "lock":
        LOCK.write_text(lock_text(find_hashes(installed())))
    else:
        BILL.write_text(json.dumps(bill(read_lock()), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
