"""A new home's folder: for its owner only, and nobody else's already."""

import os
from collections.abc import Set
from pathlib import Path

from wardround.core.errors import Refusal

TITLES = {"coordinator.toml": "coordinator", "second.toml": "second server", "site.toml": "site"}
"""Whose home a folder is, by the file that is written last when it is made."""


def make_home_folder(
    path: Path, title: str, leftovers: Set[str], *, remedy: str = "choose a new folder with --home"
) -> None:
    """Make it; refused where it is somebody's home, or holds more than what an interrupted beginning leaves."""
    found = sorted(os.listdir(path)) if path.is_dir() else []
    owner = next((TITLES[name] for name in found if name in TITLES), None)
    if owner is not None:
        again = f"use it, or {remedy}" if owner == title else remedy
        raise Refusal(f"this folder already holds a {owner}", where=str(path), remedy=again)
    strange = [name for name in found if name not in leftovers]
    if strange:
        raise Refusal(f"the folder is not empty: it holds {strange[0]}", where=str(path), remedy=remedy)
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise Refusal(
            f"the folder cannot be created: {error.strerror}", where=str(path), remedy="choose another --home"
        ) from None
