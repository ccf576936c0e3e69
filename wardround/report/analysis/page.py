"""The page of an analysis: the answer in sentences, then charts and tables, then from whom and how it was found."""

from collections.abc import Sequence
from typing import Any

from wardround.report import numbers
from wardround.report.analysis.charts import chart_of
from wardround.report.html.document import chart_figures, date_text, document, facts, notices, remark_list
from wardround.report.html.markup import Html, bullets, join, paragraph, plain, safe, section, table
from wardround.runs.analyses.analysis_result import AnalysisResult, ResultTable
from wardround.runs.fields import Json

MOST_ROWS = 200
"""Rows of a table that are shown; the rest is in result.json."""


def analysis_page(result: AnalysisResult, manifest: Json, remarks: Sequence[str] = ()) -> Html:
    """The whole document."""
    parts = [
        notices(safe(one) for one in remarks),
        section("answer", "What was found", *answer(result)),
        section("charts", "Charts", chart_figures("found", [chart_of(one) for one in result.charts])),
        section("tables", "Tables", *(found_table(one) for one in result.tables)),
        section("sites", "Who took part, and how", *who_and_how(result)),
    ]
    return document(result.study, subtitle(result, manifest), join(parts), manifest)


def subtitle(result: AnalysisResult, manifest: Json) -> Html:
    where = "over real hospitals" if result.deployed else "on this machine"
    words = [safe(f"{plain(result.label)}, {where}")]
    if manifest.get("finished"):
        words.append(safe(f"finished {date_text(manifest['finished'])}"))
    return join(words, " · ")


def answer(result: AnalysisResult) -> list[Html]:
    first, *rest = result.words or ("Nothing was found.",)
    return [
        paragraph(Html(f"<strong>{safe(first)}</strong>")),
        bullets(safe(one) for one in rest) if rest else Html(""),
    ]


def found_table(one: ResultTable) -> Html:
    shown = one.rows[:MOST_ROWS]
    more = len(one.rows) - len(shown)
    return join(
        [
            table(one.caption, one.columns, [[cell(value) for value in row] for row in shown if row]),
            paragraph(safe(f"And {more:,} more rows in result.json.")) if more else Html(""),
        ]
    )


def cell(value: Any) -> str:
    """A value of a table as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", numbers.MINUS)
    return numbers.score(value) if isinstance(value, float) else str(value)


def who_and_how(result: AnalysisResult) -> list[Html]:
    rows = [site.rows or 0 for site in result.sites]
    seen = "the sum of the sites' answers, and no single one" if result.sums_only else "the sums of every site"
    told = "as the sites tell them" if result.deployed else "all of them are used"
    found = [
        ("Sites", f"{len(rows)}", "real hospitals" if result.deployed else "simulated"),
        ("Rows", numbers.count(sum(rows)), told),
        ("Exchanges", numbers.count(result.exchanges), f"{result.numbers_sent or 0:,} numbers from each site in all"),
    ]
    about = ", ".join(f"{plain(name)} ({one.kind})" for name, one in result.columns.items())
    kept = {key: value for key, value in result.settings.items() if value not in ("", (), [])}
    said = "; ".join(f"{key} = {value}" for key, value in kept.items())
    who = [[site.name, numbers.count(site.rows)] for site in result.sites[:MOST_ROWS]]
    return [
        facts(found),
        paragraph(safe(f"Columns: {about}. Settings: {said or 'none'}.")),
        paragraph(safe(f"Whoever asked saw {seen}; no patient's row left its site.")),
        paragraph(safe(result.privacy)) if result.privacy else Html(""),
        table("Rows of each site", ("site", "rows"), who),
        remark_list(result.notes),
    ]
