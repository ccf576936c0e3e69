"""Studies from Python: from data frames, from a file, or from words."""

from collections.abc import Mapping, Sequence
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from wardround.api.objects import words_for
from wardround.core.errors import Refusal
from wardround.data.sources.frame import frame as frame_source
from wardround.data.table import Kind, Table
from wardround.engine import registry
from wardround.study.file import Study, parse_study
from wardround.study.file import read_study as read_file

_numbers = count(1)


def read_study(path: str | Path) -> Study:
    """The study in a TOML file."""
    return read_file(Path(path))


def build_study(
    data: pd.DataFrame | Mapping[str, Any],
    *,
    target: str | None = None,
    site: str = "",
    name: str = "study",
    rounds: int = 50,
    seed: int = 0,
    user: str | None = None,
    model: Any = "logistic",
    algorithm: Any = "fed_avg",
    aggregator: Any = "weighted_mean",
    transforms: Sequence[Any] = (),
    partition: Any = None,
    compare: Sequence[Any] = (),
    repeats: int = 5,
    drop: Sequence[str] = (),
    positive: Any = None,
    groups: Sequence[str] = (),
    categories: Sequence[str] = (),
    task: Kind | None = None,
    analysis: Any = None,
    **tables: Any,
) -> Study:
    """A study from data frames: one for each site, or one whose column `site` names the site.

    With an `analysis`, such as wr.glm(formula="death ~ age"), nothing is trained: give no target.

    `data` may also be the words of a study file's [data] table, such as {"source": "triage"}. Further tables of a study
    file, such as privacy={"epsilon": 3.0} or evaluation={"resamples": 200}, are given by name; those named `data_...`
    are keys of [data], such as data_shares=[0.8, 0.1, 0.1].
    """
    options = {key.removeprefix("data_"): tables.pop(key) for key in list(tables) if key.startswith("data_")}
    content: dict[str, Any] = {
        "study": {
            "name": name,
            "rounds": rounds,
            "seed": seed,
            **({} if user is None else {"user": user}),
            **tables.pop("study", {}),
        },
        "data": {**data_words(data, target, site, drop, positive, groups, categories, task, analysis), **options},
        **tables,
    }
    if analysis is not None:
        content["analysis"] = words_for("analysis", analysis)
    else:
        made = {"model": model, "algorithm": algorithm, "aggregator": aggregator}
        content |= {kind: words_for(kind, one) for kind, one in made.items()}
    if transforms:
        content["transforms"] = [words_for("transform", one) for one in transforms]
    if partition is not None:
        content["data"]["partition"] = words_for("partition", partition)
    if compare:
        content["compare"] = compare_words(compare, repeats)
    return parse_study(content, where="build_study")


def data_words(
    data: pd.DataFrame | Mapping[str, Any],
    target: str | None,
    site: str,
    drop: Sequence[str],
    positive: Any,
    groups: Sequence[str],
    categories: Sequence[str],
    task: Kind | None,
    analysis: Any = None,
) -> dict[str, Any]:
    """The [data] table; data frames are lent under a name of their own."""
    if isinstance(data, Mapping) and "source" in data:
        return dict(data)
    if target is None and analysis is None:
        raise Refusal("the study does not say what to predict", where="build_study", remedy="name a column: target=...")
    said: dict[str, Any] = {
        "target": target,
        "site": site,
        "drop": list(drop),
        "positive": None if positive is None else str(positive),
        "groups": list(groups),
        "categories": list(categories),
        "task": task,
    }
    return {"source": lend_frames(data), **{key: value for key, value in said.items() if value not in (None, "", [])}}


def lend_frames(data: pd.DataFrame | Mapping[str, pd.DataFrame]) -> str:
    """A source of these very frames, for this process."""

    @wraps(frame_source)
    def frames(**settings: Any) -> Table:
        return frame_source(data, **settings)

    return registry.lend("source", f"frames_{next(_numbers)}", frames)


def compare_words(methods: Sequence[Any], repeats: int) -> dict[str, Any]:
    """The [compare] table: names, or components with settings."""
    names, settings = [], {}
    for one in methods:
        words = {"name": one} if one == "global" else words_for("algorithm", one) if not is_choice(one) else one.words()
        names.append(words.pop("name"))
        if words:
            settings[names[-1]] = words
    return {"methods": names, "repeats": repeats, "settings": settings}


def is_choice(given: Any) -> bool:
    """Whether a choice of partners was given, which [compare] takes in the place of an algorithm."""
    return getattr(given, "kind", "") == "choice"
