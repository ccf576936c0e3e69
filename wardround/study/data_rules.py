"""What must hold before a study's rows are read, and shares by role: how the asking site's patients are split."""

from collections.abc import Iterable

from wardround.core.errors import Refusal
from wardround.engine.registry import suggest_name
from wardround.study.file import Study


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


def refuse_unknown_units(study: Study, columns: Iterable[str]) -> None:
    """A unit of a column that is not there is a slip of the pen."""
    known = tuple(columns)
    for name in study.data.units:
        if name not in known:
            raise Refusal(
                f"there is no column {name!r}; {suggest_name(name, known)}",
                where="[data] units",
                remedy="correct the name, or remove it",
            )


def refuse_monitor(study: Study) -> None:
    """A study that only asks is not trained in its stead."""
    if study.monitor is not None:
        raise Refusal(
            "this study asks real sites whether a model ages, and trains nothing",
            where="[monitor]",
            remedy="queue it with `wardround coordinator run`; for a table of new patients use `wardround monitor`",
        )
