"""The tables of the page of `explain`: rules, strategies at an operating point, splits, models."""

from wardround.report.html.markup import Cell, FigureCell, Html, table
from wardround.runs.explain.explain_result import ChoiceStrategy, HandedOver, OperatingCell, SiteAnswer

STRATEGIES = {"threshold": "competence threshold", "rules": "rules", "hybrid": "rules, then threshold"}


def share(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.0f} %" if value >= 0.0995 or value == 0 else f"{100 * value:.1f} %"


def p_value(value: float | None) -> str:
    """
    >>> p_value(0.0312), p_value(3.2e-9), p_value(None)
    ('0.031', '<0.001', '–')
    """
    if value is None:
        return "–"
    return f"{value:.2g}" if value >= 0.001 else "<0.001"


def success(done: HandedOver) -> FigureCell:
    if done.success is None:
        return FigureCell("–")
    span = () if done.low is None or done.high is None else (f"{100 * done.low:.0f} to {100 * done.high:.0f}",)
    return FigureCell(f"{100 * done.success:.0f} %", span)


def standing(one: ChoiceStrategy) -> str:
    """Whether validation let it through, and whether test patients confirm it."""
    return "confirmed" if one.confirmed else "not confirmed" if one.passes else "declined"


def rule_table(one: SiteAnswer, *, used: bool) -> Html:
    """The rules that are followed, or those that are not."""
    rows = [
        [
            rule.words,
            rule.source,
            f"{rule.rows or 0:,} ({share(rule.share)})",
            f"{rule.right or 0:,} / {rule.wrong or 0:,}",
            share(rule.here),
            share(rule.there),
            p_value(rule.more_there),
            p_value(rule.prune_p),
        ]
        for rule in one.rules
        if rule.used == used
    ]
    columns = [
        "patients with", "decided by", "test rows", "became right / wrong", "share here", "share there",
        "p: more there", "p: by chance",
    ]  # fmt: skip
    return table(f"Rules of {one.site}, in order" if used else f"Not followed at {one.site}", columns, rows)


def point_table(one: SiteAnswer, cell: OperatingCell) -> Html:
    kept = "their own hospital's threshold" if cell.keeps == "own" else "a threshold chosen here"
    rows: list[list[Cell]] = [
        [
            STRATEGIES.get(found.name, found.name),
            p_value(found.p_value),
            p_value(found.corrected),
            f"{found.test.rows or 0:,} ({share(found.test.share)})",
            f"{found.test.right or 0:,} / {found.test.wrong or 0:,}",
            success(found.test),
            p_value(found.test.by_patient),
            f"{share(found.test.local_accuracy)} → {share(found.test.other_accuracy)}",
            standing(found),
        ]
        for found in cell.strategies
    ]
    columns = [
        "strategy", "validation p", "corrected", "test rows handed over", "became right / wrong",
        "right among changed", "test p", "accuracy", "standing",
    ]  # fmt: skip
    return table(f"{one.site} {cell.words}; other models with {kept}", columns, rows)


def split_table(one: SiteAnswer) -> Html:
    rows = [
        [
            f"{split.seed}",
            f"by {split.by}",
            STRATEGIES.get(split.strategy, "own model only"),
            share(split.share),
            FigureCell(
                share(split.success),
                ()
                if split.low is None or split.high is None
                else (f"{100 * split.low:.0f} to {100 * split.high:.0f}",),
            ),
            p_value(split.by_patient),
            "yes" if split.confirmed else "no",
            "; ".join(split.rules) or "–",
        ]
        for split in one.splits
    ]
    columns = ["seed", "split", "what passed", "handed over", "right among changed", "test p", "confirmed", "rules"]
    return table(f"{one.site}: the same question on other splits", columns, rows)


def auc_table(one: SiteAnswer) -> Html:
    rows = [[name, "–" if value is None else f"{value:.3f}"] for name, value in one.auc.items()]
    return table(f"Each model on all test patients of {one.site}", ["model of", "ROC-AUC"], rows)
