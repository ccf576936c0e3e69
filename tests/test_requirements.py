"""What a deployed party installs is pinned file by file, and the bill of materials says so in the standard's form."""

import importlib.util
import json
import re
import tomllib
import uuid
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK, BILL = ROOT / "requirements" / "deploy.lock", ROOT / "requirements" / "sbom.json"
_spec = importlib.util.spec_from_file_location("lock", ROOT / "requirements" / "lock.py")
assert _spec is not None
assert _spec.loader is not None
tool = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tool)


def lines() -> list[str]:
    return [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]


def pinned() -> dict[str, tuple[str, str]]:
    """By hand, apart from the tool that wrote it: name to version and hash."""
    found = {}
    for line in lines():
        name, _, rest = line.partition("==")
        version, _, digest = rest.partition(" --hash=sha256:")
        found[name] = (version, digest)
    return found


def test_every_line_is_one_version_with_a_hash() -> None:
    assert len(lines()) > 50
    assert len(pinned()) == len(lines()), "a package stands there once"
    for line in lines():
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][A-Za-z0-9.+]* --hash=sha256:[0-9a-f]{64}", line), line
    assert [one.name for one in tool.read_lock()] == sorted(pinned())


def test_the_lock_tells_no_address_and_no_path() -> None:
    for path in (LOCK, BILL):
        text = path.read_text()
        assert not re.search(r"https?://|file:|index-url|find-links|trusted-host|/root|/tmp|/home", text), path


def test_everything_that_pyproject_asks_for_is_locked_at_a_version_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(one) for one in (*project["dependencies"], *project["optional-dependencies"]["deploy"])]
    locked = pinned()
    for one in wanted:
        name = canonicalize_name(one.name)
        assert name in locked, f"{name} is missing: run `make lock`"
        assert one.specifier.contains(locked[name][0], prereleases=True), f"{name}: run `make lock`"


def test_nothing_that_a_locked_package_needs_is_missing() -> None:
    """So that `pip install --require-hashes`, which takes nothing else, finds all it needs."""
    locked = pinned()
    if tool.installed().items() != {name: version for name, (version, _) in locked.items()}.items():
        pytest.skip("another environment is installed here than the locked one")
    assert default_environment()["python_version"] in LOCK.read_text()


def test_the_bill_of_materials_has_the_form_of_the_standard_and_what_is_in_the_lock() -> None:
    told: dict[str, Any] = json.loads(BILL.read_text())
    assert (told["bomFormat"], told["specVersion"], told["version"]) == ("CycloneDX", "1.5", 1)
    assert uuid.UUID(told["serialNumber"].removeprefix("urn:uuid:")).version == 5
    assert told["metadata"]["component"]["name"] == "wardround"
    found = {}
    for one in told["components"]:
        assert one["type"] == "library"
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@{one['version']}"
        ((alg, content),) = [(each["alg"], each["content"]) for each in one["hashes"]]
        assert alg == "SHA-256"
        assert one["licenses"][0]["license"]["name"]
        found[one["name"]] = (one["version"], content)
    assert found == pinned(), "run `make sbom`"


def test_the_tool_reads_pips_report_and_nothing_of_where_files_lie() -> None:
    digest = "ab" * 32
    one = {
        "download_info": {"url": "https://mirror.invalid/x.whl", "archive_info": {"hashes": {"sha256": digest}}},
        "metadata": {"name": "Some_Package", "version": "1.2"},
    }
    text = tool.lock_text(tool.pinned_in({"install": [one]}))
    assert text.splitlines()[-1] == f"some-package==1.2 --hash=sha256:{digest}"
    assert "mirror" not in text
