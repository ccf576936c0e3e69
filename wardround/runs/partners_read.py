"""Reads `result.json` of the kind "partners", each part as far as it is there."""

from dataclasses import replace
from typing import Any

from wardround.report.metric_names import lower_is_better
from wardround.runs.partners_result import (
    Agreement,
    Feedback,
    Gain,
    Judged,
    Matrix,
    Pair,
    Partnership,
    Place,
    Score,
    Share,
    Trait,
)
from wardround.runs.read import read_result
from wardround.runs.result import Cost, Json, Measure, items, mapping, number, sentences, whole


def read_partnership(result: Json, *, manifest: Json | None = None, default_name: str = "study") -> Partnership:
    verdict, place = mapping(result.get("verdict")), mapping(result.get("map"))
    helps = str(verdict.get("helps") or "")
    measures = tuple(read_judged(mapping(entry)) for entry in items(result.get("measures")))
    cost = mapping(result.get("cost"))
    return Partnership(
        run=replace(read_result(result, default_name=default_name), manifest=manifest or {}),
        asking=str(result.get("asking") or ""),
        helps=helps if helps in ("yes", "no", "unclear") else "",  # type: ignore[arg-type]
        headline=str(verdict.get("headline") or ""),
        partners=sentences(verdict.get("partners")),
        others=sentences(verdict.get("others")),
        unanswered=sentences(verdict.get("unanswered")),
        withdrawn=sentences(verdict.get("withdrawn")),
        reasons={str(site): str(why) for site, why in mapping(verdict.get("reasons")).items() if why},
        gain=read_gain(mapping(verdict.get("gain"))),
        measures=measures,
        agreement=tuple(read_agreement(mapping(entry)) for entry in items(result.get("agreement"))),
        matrices=tuple(
            matrix for entry in items(result.get("similarity")) if (matrix := read_matrix(mapping(entry))).sites
        ),
        places=tuple(
            Place(str(own.get("name", "")), x, y)
            for own in map(mapping, items(place.get("sites")))
            if (x := number(own.get("x"))) is not None and (y := number(own.get("y"))) is not None
        ),
        shown=number(place.get("shown")),
        mapped=str(place.get("from") or ""),
        pairs=tuple(read_pair(mapping(entry)) for entry in items(result.get("pairs"))),
        dilution=tuple(read_share(mapping(entry)) for entry in items(result.get("dilution"))),
        feedback=tuple(read_feedback(mapping(entry)) for entry in items(result.get("feedback"))),
        cost=Cost(
            bytes_down=number(cost.get("bytes_down")),
            bytes_up=number(cost.get("bytes_up")),
            seconds=number(cost.get("seconds")),
        ),
        rounds=whole(cost.get("rounds")),
    )


def read_gain(entry: Json) -> Gain:
    metric = str(entry.get("metric") or "")
    alone, together = number(entry.get("alone")), number(entry.get("together"))
    measure = Measure(number(entry.get("difference")), number(entry.get("low")), number(entry.get("high")))
    return Gain(
        metric=metric,
        alone=alone,
        together=together,
        everyone=number(entry.get("everyone")),
        improvement=improvement(measure, metric, alone, together),
        patients=whole(entry.get("patients")),
        words=str(entry.get("words") or ""),
    )


def improvement(difference: Measure, metric: str, alone: float | None, together: float | None) -> Measure:
    """The difference with the sign that makes better together positive.

    A difference may be told as together minus alone, as comparisons are, or as what is gained; the two values tell
    which. Where they are missing it is taken for together minus alone.
    """
    if difference.value is None:
        return difference
    change = None if alone is None or together is None else together - alone
    told_backwards = change is not None and abs(difference.value + change) < abs(difference.value - change)
    if told_backwards != (lower_is_better(metric) is True):
        low = None if difference.high is None else -difference.high
        high = None if difference.low is None else -difference.low
        return Measure(-difference.value, low, high)
    return difference


def read_judged(entry: Json) -> Judged:
    scores = {}
    for site, own in mapping(entry.get("scores")).items():
        value = number(mapping(own).get("value")) if isinstance(own, dict) else number(own)
        if value is not None:
            scores[str(site)] = Score(value, number(mapping(own).get("error")))
    name = str(entry.get("name") or "")
    words = str(entry.get("words") or "")
    return Judged(name, str(entry.get("label") or name.replace("_", " ")), words, number(entry.get("cut")), scores)


def read_agreement(entry: Json) -> Agreement:
    return Agreement(
        measure=str(entry.get("measure") or ""),
        against=str(entry.get("against") or ""),
        correlation=number(entry.get("rank_correlation")),
        sites=whole(entry.get("sites")),
        note=str(entry.get("note") or ""),
    )


def read_matrix(entry: Json) -> Matrix:
    """Rows and columns that the names do not reach are left out; what is short is filled with unknowns."""
    sites = sentences(entry.get("sites"))
    rows = [items(row) for row in items(entry.get("matrix"))]
    values = tuple(
        tuple(number(rows[i][j]) if i < len(rows) and j < len(rows[i]) else None for j in range(len(sites)))
        for i in range(len(sites))
    )
    words = {key: str(entry.get(key) or "") for key in ("words", "rows", "columns")}
    label = str(entry.get("label") or entry.get("name") or "similarity")
    known = any(x is not None for row in values for x in row)
    return Matrix(label=label, sites=sites if known else (), values=values, **words)


def read_pair(entry: Json) -> Pair:
    traits = tuple(
        Trait(
            feature=str(own.get("feature") or ""),
            distance=number(own.get("distance")),
            words=str(own.get("words") or own.get("feature") or ""),
            beyond_chance=own.get("beyond_chance") is True,
        )
        for own in map(mapping, items(entry.get("features")))
    )
    return Pair(str(entry.get("site") or ""), traits, str(entry.get("words") or ""))


def read_share(entry: Json) -> Share:
    return Share(
        site=str(entry.get("site") or ""),
        rows=whole(entry.get("rows")),
        row_share=number(entry.get("row_share")),
        weight_share=number(entry.get("weight_share")),
        limit=number(entry.get("limit")),
        over=entry.get("over") is True,
    )


def read_feedback(entry: Json) -> Feedback:
    rank, chosen = mapping(entry.get("rank")), entry.get("chosen")
    words = sentences(entry.get("words"))
    remarks = {
        heading: tuple(text for own in items(entry.get(key)) if (text := remark(own)) and text not in words)
        for key, heading in (
            ("weights", "Where its own model differs from its peers'"),
            ("shifted", "Where its patients differ from its peers'"),
            ("further_features", "What it could record in addition"),
        )
    }
    return Feedback(
        site=str(entry.get("site") or ""),
        place=whole(rank.get("place")),
        of=whole(rank.get("of")),
        chosen=chosen if isinstance(chosen, bool) else None,
        words=words,
        remarks={heading: own for heading, own in remarks.items() if own},
    )


def remark(entry: Any) -> str:
    """A sentence where there is one; numbers without words are left to result.json."""
    return entry if isinstance(entry, str) else str(mapping(entry).get("words") or "")
