"""ACC, PR-AUC and F1 by person and session, their weighted means with SD between people, and rank tables.

A session in which a person felt no pain is masked: PR-AUC and F1 do not exist there. A person's figure is the mean over
the sessions left, weighted by frames; the mean over people is weighted by these frames, and so is the SD (population
form). Ranks: for each person (or session), a method gets one point for every method that is worse.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score

from wardround.core.text import natural_order

METRICS = ("acc", "pr_auc", "f1")
Numbers = np.ndarray[Any, Any]


class PersonScore(NamedTuple):
    """How well one person's frames of one session (or shard) were recognized."""

    subject: str
    session: int
    frames: int
    acc: float
    pr_auc: float
    f1: float


def score(subject: str, session: int, predicted: Numbers, actual: Numbers) -> PersonScore | None:
    """From the probabilities of pain; none where no frame shows pain."""
    if not np.any(actual > 0):
        return None
    said = predicted > 0.5
    hits = int(np.sum(said & (actual > 0)))
    f1 = 2 * hits / (int(said.sum()) + int(np.sum(actual > 0)))
    area = float(average_precision_score(actual, predicted))
    return PersonScore(subject, session, len(actual), float(np.mean(said == (actual > 0))), area, f1)


def weighted(scores: Sequence[PersonScore], metric: str) -> float:
    return float(np.average([getattr(one, metric) for one in scores], weights=[one.frames for one in scores]))


def over(scores: Sequence[PersonScore], metric: str, key: str = "subject") -> tuple[float, float]:
    """The weighted mean over people (or sessions), and the weighted SD between them."""
    people = group(scores, lambda one: getattr(one, key))
    values = np.array([weighted(own, metric) for own in people.values()])
    frames = np.array([sum(one.frames for one in own) for own in people.values()])
    mean = float(np.average(values, weights=frames))
    return mean, float(np.sqrt(np.average(np.square(values - mean), weights=frames)))


def group(scores: Sequence[PersonScore], key: Callable[[PersonScore], Any]) -> dict[Any, list[PersonScore]]:
    found: dict[Any, list[PersonScore]] = {}
    for one in scores:
        found.setdefault(key(one), []).append(one)
    return found


def ranks(by_method: Mapping[str, Sequence[PersonScore]], key: str, metric: str) -> dict[str, int]:
    """For every method, how many methods it beats, summed over people (key "subject") or sessions ("session")."""
    values = {
        method: {name: weighted(own, metric) for name, own in group(scores, lambda one: getattr(one, key)).items()}
        for method, scores in by_method.items()
    }
    names = {name for own in values.values() for name in own}
    return {
        method: sum(sum(own.get(name, -1.0) > other.get(name, -1.0) for other in values.values()) for name in names)
        for method, own in values.items()
    }


def percent(pair: tuple[float, float]) -> str:
    return " ± ".join(f"{100 * value:.0f}" for value in pair)


def bold(cells: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """The largest value of a column stands out, and whatever is written as it is."""
    known = [value for value in values if value is not None]
    best = f"{100 * max(known):.0f}" if known else ""
    return [
        f"**{cell}**" if value is not None and f"{100 * value:.0f}" == best else cell
        for cell, value in zip(cells, values, strict=True)
    ]


def lines_of(head: Sequence[str], names: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    rows = zip(names, *columns, strict=True)
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(one) + " |"
                      for one in rows)])  # fmt: skip


def table_of(by_method: Mapping[str, Sequence[PersonScore]]) -> str:
    """Table 7.1 in form: weighted mean and SD between people in percent, the best mean in bold."""
    columns = []
    for metric in METRICS:
        found = [over(scores, metric) for scores in by_method.values()]
        columns.append(bold([percent(one) for one in found], [one[0] for one in found]))
    return lines_of(["method", "ACC", "PR-AUC", "F1"], list(by_method), columns)


def slice_table(by_method: Mapping[str, Sequence[PersonScore]], key: str, metric: str, *, gaps: bool = False) -> str:
    """Tables 7.4 and 7.5 in form: one column per person or session, in percent, and weighted mean and SD over them.

    With `gaps` a session in which nobody felt pain has its column, too, in which nothing is known.
    """
    found = {getattr(one, key) for scores in by_method.values() for one in scores}
    names = sorted(
        range(min(found), max(found) + 1) if gaps and found else found, key=lambda one: natural_order(str(one))
    )
    own = [group(scores, lambda one: getattr(one, key)) for scores in by_method.values()]
    columns = []
    for name in names:
        values = [weighted(one[name], metric) if name in one else None for one in own]
        columns.append(bold(["NA" if value is None else f"{100 * value:.0f}" for value in values], values))
    columns.append([percent(over(scores, metric, key)) for scores in by_method.values()])
    return lines_of([metric, *map(str, names), "wt. mean ± SD"], list(by_method), columns)


def rank_table(by_method: Mapping[str, Sequence[PersonScore]], key: str) -> str:
    """Tables 7.6 (by person) and 7.7 (by session) in form, the highest rank in bold."""
    columns = []
    for metric in METRICS:
        found = list(ranks(by_method, key, metric).values())
        best = max(found)
        columns.append([f"**{one}**" if one == best > 0 else str(one) for one in found])
    return lines_of(["method", "ACC", "PR-AUC", "F1"], list(by_method), columns)
