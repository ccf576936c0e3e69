"""What a site's administrator reads before a monitor is approved, and when it cannot be."""

from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.site.monitor.watched_rows import kept_predictor, section_of, watched_table, windows_told
from wardround.deploy.site.policy import Policy
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.deploy.site.release.partner_questions import all_settings, terms_for
from wardround.study.file import Study


def monitor_reasons(home: SiteHome, study: Study, name: str, policy: Policy) -> list[str]:
    """Why this site cannot answer: no model, a model of another kind, no dates, no outcomes, too few patients."""
    if study.monitor is None:
        return []
    try:
        table = watched_table(home, name, study, policy)
    except Refusal as refusal:
        return [str(refusal).rstrip(".")]
    cell = own_cell(study, policy)
    if not len(windows_told(table, cell)):
        return [
            f"no {study.monitor.every} in {name} has {cell} patients whose outcome is known, so nothing would be told"
        ]
    return []


def own_cell(study: Study, policy: Policy) -> int:
    """The cell in which this site counts for the study."""
    return int(dict(in_own_cells(section_of(study).query, policy.smallest_cell).settings)["smallest_cell"])


def what_leaves(study: Study, policy: Policy) -> tuple[str, ...]:
    asked = in_own_cells(section_of(study).query, policy.smallest_cell)
    return (
        f"Once: {terms_for(asked).describe(all_settings(asked))}.",
        "The predictions are made here, by the model that this site kept. No row, no outcome and no prediction of a"
        " single patient is sent, and nothing is trained.",
    )


def what_is_watched(home: SiteHome, study: Study, name: str, policy: Policy) -> tuple[str, ...]:
    """Which model, by which columns, and how much of the table would be told of."""
    said = section_of(study)
    told = [f"The model that the study {said.study} left here is looked at. Dates: {said.date}."]
    try:
        predictor, table = kept_predictor(home, study), watched_table(home, name, study, policy)
    except Refusal as refusal:
        return (*told, f"It cannot be looked at here: {refusal}")
    task = predictor.facts.task
    told[0] += f" Outcome: {said.outcome or task.target} ({task.positive} is counted)."
    counts = windows_told(table, own_cell(study, policy))
    (rows,) = table.sites.values()
    known = int(rows["outcome"].notna().sum())
    told.append(
        f"{len(rows):,} rows have a date, {known:,} of them an outcome. {len(counts)} "
        f"{said.every}{'' if len(counts) == 1 else 's'} would be told of, the last {said.most} at most"
        + (f": {counts.index[0]} to {counts.index[-1]}." if len(counts) else ".")
    )
    return tuple(told)


def monitor_facts(study: Study) -> dict[str, Any]:
    return {} if study.monitor is None else {"monitor": study.monitor.model_dump(mode="json")}
