"""Who was included: boxes from the rows read to the rows used, and a table where rows were left out."""

from wardround.report.html.markup import Html, details, join, paragraph, safe, table
from wardround.report.unit import units_of
from wardround.runs.clinical.patient_table import RowFlow
from wardround.runs.run import Run

LISTED = 200
"""Hospitals up to which each has a line."""
OPEN = 30
PARTS = {"train": "to train", "validation": "to choose settings (validation)", "test": "to test"}


def flow_section(run: Run) -> Html:
    """The boxes and the table; nothing where no patient is known."""
    if not sum(hospital.patients for hospital in run.hospitals):
        return Html("")
    return join([flow_words(run), flow_boxes(run), flow_table(run)])


def flow_words(run: Run) -> Html:
    if run.kind == "deployed":
        return paragraph(
            safe(
                "Real hospitals tell every number rounded down to whole cells (of ten, where they do not say "
                "otherwise), so the boxes need not add up. Each hospital has its exact numbers in its own report "
                "(`wardround site report`)."
            )
        )
    return Html("")


def flow_boxes(run: Run) -> Html:
    """Plain boxes, one under the other: they print, and they read aloud."""
    whole = run.flow.all if run.flow is not None else RowFlow(used=None)
    used = sum(hospital.patients for hospital in run.hospitals)
    hospitals = f"{len(run.hospitals):,} hospital{'' if len(run.hospitals) == 1 else 's'}"
    steps = []
    if whole.read is not None:
        gone = [
            side(whole.without_outcome, f"without a known {run.task.target or 'outcome'}"),
            side(whole.left_out, "left out by the study's settings"),
        ]
        none = f"too few to be told of without a known {run.task.target or 'outcome'}, or none"
        aside = join(gone) or Html(f"<li>{safe(none if run.kind == 'deployed' else 'nobody left out')}</li>")
        steps.append(Html(f'<div class="step">{box(whole.read, "rows read")}<ul class="gone">{aside}</ul></div>'))
    steps.append(Html(f'<div class="step">{box(used, f"{units_of(run)} used, at {hospitals}")}</div>'))
    parts = [
        box(sum(getattr(hospital, part) or 0 for hospital in run.hospitals), words) for part, words in PARTS.items()
    ]
    steps.append(Html(f'<div class="step parts">{join(parts)}</div>'))
    return Html(f'<div class="flow">{join(steps)}</div>')


def box(count: int, words: str) -> Html:
    return Html(f'<p class="box"><strong>{count:,}</strong> {safe(words)}</p>')


def side(count: int | None, words: str) -> Html:
    return Html(f"<li><strong>{count:,}</strong> {safe(words)}</li>") if count else Html("")


def told(count: int | None) -> str:
    return "not shown" if count is None else f"{count:,}"


def flow_table(run: Run) -> Html:
    """Hospital by hospital, where rows were left out anywhere."""
    flows = run.flow.sites if run.flow is not None else {}
    known = [flow for flow in flows.values() if flow.read is not None]
    few = known and len(known) < len(flows)
    if not few and not any((flow.without_outcome or 0) + (flow.left_out or 0) for flow in known):
        return Html("")
    if len(flows) > LISTED:
        return paragraph(safe(f"The numbers of all {len(flows):,} hospitals are in result.json."))
    rows = [
        [name, *(told(one) for one in (flow.read, flow.without_outcome, flow.left_out, flow.used))]
        for name, flow in flows.items()
    ]
    columns = ["Hospital", "Rows read", "Without outcome", "Left out by settings", "Used"]
    hidden = "; where few were left out, only the rows used are shown" if few else ""
    whole = table(f"From rows read to rows used{hidden}", columns, rows)
    return whole if len(flows) <= OPEN else details(f"Rows of all {len(flows):,} hospitals", whole)
