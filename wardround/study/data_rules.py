"""What must hold before a study's rows are read: shares by role, rules about rows, the shape of a row."""

from collections.abc import Iterable

from wardround.core.errors import Refusal
from wardround.engine.registry import suggest_name
from wardround.study.file import Study

IMAGES, EXAMPLE_SIZE = "images", (128, 128)
"""The source of images, and a size that any model can take."""


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
                f"there is no column {name!r}; {suggest_name(name, tuple(known))}",
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


def example_shape(study: Study) -> tuple[int, ...]:
    """The shape of a row, for checks before the sites have agreed: of images as the study says, else any."""
    said = study.data.settings
    if study.data.source != IMAGES:
        return (1,)
    size = said.get("size") or EXAMPLE_SIZE
    sides = [size, size] if isinstance(size, int) else list(size)
    return (int(sides[0]), int(sides[-1]), int(said.get("channels", 1)))
