"""What a study's [data.cleaning] does to single patients of a site: counted, shown, and refused where it singles out.

The words of a study change values and leave out rows, and whoever writes them chooses which. Two ways to abuse that are
closed here. A value that a few patients are given must not lie far outside the others: a model's answer would be about
these patients alone. And two studies must not differ in the treatment of fewer patients than a cell: the difference of
their answers would be about these alone. (Several studies that differ in more, and only together single somebody out,
are not found: whoever approves reads how many patients every word touches.)
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.text import counted
from wardround.data.cleanup import Cleanup, clean_values, has_value, repeated_rows, restrict, row_hashes
from wardround.data.derived_columns import derived_names, vote_columns
from wardround.data.inspection.extremes import outsiders
from wardround.data.survival.follow_up import events_in, times_in
from wardround.data.survival.intervals import SurvivalOutcome, label_numbers, number_text
from wardround.data.value_forms import read_number
from wardround.queries.columns import as_codes, as_numbers, as_text, kind_of, list_some
from wardround.study.assemble import cleanup_of
from wardround.study.file import Study

Rows = np.ndarray[Any, Any]
MOST_LISTED = 40
"""Words that are named one by one, those that touch few patients first."""
BY_VALUE = ("recode", "missing", "plausible")
"""Words that change values which somebody chose."""


def cleanup_for(study: Study, frame: pd.DataFrame) -> Cleanup:
    """What the study says about the columns that it reads here."""
    return restrict(cleanup_of(study.data.cleaning), list(map(str, frame.columns)))


def kept_rows(frame: pd.DataFrame, cleanup: Cleanup) -> Rows:
    """Which rows are not left out."""
    first = Cleanup(trim=cleanup.trim, recode=cleanup.recode, missing=cleanup.missing)
    meant = clean_values(frame, first, words=cleanup.words)
    kept = np.ones(len(frame), bool)
    for column, values in cleanup.drop_rows.items():
        if column in meant.columns:
            kept &= ~has_value(meant[column], values)
    if cleanup.duplicates == "drop":
        kept[np.flatnonzero(kept)] = ~repeated_rows(meant[kept])
    return kept


def changed_values(frame: pd.DataFrame, cleanup: Cleanup) -> dict[str, Rows]:
    """A number for every value after the cleaning, column by column, of all rows."""
    found = clean_values(frame, replace(cleanup, drop_rows={}, duplicates="keep"), words=cleanup.words)
    return {str(column): row_hashes(found[[column]]) for column in found.columns}


def touched_rows(frame: pd.DataFrame, cleanup: Cleanup) -> dict[str, int]:
    """How many rows every word touches, as "recode of sex" or "rule 1"; nothing of words that touch none."""
    found = {}
    plain = Cleanup(trim=cleanup.trim)
    before = changed_values(frame, plain)
    for word in BY_VALUE:
        said: Mapping[str, Any] = getattr(cleanup, word)
        for column in said:
            if column in before:
                words: dict[str, Any] = {word: {column: said[column]}}
                one = changed_values(frame[[column]], replace(plain, **words))
                found[f"{word} of {column}"] = int((one[column] != before[column]).sum())
    for column in cleanup.drop_rows:
        only = replace(cleanup, drop_rows={column: cleanup.drop_rows[column]}, duplicates="keep")
        found[f"drop_rows by {column}"] = int((~kept_rows(frame, only)).sum())
    if cleanup.duplicates == "drop":
        found["duplicates"] = int((~kept_rows(frame, replace(cleanup, drop_rows={}))).sum())
    if cleanup.rules or cleanup.texts:
        made = clean_values(frame, replace(cleanup, drop_rows={}, duplicates="keep"), words=cleanup.words)
        found |= {name: int((made[name] != 0).sum()) for name in vote_columns(cleanup.rules)}
        for column, said in cleanup.texts.items():
            listed = zip(said.get("words", ()), derived_names({column: said}, ()), strict=False)
            found |= {f"the word {word!r} of {column}": int((made[name] != 0).sum()) for word, name in listed}
    return {word: rows for word, rows in found.items() if rows}


def review_sentences(study: Study, frame: pd.DataFrame, cell: int) -> tuple[str, ...]:
    """For whoever decides: how many patients each word touches, with a warning where they are few."""
    told = touched_rows(frame, cleanup_for(study, frame))
    if not told:
        return ()
    few = [word for word, count in told.items() if count < cell]
    listed = sorted(told, key=lambda word: word not in few)[:MOST_LISTED]
    rows = "; ".join(f"{word}: {told[word]:,} of {len(frame):,} rows" for word in listed)
    rows += f"; and {len(told) - len(listed)} more" if len(told) > len(listed) else ""
    warned = (
        f"Warning: fewer than {cell} patients are touched by {list_some(few, MOST_LISTED)}. Ask why, if these are not"
        " codes for unknown: who chooses such words may want to learn about single patients.",
    )
    return (f"Rows that this touches: {rows}.", *(warned if few else ()))


def cleaning_reasons(
    study: Study,
    others: Mapping[str, tuple[Study, Collection[str]]],
    frame: pd.DataFrame,
    read: Collection[str],
    cell: int,
    difference: int,
) -> list[str]:
    """Why the study's words about values are not allowed on these rows, of which it reads some columns.

    `others` are studies that the rows were read for, each with its columns: one may leave out patients by a column that
    the other does not read. The reasons stay at the site: they tell how many patients have a value.
    """
    rows = frame[[column for column in frame.columns if column in read]]
    cleanup = cleanup_for(study, rows)
    found = [
        f"its recode of {column!r} gives {counted(few, 'patient')} a value far outside those of all others, so that an"
        " answer would be about these alone"
        for column, few in far_values(rows, cleanup, cell).items()
    ]
    found += outcome_reasons(study, {name: other for name, (other, _) in others.items()}, frame, difference)
    own: Treatment | None = None
    for name, (other, columns) in others.items():
        there = frame[[column for column in frame.columns if column in columns]]
        theirs = cleanup_for(other, there)
        if theirs == cleanup:
            continue
        own = own or treatment_of(rows, cleanup)
        few = fewest_apart(own, treatment_of(there, theirs), difference)
        if few:
            found.append(
                f"its [data.cleaning] treats {counted(few, 'patient')} otherwise than {name} did, and the policy's"
                f" smallest_difference is {difference}: the difference of their answers would be about these alone"
            )
    return found


class Treatment(NamedTuple):
    """What a study makes of every row."""

    kept: Rows
    values: dict[str, Rows]
    strange: dict[str, Rows]
    """Values that are no measurements, such as -999: that one study takes them for unknown tells of nobody."""


def treatment_of(frame: pd.DataFrame, cleanup: Cleanup) -> Treatment:
    return Treatment(kept_rows(frame, cleanup), changed_values(frame, cleanup), strange_values(frame))


def strange_values(frame: pd.DataFrame) -> dict[str, Rows]:
    """Numbers far outside the rest of their column, as `wardround check` finds them."""
    found = {}
    for column in map(str, frame.columns):
        if kind_of(frame[column]) == "number":
            values = as_numbers(frame[column])
            far = outsiders(values[np.isfinite(values)])
            if far is not None:
                found[column] = (values < far.low) | (values > far.high)
    return found


def fewest_apart(one: Treatment, other: Treatment, difference: int) -> int:
    """Rows that two studies treat otherwise, where in some respect these are a few; 0 where they never are.

    Looked at column by column, and for the rows left out: else a change of all in one column would hide one of a few.
    """
    apart = [int((one.kept != other.kept).sum())]
    both = one.kept & other.kept
    for name in one.values.keys() & other.values.keys():
        changed = (one.values[name] != other.values[name]) & both
        apart.append(int((changed & ~one.strange.get(name, np.False_)).sum()))
    return min((count for count in apart if 0 < count < difference), default=0)


def far_values(frame: pd.DataFrame, cleanup: Cleanup, cell: int) -> dict[str, int]:
    """Columns in which a few patients would be given a number far outside the others', and how many these are.

    As far outside as the others reach, or farther; below a limit of detection there is room for honest numbers.
    """
    found = {}
    for column, codes in cleanup.recode.items():
        if column not in frame.columns:
            continue
        text = pd.Series(as_text(frame[column]), dtype=object).map(lambda one: one.strip() if one else one)
        given = text.map(codes)
        number = pd.Series([read_number(str(one), "number") if one else None for one in given], dtype=np.float64)
        rows = int(number.notna().sum())
        others = untouched_numbers(frame[column], np.asarray(given.notna()))
        if not 0 < rows < cell or not len(others):
            continue
        spread = others.max() - others.min()
        far = (number < others.min() - spread) | (number > others.max() + spread)
        if far.any():
            found[column] = int(far.sum())
    return found


def untouched_numbers(series: "pd.Series[Any]", touched: Rows) -> Rows:
    left = series[~touched]
    if kind_of(left) in ("number", "flag"):
        numbers = as_numbers(left)
    else:
        read = [read_number(str(one), "number") for one in left.dropna()]
        numbers = np.array([one for one in read if one is not None], np.float64)
    found: Rows = numbers[np.isfinite(numbers)]
    return found


# ---- times of follow-up ----


def survival_sentences(study: Study, frame: pd.DataFrame, cell: int) -> tuple[str, ...]:
    """What becomes of times and events, where the study is about survival; with a warning where horizons are close."""
    said = study.data.survival
    if said is None:
        return ()
    value = f" ({said.event} = {said.event_is})" if said.event_is else ""
    ends = ", ".join(number_text(one) for one in said.horizons)
    rows = cleaned(study, frame)
    few = few_between(rows, said, said.horizons, cell)
    struck = [one for one in few_between(rows, said, said.horizons, cell, events=True) if one not in few]
    found = [f"{what} {' and '.join(some)}" for what, some in (("have a time", few), ("had the event", struck)) if some]
    warned = (
        f"Warning: fewer than {cell} of your patients {'; fewer '.join(found)}. Ask why, if such horizons, or such an"
        " event, are unusual in the field: who chooses them may want to learn about single patients.",
    )
    return (
        f"From {said.time} and {said.event}{value} this site makes the outcome: whether the event came by"
        f" {ends}, or since when nothing is known of the patient. A time that is negative or cannot be read counts as"
        " an unknown outcome.",
        f"{said.time} is no input of the model. It is used here, to make the outcome and the figures of your test"
        " patients (C-index, Brier score, gap between predicted and seen risk); no time of follow-up is sent. The"
        " figures are told where enough patients had the event, and enough were followed up without it.",
        *(warned if found else ()),
    )


def cleaned(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """All rows, with the values that the study gives them."""
    return clean_values(frame, replace(cleanup_for(study, frame), drop_rows={}, duplicates="keep"))


def few_between(
    frame: pd.DataFrame, said: SurvivalOutcome, edges: Collection[float], cell: int, *, events: bool = False
) -> list[str]:
    """Between which neighbouring edges fewer patients than a cell have their time (or event), but some; in words."""
    if not {said.time, said.event} <= set(frame.columns):
        return []
    ends = sorted({0.0, *edges})
    time = times_in(frame[said.time], "", refuse=False)
    time = time[events_in(frame[said.event], said, "", refuse=False) > 0] if events else time
    place = np.searchsorted(np.asarray(ends), time[np.isfinite(time)], side="left")
    counts = np.bincount(place, minlength=len(ends) + 1)
    return [
        f"above {number_text(low)} and up to {number_text(high)}"
        for number, (low, high) in enumerate(pairwise(ends), 1)
        if 0 < counts[number] < cell
    ]


def outcome_reasons(study: Study, others: Mapping[str, Study], frame: pd.DataFrame, difference: int) -> list[str]:
    """Why a study of survival is not allowed beside others, or another beside one of survival.

    Two studies whose horizons hold a few patients between them, or whose outcomes are otherwise those of a few alone
    apart (by the value that is the event, or since one of them has no horizons): the difference of their answers would
    be about these.
    """
    said, found = study.data.survival, []
    for name, other in others.items():
        theirs = other.data.survival
        if said == theirs:
            continue
        alone = f"smallest_difference of {difference}: the difference of their answers would be about these alone"
        rows, there = cleaned(study, frame), cleaned(other, frame)
        if has_few_between(rows, said, theirs, difference):
            found.append(f"between its horizons and those of {name} there are fewer patients than the policy's {alone}")
        elif 0 < (few := outcomes_apart(study, rows, other, there)) < difference:
            found.append(
                f"of {counted(few, 'patient')} its outcome says something else than that of {name}, fewer than the"
                f" policy's {alone}"
            )
    return found


def has_few_between(
    frame: pd.DataFrame, said: SurvivalOutcome | None, theirs: SurvivalOutcome | None, difference: int
) -> bool:
    """Whether the horizons of two studies hold a few patients between them, beside what those of the first hold."""
    if said is None or theirs is None or theirs.time != said.time or set(theirs.horizons) == set(said.horizons):
        return False
    own = few_between(frame, said, said.horizons, difference)
    return not set(own).issuperset(few_between(frame, said, {*said.horizons, *theirs.horizons}, difference))


def outcomes_apart(one: Study, rows: pd.DataFrame, other: Study, there: pd.DataFrame) -> int:
    """Patients of whom two studies of the same column say different things; one of them, or both, of survival."""
    target = one.data.settings.get("target")
    if target != other.data.settings.get("target") or target not in rows.columns or target not in there.columns:
        return 0
    first, second = outcome_codes(one, rows), outcome_codes(other, there)
    if one.data.survival is not None and other.data.survival is not None:
        return int((first != second).sum())
    # Classes and times are not called alike: a class is what most of its patients are in the other study.
    classes, times = (second, first) if one.data.survival is not None else (first, second)
    table = pd.crosstab(classes, times).to_numpy()
    return int(table.sum() - table.max(axis=1).sum())


def outcome_codes(study: Study, rows: pd.DataFrame) -> Rows:
    """What a study knows of every patient: whether the event came by the last horizon, or the class."""
    said, positive = study.data.survival, study.data.settings.get("positive")
    if said is None:
        codes, words = as_codes(rows[str(study.data.settings.get("target"))])
        return codes if positive is None else np.append(words.astype(str) == str(positive), False)[codes].astype(int)
    if said.time not in rows.columns:
        return np.full(len(rows), -1)
    time = times_in(rows[said.time], "", refuse=False)
    return label_numbers(time, events_in(rows[said.event], said, "", refuse=False), said.horizons[-1:])
