"""Tables at equal cost: what each way to train reaches after the same steps, traffic, arithmetic or CO2."""

from typing import TYPE_CHECKING

from wardround.report import numbers
from wardround.report.html.markup import Html, join, paragraph, plain, safe, table
from wardround.runs.cases_result import BudgetLoss, CaseResult, EqualBudget

if TYPE_CHECKING:
    from wardround.report.cases.page import CasesView


TABLES = {
    "steps": "After the same number of steps",
    "traffic": "After the same traffic",
    "rows": "After the same arithmetic",
    "flops": "After the same arithmetic",
    "grams": "After the same CO₂",
}


def budget_words() -> Html:
    return paragraph(
        Html(
            "The error on the asking hospital's validation patients (lower is better), when every method may spend the "
            "same: as many steps at the asking hospital as the method with the fewest takes in total; or as much "
            "traffic for the model it uses as the method that sends least, of those that send anything; or as many "
            "floating-point operations of training at all hospitals, those of its products (a method that trains a "
            "part of the model takes fewer for a patient); or as much CO₂, estimated from processor time, compiling "
            "included, and traffic. What a method "
            "spends on choosing partners counts. The last table groups the methods by how many hospitals their model "
            "has learned from."
        )
    )


def budget_tables(view: "CasesView") -> list[Html]:
    columns = [Html("Setting"), *(safe(label) for label in view.labels.values())]
    parts = []
    for key, title in TABLES.items():
        rows = []
        for case in view.cases:
            entries: EqualBudget | None = getattr(case.budgets, key)
            if entries is not None:
                rows.append([safe(case.title), *(cost_cell(entries.methods.get(name)) for name in view.labels)])
        if rows:
            parts.append(table(title, columns, rows))
    rows = [[safe(case.title), *scope_cells(view, case)] for case in view.cases]
    heads = [Html(head) for head in ("Setting", "Alone", "With some", "With all")]
    return [*parts, table("By the number of hospitals learned from", heads, rows)]


def cost_cell(entry: BudgetLoss | None) -> Html:
    if entry is None or entry.loss is None:
        return Html(f'<span class="undefined">{safe((entry and entry.undefined) or "not known")}</span>')
    at = entry.round
    small = "spends nothing" if entry.spends is False else f"round {at:.3g}" if at is not None else ""
    return join([safe(numbers.score(entry.loss)), Html(f'<span class="interval">{safe(small)}</span>')], " ")


def scope_cells(view: "CasesView", case: CaseResult) -> list[Html]:
    """Methods by the number of hospitals behind their models: one, more than one, all."""
    scope = case.budgets.scope
    everyone = scope.sites or len(case.sites)
    groups: list[list[Html]] = [[], [], []]
    for name, label in view.labels.items():
        entry = scope.methods.get(name)
        if entry is None or entry.group is None or entry.loss is None or entry.scope is None:
            continue
        group, loss, size = entry.group, entry.loss, entry.scope
        place = 0 if group <= 1 else 2 if group >= everyone else 1
        words = f"{plain(label)}: {numbers.score(loss)}" + (f" ({size:.2g} hospitals)" if place == 1 else "")
        groups[place].append(safe(words))
    return [join(group, "<br>") for group in groups]
