"""What must hold before a study's rows are read: shares by role, rules about rows, the shape of a row."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.data.assembly import as_names
from wardround.data.cleanup import Cleanup, clean_table
from wardround.data.inspection.findings import Finding, find_in_table
from wardround.data.survival.follow_up import with_follow_up
from wardround.data.table import Table
from wardround.engine.registry import suggest_name
from wardround.study.file import CleaningSection, DataSection, Study
from wardround.study.methods import Method

OF_TABLE = ("target", "task", "drop", "groups")
"""What a study says about a table, whatever its source."""
COUNTS_OUTCOMES = ("class_weighted", "partial_pooling")
"""Components that would take a censored patient for one of a class, or of none."""
IMAGES, MASK, EXAMPLE_SIZE = "images", "mask", (128, 128)
"""The source of images, its column of masks, and a size that any model can take."""


def shares_by_role(study: Study) -> dict[str, list[float]]:
    """The shares of single sites: those of the asking one, where it has its own."""
    user, shares = study.study.user, study.data.user_shares
    return {} if user is None or shares is None else {user: shares}


def refuse_user_shares(study: Study) -> None:
    """Other shares for the asking site need one that asks, the same for every method."""
    if study.data.user_shares is None:
        return
    if study.study.user is None:
        raise Refusal(
            "the asking site has shares of its own, and the study does not say which site asks",
            where="[data] user_shares",
            remedy="add user = ... to [study], or remove user_shares",
        )
    if study.compare is not None and study.compare.users == "each":
        raise Refusal(
            "with shares of its own, every asking site makes another split, and all methods train anew",
            where="[data] user_shares",
            remedy='name one case for each asking site: [[compare.cases]] study = { user = "..." }, and users = "one"',
        )


def refuse_dropped_rows(study: Study) -> None:
    """A private study tells the number of rows exactly: a patient's values must not decide whether a row counts."""
    said = study.data.cleaning
    if study.privacy is not None and study.privacy.level == "sample" and (said.drop_rows or said.duplicates == "drop"):
        raise Refusal(
            "rows cannot be left out by their values under [privacy]: the number of rows is told exactly",
            where="[data.cleaning]",
            remedy="leave them out of the table itself, or remove drop_rows and duplicates",
        )


def inspect_table(study: Study, table: Table) -> list[Finding]:
    """What single columns show; refuses, with examples, what would make a result meaningless."""
    found = find_in_table(table, [study.data.split_by] if study.data.split_by else [])
    for one in found:
        if one.stops:
            raise one.refusal(table.origin)
    return found


def clean_rows(rows: Table, data: DataSection, cleanup: Cleanup, later: Sequence[str], *, named: bool) -> Table:
    """The rows as the study means them, without the columns `later`; of survival with its outcome.

    What comes by name is a data set: clean, unless the study says how to clean it.
    """
    if data.survival is None:
        return clean_table(rows, cleanup, drop=later)
    if named:
        rows, later = with_groups(rows, data), [*later, *as_names(data.settings.get("drop", ()))]
    plain = named and data.cleaning == CleaningSection()
    return with_follow_up(drop_columns(rows, later) if plain else clean_table(rows, cleanup, drop=later), data.survival)


def with_groups(table: Table, data: DataSection) -> Table:
    """A data set with the groups that a study of survival names, and all that it drops still there."""
    known = list(dict.fromkeys(str(column) for frame in table.sites.values() for column in frame.columns))
    for key in ("drop", "groups"):
        for column in as_names(data.settings.get(key, ())):
            if column not in known:
                raise Refusal(
                    f"the list {key} names column {column!r}, which is missing; {suggest_name(column, tuple(known))}",
                    where="[data]",
                    remedy="correct the name",
                )
    groups = data.settings.get("groups")
    return table if groups is None else replace(table, groups=as_names(groups))


def drop_columns(table: Table, drop: Sequence[str]) -> Table:
    """A data set, which is clean, without these columns; those of groups are set aside."""
    sites = {
        name: frame.drop(columns=[one for one in drop if one in frame.columns and one not in table.groups])
        for name, frame in table.sites.items()
    }
    aside = (*table.aside, *(one for one in drop if one in table.groups))
    return replace(table, sites=sites, aside=tuple(dict.fromkeys(aside)))


def refuse_unknown_units(study: Study, columns: Iterable[str]) -> None:
    """A unit of a column that is not there is a slip of the pen."""
    known = tuple(columns)
    for name in study.data.units:
        if name not in known:
            raise Refusal(
                f"there is no column {name!r}; {suggest_name(name, tuple(known))}",
                where="[data] units",
                remedy="correct the name, or remove it",
            )


def refuse_for_survival(study: Study, method: Method, task: Task) -> None:
    """Refuse what counts classes or expects every outcome to be known, which censored patients' are not."""
    if not task.survival:
        return
    wrong = {
        "[partners]": f"the choice of partners '{method.choice}'" if method.choice else "",
        "[algorithm]": f"the algorithm '{method.algorithm}'" if method.algorithm in COUNTS_OUTCOMES else "",
        "[aggregator]": f"the aggregator '{study.aggregator.name}'" if study.aggregator.name in COUNTS_OUTCOMES else "",
    }
    for where, what in wrong.items():
        if what:
            raise Refusal(
                f"{what} looks at outcomes of patients, and of those lost from sight they are not known",
                where=where,
                remedy="remove it for a study of survival, or choose another",
            )


def refuse_monitor(study: Study) -> None:
    """A study that only asks is not trained in its stead."""
    if study.monitor is not None:
        raise Refusal(
            "this study asks real sites whether a model ages, and trains nothing",
            where="[monitor]",
            remedy="queue it with `wardround coordinator run`; for a table of new patients use `wardround monitor`",
        )


def is_segmentation(study: Study) -> bool:
    """Whether masks of images are learned, as far as the study itself says so."""
    said = study.data.settings
    return said.get("task") == "segmentation" or (study.data.source == IMAGES and said.get("target") == MASK)


def example_shape(study: Study) -> tuple[int, ...]:
    """The shape of a row, for checks before the sites have agreed: of images as the study says, else any."""
    said = study.data.settings
    if study.data.source != IMAGES:
        return (1,)
    size = said.get("size") or EXAMPLE_SIZE
    sides = [size, size] if isinstance(size, int) else list(size)
    return (int(sides[0]), int(sides[-1]), int(said.get("channels", 1)))
