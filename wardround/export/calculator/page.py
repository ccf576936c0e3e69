"""The calculator's page: a form with one field a column, the answer, its explanation, the model card.

One file without any reference to another; a content security policy allows its own program by its hash and nothing
else, no request included. Nothing is stored: what is typed is gone when the page is closed.
"""

from importlib.resources import files
from pathlib import Path

from wardround.data.preparation import NumberColumn, TextColumn
from wardround.export.calculator.card import card_section, read_card
from wardround.export.calculator.content import calculator_content, label_of, range_words, readable, step_of
from wardround.predict.predictor import Predictor
from wardround.report.html.document import fingerprint
from wardround.report.html.markup import Html, join, safe, script_json
from wardround.report.numbers import share

YES = {"yes", "true", "1", "positive"}
SHORT = 24
"""Letters of two or three categories that fit side by side on a telephone."""


def calculator_page(predictor: Predictor, folder: Path | None = None) -> str:
    """The whole file; `folder` is the run's, for the figures of the model card."""
    content = calculator_content(predictor)
    program, style = (asset(name) for name in ("program.js", "style.css"))
    policy = (
        f"default-src 'none'; script-src {fingerprint(program)}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    kind = content["outcome"]["kind"]
    facts = predictor.facts
    title = title_of(predictor)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="format-detection" content="telephone=no">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p class="from">{origin(predictor)}</p></header>
<main>
<noscript><p class="panel">This page calculates with JavaScript, which is switched off in this browser.</p></noscript>
<div class="columns">
<form id="patient" class="panel" autocomplete="off" novalidate>
<h2>The patient</h2>
<div class="fields">
{join((field(place, column, facts.units) for place, column in enumerate(predictor.preparation.columns)), chr(10))}
</div>
<div class="buttons"><button type="reset">Clear</button><button type="button" id="print">Print</button></div>
</form>
<div>
<section class="panel" aria-labelledby="result-title">
<h2 id="result-title">{RESULT[kind]}</h2>
<p id="waiting" class="quiet">Enter what you know about the patient.</p>
<div id="answer" role="status" aria-live="polite" hidden>
{answer(predictor, kind)}
</div>
<ul id="warnings" class="warnings" hidden></ul>
</section>
<section id="explanation" class="panel" aria-labelledby="explanation-title" hidden>
<h2 id="explanation-title">What makes the difference</h2>
<p id="against" class="quiet"></p>
<ul id="pushes" class="pushes"></ul>
</section>
</div>
</div>
<details id="card" class="panel"><summary>About this model</summary><div>
{card_section(predictor, read_card(folder))}
</div></details>
</main>
<footer><p>Made with wardround {safe(facts.wardround)}. This page is a single file: it loads, stores and sends nothing.
It is not a medical device.</p></footer>
<div class="bottom" aria-hidden="true"><div><span>{BRIEF[kind]}</span><strong id="brief">–</strong></div></div>
<script type="application/json" id="model">{script_json(content)}</script>
<script>{program}</script>
</body>
</html>
"""


RESULT = {"risk": "The risk", "classes": "The outcome", "value": "The prediction"}
BRIEF = {"risk": "Risk", "classes": "Likeliest", "value": "Prediction"}


def asset(name: str) -> str:
    return files("wardround.export.calculator").joinpath(name).read_text(encoding="utf-8")


def title_of(predictor: Predictor) -> Html:
    task = predictor.facts.task
    target = readable(task.target)
    if predictor.positive is None:
        return safe(f"Prediction of {target}")
    looked_for = task.classes[predictor.positive]
    return safe(f"Risk of {target}" if looked_for.lower() in YES else f"Risk of {target}: {looked_for}")


def origin(predictor: Predictor) -> Html:
    whose = f"Personal model of {predictor.site}" if predictor.site else predictor.facts.label
    adapted = predictor.adaptation
    patients = (
        "" if adapted is None else f", adapted to {adapted.site or 'this place'} on {adapted.patients:,} patients"
    )
    return safe(f"{whose}, study {predictor.facts.study}{patients}")


def field(place: int, column: NumberColumn | TextColumn, units: dict[str, str]) -> Html:
    if isinstance(column, NumberColumn):
        return number_field(place, column, units.get(column.name, ""))
    inline = len(column.categories) <= 3 and sum(map(len, column.categories)) <= SHORT
    return (choice_field if inline and column.categories else select_field)(place, column)


def number_field(place: int, column: NumberColumn, unit: str) -> Html:
    label = f"{safe(label_of(column.name))}{f' <span class=unit>({safe(unit)})</span>' if unit else ''}"
    words = range_words(column, unit)
    hint = f"{words} in training" if words and column.seen else words
    if not column.scale:
        hint = "training knew no value: the model does not use it"
    return Html(
        f'<div class="field" id="field-{place}"><label for="input-{place}">{label}</label>'
        f'<input type="number" inputmode="decimal" id="input-{place}" name="column-{place}" step="{step_of(column):g}" '
        f'placeholder="unknown" aria-describedby="hint-{place} note-{place}">'
        f'<p class="hint" id="hint-{place}">{safe(hint) if hint else ""}</p>'
        f'<p class="note" id="note-{place}" role="status"></p></div>'
    )


def choice_field(place: int, column: TextColumn) -> Html:
    """Two or three categories side by side, a tap each."""
    options = [("", "unknown"), *((str(code), name) for code, name in enumerate(column.categories))]
    buttons = "".join(
        f'<label><input type="radio" name="column-{place}" value="{code}"{"" if code else " checked"}>'
        f"<span>{safe(name)}</span></label>"
        for code, name in options
    )
    return Html(
        f'<fieldset class="field" id="field-{place}"><legend>{safe(label_of(column.name))}</legend>'
        f'<div class="choices">{buttons}</div><p class="note" id="note-{place}" role="status"></p></fieldset>'
    )


def select_field(place: int, column: TextColumn) -> Html:
    options = [("", "unknown"), *((str(code), name) for code, name in enumerate(column.categories)), ("other", "other")]
    listed = "".join(f'<option value="{code}">{safe(name)}</option>' for code, name in options)
    return Html(
        f'<div class="field" id="field-{place}"><label for="input-{place}">{safe(label_of(column.name))}</label>'
        f'<select id="input-{place}" name="column-{place}" aria-describedby="note-{place}">{listed}</select>'
        f'<p class="note" id="note-{place}" role="status"></p></div>'
    )


def answer(predictor: Predictor, kind: str) -> Html:
    """What the program fills in."""
    figure = Html('<p id="figure" class="figure"></p>')
    meaning = Html('<p id="meaning"></p>')
    if kind == "value":
        return join([figure, meaning])
    if kind == "classes":
        return join([figure, meaning, Html('<div id="chances"></div>')])
    threshold = predictor.threshold
    at = f"{100 * threshold:.6g}%"
    point = f'<span class="point" style="left:{at}"><span>operating point {safe(share(threshold))}</span></span>'
    gauge = Html(f'<div class="gauge"><span id="gauge-fill" class="fill"></span>{point}</div>')
    return join([figure, gauge, Html('<p id="verdict" class="verdict"></p>'), meaning])
