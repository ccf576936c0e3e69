"""What a site accepts as agreed: columns, preparation, order of sites, and the statistics that lead to them.

The coordinator says what the sites agreed on. A site takes over only what its own table and the approved study bear
out: else a schema or a preparation of the coordinator's own making would let it ask about columns that were set aside,
drop chosen patients, or show a model nothing but a single value. Every check looks at the request, the approved words,
and what the site's card tells anyway; no refusal says more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import numpy as np
import psutil

from wardround.core.components.recipes import Recipe, recipe_of
from wardround.core.contracts import Message, TaskKind
from wardround.core.errors import Refusal
from wardround.core.text import format_bytes
from wardround.data.noised_preparation import declared_column
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.data.preparation_fit import image_column
from wardround.data.schema import Schema, against_the_rest
from wardround.data.survival.intervals import interval_names
from wardround.data.table import Table
from wardround.deploy.site.release.model_shapes import is_bounded
from wardround.deploy.site.release.partner_questions import all_settings, preparation_queries
from wardround.deploy.site.release.release_list import most_features, sites_of
from wardround.queries.cards import MOST_CLASSES, frequent_labels, released_kind
from wardround.queries.columns import picture_shape
from wardround.study.file import Study
from wardround.study.transform_chain import links_of

LARGEST = 1e15
"""Of a fill or a center; and, for one unit of a column, of its scale."""
SMALLEST = 1e-12
"""Of a scale that is not 0: below, two patients' values would be told apart that no measurement tells apart."""
LONGEST = 1000
"""Characters of a category's name."""
MEMORY_SHARE = 1 / 8
"""Of the machine's memory, that prepared rows may take: they are held twice while they are split."""
OF_NUMBERS = ("moments", "extremes", "histogram")
Kinds = Mapping[str, str]


def refusal(what: str) -> Refusal:
    return Refusal(what, remedy="ask for what was approved")


# ---- the schema ----


def check_schema(said: Mapping[str, Any], study: Study, table: Table, site: str, cell: int) -> Schema:
    """The agreed schema, if this site's table and the approved study bear it out."""
    kinds, classes, task = said.get("kinds"), said.get("classes"), cast(Any, said.get("task"))
    if set(said) != {"kinds", "task", "classes"} or not isinstance(kinds, dict) or not isinstance(classes, list):
        raise refusal("the agreed schema cannot be read")
    if not all(isinstance(word, str) and len(word) <= LONGEST for word in (*kinds, *kinds.values(), *classes)):
        raise refusal("the agreed schema cannot be read")
    frame: Any = table.sites[site]
    for column, kind in kinds.items():
        if kind not in ("number", "text", "empty") and picture_shape(kind) is None:
            raise refusal(f"the agreed schema has columns of the kind {kind[:20]!r}")
        if column == table.target or column in table.aside:
            raise refusal("the agreed schema uses the outcome, or a column that was set aside, as an input")
        if column not in frame.columns:
            if study.data.missing_columns != "fill":
                raise refusal("the agreed schema has a column that the study may not read here")
            continue
        own = released_kind(frame[column], cell)
        if own != "empty" and ("number" if own == "flag" else own) != kind:
            raise refusal("the agreed schema does not say of every column what it holds here")
    expected = study.data.settings.get("task")
    if not isinstance(task, str) or task not in get_args(TaskKind) or (expected is not None and task != expected):
        raise refusal("the agreed schema has another task than the study")
    patients = frame[study.data.split_by] if study.data.split_by in frame.columns else None
    check_outcome(classes, task, table, frame[table.target], cell, patients)
    return Schema(dict(kinds), cast(TaskKind, task), tuple(classes), (), table.horizons)


def check_outcome(
    classes: Sequence[str], task: str, table: Table, outcome: Any, cell: int, patients: Any = None
) -> None:
    """The classes are those that the study declares, where it does, and else those of the sites' outcomes."""
    if table.is_unlabelled:
        if tuple(classes) != table.labels or task != "classification":
            raise refusal("the agreed schema has other classes than the study's labeling functions vote for")
    elif table.horizons or task == "survival":
        if not table.horizons or task != "survival" or tuple(classes) != interval_names(table.horizons):
            raise refusal("the agreed schema has other intervals of time than the study's horizons")
    else:
        check_classes(classes, task, outcome, cell, table.positive, patients)


def check_classes(
    classes: Sequence[str], task: str, outcome: Any, cell: int, positive: str | None, patients: Any = None
) -> None:
    """Every outcome that this site told of is there: else patients would be dropped, and counted by their absence.

    Where the approved study asks for one outcome against the rest, nobody is dropped.
    Where there are too many to be told, whoever names the classes would choose the patients: there are none then.
    """
    own = released_kind(outcome, cell)
    if task == "segmentation":
        if classes or (own != "empty" and picture_shape(own) is None):
            raise refusal("the agreed schema takes the outcome for a mask, which it is not here")
        return
    if own.startswith("image"):
        raise refusal("the agreed schema takes the outcome for something else than the mask that it is here")
    if task == "regression":
        if classes or own not in ("number", "empty"):
            raise refusal("the agreed schema takes the outcome for a quantity, which it is not here")
        return
    if not 2 <= len(classes) <= MOST_CLASSES or len(set(classes)) != len(classes):
        raise refusal(f"the agreed schema does not have 2 to {MOST_CLASSES} different outcomes")
    if outcome.nunique() > MOST_CLASSES:
        raise refusal(f"the agreed schema has classes, but the outcome has more than {MOST_CLASSES} values here")
    if positive is not None and tuple(classes) == against_the_rest(positive):
        return
    if not set(frequent_labels(outcome, cell, patients)) <= set(classes):
        raise refusal("the agreed schema leaves out an outcome that this site has")


# ---- the preparation ----


def check_preparation(
    text: str, study: Study, schema: Schema, columns: Mapping[str, str], rows: int, most: int | None = None
) -> Preparation:
    """The fitted preparation, if it is one of the agreed columns and of the study's own way, and not too large.

    `rows` are those that the site tells of, so that what is too large tells no more; `most` bytes may be taken.
    """
    preparation, said = Preparation.from_json(text), study.data.preparation
    if list(preparation.names) != list(schema.kinds):
        raise refusal("the preparation is not of the agreed columns")
    if preparation.image != image_column(schema.kinds):
        raise refusal("the preparation has images of another shape than was agreed")
    if len(preparation.features) > most_features(study, columns):
        raise refusal("the preparation makes more inputs than were approved")
    check_memory(len(preparation.features), rows, largest_matrix() if most is None else most)
    check_declared(preparation, study, schema)
    for one in preparation.columns:
        if one.indicator and not said.indicators:
            raise refusal("the preparation tells what is missing, which the study does not")
        is_text = schema.kinds[one.name] == "text"
        if is_text != isinstance(one, TextColumn) and one.name not in said.categories:
            raise refusal("the preparation takes a column for something else than was agreed")
        if isinstance(one, NumberColumn):
            check_number(one, said.scale)
        else:
            check_categories(one, said.most_categories * len(sites_of(study)))
    return preparation


def largest_matrix() -> int:
    """Bytes that prepared rows may take on this machine."""
    return int(MEMORY_SHARE * psutil.virtual_memory().total)


def check_memory(features: int, rows: int, most: int) -> None:
    """Refuse rows that would fill the memory: other sites may know thousands of categories, or a coordinator say so."""
    if 4 * features * rows > most:
        raise Refusal(
            f"the preparation makes {features:,} inputs of each patient, which is more than this site's memory is for"
            f" ({format_bytes(most)} of prepared rows)",
            remedy="leave out columns of many categories with [data] drop, or ask the site for a larger machine",
        )


def check_declared(preparation: Preparation, study: Study, schema: Schema) -> None:
    """What the study declares is prepared in this way and no other; of a private study then everything is declared."""
    said = study.data.preparation
    declared = {*said.ranges, *said.categories}
    if not declared <= set(schema.kinds):
        raise refusal("the preparation leaves out a column that the study declares")
    for one in preparation.columns:
        due = declared_column(one.name, schema.kinds[one.name], said.ranges, said.categories, scale=said.scale)
        if due is not None and one != due:
            raise refusal("the preparation has another range, or other categories, than the study declares")
        if due is None and declared and study.privacy is not None:
            raise refusal("the preparation has a column that the study does not declare")


def check_number(one: NumberColumn, scale: str) -> None:
    if max(abs(one.fill), abs(one.center), one.scale) > LARGEST or 0 < one.scale < SMALLEST:
        raise refusal(f"the preparation has numbers beyond {LARGEST:g}, or a scale below {SMALLEST:g}")
    if scale == "none" and (one.center, one.scale) not in ((0.0, 1.0), (0.0, 0.0)):
        raise refusal("the preparation scales columns, which the study does not")


def check_categories(one: TextColumn, most: int) -> None:
    names = one.categories
    if len(names) > most or len(set(names)) != len(names) or any(len(name) > LONGEST for name in names):
        raise refusal(f"the preparation has a column of more than {most} categories, or the same one twice")
    if one.fill is not None and one.fill not in names:
        raise refusal("the preparation fills a column with a category that it does not have")


def check_sites(numbers: Sequence[str], positive: int, study: Study, site: str, classes: Sequence[str]) -> None:
    """The sites in the order of their numbers are those of the approved study, and the positive outcome is one."""
    named = sorted(study.deploy.sites)
    if (named and list(numbers) != named) or site not in numbers or list(numbers) != sorted(set(numbers)):
        raise refusal("the sites of the request are not those of the approved study")
    label = str(study.data.settings.get("positive"))
    if not 0 <= positive < max(1, len(classes)) or (label in classes and positive != list(classes).index(label)):
        raise refusal("the positive outcome is not that of the approved study")


def check_transforms(asked: Sequence[Recipe], study: Study, sites: Sequence[str]) -> None:
    """The transforms are those of the approved study, in its order and with its settings.

    Each stands in the study, which is looked at elsewhere; of two of the same name one could be asked for twice, and an
    answer would leave as it is that was to leave in few bits.
    """
    if list(asked) != [recipe_of(one) for one in links_of(study, sites)]:
        said = [one.name for one in study.transforms]
        raise refusal(f"the approved study has the transforms {said or 'none'}, but others were requested")


# ---- the statistics ----


def check_query(recipe: Recipe, message: Message, study: Study, kinds: Kinds | None) -> None:
    """A statistic of the preparation is about agreed columns of the right kind, and as the study fits them."""
    if all(one.name != recipe.name for one in preparation_queries(study)):
        return
    if not is_bounded(message.arrays):
        raise refusal("the request has numbers that are not finite, or too large")
    settings, said = all_settings(recipe), study.data.settings
    if recipe.name == "cards":
        if (settings.get("target"), settings.get("task")) != (said.get("target"), said.get("task")):
            raise refusal("the card was asked for with another outcome than the study's")
        return
    if kinds is None or "columns" not in settings:
        return
    asked = list(settings["columns"])
    if not {*asked, *settings.get("words", ())} <= set(kinds) or len(set(asked)) != len(asked):
        raise refusal(f"the query {recipe.name} is not about the agreed columns")
    if recipe.name in OF_NUMBERS or recipe.name == "category_counts":
        wants_text = recipe.name == "category_counts" and not settings["numbers"]
        if any((kinds[name] == "text") != wants_text for name in asked):
            raise refusal(f"the query {recipe.name} is not about columns of this kind")
    most = study.data.preparation.most_categories
    if settings.get("most", most) != most:
        raise refusal(f"the query {recipe.name} has another limit than {most} categories")
    if recipe.name == "histogram" and np.ndim(message.arrays.get("edges", 0)) != 3:
        raise refusal("the query histogram came without edges")
