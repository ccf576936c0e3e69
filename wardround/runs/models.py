"""Which models a run folder holds, and which of them is meant."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from wardround.core.errors import Refusal
from wardround.runs.file_names import MODEL, PERSONAL
from wardround.runs.model_file import ModelFacts, read_facts


class ModelFiles(NamedTuple):
    """The files of one method: of its common model, and of those of single sites."""

    common: Path | None = None
    personal: Path | None = None

    @property
    def facts(self) -> ModelFacts:
        path = self.personal or self.common
        assert path is not None
        return read_facts(path)


def model_files(folder: Path) -> Mapping[str, ModelFiles]:
    """The models of a run folder, by method."""
    found: dict[str, ModelFiles] = {}
    for kind, name in (("common", MODEL), ("personal", PERSONAL)):
        for path in paths_named(folder, name):
            method = read_facts(path).method
            found[method] = found.get(method, ModelFiles())._replace(**{kind: path})
    return found


def model_paths(folder: Path) -> list[Path]:
    """Every model file of a run folder, common and personal."""
    return [*paths_named(folder, MODEL), *paths_named(folder, PERSONAL)]


def paths_named(folder: Path, name: str) -> list[Path]:
    """The file of a run of one method, and those of several."""
    stem, _, suffix = name.partition(".")
    return sorted([*folder.glob(name), *folder.glob(f"{stem}-*.{suffix}")])


def find_model(
    path: Path, method: str | None = None, site: str | None = None, *, common: Callable[[Path], bool] = lambda _: False
) -> Path:
    """The file of the model that is meant: a site's own where one is named and there is one, else the common one.

    `common` says whether a site without a model of its own may use the common one at that path.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise Refusal("there is no such run or model file", where=str(path), remedy="check the path")
    files = model_files(path)
    if not files:
        raise no_model(path)
    if method is None and len(files) > 1:
        raise Refusal(
            "the run has models of several methods",
            where=str(path),
            remedy=f"say which to use with --method: {', '.join(files)}",
        )
    name = method or next(iter(files))
    if name not in files:
        raise Refusal(
            f"the run has no model of a method called {name!r}", where=str(path), remedy=f"there are {', '.join(files)}"
        )
    everybody, personal = files[name]
    if personal is not None and (site is not None or everybody is None):
        return personal
    if everybody is None or (site is not None and not common(everybody)):
        raise Refusal(
            f"this method has no personal models, so there is none of {site}",
            where=str(path),
            remedy="leave --site out: all sites use the common model",
        )
    return everybody


def no_model(path: Path) -> Refusal:
    """Why a folder has no model, and where the last state of an interrupted run lies."""
    from wardround.runs.read import has_manifest, read_manifest  # here: all kinds of results take long to load

    if not has_manifest(path):
        return Refusal(
            "there is no model in this folder", where=str(path), remedy="name a folder that `wardround run` wrote"
        )
    command = (read_manifest(path) or {}).get("kind", "run")
    last = sorted((path / "checkpoints").glob("*.safetensors"), key=lambda one: one.stat().st_mtime)
    kept = f"; its last checkpoint is {last[-1].name}" if last else ""
    return Refusal(
        f"the run was interrupted before its model was written{kept}",
        where=str(path),
        remedy=f"continue with: wardround {command} STUDY --resume --out {path}",
    )
