"""Shares by role: how the asking site's patients are split, where the others' are split in another way."""

from wardround.core.errors import Refusal
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
