"""The answer of `explain` and `gaps` for the terminal."""

from rich.table import Table
from rich.text import Text

from wardround.report.explain.tables import p_value, share
from wardround.report.html.markup import plain
from wardround.runs.explain.explain_result import ExplainResult
from wardround.runs.explain.gaps_result import GapsResult


def explain_lines(result: ExplainResult) -> list[str]:
    """The answers, one paragraph a hospital, with its rules."""
    lines = []
    for one in result.sites:
        lines.append(plain(one.headline))
        lines += [f"  - {plain(said)}" for said in one.sentences]
    lines += [f"{plain(name)} took no part: {plain(why)}" for name, why in result.absent.items()]
    return lines


def rules_table(result: ExplainResult) -> Table | None:
    """The rules that are followed; none where nobody follows one."""
    used = [(one.site, rule) for one in result.sites for rule in one.rules if rule.used]
    if not used:
        return None
    shown = Table(title=Text("Rules that are followed, in order"), title_justify="left")
    for name in ("at", "patients with", "decided by", "test rows", "became right / wrong", "share here", "share there"):
        shown.add_column(Text(name))
    for site, rule in used:
        cells = (
            site, rule.words, rule.source, f"{rule.rows:,} ({share(rule.share)})", f"{rule.right} / {rule.wrong}",
            share(rule.here), share(rule.there),
        )  # fmt: skip
        shown.add_row(*(Text(plain(cell)) for cell in cells))
    return shown


def gaps_table(result: GapsResult) -> Table:
    """Every practice and organisation, with the verdict before and after equal sizes."""
    shown = Table(title=Text(f"Practice gaps: {plain(result.question)}"), title_justify="left")
    for name in ("practice", "at", "against", "performance", "entropy", "verdict", "at equal size", "stop-gap"):
        shown.add_column(Text(name))
    marks = {"gap": "★", "performance": "P", "entropy": "E"}
    for one in result.gaps:
        stop = one.stop_gap
        said = "–"
        if stop is not None:
            said = f"{share(stop.success)} right, p {p_value(stop.test_p)}" if stop.used else "declined"
        cells = (
            one.practice, one.organisation, one.other, _difference(one.performance.value),
            _difference(one.entropy.value), marks.get(one.verdict, ""), marks.get(one.sized_verdict, "–"), said,
        )  # fmt: skip
        shown.add_row(*(Text(plain(cell)) for cell in cells))
    return shown


def _difference(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"
