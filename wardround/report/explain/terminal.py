"""The answer of `explain` and `gaps` for the terminal."""

from rich.table import Table
from rich.text import Text

from wardround.report.explain.tables import p_value, share
from wardround.report.html.markup import plain
from wardround.runs.explain.explain_result import ExplainResult
from wardround.runs.explain.gaps_result import GapsResult, StopGap


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


VERDICTS = {"gap": "★ yes", "performance": "no (P)", "entropy": "no (E)"}


def gaps_table(result: GapsResult) -> Table:
    """Every practice and pair of organisations, with the verdict (at equal sizes, where these were compared)."""
    shown = Table(title=Text(f"Practice gaps: {plain(result.question)}"), title_justify="left", caption_justify="left")
    has_stop_gap = any(one.stop_gap is not None for one in result.gaps)
    names = ["practice", "at", "against", "performance", "entropy", "gap", *(["stop-gap"] if has_stop_gap else [])]
    for name in names:
        shown.add_column(Text(name), overflow="fold")
    for one in result.gaps:
        cells = [
            one.practice, one.organisation, one.other, _difference(one.performance.value),
            _difference(one.entropy.value), VERDICTS.get(one.sized_verdict or one.verdict, "–"),
        ]  # fmt: skip
        if has_stop_gap:
            cells.append(_stop_gap(one.stop_gap))
        shown.add_row(*(Text(plain(cell)) for cell in cells))
    shown.caption = Text(
        "Own model less the other's. No gap, since P: the own model is better; E: the other is not better, and its"
        " scores are not more consistent (or nearly the same for everybody)."
    )
    return shown


def _stop_gap(stop: StopGap | None) -> str:
    if stop is None:
        return "–"
    return f"{share(stop.success)} right, p {p_value(stop.test_p)}" if stop.used else "declined"


def _difference(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"
