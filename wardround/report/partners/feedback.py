"""What a site is told about itself, in sentences: its rank, where its model and patients differ, what to record.

Reads the numbers of `partners.similarity.site_feedback`; needs nothing further from the sites.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from wardround.core.contracts import Report
from wardround.partners.similarity.site_feedback import (
    NORMAL,
    DifferingWeights,
    FurtherFeatures,
    SiteFeedback,
)

AFFIRMED = ("yes", "true", "present")
NAMED = 6
"""Columns named in one sentence, at most."""


def feedback_text(feedback: SiteFeedback, shifted: Sequence[Mapping[str, Any]] = ()) -> Report:
    """All that one site is told, in plain values and in sentences; `shifted` has a feature, words and distance each."""
    rows = [{**row, "words": weight_sentence(row, feedback.weights.regression)} for row in feedback.weights.rows]
    words = [*rank_words(feedback), *(weight_words(feedback.weights)), *(str(row["words"]) for row in shifted)]
    return {
        "site": feedback.site,
        "rank": feedback.rank,
        "chosen": feedback.chosen,
        "weights": rows,
        "shifted": [dict(row) for row in shifted],
        "further_features": list(feedback.further.rows),
        "words": [*words, *further_words(feedback.further)],
    }


def rank_words(feedback: SiteFeedback) -> tuple[str, ...]:
    if feedback.site == feedback.user:
        return (f"{feedback.site} asked for partners: the ranking is of the others.",)
    if feedback.rank is None:
        return (
            f"{feedback.site} was not judged as a partner of {feedback.user}: it gave no answer, or was no candidate.",
        )
    place, of = feedback.rank["place"], feedback.rank["of"]
    best = "the only possible partner" if of == 1 else f"number {place} of {of} possible partners"
    first = f"{feedback.site} is {best} for {feedback.user}, and was {'' if feedback.chosen else 'not '}chosen."
    return (first, f"Chance alone could change its place with {named(feedback.near)}.") if feedback.near else (first,)


def further_words(found: FurtherFeatures) -> tuple[str, ...]:
    """Which columns would help, which would not, and of which nothing can be said."""
    known = [row for row in found.rows if row["gain"] is not None]
    unknown = [row for row in found.rows if row["gain"] is None]
    words = []
    helpful = [row for row in known if row["helps"]]
    for place, row in enumerate(helpful):
        much = "most" if place == 0 else "too"
        at = "the one site that records it" if row["sites"] == 1 else f"the {row['sites']} sites that record it"
        share = f", {row['share_of_loss']:.0%} of it" if row["share_of_loss"] is not None else ""
        words.append(
            f"Recording {plain(row['column'])} would help {much}: at {at} ({patients(row['patients'])}), the model's "
            f"loss per patient fell by {row['gain']:.2g}{share} (95 % interval {row['low']:.2g} to {row['high']:.2g})."
        )
    useless = [plain(row["column"]) for row in known if not row["helps"]]
    if useless and not helpful:
        words.append(
            f"None of the further columns helped the sites that record them beyond what chance does: {named(useless)}."
        )
    elif useless:
        words.append(f"No benefit beyond chance was seen from {named(useless)}.")
    if unknown:
        names = named([plain(row["column"]) for row in unknown])
        words.append(f"Too few patients at comparable sites to say whether these columns would help: {names}.")
    if found.nobody:
        words.append(
            f"No site records {named([plain(column) for column in found.nobody])}, so its benefit is not known."
        )
    return tuple(words) or ("Every column that other sites record is recorded here too.",)


def weight_words(found: DifferingWeights) -> tuple[str, ...]:
    """Which weights of the site's model differ, or why that is not said."""
    if not found.plain:
        return ("The weights of this kind of model have no plain meaning, so they are not compared.",)
    if found.patients < found.needed:
        few = patients(found.patients)
        return (f"The model was learned from {few}: too few to compare its weights ({found.needed} needed).",)
    if not found.compared:
        return ("No other site with enough patients records the same columns, so no weight is compared.",)
    if not found.rows:
        return (f"None of the model's {found.compared} weights differs from its peers' beyond chance.",)
    return tuple(weight_sentence(row, found.regression) for row in found.rows)


def weight_sentence(row: Report, regression: bool) -> str:
    here, there = (row["here"], row["here_error"]), (row["elsewhere"], row["elsewhere_error"])
    return weight_comparison(phrase_of(row["feature"], row["column"]), row["outcome"], regression, here, there)


def phrase_of(feature: str, column: str) -> str:
    """What about a patient a prepared input says.

    >>> phrase_of("age", "age"), phrase_of("age missing", "age"), phrase_of("fever=yes", "fever")
    ('a higher age', 'a missing age', 'fever')
    """
    if not feature.startswith(f"{column}="):
        return f"a higher {plain(column)}" if feature == column else f"a missing {plain(column)}"
    label = feature.removeprefix(f"{column}=")
    return plain(column) if label.lower() in AFFIRMED else f"{plain(column)} = {label}"


def weight_comparison(
    phrase: str, outcome: str, number: bool, here: tuple[float, float], there: tuple[float, float]
) -> str:
    """A weight here against elsewhere, each with its standard error, as a clinician would say it."""
    verb, (toward, away), it = (
        ("goes", ("with a higher", "with a lower"), "one") if number else ("speaks", ("for", "against"), "it")
    )

    def says(value: float, what: str = outcome) -> str:
        return f"{toward if value > 0 else away} {what}"

    clear_here, clear_there = (abs(value) > NORMAL * error for value, error in (here, there))
    if clear_here and clear_there and here[0] * there[0] > 0:
        more = f"but counts {times(here[0] / there[0])} here as elsewhere"
        return f"{phrase[:1].upper()}{phrase[1:]} {verb} {says(here[0])} everywhere, {more}."
    if clear_here and clear_there:
        return f"Here {phrase} {verb} {says(here[0])}, elsewhere {says(there[0], it)}."
    if clear_there:
        return f"Here {phrase} says little about {outcome}, elsewhere it {verb} {says(there[0], it)}."
    if clear_here:
        return f"Here {phrase} {verb} {says(here[0])}, elsewhere it says little about it."
    either = "Neither is clear by itself, but they differ."
    return f"Here {phrase} rather {verb} {says(here[0])}, elsewhere rather {says(there[0], it)}. {either}"


def times(ratio: float) -> str:
    """
    >>> times(2.04), times(3.3), times(0.5), times(0.3)
    ('about twice as much', 'about 3.3 times as much', 'about half as much', 'about 0.3 times as much')
    """
    for known, word in ((2, "twice"), (0.5, "half")):
        if abs(ratio / known - 1) < 0.1:
            return f"about {word} as much"
    return f"about {ratio:.1f} times as much" if ratio >= 0.1 else "less than a tenth as much"


def plain(name: str) -> str:
    return name.replace("_", " ")


def patients(number: float) -> str:
    return f"{number:,.0f} patient" + ("" if number == 1 else "s")


def named(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
