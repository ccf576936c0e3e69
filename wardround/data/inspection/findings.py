"""What may be wrong with a table: each finding with its remedy; some stop a study unless it says that they are meant.

Found on the rows themselves, so a simulation sees all of it, a real site its own rows. `what` quotes no value of a
patient, so that it may stand in a report; `examples` are shown where the rows lie, nowhere else.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import counted, toml_key
from wardround.data.assembly import POOL, names_alike, recode_alike
from wardround.data.cleanup import Unread, row_hashes
from wardround.data.inspection.extremes import outsiders
from wardround.data.inspection.identifiers import are_words_of_patients, is_numbered
from wardround.data.inspection.leaks import LEAKS, correlation, separation
from wardround.data.inspection.profile import SHOWN, join
from wardround.data.load import LoadedData
from wardround.data.table import Table
from wardround.data.value_forms import BOUND, form_of
from wardround.queries.columns import as_codes, as_numbers, kind_of, list_some, number_text

MOST_COMPARED = 5000
"""Different words up to which their spelling is compared."""
MANY_LEVELS = 20


@dataclass(frozen=True)
class Finding:
    """Something that looks wrong. `stops`: the study is refused, unless it says that this is meant."""

    kind: str
    column: str
    what: str
    remedy: str
    stops: bool = False
    examples: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    """Where it is so, if not everywhere."""

    @property
    def note(self) -> str:
        """For a report: no value of a patient."""
        return f"{self.what[:1].upper()}{self.what[1:]}. To change it: {self.remedy}."

    def refusal(self, where: str) -> Refusal:
        """For the command line of whoever has the rows."""
        shown = f", such as {', '.join(map(repr, self.examples))}" if self.examples else ""
        place = f"site {list_some(self.sites)}, {where}" if self.sites and self.sites != (POOL,) else where
        return Refusal(f"{self.what}{shown}", where=place, remedy=self.remedy)


def find_in_table(table: Table, aside: Sequence[str] = ()) -> list[Finding]:
    """What the values of single columns show, column by column; `aside` are no inputs."""
    found: list[Finding] = []
    names = dict.fromkeys(str(column) for frame in table.sites.values() for column in frame.columns)
    for name in names:
        if name in table.aside or name in aside:
            continue
        series = join([frame[name] for frame in table.sites.values() if name in frame.columns])
        kind = kind_of(series)
        if kind in ("number", "flag"):
            found += find_in_numbers(table, name, series)
        elif kind in ("mixed", "date"):
            found += find_unread(table, name, series)
        elif kind == "text":
            found += find_in_words(table, name, series)
    return found


def find_unread(table: Table, name: str, series: "pd.Series[Any]") -> list[Finding]:
    """A column that was meant to hold numbers or dates, with the setting that repairs it."""
    known, key = series.dropna(), toml_key(name)
    odd = [str(one) for one in known if isinstance(one, Unread)]
    dates = sum(isinstance(one, date) for one in known)
    if not odd and not dates:
        return []  # numbers at one site and words at another: the comparison of the sites tells
    forms = Counter(str(form_of(one)) for one in odd)
    sites = [
        site
        for site, frame in table.sites.items()
        if name in frame.columns and kind_of(frame[name]) in ("mixed", "date")
    ]
    examples = tuple(dict.fromkeys(odd))[:SHOWN] or tuple(str(one)[:10] for one in known[:SHOWN])
    if name in table.numbers:
        what = f"column {name!r} is declared, but {len(odd):,} of {len(known):,} values cannot be read so"
        remedy = "correct its entry in kinds, days or date_formats of [data.cleaning], recode these values, or set"
        if set(forms) == {"bound"}:
            number = BOUND.sub("", examples[0]).strip()
            remedy = f'recode them: recode = {{{key} = {{"{examples[0]}" = "{number}"}}}} (or half of it), or set'
        return [Finding("unread", name, what, f'{remedy} unreadable = "missing"', True, examples, tuple(sites))]
    if dates + forms.get("date", 0) > len(known) / 2:
        pattern = f', and how they are written: date_formats = {{{key} = "%d.%m.%Y"}}' if forms.get("date") else ""
        remedy = f'count days in [data.cleaning]: days = {{{key} = "2020-01-01"}}, or since another column{pattern}'
        what = f"column {name!r} holds dates"
        return [Finding("dates", name, what, f"{remedy}; or drop it", True, examples, tuple(sites))]
    what = f"column {name!r} seems to hold numbers, but {len(odd):,} of {len(known):,} values cannot be read as such"
    remedy = f"{repair(name, forms)}; or drop the column"
    return [Finding("unread", name, what, remedy, True, examples, tuple(sites))]


def repair(name: str, forms: Mapping[str, int]) -> str:
    """The setting that reads most of what could not be read."""
    common = max(forms, key=lambda form: forms[form], default="other")
    kinds = {
        "comma": ("decimal_comma", ""),
        "thousands": ("thousands_comma", ' (or "decimal_comma", if 1,234 means 1.234)'),
        "percent": ("percent", ""),
    }
    key, (kind, more) = toml_key(name), kinds.get(common, ("number", ""))
    said = f'say in [data.cleaning] kinds = {{{key} = "{kind}"}}{more}'
    left = sum(count for form, count in forms.items() if form != common or common not in kinds)
    if not left:
        return said
    return (
        f'{said} and recode = {{{key} = {{"<0.5" = "0.25"}}}} for single values, or unreadable = "missing" for all'
        f' that cannot be read; if these are words, kinds = {{{key} = "text"}}'
    )


def find_in_words(table: Table, name: str, series: "pd.Series[Any]") -> list[Finding]:
    known = series.dropna()
    distinct = [str(word) for word in as_codes(known)[1]]
    found: list[Finding] = []
    if len(distinct) <= MOST_COMPARED:
        found += find_alike(table, name, distinct)
    if name == table.target or name in table.categories:
        return found
    if are_words_of_patients(known):
        found.append(
            Finding(
                "identifier",
                name,
                f"column {name!r} has {len(distinct):,} different words in {len(known):,} rows, so it seems to name"
                " patients",
                f'drop it: drop = ["{name}"] in [data] (or split_by = "{name}", if a patient has several rows); if'
                f' these really are categories, kinds = {{{toml_key(name)} = "text"}} in [data.cleaning]',
                True,
                tuple(distinct[:SHOWN]),
            )
        )
    elif len(distinct) > MANY_LEVELS and all(form_of(word) == "number" for word in distinct):
        found.append(
            Finding(
                "number_words",
                name,
                f"column {name!r} holds {len(distinct):,} different words that are all numbers, and each is a category",
                f'say in [data.cleaning] kinds = {{{toml_key(name)} = "number"}}, or "text" if they are codes',
                examples=tuple(distinct[:SHOWN]),
            )
        )
    return found


def find_alike(table: Table, name: str, distinct: Sequence[str]) -> list[Finding]:
    """Words that differ only in case."""
    meant = table.distinct if name == table.target else ()
    alike = names_alike(sorted(set(distinct) - set(meant)))
    if not alike:
        return []
    return [
        Finding(
            "alike",
            name,
            f"column {name!r} has words that differ only in case, which count as different ones: {list_some(alike)}",
            f"if they mean the same, {recode_alike(name, alike)}",
            stops=name == table.target,
        )
    ]


def find_in_numbers(table: Table, name: str, series: "pd.Series[Any]") -> list[Finding]:
    values = as_numbers(series)
    values = values[np.isfinite(values)]
    found: list[Finding] = []
    if name == table.target and table.task != "regression":
        return found
    far = outsiders(values)
    if far is not None:
        key, shown = toml_key(name), tuple(number_text(value) for value in far.values)
        codes = " that look like codes for unknown" if far.codes else ""
        found.append(
            Finding(
                "outsiders",
                name,
                f"column {name!r} has {counted(far.rows, 'value')} far outside the rest{codes}",
                f"if they mean unknown, say in [data.cleaning] missing = {{{key} = [{', '.join(shown[:SHOWN])}]}} or"
                f" plausible = {{{key} = [low, high]}}",
                examples=(*shown, f"the rest: {number_text(far.low)} to {number_text(far.high)}"),
            )
        )
    if name not in (*table.numbers, table.target) and is_numbered(name, series.dropna()):
        found.append(
            Finding(
                "identifier",
                name,
                f"column {name!r} has another whole number in every row, so it seems to number patients",
                f'drop it: drop = ["{name}"] in [data]; if it is a quantity, kinds = {{{toml_key(name)} = "number"}} in'
                " [data.cleaning]",
            )
        )
    return found


# ---- what shows only with the outcome, or with the split ----


def find_leaks(rows: pd.DataFrame, inputs: Sequence[str], target: str, classes: Sequence[str]) -> list[Finding]:
    """Inputs that tell the outcome by themselves, on training rows."""
    found = []
    for name in inputs:
        told = how_telling(rows[name], rows[target], classes)
        if told is None or told <= LEAKS:
            continue
        measure = "ROC-AUC" if classes else "rank correlation"
        found.append(
            Finding(
                "leak",
                name,
                f"column {name!r} alone tells {target} nearly perfectly ({measure} {told:.3f} on training rows): the"
                " result means nothing if it is known only afterwards",
                f'drop it, unless it is known when the prediction is made: drop = ["{name}"] in [data]',
            )
        )
    return found


def how_telling(column: "pd.Series[Any]", outcome: "pd.Series[Any]", classes: Sequence[str]) -> float | None:
    if not classes:
        return correlation(column, as_numbers(outcome))
    asked = classes[-1:] if len(classes) == 2 else classes
    found = [separation(column, is_label(outcome, label)) for label in asked]
    told = [one for one in found if one is not None]
    return float(np.mean(told)) if told and len(told) == len(asked) else None


def is_label(outcome: "pd.Series[Any]", label: str) -> np.ndarray[Any, Any]:
    codes, labels = as_codes(outcome)
    return np.append(labels == label, False)[codes].astype(np.float64)


def find_in_rows(loaded: LoadedData) -> list[Finding]:
    """What shows only when rows are split: inputs that tell the outcome, rows that are in two places."""
    table, counts = loaded.table, loaded.federation.counts
    frames = list(table.sites.values())
    first = [order[:count] for order, count in zip(loaded.order, counts[:, 0], strict=True)]
    training = [frame.iloc[rows] for frame, rows in zip(frames, first, strict=True)]
    inputs = [column.name for column in loaded.preparation.columns]
    columns = [*inputs, table.target]
    rows = pd.DataFrame({name: join([frame[name] for frame in training]) for name in columns})
    parts = {}
    for name, order, count in zip(table.sites, loaded.order, counts, strict=True):
        parts[name] = np.empty(len(order), np.int64)
        parts[name][order] = np.repeat(np.arange(3), count)
    return [
        *find_leaks(rows, inputs, table.target, loaded.federation.task.classes),
        *find_copies(table.sites, parts),
    ]


def find_copies(sites: Mapping[str, pd.DataFrame], parts: Mapping[str, np.ndarray[Any, Any]]) -> list[Finding]:
    """Rows that occur more than once; `parts` has 0 for a training row, 1 for validation, 2 for test, site by site."""
    hashes = {name: row_hashes(frame) for name, frame in sites.items()}
    every = np.concatenate([*hashes.values(), np.empty(0, np.uint64)])
    copies = int(len(every) - len(np.unique(every)))
    if not copies or copies <= most_by_chance(expected_copies(sites)):
        return []
    within = sum(len(one) - len(np.unique(one)) for one in hashes.values())
    part = np.concatenate([parts[name] for name in hashes])
    tested = int(np.isin(every[part == 2], every[part == 0]).sum())
    places = f", {copies - within:,} of them at other sites" if copies > within else ""
    places = places if within else " at different sites"
    split = f"; {tested:,} of {int((part == 2).sum()):,} test rows are also training rows" if tested else ""
    remedy = 'leave them out with duplicates = "drop" in [data.cleaning]'
    if not within:
        remedy = "leave them out of one site's table"
    return [
        Finding(
            "copies",
            "",
            f"{copies:,} of {len(every):,} rows are copies of other rows in every column{places}{split}",
            f"if these are the same patients, {remedy}",
        )
    ]


def most_by_chance(expected: float) -> float:
    """More than this many are no chance, also where columns go together and people look more alike than expected."""
    return 3 * (expected + math.sqrt(expected))


def expected_copies(sites: Mapping[str, pd.DataFrame]) -> float:
    """How many rows would be alike by chance, if the columns had nothing to do with one another."""
    frames = list(sites.values())
    rows = sum(len(frame) for frame in frames)
    alike = 1.0
    for name in frames[0].columns:
        values = row_hashes(pd.DataFrame({name: join([frame[name] for frame in frames])}))
        times = np.unique(values, return_counts=True)[1]
        alike *= float(np.square(times / rows).sum())
    return rows * (rows - 1) / 2 * alike
