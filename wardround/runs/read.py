"""Reads a run folder (`manifest.json`, `rounds.jsonl`, `result.json`), also one that a crash left behind.

A missing file is told in the report; a file that cannot be read at all is refused, since a report that silently left
out half of a run would mislead.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.runs.result import (
    Bin,
    Choosing,
    Cost,
    Course,
    Difference,
    Hospital,
    Json,
    Measure,
    Method,
    Run,
    Told,
    items,
    mapping,
    number,
    sentences,
    total,
    whole,
)

MANIFEST, ROUNDS, RESULT = "manifest.json", "rounds.jsonl", "result.json"


def read_run(folder: Path) -> Run:
    """All that the folder tells about the run."""
    if not any((folder / name).is_file() for name in (MANIFEST, ROUNDS, RESULT)):
        raise Refusal(
            f"there is no run in this folder: none of {MANIFEST}, {ROUNDS} and {RESULT} is there",
            where=str(folder),
            remedy="give the folder that `wardround run --out FOLDER` or `wardround compare --out FOLDER` wrote",
        )
    manifest, result = read_object(folder / MANIFEST), read_object(folder / RESULT)
    records, torn = read_rounds(folder / ROUNDS)
    courses = tuple(read_courses(records))
    remarks = []
    if manifest is None:
        remarks.append(f"{MANIFEST} is missing, so versions, seed and hashes cannot be shown.")
    if torn:
        lines, are = ("One line", "is") if torn == 1 else (f"{torn} lines", "are")
        remarks.append(f"{lines} of {ROUNDS} could not be read (cut off in writing) and {are} left out.")
    study = mapping(mapping((manifest or {}).get("study")).get("study"))
    name = str(study.get("name") or mapping((manifest or {}).get("study")).get("name") or folder.resolve().name)
    if result is None:
        run = without_result(name, courses)
    else:
        run = read_result(result, default_name=name)
        run = replace(run, methods=tuple(fill_cost(method, courses) for method in run.methods))
    return replace(run, courses=courses, manifest=manifest or {}, remarks=tuple(remarks))


def read_object(path: Path) -> Json | None:
    """The JSON object in the file, None when there is no file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(
            f"the file cannot be read as JSON: {error}",
            where=str(path),
            remedy="run the study again, or take the file away to see what the other files tell",
        ) from None
    if not isinstance(found, dict):
        raise Refusal(
            "the file holds no JSON object", where=str(path), remedy="run the study again, or take the file away"
        )
    return found


def read_rounds(path: Path) -> tuple[list[Json], int]:
    """The records, and how many lines were torn (a crash may cut the line that was being written)."""
    if not path.is_file():
        return [], 0
    records: list[Json] = []
    torn = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict) and whole(record.get("round")) is not None:
                records.append(record)
            else:
                torn += 1
    return records, torn


def read_courses(records: Iterable[Json]) -> Iterable[Course]:
    """The records by method and repeat, in the order of rounds; of a round done again after a crash the last counts."""
    groups: dict[tuple[str, int], dict[int, Json]] = {}
    for record in records:
        key = (str(record.get("method", "")), whole(record.get("repeat")) or 0)
        groups.setdefault(key, {})[whole(record.get("round")) or 0] = record
    for (method, repeat), by_round in groups.items():
        rounds = tuple(number for number in sorted(by_round) if number > 0)
        losses = [mapping(mapping(by_round[r].get("measures")).get("validation_loss")) for r in rounds]
        names = dict.fromkeys(name for loss in losses for name in mapping(loss.get("sites")))
        yield Course(
            method=method,
            repeat=repeat,
            rounds=rounds,
            loss=tuple(number(loss.get("weighted")) for loss in losses),
            site_loss={n: tuple(number(mapping(loss.get("sites")).get(n)) for loss in losses) for n in names},
            cost=cost_of(by_round.values()),
            told=read_told([(r, mapping(mapping(by_round[r].get("measures")).get("told"))) for r in rounds]),
            choosing=read_choosing(by_round[0]) if 0 in by_round else None,
            answered=tuple(sentences(by_round[r].get("sites")) for r in rounds),
            missing=tuple(read_missing(by_round[r]) for r in rounds),
        )


def read_missing(record: Json) -> dict[str, str]:
    absent = mapping(mapping(record.get("measures")).get("absent"))
    return {str(site): str(why) for site, why in absent.items()}


def cost_of(records: Iterable[Json]) -> Cost:
    kept = list(records)
    return Cost(
        bytes_down=total([number(record.get("bytes_down")) for record in kept]),
        bytes_up=total([number(record.get("bytes_up")) for record in kept]),
        seconds=total([number(record.get("seconds")) for record in kept]),
    )


def read_told(by_round: Iterable[tuple[int, Json]]) -> Told:
    """Rounds between two evaluations tell nothing and are left out."""
    spoken = [(r, told) for r, told in by_round if told]
    names = dict.fromkeys(name for _, told in spoken for name, value in told.items() if mapping(value))
    sites = {name: dict.fromkeys(site for _, told in spoken for site in mapping(told.get(name))) for name in names}
    return Told(
        rounds=tuple(r for r, _ in spoken),
        sites={
            name: {site: tuple(number(mapping(told.get(name)).get(site)) for _, told in spoken) for site in own}
            for name, own in sites.items()
        },
        stopped=next((r for r, told in spoken if told.get("stopped") is True), None),
        skipped=max((whole(told.get("skipped")) or 0 for _, told in spoken), default=0),
    )


def read_choosing(record: Json) -> Choosing:
    told = mapping(mapping(record.get("measures")).get("told"))
    scores = {str(site): x for site, value in mapping(told.get("score")).items() if (x := number(value)) is not None}
    return Choosing(sentences(told.get("chosen")), scores, cost_of([record]))


def without_result(name: str, courses: tuple[Course, ...]) -> Run:
    """A run that did not end: what the rounds alone tell."""
    names = dict.fromkeys(site for course in courses for site in course.site_loss)
    methods = dict.fromkeys(course.method for course in courses)
    return Run(
        name=name,
        hospitals=tuple(Hospital(name) for name in names),
        methods=tuple(fill_cost(Method(name, name, rounds=reached(name, courses)), courses) for name in methods),
        finished=False,
    )


def reached(method: str, courses: tuple[Course, ...]) -> int:
    return max((course.rounds[-1] for course in courses if course.method == method and course.rounds), default=0)


def fill_cost(method: Method, courses: tuple[Course, ...]) -> Method:
    """What the method's own meters do not tell is added up from the rounds."""
    mine = [course.cost for course in courses if course.method == method.name]
    cost = method.cost
    if cost.traffic is None:
        cost = replace(cost, bytes_down=total([c.bytes_down for c in mine]), bytes_up=total([c.bytes_up for c in mine]))
    if cost.seconds is None:
        cost = replace(cost, seconds=total([c.seconds for c in mine]))
    return replace(method, cost=cost)


def read_result(result: Json, *, default_name: str = "study") -> Run:
    """The parts of `result.json`, each as far as it is there."""
    return Run(
        name=str(result.get("study") or default_name),
        kind=str(result.get("kind") or "run"),
        task=mapping(result.get("task")),
        metric=str(result.get("metric") or ""),
        level=level_of(items(result.get("methods"))),
        hospitals=tuple(read_hospital(mapping(entry)) for entry in items(result.get("sites"))),
        methods=tuple(read_method(mapping(entry)) for entry in items(result.get("methods"))),
        differences=tuple(read_difference(mapping(entry)) for entry in items(result.get("comparison"))),
        truth=result.get("truth") or (),
        notes=sentences(result.get("notes")),
        told_repeats=whole(result.get("repeats")),
    )


def read_hospital(entry: Json) -> Hospital:
    return Hospital(
        name=str(entry.get("name", "")),
        train=whole(entry.get("train")),
        validation=whole(entry.get("validation")),
        test=whole(entry.get("test")),
        prevalence=number(entry.get("prevalence")),
    )


def read_method(entry: Json) -> Method:
    scores, meters = mapping(entry.get("scores")), mapping(entry.get("meters"))
    traffic, energy = mapping(meters.get("traffic")), mapping(meters.get("energy"))
    name = str(entry.get("name", ""))
    return Method(
        name=name,
        label=str(entry.get("label") or name),
        rounds=whole(entry.get("rounds")),
        best_round=whole(entry.get("best_round")),
        stopped_early=entry.get("stopped_early") is True,
        cost=Cost(
            bytes_down=number(traffic.get("bytes_down")),
            bytes_up=number(traffic.get("bytes_up")),
            seconds=number(entry.get("seconds")),
            compile_seconds=number(entry.get("compile_seconds")),
            watt_hours=number(energy.get("watt_hours")),
            co2_grams=number(energy.get("grams_co2")),
        ),
        sites={str(site): read_measures(own) for site, own in mapping(scores.get("sites")).items()},
        weighted=read_measures(scores.get("weighted")),
        unweighted=read_measures(scores.get("unweighted")),
        percentiles={
            str(metric): {str(p): value for p, x in mapping(own).items() if (value := number(x)) is not None}
            for metric, own in mapping(scores.get("percentiles")).items()
        },
        reliability=tuple(read_bins(scores.get("reliability"))),
        meters=meters,
    )


def read_measures(entry: object) -> Mapping[str, Measure]:
    return {str(metric): read_measure(own) for metric, own in mapping(entry).items()}


def read_measure(entry: Any) -> Measure:
    own = mapping(entry)
    value = number(own.get("value")) if own else number(entry)
    if value is None:
        return Measure(reason=str(own.get("undefined") or "no reason given"))
    defined, sites = whole(own.get("sites_defined")), whole(own.get("sites"))
    note = f"over {defined:,} of {sites:,} hospitals" if defined is not None and sites and defined < sites else ""
    if own.get("no_interval"):
        note = "; ".join(filter(None, [note, f"no interval: {own['no_interval']}"]))
    return Measure(value, number(own.get("low")), number(own.get("high")), note=note)


def level_of(methods: Iterable[object]) -> float | None:
    """The confidence level of the intervals, when all methods tell the same."""
    levels = {number(mapping(mapping(mapping(m).get("scores")).get("intervals")).get("level")) for m in methods}
    return levels.pop() if len(levels) == 1 else None


def read_difference(entry: Json) -> Difference:
    ends = number(entry.get("low")), number(entry.get("high"))
    measure = Measure(number(entry.get("difference")), *ends, reason=str(entry.get("reason") or ""))
    words = {key: str(entry.get(key) or "") for key in ("metric", "site", "method", "against", "verdict")}
    return Difference(**words, measure=measure)


def read_bins(entry: object) -> Iterable[Bin]:
    for own in items(entry):
        predicted, observed = number(mapping(own).get("predicted")), number(mapping(own).get("observed"))
        if predicted is not None and observed is not None:
            yield Bin(predicted, observed, number(mapping(own).get("rows")))
