"""Whether a site's data fit a study, found before anybody approves it: everything at once, for the own administrator.

What is found depends on rows, and a study could be worded to ask for a single one; so it stays at the site. Where the
policy says `mismatches = "told"`, the coordinator is told which of the columns that the study itself names the table
does not have, or the policy does not allow: names in the table's head, nothing of its rows.
"""

from collections.abc import Callable
from typing import NamedTuple

from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.schema import check_rows, common_kind, common_task, refuse_unread
from wardround.data.table import Table
from wardround.deploy.home import SiteHome
from wardround.deploy.site.datasets import find, frame_of, names_in, read_datasets, required_columns, table_for
from wardround.deploy.site.policy import is_column_allowed
from wardround.deploy.site.policy_file import read_policy
from wardround.queries.cards import Card, cards, cards_of
from wardround.queries.columns import suggest_name
from wardround.study.file import Study


class Misfit(NamedTuple):
    """Something about the data with which the study would fail, and what to do about it."""

    what: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"{self.what[:1].upper()}{self.what[1:]}. Fix: {self.remedy}."


def named_columns(study: Study) -> tuple[str, ...]:
    """Every column that the study names and reads."""
    said, cleaning = study.data.preparation, study.data.cleaning
    dropped = set(names_in(study.data.settings.get("drop")))
    declared = () if study.analysis is not None else (*said.ranges, *said.categories, *cleaning.kinds, *cleaning.days)
    return tuple(dict.fromkeys([*required_columns(study), *(one for one in declared if one not in dropped)]))


def missing_columns(home: SiteHome, study: Study, data: str | None = None) -> list[str]:
    """Columns that the study names and that the table does not have; those that it would fill in are none."""
    name = find(home, data)
    frame = frame_of(name, read_datasets(home)[name])
    needed = required_columns(study) if study.data.missing_columns == "fill" else named_columns(study)
    return [column for column in needed if column not in frame.columns]


def columns_lacking(home: SiteHome, study: Study) -> list[str]:
    """What may be told before an approval: named columns that the table lacks or the policy does not allow.

    Which of the two is not told: else whoever names enough columns would learn of those that the site keeps to itself.
    """
    policy, missing = read_policy(home.policy_path), missing_columns(home, study)
    fills = study.data.missing_columns == "fill"
    named = required_columns(study) if fills else named_columns(study)
    return [column for column in named if column in missing or not is_column_allowed(column, policy)]


def find_misfits(home: SiteHome, study: Study, data: str | None = None) -> list[Misfit]:
    """All that would make the study fail on these data, or leave this site out; a monitor is judged elsewhere."""
    if study.monitor is not None:
        return []
    name, policy = find(home, data), read_policy(home.policy_path)
    frame = frame_of(name, read_datasets(home)[name])
    found = [
        Misfit(
            f"the dataset {name} has no column '{column}', which the study names"
            f" ({suggest_name(column, [str(one) for one in frame.columns])})",
            "rename or add the column, or ask for a changed study",
        )
        for column in missing_columns(home, study, name)
    ]
    found += [
        Misfit(
            f"your policy does not allow the column '{column}', which the study needs",
            f"allow it with `wardround site policy set columns`, or deny the study ({column})",
        )
        for column in required_columns(study)
        if column in frame.columns and not is_column_allowed(column, policy)
    ]
    if found or study.analysis is not None:  # the table cannot even be put together, or is judged by its own rules
        return found
    try:
        table = table_for(home, name, study, policy)
    except Refusal as refusal:
        return [misfit_of(refusal)]
    return judge_table(table, home.own_name, study)


def judge_table(table: Table, site: str, study: Study) -> list[Misfit]:
    """The questions of the agreement that one table answers alone, each by itself."""
    query = cards(target=table.target, task=table.task, smallest_cell=1)
    (card,) = cards_of(query.combine([query.ask(Message({}), Site(site, table.sites[site]))]))
    data = study.data
    looks: list[Callable[[], object]] = [
        lambda: check_rows([card], table, data.missing_target, data.empty_sites),
        lambda: refuse_unread([card], table),
        *(lambda column=column: refuse_unlearnable(card, column, table) for column in card.kinds),
    ]
    if len(card.labels) != 1:  # one that knows a single outcome learns with the others
        looks.append(lambda: common_task([card], common_kind([card], table.target, table), table))
    found = []
    for look in looks:
        try:
            look()
        except Refusal as refusal:
            found.append(misfit_of(refusal))
    return [one for index, one in enumerate(found) if one not in found[:index]]


def refuse_unlearnable(card: Card, column: str, table: Table) -> None:
    if column == table.target or column in table.aside:
        return
    if column in card.infinite:
        raise Refusal(f"column '{column}' holds infinite values", remedy="leave them empty if they are unknown")
    if card.kinds[column] in ("date", "mixed"):
        held = "dates or times" if card.kinds[column] == "date" else "a mixture of text and numbers"
        raise Refusal(
            f"column '{column}' holds {held}, which no model can read",
            remedy="correct the values, or ask for a study that reads them ([data.cleaning]) or drops the column",
        )


def misfit_of(refusal: Refusal) -> Misfit:
    return Misfit(refusal.what, refusal.remedy or "correct the data")
