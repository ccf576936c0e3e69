"""Which patients a site's answers were about, so that two questions do not tell by their difference what neither may.

A file in the site's home, over all studies: for every question its columns and a flag for each row of the table. A
question about the patients of an earlier one, but for fewer than a cell, is refused: by a condition, by a column that
few have missing, or since a few patients came or left. The same patients again are fine. Questions meet if they have a
number in common, whose sums would differ by the few, or two columns: else a group named in every line of a first table
would stop the table at the first gap, to hide how many of those few are in the group.
Rows are told apart by their place in the table: a site that sorts its table anew makes old entries useless, not wrong.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from wardround.core.analysis import Agreed, Analysis
from wardround.core.contracts import Site
from wardround.core.files import write_whole
from wardround.statistics.disclosure.subsets import check_difference
from wardround.statistics.selection.rows import covered_rows

FILE = "answered_rows.json"
_writing = Lock()


def remember_rows(path: Path, analysis: Analysis, agreed: Agreed, site: Site, cell: int) -> None:
    """Refuse a question about almost the same patients as an earlier one, or else write down whom it is about."""
    masks = covered_by(analysis, agreed, site)
    with _writing:
        known: list[dict[str, Any]] = json.loads(path.read_bytes()) if path.exists() else []
        new = []
        for mask in masks:
            entry = to_json(analysis.columns, mask)
            if entry in known or entry in new:
                continue
            near = [mask_of(one) for one in known if has_common(one["columns"], analysis.columns, agreed)]
            check_difference(mask, near, cell, site=site.name)
            new.append(entry)
        if new:
            write_whole(path, json.dumps([*known, *new]).encode())


def has_common(earlier: Sequence[str], now: Sequence[str], agreed: Agreed) -> bool:
    both = set(earlier) & set(now)
    return len(both) > 1 or any(agreed.columns[name].kind == "number" for name in both)


def covered_by(analysis: Analysis, agreed: Agreed, site: Site) -> list[Any]:
    if analysis.covers is None:
        return [covered_rows(agreed, site, analysis.columns)]
    return [np.asarray(one, bool) for one in analysis.covers(agreed, site)]


def to_json(columns: tuple[str, ...], mask: Any) -> dict[str, Any]:
    return {"columns": sorted(columns), "rows": len(mask), "covered": np.packbits(mask).tobytes().hex()}


def mask_of(entry: dict[str, Any]) -> Any:
    """
    >>> mask_of(to_json(("age",), np.array([True, False, True]))).tolist()
    [True, False, True]
    """
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(entry["covered"]), np.uint8))
    return bits[: entry["rows"]].astype(bool)
