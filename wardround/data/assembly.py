"""From data frames to a table of sites: columns named, rows dealt to their sites. Shared by all sources.

Schema and values across sites are checked in `wardround.data.schema`; here only what the user named must exist.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import counted, natural_order, toml_key
from wardround.data.table import Kind, SlicedSites, Table
from wardround.queries.columns import as_codes, as_text, is_measured, kind_of, list_some, suggest_name

MissingSite = Literal["refuse", "drop"]

POOL = "all"
"""Name of the one site of a pool that a partition will divide."""


def assemble_table(
    frames: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    origin: str,
    target: str,
    site: str = "",
    drop: Sequence[str] = (),
    task: Kind | None = None,
    positive: str | None = None,
    groups: Sequence[str] = (),
    categories: Sequence[str] = (),
    missing_site: MissingSite = "refuse",
    untangle: bool = False,
) -> Table:
    """One frame (with a column `site`, or one pool) or one frame per site, as a table.

    A column named in both `drop` and `groups` is kept for fairness but shown to no model. Columns in `categories`
    become text, so that codes such as 1, 2, 3 are not taken for quantities. `untangle` is for files without types of
    their own (see `infer_types_by_site`). Rows that name no site are refused, or left out.
    """
    notes: list[str] = []
    drop, groups, categories = as_names(drop), as_names(groups), as_names(categories)
    if task not in (None, *get_args(Kind)):
        kinds = ", ".join(get_args(Kind))
        raise Refusal(f"the task {task!r} is not known", remedy=f"choose one of {kinds}, or leave it out")
    if target in drop or target == site:
        raise Refusal(
            f"the target {target!r} cannot also be {'dropped' if target in drop else 'the site'}",
            where=origin,
            remedy="name another column",
        )
    if isinstance(frames, pd.DataFrame):
        column_names(frames, origin)
        frames = split_by_site(frames, site, origin, missing_site, notes) if site else {POOL: frames}
        if untangle:
            frames = infer_types_by_site(frames, keep=categories)
    elif site:
        raise Refusal(
            f"the option site = {site!r} names a column, but every site already has its own table",
            where=origin,
            remedy="leave site out: the name of a file or entry is the site's name",
        )
    one_frame = isinstance(frames, SlicedSites)
    known = list(
        dict.fromkeys(
            column
            for name, frame in list(frames.items())[: 1 if one_frame else None]
            for column in column_names(frame, f"site {name}")
        )
    )
    for key, columns in (("drop", drop), ("groups", groups), ("categories", categories)):
        for column in columns:
            if column not in known:
                raise Refusal(
                    f"the list {key} names column {column!r}, which is missing; {suggest_name(column, known)}",
                    where=origin,
                    remedy="correct the name",
                )
    gone = [column for column in drop if column not in groups]
    return Table(
        sites=select_for_sites(frames, gone, categories),
        target=target,
        origin=origin,
        task=task,
        positive=None if positive is None else str(positive),
        groups=groups,
        aside=tuple(column for column in groups if column in drop),
        categories=categories,
        notes=tuple(notes),
    )


def as_names(names: Sequence[str]) -> tuple[str, ...]:
    """A single name counts as a list of one, not as its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def column_names(frame: pd.DataFrame, where: str) -> list[str]:
    """The names of the columns, which must be text and each there once."""
    for column in frame.columns:
        if not isinstance(column, str):
            raise Refusal(
                f"column {column!r} has a name that is not text", where=where, remedy="give every column a name"
            )
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise Refusal(f"column {twice[0]!r} appears twice", where=where, remedy="rename or remove one of them")
    return list(frame.columns)


def split_by_site(
    frame: pd.DataFrame, site: str, origin: str, missing_site: MissingSite, notes: list[str]
) -> dict[str, pd.DataFrame]:
    """The rows of every value of the column `site`, sites in natural order (site-2 before site-10).

    Blanks at the ends of a name are none of it: "North " is North. What was noticed is added to the notes.
    """
    if site not in frame.columns:
        raise Refusal(
            f"column {site!r}, which should name the site, is missing; {suggest_name(site, frame.columns)}",
            where=origin,
            remedy='correct the name, or set site = "" if all rows are one pool',
        )
    codes, given = as_codes(frame[site])
    names = np.array([*(str(name).strip() for name in given), ""], dtype=object)
    merged = [name for name, times in Counter(names[:-1]).items() if name and times > 1]
    if merged:
        notes.append(f"Names of sites that differ only by blanks at their ends are one site: {list_some(merged)}.")
    alike = names_alike([name for name in names[:-1] if name])
    if alike:
        notes.append(
            f"Sites whose names differ only in case are different sites: {list_some(alike)}."
            f" If they are one, write the name in one way in column {site}."
        )
    label = pd.Series(names[codes], index=frame.index, dtype=object)
    nameless = int((label == "").sum())
    if nameless and missing_site == "refuse":
        raise Refusal(
            f"{counted(nameless, 'row')} without the name of a site",
            where=f"column {site!r}, {origin}",
            remedy='fill the column in, or set missing_site = "drop" in [data] to leave these rows out',
        )
    if nameless:
        notes.append(f"Left out for want of a {site}: {counted(nameless, 'row')}.")
    found = sorted({str(name) for name in names[np.unique(codes)] if name}, key=natural_order)
    places = {name: place for place, name in enumerate(found)}
    place = np.array([places.get(name, len(found)) for name in names])[codes]
    order = np.argsort(place, kind="stable")[: len(frame) - nameless]
    first = np.searchsorted(place[order], np.arange(len(found) + 1))
    return SlicedSites(frame.drop(columns=site).iloc[order], found, first)


def recode_alike(column: str, alike: Sequence[str]) -> str:
    """The setting that makes names which differ only in case one name each (see `names_alike`)."""
    groups = [group.split(" / ") for group in alike]
    pairs = ", ".join(f'"{name}" = "{names[-1]}"' for names in groups for name in names[:-1])
    return f"recode = {{{toml_key(column)} = {{{pairs}}}}} in [data.cleaning]"


def names_alike(names: Sequence[str]) -> list[str]:
    """Groups of names that differ only in case, such as "North / NORTH"."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(name.casefold(), []).append(name)
    return [" / ".join(group) for group in groups.values() if len(group) > 1]


def select_for_sites(
    frames: Mapping[str, pd.DataFrame], drop: Sequence[str], categories: Sequence[str]
) -> Mapping[str, pd.DataFrame]:
    """Every site's rows without the dropped columns; at once where they lie in one frame."""
    if isinstance(frames, SlicedSites) and not categories and not set(drop) & set(frames.whole.columns):
        return frames
    if isinstance(frames, SlicedSites):
        plain = all(
            is_measured(frames.whole[name].dtype) or kind_of(frames.whole[name]) == "text" for name in categories
        )
        if plain:
            return SlicedSites(select_columns(frames.whole, drop, categories), list(frames), frames.first)
    return {str(name): select_columns(frame, drop, categories) for name, frame in frames.items()}


def select_columns(frame: pd.DataFrame, drop: Sequence[str], categories: Sequence[str]) -> pd.DataFrame:
    """A copy without the dropped columns, codes as text, rows numbered from 0."""
    frame = frame.drop(columns=[column for column in drop if column in frame.columns]).reset_index(drop=True)
    text: dict[str, Any] = {
        column: pd.Series(as_text(frame[column]), index=frame.index, dtype=object)
        for column in categories
        if column in frame.columns
    }
    return frame.assign(**text)


def infer_types_by_site(frames: Mapping[str, pd.DataFrame], keep: Sequence[str]) -> Mapping[str, pd.DataFrame]:
    """Text columns of a file that several sites share, typed for each site apart.

    One word at one site ("unknown") turns a whole column of the file into text; taken apart, the schema check can say
    which site it is. Where a file has one site, the reader has typed its columns already.
    """
    if len(frames) == 1:
        return frames
    result: Mapping[str, pd.DataFrame] = frames
    shared = list(dict.fromkeys(column for frame in frames.values() for column in frame.columns))
    for column in shared:
        if column in keep:
            continue
        whole = frames.whole[column] if isinstance(frames, SlicedSites) else None
        whole = pd.concat([frame[column] for frame in frames.values()]) if whole is None else whole
        if kind_of(whole) != "text" or not is_number_somewhere(whole):
            continue
        for name in frames:
            distinct = pd.Series(as_codes(frames[name][column])[1], dtype=object)
            if len(distinct) and bool(pd.to_numeric(distinct, errors="coerce").notna().all()):
                typed = result[name].assign(**{column: pd.to_numeric(frames[name][column])})
                result = {**result, name: typed}
    return result


def is_number_somewhere(words: "pd.Series[Any]") -> bool:
    """Whether any of the words reads as a number."""
    distinct = pd.Series(as_codes(words)[1], dtype=object)
    return bool(pd.to_numeric(distinct, errors="coerce").notna().any())
