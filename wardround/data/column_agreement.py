"""What all sites take the columns of an analysis to be: numbers, or categories with the same words in the same order.

Nothing is prepared, split or left out: a site's own rows keep their values. Sites are asked what kinds of columns they
have and, of words, which of them are not rare; both are queries with cells. A word that no site has often enough to
tell of is unknown, as if it were missing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.codes.json_arrays import pack
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.core.text import toml_key
from wardround.data.query import Ask
from wardround.data.value_forms import likely_form
from wardround.queries.columns import as_codes, as_numbers, as_text, kind_of, list_some, suggest_name
from wardround.queries.kinds_of import kinds_of
from wardround.queries.names_of import MOST_NAMES, names_of
from wardround.weak_supervision.search.words import without_words

Declared = Mapping[str, Sequence[str]]
"""The words of columns that the study itself tells."""
LOOKED_AT = 1000
"""Values by which the form of a column is guessed for a remedy."""


def columns_of_analysis(
    frame: pd.DataFrame, columns: Sequence[str], where: str, *, noised: bool = False
) -> pd.DataFrame:
    """A site's rows with the columns of the analysis alone; true and false are 1 and 0.

    Where answers are to be `noised`, infinite values are unknown: to refuse them would tell of a patient.
    """
    found: dict[str, Any] = {}
    for name in columns:
        if name not in frame.columns:
            raise Refusal(
                f"column {name!r} is missing; {suggest_name(name, map(str, frame.columns))}",
                where=where,
                remedy="correct the name in [analysis], or add the column there",
            )
        kind = kind_of(frame[name])
        if kind in ("date", "mixed"):
            held = "dates or times" if kind == "date" else "a mixture of text and numbers"
            dates = f'days = {{{toml_key(name)} = "2020-01-01"}} (days since a day, or since another column)'
            form = likely_form(frame[name].dropna().head(LOOKED_AT).astype(str))
            figures = f'kinds = {{{toml_key(name)} = "{form}"}}, with unreadable = "missing" for what is no number'
            raise Refusal(
                f"column {name!r} holds {held}",
                where=where,
                remedy=f"say in [data.cleaning] {dates if kind == 'date' else figures}",
            )
        found[name] = as_text(frame[name]) if kind == "text" else as_numbers(frame[name])
        if kind != "text" and np.isinf(found[name]).any():
            if noised:
                found[name] = np.where(np.isinf(found[name]), np.nan, found[name])
                continue
            raise Refusal(
                f"column {name!r} holds infinite values",
                where=where,
                remedy="leave them empty if they are unknown",
            )
    return pd.DataFrame(found, index=range(len(frame)))


def agree_on_columns(
    ask: Ask,
    sites: Sequence[str],
    columns: Sequence[str],
    *,
    declared: Declared,
    smallest_cell: int,
    private: bool = False,
    texts: Sequence[str] = (),
) -> dict[str, AgreedColumn]:
    """Ask the sites; refused, naming column and sites, where they do not hold the same. Words in sorted order.

    In a `private` study words must be declared: which of them patients have would be told without noise. Of `texts`,
    free text, no words are asked for.
    """
    each: list[dict[str, str]] = ask(kinds_of(), Message({}))["each"]
    kinds = {name: common_kind(name, dict(zip(sites, each, strict=True))) for name in columns}
    for name in texts:
        if kinds[name] != "text":
            raise Refusal(
                f"column {name!r} should hold free text, and holds numbers",
                where="[analysis]",
                remedy=f'name another column, or say kinds = {{{toml_key(name)} = "text"}} in [data.cleaning]',
            )
    unknown = [name for name, kind in kinds.items() if kind == "text" and name not in declared and name not in texts]
    told: dict[str, list[str]] = {}
    if unknown and private:
        raise Refusal(
            f"column {unknown[0]!r} holds words, which under noise ([privacy], epsilon) nobody is asked for",
            where="[data.preparation] categories",
            remedy=f"declare them: categories = {{{toml_key(unknown[0])} = [...]}}",
        )
    if unknown:
        query = names_of(epsilon=0.0, smallest_cell=smallest_cell, seed=None)
        told = ask(query, Message({"columns": pack(unknown)}))["names"]

    def agreed(name: str, kind: str) -> AgreedColumn:
        if name in texts:
            return AgreedColumn("text")
        levels = levels_of(name, told, declared, smallest_cell) if kind == "text" else ()
        return AgreedColumn("category" if kind == "text" else "number", levels)

    return {name: agreed(name, kind) for name, kind in kinds.items()}


def common_kind(column: str, kinds: Mapping[str, Mapping[str, str]]) -> str:
    holders: dict[str, list[str]] = {}
    for site, own in kinds.items():
        if own.get(column, "empty") != "empty":
            holders.setdefault(own[column], []).append(site)
    if len(holders) > 1:
        words = {"number": "numbers", "text": "words"}
        found = ", ".join(f"{words.get(kind, kind)} at {list_some(sites, 3)}" for kind, sites in holders.items())
        raise Refusal(
            f"column {column!r} does not hold the same everywhere: {found}",
            remedy=f'say what it holds in [data.cleaning]: kinds = {{{toml_key(column)} = "number"}} or "text"',
        )
    if not holders:
        raise Refusal(f"column {column!r} has no value at any site", remedy="leave it out of the analysis")
    return next(iter(holders))


def levels_of(column: str, told: Mapping[str, Sequence[str]], declared: Declared, cell: int) -> tuple[str, ...]:
    levels = tuple(declared[column]) if column in declared else tuple(sorted(told[column]))
    if not levels:
        often = f" that at least {cell} patients of a site have" if cell > 1 else ""
        raise Refusal(
            f"column {column!r} has no words{often}, or more than {MOST_NAMES} different ones",
            remedy="group its words with recode in [data.cleaning], or name them: categories ="
            f" {{{toml_key(column)} = [...]}} in [data.preparation]",
        )
    return levels


def rows_of_analysis(site: Site, agreed: Agreed, words_denied: Sequence[str] = ()) -> Site:
    """The site's rows as agreed: float64 with NaN, words with gaps; a word that was not agreed on is unknown.

    In free text, words that are denied are blank.
    """
    found: dict[str, Any] = {}
    for name, column in agreed.columns.items():
        own, kind = site.table[name], kind_of(site.table[name])
        if kind != "empty" and (kind == "text") != (column.kind != "number"):
            raise Refusal(
                f"column {name!r} was agreed on as a {column.kind}, and this site holds something else",
                where=f"site {site.name}",
                remedy="ask the sites again",
            )
        if column.kind == "number":
            found[name] = as_numbers(own)
        elif column.kind == "text":
            found[name] = without_words(as_text(own), words_denied) if words_denied else as_text(own)
        else:
            codes, words = as_codes(own)
            words[~np.isin(words.astype(str), column.levels)] = None
            found[name] = np.array([*words, None], dtype=object)[codes]
    return Site(site.name, pd.DataFrame(found, index=range(len(site.table))))


def no_rows(agreed: Agreed, name: str = "") -> Site:
    """A site without patients: its answers have the names, types and shapes of any other's."""
    kinds = {"number": np.float64, "category": object, "text": object}
    return Site(name, pd.DataFrame({key: np.empty(0, kinds[one.kind]) for key, one in agreed.columns.items()}))


def unknown_words(table: pd.DataFrame, rows: Site, agreed: Agreed) -> dict[str, int]:
    """How many values of each category are words that were not agreed on."""
    categories = [name for name, column in agreed.columns.items() if column.kind == "category"]
    lost = {name: int(rows.table[name].isna().sum() - table[name].isna().sum()) for name in categories}
    return {name: count for name, count in lost.items() if count}
