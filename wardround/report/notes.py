"""The remarks that a result carries for whoever reads its table or its report."""

from collections.abc import Mapping, Sequence
from typing import Any

READABLE = 0.5
"""An update that is known up to half of its length is read, more or less."""


def rate_notes(tried: Sequence[float], rated: Mapping[str, Mapping[str, Any]], methods: Sequence[str]) -> list[str]:
    """How every method got its learning rate, which diverged with all, and which know none."""
    choices = ", ".join(f"{rate:g}" for rate in tried)
    taken = "; ".join(f"{one['method']} {one['rate']:g}" for one in rated.values() if one["rate"] is not None)
    astray = [one["method"] for one in rated.values() if one["rate"] is None]
    words = [
        f"Each method's learning rate was chosen from {choices} by the loss on the validation patients of the first "
        f"split; test patients were not used. Chosen: {taken}."
    ]
    if astray:
        words.append(f"Left out because training diverged with every rate: {', '.join(astray)}.")
    without = [name for name in methods if name not in rated]
    return [*words, f"Without a learning rate to choose: {', '.join(without)}."] if without else words


def case_notes(*, in_turn: bool) -> list[str]:
    """What must be known of a comparison in many settings; `in_turn` where each site asked once."""
    words = [
        "Every case is a comparison of its own, with a report in its folder; verdicts are corrected for the "
        "comparisons within a case, not for the number of cases.",
    ]
    if in_turn:
        words.append(
            "Methods that train for one site were trained once for each site in turn, and every site's patients were "
            "predicted by the model trained for it."
        )
    return words


def underfit_note(labels: Sequence[str], rounds: int) -> str:
    """That training ended too early."""
    return (
        f"Still learning when training ended after {rounds} rounds: the validation loss of {', '.join(labels)} was"
        " still falling. More rounds, or a larger learning_rate, would fit better."
    )


def compression_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was chosen where compression follows from the line, from the records of the rounds."""
    found = [dict(one["measures"]["compression"]) for one in records if "compression" in one.get("measures", {})]
    told = dict.fromkeys((one.get("down", ""), one.get("up", "")) for one in found if "lines" not in one)
    notes = [f"Compression chosen for the line: {down} to the sites, {up} from them." for down, up in told]
    # Other sites take part in another round, and each site's messages always go the same way.
    sites: dict[tuple[str, str], dict[str, None]] = {}
    most: dict[tuple[str, str], int] = {}
    for one in (line for record in found for line in record.get("lines", ())):
        way = one.get("down", ""), one.get("up", "")
        sites.setdefault(way, {}).update(dict.fromkeys(one["sites"]))
        most[way] = max(most.get(way, 0), one["count"])
    if sites:
        each = [
            f"{down} to and {up} from {', '.join(names) if len(names) >= most[down, up] else f'{most[down, up]} sites'}"
            for (down, up), names in sites.items()
        ]
        notes.append(f"Compression chosen for each site's line: {'; '.join(each)}.")
    return notes


def retrain_note(without: Sequence[str]) -> str:
    return f"Trained without {', '.join(without)}, as if {'it' if len(without) == 1 else 'they'} had never taken part."


def attack_notes(
    transforms: Sequence[str],
    *,
    private: bool,
    one_patient: Mapping[str, int] | None = None,
    few_patients: Sequence[Mapping[str, int]] = (),
    losses: Mapping[str, Any] | None = None,
    sums: Mapping[str, Any] | None = None,
) -> list[str]:
    """What an attacked study lacks, and what lies could do; `losses` and `sums` are what those attacks found.

    `one_patient` tells how many were rebuilt from the sum of sites with one patient each, where any was;
    `few_patients` the same with more at each site, until nobody was.
    """
    sentences = []
    if not transforms and not private:
        sentences.append("The study has no protection: add the transform secure_sum, a [privacy] table, or both.")
    if "secure_sum" in transforms and not private:
        sentences.append(
            "A secure sum hides each site's update, not what the common model reveals: for that, add [privacy]."
        )
    if one_patient is not None:
        sentences.append(
            "The secure sum of very few patients protects little: with one patient per site, "
            f"{one_patient['rebuilt']} of {one_patient['rows']} could be reconstructed from the sum, though not "
            f"whose they are; {more_patients_clause(few_patients)}. Let sites take part only with many patients, or "
            "add [privacy]."
        )
    return [*sentences, *lie_notes(losses or {}, sums or {}, private=private)]


def lie_notes(losses: Mapping[str, Any], sums: Mapping[str, Any], *, private: bool) -> list[str]:
    """What a coordinator that lies could do, in words with figures."""
    sentences = []
    if "released" in losses:
        sentences.append(
            f"A lying coordinator that knows all other patients of a site could tell whether a validation patient is "
            f"among them for {losses['released']} of {losses['patients']} patients, by what sites tell in cells of "
            f"{losses['cell']} about {losses['looks']} models of its choice; from exact losses it would be "
            f"{losses['exact']}."
        )
    if sums.get("error", 1.0) < READABLE and not sums["single_updates_seen"]:
        sentences.append(
            f"A lying coordinator that sends the same model in two rounds and says in the second that {sums['site']} "
            f"was lost reads this site's update from the difference of the two sums, up to {sums['error']:.0%}"
            + ("." if private else "; only [privacy] covers that.")
        )
    return sentences


def more_patients_clause(few: Sequence[Mapping[str, int]]) -> str:
    if not few:
        return "more were not tried"
    last = few[-1]
    if not last["rebuilt"]:
        return f"with {last['patients']} per site, none could"
    return f"with {last['patients']} per site, still {last['rebuilt']} of {last['rows']}"
