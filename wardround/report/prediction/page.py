"""A page about the predictions of some patients: for each the sentences, a small chart, and all contributions.

One file that needs no network and holds no script at all: the charts are drawn as plain SVG.
"""

from collections.abc import Callable, Sequence

from wardround import __version__
from wardround.report.html.markup import Html, bullets, details, join, paragraph, safe, section, table
from wardround.report.html.palette import INK, LINE, QUIET
from wardround.report.html.style import CSS
from wardround.report.numbers import with_sign
from wardround.report.prediction.words import (
    MOST,
    ExplainedPatient,
    Influence,
    explanation_lines,
    moves,
    shown_pair,
    signed_change,
)

UP, DOWN = "#C24E00", "#0072B2"
WIDTH, LEFT, RIGHT, LINE_HEIGHT, TOP = 720, 230, 110, 30, 40
"""Of a chart, in pixels: the plot stands between the names on its left and the changes on its right."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def explanation_page(title: str, model: str, patients: Sequence[ExplainedPatient], unit: str) -> Html:
    """The whole file; `model` says in a sentence what predicted, `unit` in what contributions are counted."""
    parts = [paragraph(safe(model), "lead"), paragraph(safe(READ)), *(patient_part(one, unit) for one in patients)]
    return Html(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{safe(title)}: explained</title>
<link rel="icon" href="data:,">
<style>{CSS}</style>
</head>
<body>
<header><h1>{safe(title)}</h1><p class="kind">Predictions explained, patient by patient</p></header>
<main>
{join(parts)}
</main>
<footer><p>Made with wardround {safe(__version__)}. This page is a single file and loads nothing from the network. It
says what moved the model, not what would help the patient; no model trained here is a medical device.</p></footer>
</body>
</html>
"""
    )


READ = (
    "Every patient is compared with a typical one, whose values are the medians and most frequent values of training. "
    "The values that differ are put in one after the other, the weightiest first."
)


def patient_part(patient: ExplainedPatient, unit: str) -> Html:
    first, *others = explanation_lines(patient)
    name = "patient-" + "".join(letter if letter.isalnum() else "-" for letter in patient.name)
    rows = [
        (one.column, one.value or "missing", one.typical or "none", with_sign(one.amount)) for one in patient.influences
    ]
    every = table(f"Contributions in {unit}; they add up", ["column", "value", "typical", "contribution"], rows)
    return section(
        safe(name),
        patient.name,
        paragraph(safe(begin_sentence(first.removeprefix(f"{patient.name}: "))), "answer"),
        chart(patient),
        bullets(safe(line) for line in others),
        details("All columns", every),
    )


def begin_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def chart(patient: ExplainedPatient) -> Html:
    """Bars from the typical patient's prediction to this patient's, one a column."""
    moving = [one for one in patient.influences if moves(one, share=patient.share)]
    if not moving:
        return Html("")
    bars = moving[:MOST]
    if rest := moving[MOST:]:
        many = f"{len(rest)} other columns" if len(rest) > 1 else "1 other column"
        bars.append(Influence(many, "", "", sum(one.amount for one in rest), rest[0].before, rest[-1].after))
    ends = [patient.typical, patient.predicted, *(end for one in bars for end in (one.before, one.after))]
    low, high = min(ends), max(ends)
    height = TOP + LINE_HEIGHT * len(bars) + 34

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / ((high - low) or 1.0)

    now, usual = shown_pair(patient.predicted, patient.typical, share=patient.share)
    parts = [
        upright(x(patient.typical), f"typical {usual}", TOP - 12, height - 30),
        upright(x(patient.predicted), f"this patient {now}", height - 10, height - 30),
        *(bar(one, place, x, share=patient.share) for place, one in enumerate(bars)),
    ]
    words = "; ".join(explanation_lines(patient))
    return Html(
        f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{safe(words)}" '
        f'style="max-width:{WIDTH}px;width:100%;font-size:14px" fill="{INK}">{join(parts)}</svg></figure>'
    )


def upright(x: float, label: str, y: float, end: float) -> Html:
    """A dashed line at a prediction, with its label above or below."""
    anchor = "start" if x < WIDTH / 3 else "end" if x > WIDTH * 2 / 3 else "middle"
    return Html(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{end}" stroke="{QUIET}" stroke-dasharray="3 3"/>'
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{QUIET}">{safe(label)}</text>'
    )


def bar(one: Influence, place: int, x: Callable[[float], float], *, share: bool) -> Html:
    top = TOP + LINE_HEIGHT * place
    begin, end = sorted((x(one.before), x(one.after)))
    fill = UP if one.after > one.before else DOWN
    name = f"{one.column} {one.value}".strip()
    name = name if len(name) <= 32 else name[:31] + "…"
    return Html(
        f'<text x="{LEFT - 12}" y="{top + 19}" text-anchor="end">{safe(name)}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + LINE_HEIGHT}" y2="{top + LINE_HEIGHT}" stroke="{LINE}"/>'
        f'<rect x="{begin:.1f}" y="{top + 5}" width="{max(end - begin, 1.5):.1f}" height="{LINE_HEIGHT - 10}" '
        f'fill="{fill}" rx="2"/>'
        f'<text x="{WIDTH - RIGHT + 8}" y="{top + 19}" fill="{fill}">{safe(signed_change(one, share=share))}</text>'
    )
