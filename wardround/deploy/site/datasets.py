"""Data that a site lets studies read: where they lie and how they are read, under a name. Nothing is ever copied.

A study says what columns mean (target, groups, what to drop); the site alone says where its rows are. Whatever a study
tells about places (paths, addresses, queries) is never looked at here. Columns that the policy does not allow are taken
out before anything else sees the rows.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from wardround.core.errors import Refusal
from wardround.data.assembly import POOL, assemble_table
from wardround.data.cleanup import Cleanup, clean_table, restrict
from wardround.data.images.patients import patient_column
from wardround.data.inspection.findings import Finding, find_in_table, find_leaks
from wardround.data.inspection.identifiers import FEW, identifying_word
from wardround.data.survival.follow_up import with_follow_up
from wardround.data.table import Table
from wardround.data.value_forms import read_date
from wardround.deploy.home import SiteHome
from wardround.deploy.settings_files import load_toml, toml_lines, toml_text, validate
from wardround.deploy.site.policy import Policy, is_column_allowed
from wardround.deploy.trust.certificates import NAME
from wardround.engine import registry
from wardround.queries.cards import MOST_TOLD, kinds_told
from wardround.queries.columns import as_codes, as_numbers, kind_of, suggest_name
from wardround.runs.json_files import write_file
from wardround.study.analyses.analysis import analysis_of
from wardround.study.assemble import cleanup_of
from wardround.study.data_rules import IMAGES, is_segmentation
from wardround.study.file import Study

HEADING = "# Data that studies may read, by name; written by `wardround site data`. The rows stay where they are.\n"
MEANING = ("task", "positive", "groups", "categories")
"""What a study may say about a site's table, beside the target and what to drop."""
MOST_CATEGORIES = 200
PASSWORD = re.compile(r"(://[^:/@\s]*:)\S*(@)|(password=)[^&\s]*()", re.IGNORECASE)
NO_TARGET = "(told by the study)"
FORM = ("size", "channels", "equalize", "standardize")
"""Settings of the source of images that are the study's to say: all sites must see images alike."""


class DatasetEntry(BaseModel):
    """An entry of data.toml; the keys beside `source` are that source's settings."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    source: str

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def description(self) -> str:
        """Source and settings for a person to read, without passwords."""
        words = [f"{key} {PASSWORD.sub(mask_password, str(value))}" for key, value in self.settings.items()]
        return ", ".join([self.source, *words])


def mask_password(found: "re.Match[str]") -> str:
    before, after = (found[1], found[2]) if found[1] else (found[3], found[4])
    return f"{before}***{after}"


@dataclass(frozen=True)
class TableSummary:
    """What one look at registered data shows: rows, kinds of columns, and those that seem to identify patients."""

    rows: int
    kinds: dict[str, str]
    identifying: dict[str, str]
    findings: tuple[Finding, ...] = ()
    """What else may be wrong with the values; with examples, for the site itself."""
    notes: tuple[str, ...] = ()
    """What was noticed while the rows were read, such as files that are broken."""


def read_datasets(home: SiteHome) -> dict[str, DatasetEntry]:
    """All entries by name."""
    if not home.data_path.exists():
        return {}
    content = load_toml(home.data_path, "")
    return {name: validate(as_table(one), DatasetEntry, f"{home.data_path}, [{name}]") for name, one in content.items()}


def as_table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def find(home: SiteHome, name: str | None) -> str:
    """The name of registered data: the given one, or the only one there is."""
    known = read_datasets(home)
    if name is None and len(known) == 1:
        return next(iter(known))
    if name is None or name not in known:
        what = f"there is no dataset called '{name}'" if name else f"there are {len(known) or 'no'} registered datasets"
        remedy = suggest_name(name or "", known) if known else "register data with `wardround site data add`"
        raise Refusal(what, where=str(home.data_path), remedy=remedy if name or not known else f"choose one: {remedy}")
    return name


def add(home: SiteHome, name: str, source: str, settings: Mapping[str, Any], *, target: str = "") -> TableSummary:
    """Read data once to see that they can be read, and write down where they are."""
    known = read_datasets(home)
    if not NAME.fullmatch(name):
        raise Refusal(f"'{name}' cannot be the name of a dataset", remedy="use letters, digits, - and _ only")
    if name in known:
        raise Refusal(
            f"there is already a dataset called '{name}'",
            where=str(home.data_path),
            remedy="remove it first, or choose another name",
        )
    words = dict(settings)
    for key in ("path", "embeddings"):
        if isinstance(words.get(key), str):
            words[key] = str(Path(words[key]).expanduser().absolute())
    entry = DatasetEntry(source=source, **words)
    table = table_of(name, entry)
    frame = table.sites[POOL]
    found = tuple(inspect(frame, target, entry.description))
    seen = replace(summarize_table(frame), findings=found, notes=table.notes)
    if target and target not in seen.kinds:
        raise Refusal(
            f"the target '{target}' is missing; {suggest_name(target, seen.kinds)}",
            where=entry.description,
            remedy="correct it",
        )
    write_datasets(home, {**known, name: entry})
    return seen


def inspect(frame: pd.DataFrame, target: str, origin: str) -> list[Finding]:
    """What a look at the values shows, as a study would read them if it said nothing about them."""
    table = clean_table(Table({POOL: frame}, target or NO_TARGET, origin), Cleanup())
    rows = table.sites[POOL]
    found = [one for one in find_in_table(table) if one.kind != "identifier"]  # told apart
    if (
        target in rows.columns
        and kind_of(rows[target]) != "image"
        and len(labels := as_codes(rows[target])[1]) <= MOST_TOLD
    ):
        known = rows[rows[target].notna()]
        inputs = [str(column) for column in rows.columns if column != target]
        found += find_leaks(known, inputs, target, sorted(map(str, labels)))
    return found


def remove(home: SiteHome, name: str) -> None:
    known = read_datasets(home)
    write_datasets(home, {other: entry for other, entry in known.items() if other != find(home, name)})


def write_datasets(home: SiteHome, entries: Mapping[str, DatasetEntry]) -> None:
    tables = [f"\n[{toml_text(name)}]\n{toml_lines(entry.model_dump())}" for name, entry in entries.items()]
    write_file(home.data_path, "".join([HEADING, *tables]).encode())
    home.data_path.chmod(0o600)  # an address may hold a password


def frame_of(name: str, entry: DatasetEntry, study: Study | None = None) -> pd.DataFrame:
    """The rows as they are now; only a source that is installed here reads them.

    Of images the study says the form: their size, grey or colour, contrast.
    """
    return table_of(name, entry, study).sites[POOL]


def table_of(name: str, entry: DatasetEntry, study: Study | None = None) -> Table:
    """The one table of registered data, with what was noticed while it was read."""
    where = f"data {name}"
    known = tuple(name for name in registry.names("source") if name != "frame")
    if entry.source not in known:
        remedy = registry.suggest_name(entry.source, known)
        raise Refusal(f"there is no source called '{entry.source}'", where=where, remedy=remedy)
    # The target is the study's to name: reading needs none, but a source wants some word.
    component = registry.find("source", entry.source, where=where)
    said = study.data.settings if study is not None and entry.source == IMAGES else {}
    form = {key: said[key] for key in FORM if key in said}
    if (
        study is not None and said and not is_segmentation(study)
    ):  # masks are for a study that learns them, and no input of another
        form["masks"] = ""
    table: Table = component.build(where=where, **{**entry.settings, **form, "target": NO_TARGET})
    if set(table.sites) != {POOL}:
        raise Refusal(
            f"this holds {len(table.sites)} tables, but a site has one", where=where, remedy="name a single file"
        )
    return table


def summarize_table(frame: pd.DataFrame) -> TableSummary:
    kinds = kinds_told(frame)
    return TableSummary(len(frame), kinds, identifying_columns(frame, kinds))


def identifying_columns(frame: pd.DataFrame, kinds: Mapping[str, str]) -> dict[str, str]:
    """Columns that seem to identify patients, each with the reason; a warning, for the site to judge."""
    found = {}
    for column, kind in kinds.items():
        telling = identifying_word(column)
        known = frame[column].dropna()
        distinct = int(known.nunique())
        with np.errstate(invalid="ignore"):  # an infinite value is no whole number
            whole = kind == "number" and bool(np.all(as_numbers(known) % 1 == 0))
        if telling:
            found[column] = f"its name contains '{telling}'"
        elif len(known) > FEW and distinct == len(known) and (whole or kind == "text"):
            found[column] = "every row has a different value"
        elif kind == "text" and distinct > MOST_CATEGORIES:
            found[column] = f"{distinct} different text values"
    return found


def folder_levels(entry: DatasetEntry, frame: pd.DataFrame) -> list[str]:
    """The levels of the site's own image folder, from the top; a study that drops one of them changes nothing."""
    if entry.source != IMAGES:
        return []
    default = next(one.default for one in registry.find("source", IMAGES).parameters if one.name == "layout")
    words = [word.strip() for word in str(entry.settings.get("layout", default)).split("/")[:-1]]
    return [word for word in words if word != "site" and word in frame.columns]


def patient_level(entry: DatasetEntry, frame: pd.DataFrame) -> str:
    """The level of a folder of images, or the column of labels, that tells whose each is; "" if nobody has several."""
    level = patient_column([*folder_levels(entry, frame), *frame.columns]) if entry.source == IMAGES else ""
    return level if level and frame[level].duplicated().any() else ""


def most_images(entry: DatasetEntry, frame: pd.DataFrame) -> int:
    """How many images the patient with the most has; where no level is called so, the topmost folders are patients."""
    level = patient_level(entry, frame) or next(iter(folder_levels(entry, frame)), "")
    return int(frame[level].value_counts().max()) if level and len(frame) else 1


def patient_reasons(study: Study, entry: DatasetEntry, frame: pd.DataFrame) -> list[str]:
    """Why a study may not use images by patient: what is told of ten images may be told of one patient."""
    level = patient_level(entry, frame)
    if not level or study.analysis is not None or study.monitor is not None:
        return []
    said = study.data.settings
    named = [
        *names_in(said.get("target")),
        *(one for key in ("groups", "categories") for one in names_in(said.get(key))),
    ]
    if level in named:
        return [f"'{level}' says whose each image is, and the study uses it as an outcome or a group"]
    if study.privacy is None and study.data.split_by != level:
        return [
            f'patients have several images here, and the study does not say so: it must set split_by = "{level}" in'
            " [data], by which a patient counts once"
        ]
    return []


def required_columns(study: Study) -> tuple[str, ...]:
    """The columns that a study names and cannot do without."""
    said = study.data.settings
    if study.monitor is not None:
        return tuple(dict.fromkeys(filter(None, (study.monitor.outcome, study.monitor.date))))
    split_by = (study.data.split_by,) if study.data.split_by else ()
    if study.analysis is not None:
        said = {
            "categories": [
                column for column in names_in(said.get("categories")) if column in analysis_of(study).columns
            ]
        }
    lists = [column for key in ("groups", "categories") for column in names_in(said.get(key))]
    lists += [column for column in cleanup_of(study.data.cleaning).references if read_date(column) is None]
    own = analysis_of(study).columns if study.analysis is not None else ()
    times = names_in(study.data.time) if study.analysis is None else []
    return tuple(dict.fromkeys([*own, *names_in(said.get("target")), *times, *lists, *split_by]))


def names_in(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in value or ()]


def columns_for(study: Study, policy: Policy, columns: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The columns that the study would read here, and those withheld from it by the policy."""
    said = study.data.settings
    # A column that names the site tells sites apart in a simulation; here there is only one.
    needed = required_columns(study)
    dropped = {*names_in(said.get("drop")), *names_in(said.get("site"))} - set(needed)
    # An analysis names all that it reads; a model learns from whatever there is.
    wanted = [column for column in columns if (column in needed if study.analysis else column not in dropped)]
    withheld = [column for column in wanted if not is_column_allowed(column, policy)]
    return [column for column in wanted if column not in withheld], withheld


def meaning_of(study: Study, read: Collection[str]) -> dict[str, Any]:
    """What the study says about its columns; of an analysis, about those that it reads."""
    said = {key: study.data.settings[key] for key in MEANING if study.data.settings.get(key) is not None}
    if study.analysis is None:
        return said
    return {"categories": [column for column in names_in(said.get("categories")) if column in read]}


def table_for(
    home: SiteHome, name: str, study: Study, policy: Policy, approved: Collection[str] | None = None
) -> Table:
    """The site's own table for a study, under the site's name, with allowed columns only.

    `approved` are the columns that were there to be read when the study was approved: no other is, whatever the policy
    allows since then.
    """
    entry = read_datasets(home)[find(home, name)]
    frame = frame_of(name, entry, study)
    if reasons := patient_reasons(study, entry, frame):
        raise Refusal(reasons[0], where=f"data {name}", remedy="ask for a changed study")
    read, _ = columns_for(study, policy, dict.fromkeys(frame.columns))
    read = [column for column in read if approved is None or column in approved]
    said = study.data.settings
    target = said.get("target") if study.analysis is None else NO_TARGET
    if not isinstance(target, str):
        raise Refusal("the study does not say which column is the outcome", where="[data]", remedy="add target = ...")
    patient = (study.data.split_by,) if study.data.split_by else ()
    # Under [privacy] noise hides single patients, and what one has must not change what the others have.
    fewest = policy.smallest_cell if study.privacy is None else 1
    cleanup = replace(restrict(cleanup_of(study.data.cleaning), read), fewest=fewest)
    dropped = [column for column in names_in(said.get("drop")) if column in read]
    later = [column for column in dropped if column in cleanup.references]
    table = assemble_table(
        {home.settings.name: frame[read]},
        origin=f"data {name} at {home.settings.name}",
        target=target,
        # What is dropped but kept for fairness is still there, and must be named as such.
        drop=[column for column in dropped if column not in later],
        **meaning_of(study, read),
    )
    # What the approved study says of the values; columns that it names and that are not read here stay unnamed.
    cleaned = clean_table(table, cleanup, drop=later)
    if study.data.survival is not None and study.analysis is None:
        cleaned = with_follow_up(cleaned, study.data.survival, refuse=False)
    each = most_images(entry, frame)
    return replace(cleaned, aside=tuple(dict.fromkeys((*cleaned.aside, *patient))), notes=(), images_each=each)
