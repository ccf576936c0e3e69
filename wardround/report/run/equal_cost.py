"""The ways to train of one study at equal cost: what each reaches after the same steps, traffic, arithmetic or CO2."""

from wardround.report.cases.equal_cost import cost_cell
from wardround.report.html.markup import Html, join, paragraph, safe, table
from wardround.runs.run import Run

COLUMNS = {"steps": "Steps", "traffic": "Traffic", "flops": "Operations", "grams": "CO₂"}


def equal_cost(run: Run) -> Html:
    """A row a method, a column a cost; nothing where it was not found."""
    if run.budgets is None:
        return Html("")
    kept = {title: found for key, title in COLUMNS.items() if (found := getattr(run.budgets, key)) is not None}
    rows = [
        [method.label, *(cost_cell(one.methods.get(method.name)) for one in kept.values())] for method in run.methods
    ]
    words = paragraph(
        Html(
            "The error on validation patients (lower is better) at the last look before a method had spent as much as "
            "the one that spends least in all, of those that spend any; mean over hospitals and repeats."
        )
    )
    return join([table("After the same cost", [Html("Model"), *(safe(title) for title in kept)], rows), words])
