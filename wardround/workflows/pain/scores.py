"""ACC, PR-AUC and F1 by person and session, their weighted means with SD between people, and rank tables.

A session in which a person felt no pain is masked: PR-AUC and F1 do not exist there. A person's figure is the mean over
the sessions left, weighted by frames; the mean over people is weighted by these frames, and so is the SD (population
form). Ranks: for each person (or session), a method gets one point for every method that is worse.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score

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


def over_people(scores: Sequence[PersonScore], metric: str) -> tuple[float, float]:
    """The weighted mean over people, and the weighted SD between them."""
    people = group(scores, lambda one: one.subject)
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


def table_of(by_method: Mapping[str, Sequence[PersonScore]]) -> str:
    """Table 7.1 in form: weighted mean and SD in percent."""
    lines = ["| method | ACC | PR-AUC | F1 |", "|---|---|---|---|"]
    for method, scores in by_method.items():
        cells = [" ± ".join(f"{100 * value:.0f}" for value in over_people(scores, metric)) for metric in METRICS]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def slice_table(by_method: Mapping[str, Sequence[PersonScore]], key: str, metric: str) -> str:
    """Tables 7.4 and 7.5 in form: one column per person or session, in percent."""
    names = sorted({getattr(one, key) for scores in by_method.values() for one in scores})
    lines = [f"| {metric} | {' | '.join(map(str, names))} |", f"|---|{'---|' * len(names)}"]
    for method, scores in by_method.items():
        own = group(scores, lambda one: getattr(one, key))
        cells = [f"{100 * weighted(own[name], metric):.0f}" if name in own else "" for name in names]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rank_table(by_method: Mapping[str, Sequence[PersonScore]], key: str) -> str:
    """Tables 7.6 (by person) and 7.7 (by session) in form."""
    found = {metric: ranks(by_method, key, metric) for metric in METRICS}
    lines = ["| method | ACC | PR-AUC | F1 |", "|---|---|---|---|"]
    lines += [f"| {method} | {' | '.join(str(found[m][method]) for m in METRICS)} |" for method in by_method]
    return "\n".join(lines)
