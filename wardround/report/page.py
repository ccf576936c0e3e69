"""The report of a run: one HTML file for a clinician and a hospital board that needs no network and tells no tales.

Self-contained: Plotly's program is inside, once (about 4.8 MB). A content security policy allows the two scripts by
their hashes and nothing else, so that even a name that slipped through the escaping could neither run nor load a thing.
"""

import base64
import hashlib
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from plotly.offline import get_plotlyjs

from wardround.core.errors import Refusal
from wardround.report import courses, figures, quantities, tables, truth, words
from wardround.report.charts import Chart
from wardround.report.markup import Html, bullets, embedded, folded, joined, paragraph, plain, safe, section
from wardround.report.measures import label_of
from wardround.report.reading import read_run
from wardround.report.run import Run, total
from wardround.report.standing import best_overall
from wardround.report.style import CSS

FILE = "report.html"

DRAW = """
(function () {
  "use strict";
  var boxes = Array.prototype.slice.call(document.querySelectorAll(".chart"));
  var settings = { responsive: true, displayModeBar: false, showTips: false, typesetMath: false };
  boxes.forEach(function (box) {
    var chart = JSON.parse(document.getElementById(box.id + "-data").textContent);
    Plotly.newPlot(box, chart.data, chart.layout, settings);
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
KINDS = {"run": "Report of a training run", "compare": "Comparison of ways to train", "demo": "Demonstration"}


def write_report(folder: Path) -> Path:
    """Writes `report.html` into the run folder and returns its path; a report that is there is replaced."""
    folder = Path(folder)
    text = page(read_run(folder))
    target, fresh = folder / FILE, folder / f".{FILE}.{os.getpid()}"
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise Refusal(
            f"the report cannot be written: {error.strerror}",
            where=str(target),
            remedy="check that the folder can be written to and the disk is not full",
        ) from None
    return target


def page(run: Run) -> Html:
    """The whole document."""
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
<title>{safe(run.name)}: report</title>
<link rel="icon" href="data:,">
<style>{CSS}</style>
</head>
<body>
<header><h1>{safe(run.name)}</h1><p class="kind">{subtitle(run)}</p></header>
<main>
{content(run)}
</main>
<footer><p>{made_by(run)} This page is one file and loads nothing.</p></footer>
<script>{plotly}</script>
<script>{DRAW}</script>
</body>
</html>
"""
    )


def made_by(run: Run) -> Html:
    version = run.manifest.get("wardround")
    return Html(f"Made with wardround {safe(version)}." if version else "Made with wardround.")


def fingerprint(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def subtitle(run: Run) -> Html:
    parts = [safe(KINDS.get(run.kind, "Report"))]
    if run.manifest.get("finished" if run.finished else "started"):
        word = "finished" if run.finished else "started"
        parts.append(Html(f"{word} {safe(moment(run.manifest[word]))}"))
    return joined(parts, " · ")


def moment(value: object) -> str:
    """A date as people write it, or as it stands when it is none."""
    try:
        when = datetime.fromisoformat(str(value))
    except ValueError:
        return str(value)
    # Not strftime("%B"): its month depends on the machine's language, and the page is in one.
    return f"{when.day} {MONTHS[when.month - 1]} {when.year}, {when:%H:%M} {when.tzname() or ''}".strip()


def content(run: Run) -> Html:
    """The sections in the order in which a reader asks: what came out, what it cannot tell, the evidence, the cost."""
    progress = courses.progress(run)
    return joined(
        [
            notices(run),
            section("summary", "In short", paragraph(words.summary(run), "summary"), facts(run)),
            section("limits", "What this cannot tell", bullets(words.limits(run)), noted(run)),
            section("truth", "What is really so", truth.told(run)),
            section("scores", "How good the models are at each hospital", drawn("scores", [figures.scores(run)])),
            section(
                "progress", "Progress round by round", progress_words(run) if progress else Html(""),
                drawn("progress", progress),
            ),
            section("numbers", "The numbers", tables.scores(run)),
            section(
                "differences", "Is one model better than another?", difference_words(run),
                drawn("differences", [figures.differences(run)]), tables.differences(run),
            ),
            section("costs", "Traffic, time and energy", drawn("costs", courses.costs(run)), tables.costs(run)),
            section("patients", "Patients", drawn("patients", courses.patients(run)), tables.patients(run)),
            section(
                "curious", "For the curious", drawn("calibration", [figures.calibration(run)]),
                tables.percentiles(run), tables.manifest(run),
            ),
        ]
    )  # fmt: skip


def notices(run: Run) -> Html:
    """What is wrong with the files, before anything else is said."""
    found = []
    if not run.finished:
        done = max((course.rounds[-1] for course in run.courses if course.rounds), default=0)
        until = f"after round {done:,}" if done else "before a first round was written"
        found.append(
            Html(
                f"<strong>This run was interrupted {until}:</strong> there is no <code>result.json</code>. Run the "
                "study again (it goes on where it stopped if it left a checkpoint); then make the report again."
            )
        )
    found += [safe(remark) for remark in run.remarks]
    return joined(paragraph(text, "notice") for text in found)


def facts(run: Run) -> Html:
    """The figures a reader looks for first."""
    cost = [method.cost for method in run.methods]
    patients = sum(hospital.patients for hospital in run.hospitals)
    found = []
    if run.hospitals:
        found.append(("Hospitals", f"{len(run.hospitals):,}"))
    if patients:
        found.append(("Patients", f"{patients:,}"))
    leaders = best_overall(run, run.metric)
    if len(leaders) == 1:
        value = leaders[0].weighted[run.metric].value or 0.0
        reached = f"{plain(label_of(run.metric))} {quantities.score(value)}"
        if len(run.methods) == 1:
            found.append(("All hospitals, by patients", reached))
        else:
            found.append((f"Best on average, {reached}", leaders[0].label))
    for title, amount, unit in (
        ("Traffic", total([c.traffic for c in cost]), quantities.traffic),
        ("Time", total([c.seconds for c in cost]), quantities.time),
        ("Energy (estimate)", total([c.watt_hours for c in cost]), quantities.energy),
    ):
        if amount is not None:
            found.append((title, unit(amount)))
    rows = "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in found)
    return Html(f'<dl class="facts">{rows}</dl>' if rows else "")


def noted(run: Run) -> Html:
    """What the program remarked while it prepared the data and trained."""
    if not run.notes:
        return Html("")
    remarks = bullets(safe(note) for note in run.notes)
    return (
        joined([Html("<h3>Remarks on the data</h3>"), remarks]) if len(run.notes) <= 8 else folded("Remarks", remarks)
    )


def progress_words(run: Run) -> Html:
    many = len(run.hospitals) > figures.MANY
    hospitals = "The band holds the middle 80 % of hospitals." if many else "Each thin line is one hospital."
    repeat = f" Shown is the first of {run.repeats} repeats." if run.repeats > 1 else ""
    return paragraph(
        Html(
            "The error on patients kept apart for checking (validation loss; lower is better). The thick line is the "
            f"mean over all patients. {hospitals}{repeat}"
        )
    )


def difference_words(run: Run) -> Html:
    if not run.differences:
        return Html("")
    return paragraph(
        Html(
            "Two models are compared on the very same patients, so that easy or hard patients do not decide. Where "
            "the interval includes zero, no difference is shown; that does not prove that there is none. A verdict may "
            "be withheld although the interval excludes zero, when many comparisons were made at once."
        )
    )


def drawn(name: str, charts: Iterable[Chart | None]) -> Html:
    """Figures with captions, words for screen readers, and their data beside them."""
    parts = []
    shown = [chart for chart in charts if chart is not None]
    for index, chart in enumerate(shown):
        mark = f"chart-{name}-{index}"
        data = embedded({"data": list(chart.traces), "layout": chart.layout})
        parts.append(
            Html(
                f'<figure><figcaption id="{mark}-title">{safe(chart.title)}</figcaption>'
                f'<div class="chart" id="{mark}" role="img" aria-label="{safe(chart.spoken)}" '
                f'data-paper="{325 if chart.half else 670}" style="height:{chart.height}px">'
                "<noscript>Charts need JavaScript; the tables have the same numbers.</noscript></div>"
                f'<script type="application/json" id="{mark}-data">{data}</script></figure>'
            )
        )
    inside = joined(parts)
    return Html(f'<div class="side">{inside}</div>') if any(chart.half for chart in shown) else inside
