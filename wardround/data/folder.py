"""Where the real data sets lie: the folder that WARDROUND_DATA names, or ../shared/data beside the repository."""

import os
from pathlib import Path

from wardround.core.errors import Refusal

VARIABLE = "WARDROUND_DATA"


def data_folder() -> Path:
    """The folder that holds one folder for each real data set."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return Path(__file__).resolve().parents[2].parent / "shared" / "data"


def data_file(folder: str, file: str) -> Path:
    """The path of a file of a real data set, if it is there."""
    path = data_folder() / folder / file
    if path.is_file():
        return path
    missing = next((parent for parent in (data_folder(), path.parent) if not parent.is_dir()), path)
    raise Refusal(
        f"the data set {folder} is not on this computer",
        where=f"there is no {'folder' if missing != path else 'file'} {missing}",
        remedy=f"set the environment variable {VARIABLE} to the folder that holds the folder {folder} with its {file}",
    )
