"""Whether the sites' tables fit together, told before anything is learned; every misfit is refused by name.

Each site describes its table on a card (column names and kinds, counts, labels of the outcome, no row); the server
compares the cards. The task is told from the target: text, true/false, or at most 20 different whole numbers are
classes, anything else is a quantity. Where the study names a positive label among more than two, the question is this
label against the rest. A target of images is a mask: the task is a segmentation.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wardround.core.errors import Refusal
from wardround.core.text import counted, toml_key
from wardround.data.assembly import names_alike, recode_alike
from wardround.data.survival.intervals import interval_names, label_names, open_names
from wardround.data.table import Kind, Table
from wardround.queries.cards import MOST_CLASSES, MOST_TOLD, Card
from wardround.queries.columns import list_some, picture_shape, suggest_name

MissingColumns = Literal["refuse", "fill"]
MissingTarget = Literal["refuse", "drop"]
EmptySites = Literal["refuse", "keep"]
PLAIN_PAIRS = (("0", "1"), ("0.0", "1.0"), ("no", "yes"), ("n", "y"), ("false", "true"), ("negative", "positive"))
"""Labels of which everybody looks for the second."""


@dataclass(frozen=True)
class Schema:
    """What the sites agree on: the kind of every feature ("number", "text", "empty"), the task and its classes.

    The one feature of a model of images has a kind such as "image 64x64x1".
    """

    kinds: dict[str, str]
    task: Kind
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    horizons: tuple[float, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """All that the outcome may be: of survival also what is known of censored patients."""
        return label_names(self.horizons) if self.horizons else self.classes

    @property
    def unknown(self) -> str:
        """The outcome that a blank row is given: the first class, or of survival that nothing is known."""
        return open_names(self.horizons)[0] if self.horizons else self.classes[0]


def agree(
    told: Sequence[Card],
    table: Table,
    *,
    missing_columns: MissingColumns = "refuse",
    missing_target: MissingTarget = "refuse",
    empty_sites: EmptySites = "refuse",
) -> Schema:
    """What all cards have in common, or a refusal that names the column and the site."""
    if not told:
        raise Refusal("there is no site", where=table.origin, remedy="name a file, folder or data set with rows")
    columns = list(dict.fromkeys(column for card in told for column in card.kinds))
    check_columns(told, table, columns, missing_columns)
    check_rows(told, table, missing_target, empty_sites)
    for card in told:
        for column in card.infinite:
            raise Refusal(
                f"column {column!r} holds infinite values",
                where=f"site {card.site}, {table.origin}",
                remedy="leave them empty if they are unknown, or drop the column",
            )
    refuse_unread(told, table)
    kinds = {column: common_kind(told, column, table) for column in columns}
    task, classes = common_task(told, kinds[table.target], table)
    features = {
        column: "number" if kind == "flag" else kind
        for column, kind in kinds.items()
        if column != table.target and column not in table.aside
    }
    refuse_images(told, features, table)
    if task == "segmentation":
        refuse_unlike_masks(features, kinds, table)
    for column, kind in features.items():
        if kind in ("date", "mixed"):
            held = "dates or times" if kind == "date" else "a mixture of text and numbers"
            dates = f'days = {{{toml_key(column)} = "2020-01-01"}} (days since a day, or since another column)'
            figures = f'kinds = {{{toml_key(column)} = "number"}} with unreadable = "missing"'
            raise Refusal(
                f"column {column!r} holds {held}, which no model can read",
                where=f"site {next(c.site for c in told if c.kinds.get(column) == kind)}, {table.origin}",
                remedy=f"say in [data.cleaning] {dates if kind == 'date' else figures}, name it in categories, or drop"
                " it",
            )
    return Schema(features, task, classes, remarks(told, kinds, task, table, classes), table.horizons)


def refuse_images(told: Sequence[Card], features: Mapping[str, str], table: Table) -> None:
    """Refuse images of several sizes, and images beside other inputs."""
    pictures = [column for column, kind in features.items() if kind.startswith("image")]
    for column in pictures:
        if picture_shape(features[column]) is None:
            raise Refusal(
                f"the images in column {column!r} are of different sizes",
                where=f"{list_some(sizes_at(told, column))}; {table.origin}",
                remedy="bring them to one: size = [height, width] in [data]",
            )
    others = [column for column in features if column not in pictures[:1]]
    if pictures and others:
        raise Refusal(
            f"a model of images reads nothing else, but there are the columns {list_some(others)}",
            where=table.origin,
            remedy=f"name the patient's column as split_by in [data], and drop the others: drop = {json.dumps(others)}",
        )


def sizes_at(told: Sequence[Card], column: str) -> list[str]:
    """The size of the images of each site, in words."""
    kinds = {card.site: card.kinds[column].removeprefix("image ") for card in told if column in card.kinds}
    return [f"{site}: {kind.replace('x', ' x ') if kind != 'mixed' else kind}" for site, kind in kinds.items()]


def check_columns(told: Sequence[Card], table: Table, columns: Sequence[str], missing_columns: str) -> None:
    for column in (table.target, *table.groups, *table.aside):
        for card in told:
            if column in card.kinds:
                continue
            what = "the target" if column == table.target else "column"
            everywhere = column not in columns
            raise Refusal(
                f"{what} {column!r} is missing; {suggest_name(column, card.kinds)}",
                where=table.origin if everywhere else f"site {card.site}, {table.origin}",
                remedy="correct the name" if everywhere else "rename or add the column there, or leave the site out",
            )
    if missing_columns == "fill":
        return
    for column in columns:
        without = [card for card in told if column not in card.kinds]
        if without:
            raise Refusal(
                f"column {column!r} is missing; {suggest_name(column, without[0].kinds)}",
                where=f"site {list_some(card.site for card in without)}, {table.origin}",
                remedy='rename the column there, drop it everywhere, or set missing_columns = "fill" to treat it as'
                " unknown at those sites",
            )


def check_rows(told: Sequence[Card], table: Table, missing_target: str, empty_sites: str) -> None:
    untold = [card for card in told if card.missing_target]
    if untold and missing_target == "refuse" and not table.is_unlabelled:
        counts = list_some(f"{card.site}: {card.missing_target} of {card.rows}" for card in untold)
        raise Refusal(
            f"the target {table.target!r} is unknown in some rows",
            where=f"{counts}; {table.origin}",
            remedy='fill it in, or set missing_target = "drop" to leave these rows out',
        )
    rows = {card.site: card.rows - (0 if table.is_unlabelled else card.missing_target) for card in told}
    if not any(rows.values()):
        raise Refusal("no site has a row with a known target", where=table.origin, remedy="check the data")
    few = [f"{site} ({'no row' if n == 0 else 'one row'})" for site, n in rows.items() if n < 2]
    if few and empty_sites == "refuse":
        raise Refusal(
            f"there are sites with too few rows to learn from and be tested on: {list_some(few)}",
            where=table.origin,
            remedy='leave them out, or set empty_sites = "keep" to let them take part with what they have',
        )


def refuse_unread(told: Sequence[Card], table: Table) -> None:
    """Refuse text in columns that the study declares to hold numbers or dates."""
    for column in table.numbers:
        wrong = [card.site for card in told if card.kinds.get(column, "empty") not in ("number", "flag", "empty")]
        if wrong and column != table.target:
            raise Refusal(
                f"column {column!r} is declared to hold numbers or dates, and some values cannot be read so",
                where=f"site {list_some(wrong)}, {table.origin}",
                remedy='recode them in [data.cleaning], or set unreadable = "missing" there',
            )


def common_kind(told: Sequence[Card], column: str, table: Table) -> str:
    """The one kind all sites that know the column have; numbers and flags go together except in the target."""
    holders: dict[str, list[str]] = {}
    for card in told:
        kind = card.kinds.get(column, "empty")
        if kind != "empty":
            holders.setdefault("number" if kind == "flag" and column != table.target else kind, []).append(card.site)
    if len(holders) > 1:
        if all(kind.startswith("image") for kind in holders):
            return "image mixed"
        words = {"number": "numbers", "flag": "true/false", "text": "text", "date": "dates", "mixed": "a mixture"}
        found = ", ".join(f"{words.get(kind, 'images')} at {list_some(sites, 3)}" for kind, sites in holders.items())
        raise Refusal(
            f"column {column!r} does not hold the same everywhere: {found}",
            where=table.origin,
            remedy="clean the column; if a word there means unknown, name it in missing_words; if these are codes, name"
            " the column in categories",
        )
    return next(iter(holders), "empty")


def common_task(told: Sequence[Card], kind: str, table: Table) -> tuple[Kind, tuple[str, ...]]:
    where = f"target {table.target!r}, {table.origin}"
    if kind in ("date", "mixed"):
        raise Refusal(
            "the target holds dates or a mixture of text and numbers",
            where=where,
            remedy=f'recode its values in [data.cleaning], or say there kinds = {{{toml_key(table.target)} = "text"}}',
        )
    if table.task == "segmentation" or kind.startswith("image"):
        return segmentation_task(told, kind, table, where)
    labels = {label for card in told for label in card.labels}
    if table.horizons:
        return "survival", interval_names(table.horizons)
    if table.is_unlabelled:
        return "classification", classes_voted_for(labels, table, where)
    distinct = max(len(labels), *(card.distinct for card in told), 0)
    whole = all(card.whole for card in told if card.distinct)
    task = table.task
    if task is None:
        task = "classification" if kind != "number" or (whole and distinct <= MOST_TOLD) else "regression"
    if task == "regression":
        if kind == "text":
            raise Refusal("the target is text, not a quantity", where=where, remedy='set task = "classification"')
        if table.positive is not None:
            raise Refusal(
                f"the positive label {table.positive!r} needs classes, but the target is taken for a quantity",
                where=where,
                remedy='leave positive out, or set task = "classification"',
            )
        return "regression", ()
    if distinct > MOST_CLASSES:
        number = 'set task = "regression"' if kind == "number" else "choose another target: this one looks like a name"
        raise Refusal(f"the target has more than {MOST_CLASSES} different values", where=where, remedy=number)
    if distinct < 2:
        raise Refusal(
            f"the target has only one value everywhere ({list_some(labels)}), so there is nothing to tell apart",
            where=where,
            remedy="choose another target, or add sites with other outcomes",
        )
    classes = tuple(sorted(labels, key=float) if kind == "number" else sorted(labels))
    refuse_alike(labels, table, where)
    if table.positive is not None and table.positive not in classes:
        raise Refusal(
            f"the positive label {table.positive!r} is not in the target; {suggest_name(table.positive, classes)}",
            where=where,
            remedy="name one of its values",
        )
    if table.positive is not None and len(classes) > 2:
        return "classification", against_the_rest(table.positive)
    return "classification", classes


def segmentation_task(told: Sequence[Card], kind: str, table: Table, where: str) -> tuple[Kind, tuple[str, ...]]:
    """The target is a mask as large as its image; whatever else it may be called."""
    if table.task not in (None, "segmentation"):
        raise Refusal(
            f"the target is a mask, which no {table.task} predicts",
            where=where,
            remedy='set task = "segmentation", or name a column of the labels as the target',
        )
    if table.positive is not None or table.is_unlabelled:
        raise Refusal(
            "a mask has no labels to name or to vote for",
            where=where,
            remedy="remove positive and the labeling functions from [data]",
        )
    if kind == "image mixed":
        raise Refusal(
            "the masks are of different sizes",
            where=f"{list_some(sizes_at(told, table.target))}; {table.origin}",
            remedy="bring images and masks to one: size = [height, width] in [data]",
        )
    if picture_shape(kind) is None:
        raise Refusal(
            "a segmentation learns from masks, and the target holds none",
            where=where,
            remedy='name their folder: masks = "..." with target = "mask" and source = "images" in [data]',
        )
    return "segmentation", ()


def refuse_unlike_masks(features: Mapping[str, str], kinds: Mapping[str, str], table: Table) -> None:
    """Refuse masks that are not as large as the images; within a site each was compared with its own."""
    shapes = [picture_shape(kind) for kind in features.values()]
    mask = picture_shape(kinds[table.target])
    if not shapes or shapes[0] is None:
        raise Refusal(
            "a segmentation needs images, and there is no column of them",
            where=table.origin,
            remedy='read them with source = "images" in [data]',
        )
    if mask is None or mask != (*shapes[0][:2], 1):
        found = "x".join(map(str, mask or ()))
        raise Refusal(
            f"the masks have the shape {found}, the images {'x'.join(map(str, shapes[0]))}",
            where=f"target {table.target!r}, {table.origin}",
            remedy="give every image a mask of its own height and width, with one channel",
        )


def classes_voted_for(labels: Iterable[str], table: Table, where: str) -> tuple[str, ...]:
    """The classes of a study with labeling functions: those that they vote for, whatever labels there are."""
    if len(table.labels) < 2:
        raise Refusal(
            f"all labeling functions vote for one class ({', '.join(table.labels)}), so there is nothing to tell apart",
            where=where,
            remedy="add functions that vote for another class",
        )
    for label in sorted({*labels, *([] if table.positive is None else [table.positive])} - set(table.labels)):
        raise Refusal(
            f"the target has the label {label!r}, for which no labeling function votes; "
            f"{suggest_name(label, table.labels)}",
            where=where,
            remedy="correct the functions' labels, or recode the target in [data.cleaning]",
        )
    return table.labels


def against_the_rest(positive: str) -> tuple[str, str]:
    """The classes of the question whether the outcome is `positive`, where the target has more than two labels."""
    return f"not {positive}", positive


def question_note(target: str, positive: str, rest: Iterable[str]) -> str:
    return f"The question is {target} = {positive} against the rest: {list_some(sorted(rest))}."


def is_plainly_positive(first: str, last: str) -> bool:
    """Whether nobody would look for the first of two labels: 0 and 1, no and yes, false and true."""
    return (first.lower(), last.lower()) in PLAIN_PAIRS


def refuse_alike(labels: Iterable[str], table: Table, where: str) -> None:
    """Refuse labels that differ only in case, unless the study recodes one of them (into itself, if it must be so)."""
    alike = names_alike(sorted(set(labels) - set(table.distinct)))
    if alike:
        raise Refusal(
            f"labels of the target differ only in case: {list_some(alike)}",
            where=where,
            remedy=f"if they mean the same, {recode_alike(table.target, alike)}; if not, recode one into itself",
        )


def remarks(
    told: Sequence[Card], kinds: Mapping[str, str], task: str, table: Table, classes: Sequence[str]
) -> tuple[str, ...]:
    notes, target = [], table.target
    rest = sorted({label for card in told for label in card.labels} - {*classes})
    if table.positive is not None and len(rest) > 1:
        notes.append(question_note(target, table.positive, rest))
    if table.positive is None and task == "classification" and len(classes) == 2 and not is_plainly_positive(*classes):
        first, last = classes
        notes.append(
            f"The study does not say which outcome is looked for: risks are those of {target} = {last}. If it is"
            f' {first}, say positive = "{first}" in [data].'
        )
    dropped = sum(card.missing_target for card in told)
    if dropped and table.is_unlabelled:
        notes.append(f"{dropped} rows without a known {target} are for training alone: labeling functions vote there.")
    elif dropped:
        notes.append(
            f"{counted(dropped, 'row')} without a known {target} {'was' if dropped == 1 else 'were'} left out."
        )
    few = [card.site for card in told if card.rows - (0 if table.is_unlabelled else card.missing_target) < 2]
    if few:
        notes.append(f"Fewer than two rows at {list_some(few)}: such a site takes part with what it has.")
    filled = [card for card in told if card.rows]
    for column, kind in kinds.items():
        without = [card.site for card in filled if card.kinds.get(column, "empty") == "empty"]
        if without and kind != "empty":
            notes.append(f"No value of {column} at {list_some(without)}: the common stand-in is used there.")
    if task == "classification":
        single = [f"{card.site} ({card.labels[0]})" for card in told if len(card.labels) == 1]
        if single:
            notes.append(f"Only one outcome at {list_some(single)}: such a site cannot tell classes apart on its own.")
    return tuple(notes)
