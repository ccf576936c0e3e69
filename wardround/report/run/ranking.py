"""Which method is best where, and how sure that is.

"Sure" is taken from the paired comparison alone: intervals of single scores may overlap although a difference is shown,
and may be apart by chance where nobody compared.
"""

from typing import NamedTuple

from wardround.report.metric_names import is_lower_better
from wardround.runs.result import ALL, MethodResult
from wardround.runs.run import Run
from wardround.runs.scores import MetricValue


class Lead(NamedTuple):
    """The rivals over whom the lead is shown, over whom it may be chance, and with whom nobody compared."""

    shown: tuple[str, ...]
    open: tuple[str, ...]
    untested: tuple[str, ...]


def best(run: Run, scores: dict[str, MetricValue], metric: str) -> tuple[MethodResult, ...]:
    """The methods with the best score (several when equal); none when nothing can be ranked."""
    lower = is_lower_better(metric)
    known = {name: m.value for name, m in scores.items() if m.value is not None}
    if lower is None or not known:
        return ()
    top = min(known.values()) if lower else max(known.values())
    return tuple(method for method in run.methods if known.get(method.name) == top)


def best_at(run: Run, site: str, metric: str) -> tuple[MethodResult, ...]:
    return best(run, {method.name: method.at(site, metric) for method in run.methods}, metric)


def best_overall(run: Run, metric: str) -> tuple[MethodResult, ...]:
    return best(run, {m.name: m.over_all(metric) for m in run.methods if metric in m.scores.weighted}, metric)


def has_score(method: MethodResult, site: str, metric: str) -> bool:
    measure = method.over_all(metric) if site == ALL else method.at(site, metric)
    return measure.value is not None


def lead_of(run: Run, site: str, metric: str, leader: MethodResult) -> Lead:
    """What the paired comparison says of the leader against every other method with a score at this site."""
    rivals = [method.name for method in run.methods if method != leader and has_score(method, site, metric)]
    won: dict[str, bool] = {}
    for entry in run.differences:
        if entry.metric != metric or entry.site != site:
            continue
        word = entry.verdict.strip().lower()
        if entry.method == leader.name:
            won[entry.against] = word.startswith("better")
        elif entry.against == leader.name:
            won[entry.method] = word.startswith("worse")
    return Lead(
        shown=tuple(name for name in rivals if won.get(name) is True),
        open=tuple(name for name in rivals if won.get(name) is False),
        untested=tuple(name for name in rivals if name not in won),
    )
