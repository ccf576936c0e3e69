"""The answer about partners in plain words: whom to train with, what it brings, how sure that is, what is not known."""

from wardround.report import numbers
from wardround.report.html.markup import Html, join, paragraph, plain, safe
from wardround.report.metric_names import direction, label_of, meaning_of
from wardround.report.partners.answer import Partnership
from wardround.report.run.summary import FEW, NAMED, amounts, comma_list, plural
from wardround.runs.partners_result import RankAgreement

CROWDED = 12
"""Hospitals above which the map names only some."""
HELPS = {"yes": "Yes", "no": "No", "unclear": "Not clear from these patients"}


def names(sites: tuple[str, ...]) -> Html:
    """Few are named, more are counted."""
    return comma_list([safe(site) for site in sites]) if len(sites) <= NAMED else plural(len(sites), "hospital")


def headline(asked: Partnership) -> str:
    """The answer in one sentence, not yet made safe; made here only where the result has none."""
    if asked.headline:
        return asked.headline
    if asked.helps == "no" or (asked.helps and not asked.partners):
        return "Train alone."
    if not asked.partners:
        return "There is no answer yet."
    rest = f", not with {site_list(asked.others, 'the other {}')}" if asked.others else ""
    return f"Train with {site_list(asked.partners)}{rest}."


def site_list(sites: tuple[str, ...], many: str = "{} hospitals") -> str:
    if len(sites) > NAMED:
        return many.format(f"{len(sites):,}")
    return " and ".join(part for part in (", ".join(sites[:-1]), sites[-1]) if part)


def lead(asked: Partnership) -> Html:
    """What the answer rests on: the gain in words."""
    if asked.gain.words:
        return safe(asked.gain.words)
    own, metric = asked.gain.improvement, asked.gain.metric
    if own.value is None:
        return Html("The gain from training together was not measured.")
    turn = "better" if own.value > 0 else "worse"
    span = f" (interval {numbers.interval(own)})" if numbers.interval(own) else ""
    who = f" on {plural(asked.gain.patients, 'patient')} held out" if asked.gain.patients else ""
    size = numbers.score(abs(own.value))
    return Html(f"With the chosen partners the model is {turn} by {size} in {safe(label_of(metric))}{span}{who}.")


def metric_meaning(asked: Partnership) -> Html:
    """What the measure of the gain means."""
    metric = asked.gain.metric
    meaning = "; ".join(part for part in (meaning_of(metric), direction(metric)) if part)
    return Html(f"{safe(label_of(metric))}: {safe(meaning)}.") if meaning else Html("")


def key_figures(asked: Partnership) -> list[tuple[str, str]]:
    gain, label = asked.gain, plain(label_of(asked.gain.metric)) if asked.gain.metric else "Score"
    found = []
    if asked.helps:
        found.append(("Does training together help?", HELPS[asked.helps]))
    if asked.candidates:
        found.append(("Partners chosen", f"{len(asked.partners):,} of {len(asked.candidates):,}"))
    for title, value in (("alone", gain.alone), ("with the chosen", gain.together), ("with everyone", gain.everyone)):
        if value is not None:
            found.append((f"{label}, {title}", numbers.score(value)))
    return found


def limits(asked: Partnership) -> list[Html]:
    """What a reader might take from the page although it is not in it."""
    found = []
    asking = safe(asked.asking) if asked.asking else Html("the asking hospital")
    if asked.helps == "unclear":
        found.append(
            Html(
                "<strong>These patients do not show whether training together helps.</strong> The partners named are "
                "the most likely ones; more held-out patients would make this clearer."
            )
        )
    if asked.unanswered:
        have, it = ("have", "them") if len(asked.unanswered) > 1 else ("has", "it")
        found.append(Html(f"{names(asked.unanswered)} {have} not answered, so nothing is known of {it}."))
    if asked.withdrawn:
        found.append(Html(f"{names(asked.withdrawn)} withdrew and cannot be chosen."))
    if asked.gain.patients is not None and asked.gain.patients < FEW:
        found.append(Html(f"The gain was measured on only {plural(asked.gain.patients, 'patient')}; it is uncertain."))
    found.append(
        Html(
            f"The answer is for {asking} and its patients of the time when the data were collected. Another hospital "
            "may need other partners, and later patients may differ."
        )
    )
    found.append(
        Html("That patients differ between hospitals shows neither why nor which hospital records them correctly.")
    )
    return found


def agreement_text(asked: Partnership, own: RankAgreement) -> Html:
    """How far two ways of judging put the hospitals in the same order."""
    if own.rank_correlation is None:
        return Html("not known")
    if own.sites is not None and own.sites < 4:
        return Html("too few hospitals to distinguish agreement from chance")
    steps = (
        (0.9, "almost the same order"),
        (0.7, "much the same order"),
        (0.4, "some agreement"),
        (-0.4, "little or no agreement"),
    )
    return Html(next((words for least, words in steps if own.rank_correlation >= least), "the opposite order"))


def map_text(asked: Partnership) -> Html:
    """What the map was made from, and how much of it two directions can show."""
    parts = []
    if asked.map_source:
        parts.append(Html(f"Made from: {safe(asked.map_source)}."))
    if asked.shown is not None:
        coarse = "" if asked.shown >= 0.6 else " That is little, so read its distances with care."
        parts.append(Html(f"The map shows {numbers.share(asked.shown)} of the differences.{coarse}"))
    parts.append(Html("Its axes have no meaning of their own: only distances count."))
    if len(asked.places) > CROWDED:
        parts.append(Html("Point at a mark for its name."))
    return join(parts, " ")


def cost(asked: Partnership) -> Html:
    parts = amounts(
        (asked.rounds, lambda value: f"{value:,.0f} round{'' if value == 1 else 's'}", "{} of requests and replies"),
        (asked.cost.bytes_down, numbers.traffic, "{} to the hospitals"),
        (asked.cost.bytes_up, numbers.traffic, "{} from the hospitals"),
        (asked.cost.seconds, numbers.time, "{} of time"),
    )
    if not parts:
        return Html("")
    return paragraph(Html(f"Finding the answer took {comma_list(parts)}. No patient record left its hospital."))
