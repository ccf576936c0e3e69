"""Packages of others: laid into a folder as an installer leaves them, and found there by Python for one test."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from wardround.core.components.packages import announcements
from wardround.engine import registry

MEAN = '''"""The mean under another name."""

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core.contracts import Aggregator


def {name}() -> Aggregator:
    """The mean of the answers, once more."""
    return weighted_mean()
'''


def lay(folder: Path, package: str, version: str, modules: Mapping[str, str], entries: Mapping[str, str]) -> Path:
    """Modules and the dist-info folder beside them: what importlib.metadata takes for an installed distribution."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8")
    lines = [f"{name} = {value}\n" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("[wardround.components]\n" + "".join(lines), encoding="utf-8")
    return folder


def lay_mean(folder: Path, name: str, version: str = "1.2", package: str = "fed-extras") -> Path:
    """A sound aggregator in a package."""
    return lay(folder, package, version, {name: MEAN.format(name=name)}, {f"aggregator.{name}": f"{name}:{name}"})


@contextmanager
def visible(*folders: Path) -> Iterator[None]:
    """As if Python had been started with these folders on its path."""
    before = set(sys.modules)
    sys.path[:0] = [str(folder) for folder in folders]
    forget()
    try:
        yield
    finally:
        for folder in folders:
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            place = getattr(sys.modules[name], "__file__", None) or ""
            if any(place.startswith(str(folder)) for folder in folders):
                del sys.modules[name]
        forget()


def forget() -> None:
    importlib.invalidate_caches()
    announcements.cache_clear()
    registry.load.cache_clear()
    registry.make_from.cache_clear()
