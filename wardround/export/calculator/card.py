"""The model card on the calculator's page: what the model is for, how good it is, where it ends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.predict.predictor import Predictor
from wardround.report.html.document import date_text
from wardround.report.html.markup import Html, bullets, join, paragraph, safe
from wardround.report.metric_names import label_of, meaning_of
from wardround.report.model_card.facts import card_facts
from wardround.report.numbers import score

Card = Mapping[str, Any]
NOT_A_DEVICE = "It is not a medical device. It supports a clinician's decision and never replaces it."
ELSEWHERE = (
    "It was tested on patients of the hospitals that trained it. At another hospital, or later, it may be wrong more "
    "often: compare it with the outcomes of your own patients first."
)


def read_card(folder: Path | None) -> Card | None:
    """The facts of a finished run; none where there is only a model file, or a run without a result."""
    if folder is None:
        return None
    try:
        return card_facts(folder)
    except Refusal:
        return None


def card_section(predictor: Predictor, card: Card | None) -> Html:
    """All of it; without the run's folder what the model file itself tells."""
    method = method_of(predictor, card)
    parts = [
        purpose(predictor, card),
        figures(predictor, card, method),
        limits(predictor, card),
        identity(predictor, card),
    ]
    return join(parts)


def method_of(predictor: Predictor, card: Card | None) -> Card | None:
    methods = [] if card is None else card["methods"]
    return next((one for one in methods if one["name"] == predictor.facts.method), None)


def purpose(predictor: Predictor, card: Card | None) -> Html:
    said = (card or {}).get("purpose")
    words = safe(said) if said else Html("The study does not say what the model is for.")
    lines = [Html("<h3>What it is for</h3>"), paragraph(words)]
    if card is not None:
        rows, sites = card["data"]["rows"], card["data"]["sites"]
        trained = (
            f"Trained {safe(card['trained'])} on {safe(rows['train'])} patients of {sites} "
            f"hospital{'' if sites == 1 else 's'}, tested on {safe(rows['test'])} others."
        )
        lines.append(paragraph(Html(trained)))
    return join(lines)


def figures(predictor: Predictor, card: Card | None, method: Card | None) -> Html:
    """On held-out patients of all sites, and of the site whose model this is."""
    head = Html("<h3>How good it is</h3>")
    if card is None or method is None or not method["figures"]:
        none = "The figures are in the report of the run; this page was made from the model alone."
        return join([head, paragraph(Html(none if card is None else "No hospital could report a figure."))])
    own = method["by_site"].get(predictor.site or "", {})
    names = sorted(method["figures"], key=lambda name: name != card["metric"])
    columns = ["Measure", "All hospitals", *([safe(predictor.site)] if own else [])]
    rows = [
        [Html(f"{safe(label_of(name))}<br><span class='small'>{safe(meaning_of(name))}</span>"), *cells]
        for name in names
        for cells in [[figure_text(one.get(name, {})) for one in (method["figures"], *([own] if own else []))]]
    ]
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    header = "".join(f'<th scope="col">{column}</th>' for column in columns)
    level = f"On patients who were held out of training, with {method['interval_level']:.0%} intervals."
    if card["repeats"] > 1:
        level += f" Means of {card['repeats']} random splits; this is the model of the first."
    table = Html(f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>")
    return join([head, paragraph(safe(level)), table])


def figure_text(one: Card) -> Html:
    if "value" not in one:
        return Html("not defined")
    ends = f"<br><span class='small'>({score(one['low'])} to {score(one['high'])})</span>" if "low" in one else ""
    return Html(f"{score(one['value'])}{ends}")


def limits(predictor: Predictor, card: Card | None) -> Html:
    found = [NOT_A_DEVICE, ELSEWHERE]
    if not (card or {}).get("purpose"):
        found.append("Its purpose is not recorded: do not use it for anything that matters.")
    if predictor.positive is not None:
        found.append(
            f"The operating point is {predictor.threshold:.0%}. What it should be depends on what a missed "
            "patient and a false alarm cost you."
        )
    found.append(
        "An unknown value counts as typical, so a risk with many unknown values says little about the patient."
    )
    return join([Html("<h3>Limits</h3>"), Html(bullets(map(safe, found)).replace("<ul>", '<ul class="plain">', 1))])


def identity(predictor: Predictor, card: Card | None) -> Html:
    facts = predictor.facts
    whose = f"personal model of {predictor.site}" if predictor.site else "common model"
    finished = (card or {}).get("finished")
    lines = [
        f"Study {facts.study}, {whose} ({facts.label}), {facts.rounds} rounds.",
        f"Finished {date_text(finished)}." if finished else "",
        f"SHA-256 of the parameters: {facts.digest}.",
    ]
    return paragraph(safe(" ".join(filter(None, lines))), "small")
