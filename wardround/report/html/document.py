"""The frame that all pages share: one HTML file that needs no network and sends nothing.

Self-contained: Plotly's program is inside, once (about 4.8 MB). A content security policy allows the two scripts by
their hashes and nothing else, so that even a name that slipped through the escaping could neither run nor load a thing.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from plotly.offline import get_plotlyjs

from wardround.report.html.charts import Chart
from wardround.report.html.markup import Html, bullets, details, join, paragraph, safe, script_json
from wardround.report.html.style import CSS
from wardround.runs.fields import Json

DRAW = """
(function () {
  "use strict";
  var boxes = Array.prototype.slice.call(document.querySelectorAll(".chart"));
  var settings = { responsive: true, displayModeBar: false, showTips: false, typesetMath: false };
  boxes.forEach(function (box) {
    var chart = JSON.parse(document.getElementById(box.id + "-data").textContent);
    Plotly.newPlot(box, chart.data, chart.layout, settings);
  });
  document.querySelectorAll("details").forEach(function (fold) {
    // A chart that was drawn while folded away has no width of its own yet.
    fold.addEventListener("toggle", function () {
      if (fold.open) { fold.querySelectorAll(".chart").forEach(function (box) { Plotly.Plots.resize(box); }); }
    });
  });
  window.addEventListener("beforeprint", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { width: Number(box.getAttribute("data-paper")) }); });
  });
  window.addEventListener("afterprint", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { width: null, autosize: true }); });
  });
})();
"""

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def document(name: str, subtitle: Html, content: Html, manifest: Json) -> Html:
    """The whole file around its content."""
    plotly = get_plotlyjs()
    policy = (
        f"default-src 'none'; script-src {fingerprint(plotly)} {fingerprint(DRAW)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Html(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{safe(name)}: report</title>
<link rel="icon" href="data:,">
<style>{CSS}</style>
</head>
<body>
<header><h1>{safe(name)}</h1><p class="kind">{subtitle}</p></header>
<main>
{content}
</main>
<footer><p>{made_by(manifest)} This page is a single file and loads nothing from the network.</p></footer>
<script>{plotly}</script>
<script>{DRAW}</script>
</body>
</html>
"""
    )


def made_by(manifest: Json) -> Html:
    version = manifest.get("wardround")
    return Html(f"Made with wardround {safe(version)}." if version else "Made with wardround.")


def fingerprint(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def date_text(value: object) -> str:
    """A date as people write it, or as it stands when it is none."""
    try:
        when = datetime.fromisoformat(str(value))
    except ValueError:
        return str(value)
    # Not strftime("%B"): its month depends on the machine's language, and the page is in one.
    return f"{when.day} {MONTHS[when.month - 1]} {when.year}, {when:%H:%M} {when.tzname() or ''}".strip()


def facts(found: Iterable[tuple[str, str] | tuple[str, str, str]]) -> Html:
    """Figures a reader looks for first, each in a box: its name, its value, and perhaps a note below."""
    rows = "".join(
        f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd>{f'<dd>{safe(note[0])}</dd>' if note else ''}</div>"
        for name, value, *note in found
    )
    return Html(f'<dl class="facts">{rows}</dl>' if rows else "")


def headed_list(found: Iterable[tuple[str, Html]]) -> Html:
    """Short answers, each beside its heading."""
    return Html(
        '<dl class="summary">'
        + "".join(f"<div><dt>{safe(title)}</dt><dd>{text}</dd></div>" for title, text in found)
        + "</dl>"
    )


def notices(found: Iterable[Html]) -> Html:
    return join(paragraph(text, "notice") for text in found)


def remark_list(notes: Sequence[str]) -> Html:
    """What the program remarked while it prepared the data and trained."""
    if not notes:
        return Html("")
    remarks = bullets(safe(note) for note in notes)
    return join([Html("<h3>Notes</h3>"), remarks]) if len(notes) <= 8 else details("Notes", remarks)


def chart_figures(name: str, charts: Iterable[Chart | None]) -> Html:
    """Figures with captions, words for screen readers, and their data beside them."""
    parts = []
    shown = [chart for chart in charts if chart is not None]
    for index, chart in enumerate(shown):
        mark = f"chart-{name}-{index}"
        data = script_json({"data": list(chart.traces), "layout": chart.layout})
        parts.append(
            Html(
                f'<figure><figcaption id="{mark}-title">{safe(chart.title)}</figcaption>'
                f'<div class="chart" id="{mark}" role="img" aria-label="{safe(chart.description)}" '
                f'data-paper="{325 if chart.half else 670}" style="height:{chart.height}px">'
                "<noscript>Charts need JavaScript; the tables have the same numbers.</noscript></div>"
                f'<script type="application/json" id="{mark}-data">{data}</script></figure>'
            )
        )
    inside = join(parts)
    return Html(f'<div class="side">{inside}</div>') if any(chart.half for chart in shown) else inside
