"""The ground truth of simulated data: in words first, its numbers folded away."""

from typing import Any

from wardround.report import numbers
from wardround.report.html.markup import Html, bullets, details, join, paragraph, safe, table
from wardround.report.metric_names import label_of
from wardround.report.run.summary import comma_list
from wardround.report.run.tables import flatten
from wardround.runs.fields import Json, items, mapping, number, sentences
from wardround.runs.run import Run

BEST = {"best_auc": "roc_auc"}
"""What a maker calls a measure, where it is not the measure's own name after `best_`."""


def truth_section(run: Run) -> Html:
    """Nothing when nobody knows the truth, as with real patients."""
    truth = run.truth
    if not truth:
        return Html("")
    words, rest = truth_sentences(truth) if isinstance(truth, dict) else ([safe(word) for word in sentences(truth)], {})
    parts = [paragraph(Html("The data are simulated, so the right answer is known:"))]
    if words:
        parts.append(bullets(words))
    if rest:
        rows = [
            [safe(name), safe(numbers.score(x) if (x := number(v)) is not None else v)] for name, v in flatten(rest)
        ]
        parts.append(
            details("The numbers behind this", table("How the data were made", [Html("What"), Html("Value")], rows))
        )
    return join(parts)


def truth_sentences(known: Json) -> tuple[list[Html], dict[str, Any]]:
    """Sentences, and what is left over because it is numbers."""
    words: list[Html] = []
    rest: dict[str, Any] = {}
    groups, why = mapping(known.get("groups")), mapping(known.get("why"))
    for name, members in groups.items():
        reason = Html(f": {safe(why[name])}" if name in why else "")
        words.append(Html(f"{comma_list([safe(site) for site in items(members)])} ({safe(name)}){reason}."))
    words += [Html(f"{safe(name)}: {safe(reason)}.") for name, reason in why.items() if name not in groups]
    for key, value in known.items():
        if key in ("groups", "why") and isinstance(value, dict):
            continue
        best = {site: x for site, v in mapping(value).items() if (x := number(v)) is not None}
        if key.startswith("best_") and best and len(best) <= 8:
            label = label_of(BEST.get(key, key.removeprefix("best_")))
            reach = comma_list([Html(f"{numbers.score(x)} at {safe(site)}") for site, x in best.items()])
            words.append(Html(f"The best {safe(label)} that any model could reach, with unlimited patients: {reach}."))
        elif isinstance(value, str) or (items(value) and all(isinstance(entry, str) for entry in items(value))):
            words += [safe(word) for word in sentences(value)]
        else:
            rest[key] = value
    return words, rest
