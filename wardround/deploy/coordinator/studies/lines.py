"""How fast the sites' lines are, as transfers have shown it, for the transform that compresses by them.

What a study is offered with is fixed: the speeds known when it is submitted become part of its words, which sites
approve. Whoever submits the same study again means the one that is there, whatever its lines have shown since.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome
from wardround.runs.json_files import read_json, write_json
from wardround.study.file import Named, Study, parse_study

FILE = "lines.json"
BY_LINE = "auto"
"""The transform that compresses by the sites' lines."""


def in_megabits(speeds: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Of bytes in a second down and up (0: not shown yet): megabits of the slower direction, to two digits.

    >>> in_megabits({"bo": (125_000.0, 63_123.0), "kenema": (0.0, 0.0)})
    {'bo': 0.5}
    """
    shown = {site: [speed for speed in both if speed > 0] for site, both in speeds.items()}
    return {site: float(f"{min(both) * 8e-6:.2g}") for site, both in sorted(shown.items()) if both}


def keep_lines(home: CoordinatorHome, found: Mapping[str, float]) -> None:
    """Remember what was measured; of a site that has shown nothing since, what it showed before."""
    known = known_lines(home)
    if any(known.get(site) != speed for site, speed in found.items()):
        write_json(home.path / FILE, {**known, **found})


def known_lines(home: CoordinatorHome) -> dict[str, float]:
    """Megabits a second of every site whose line has shown its speed; none from a file that is not ours any more.

    What is lost is measured again, and neither the coordinator's status nor a study may wait for that.
    """
    with suppress(Refusal, AttributeError, TypeError, ValueError):
        said = read_json(home.path / FILE, "delete it") if (home.path / FILE).exists() else {}
        return {str(site): float(speed) for site, speed in said.items() if 0 < float(speed) < inf}
    return {}


def with_lines(study: Study, home: CoordinatorHome) -> Study:
    """The study with the speeds of its sites' lines, where a transform asks for them and it does not say its own."""
    if all(one.name != BY_LINE for one in study.transforms):
        return study
    for path in sorted((home.path / "studies").glob("*/study.json")):
        with suppress(
            Refusal, KeyError, TypeError
        ):  # another study's file, which may be of another version, or damaged
            there = parse_study(read_json(path, "queue the study again")["study"], where=str(path))
            if is_meant_with(study, there):
                return there
    known = {site: speed for site, speed in known_lines(home).items() if site in study.deploy.sites}
    return replaced(study, lambda said: {**known, **said})


def is_meant_with(study: Study, there: Study) -> bool:
    """Whether a study that is there differs in nothing but lines of which the other says nothing."""
    said, has = ([lines_of(one) for one in each.transforms] for each in (study, there))
    same = all(mine.items() <= theirs.items() for mine, theirs in zip(said, has, strict=False))
    return same and replaced(study, lambda lines: {}) == replaced(there, lambda lines: {})


def lines_of(transform: Named) -> dict[str, Any]:
    found = transform.settings.get("lines") if transform.name == BY_LINE else None
    return dict(found) if isinstance(found, Mapping) else {}


def replaced(study: Study, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Study:
    """The study with other lines; what is empty is not said."""
    words = study.model_dump(mode="json")
    for one in words["transforms"]:
        if one["name"] == BY_LINE and isinstance(one.get("lines", {}), Mapping):
            lines = change(dict(one.pop("lines", {})))
            one.update({"lines": lines} if lines else {})
    return parse_study(words, where="[[transforms]] auto")
