"""A model card in words: Markdown that says in plain sentences what the facts of a card are."""

from collections.abc import Mapping, Sequence
from typing import Any

from wardround.core.text import format_bytes
from wardround.report.html.markup import plain
from wardround.report.metric_names import direction, is_lower_better, label_of, meaning_of
from wardround.report.model_card.tripod import FILLED, PARTLY, PEOPLE, tripod_counts
from wardround.report.unit import COUNTED, unit_of_task
from wardround.runs.fields import TOLERANT
from wardround.runs.sites import PredictionTask

SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]()<>#|!~&"})
Facts = Mapping[str, Any]
SHARES = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "ppv": "positive predictive value",
    "npv": "negative predictive value",
}


def card_text(card: Facts) -> str:
    """The whole card as Markdown."""
    parts = [
        [f"# Model card: {safe(card['name'])}"],
        purpose(card),
        data(card),
        figures(card),
        groups(card),
        privacy(card),
        cost(card),
        limits(card),
        reporting(card),
        identity(card),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def safe(text: object) -> str:
    """A name of a user's choosing as plain text: nothing in it is markup."""
    return plain(text).translate(SPECIAL)


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 0.01 or abs(value) >= 1000 else f"{value:.3f}"


def figure_text(one: Facts, *, level: bool = False, share: float = 0.95) -> str:
    """A figure with its interval, or why there is none."""
    if "value" not in one:
        return f"not defined ({safe(one.get('undefined', 'no reason given'))})"
    if "low" not in one or "high" not in one:
        return number(one["value"])
    words = f"{share:.0%} interval " if level else ""
    return f"{number(one['value'])} ({words}{number(one['low'])} to {number(one['high'])})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def purpose(card: Facts) -> list[str]:
    task, unit = card["task"], unit_of_card(card)
    what = f"It predicts {safe(task['target'])}"
    if task.get("positive"):
        what += f" (outcome: {safe(task['positive'])})"
    elif task.get("horizons"):
        what += f", whether and when it comes (by {', '.join(f'{one:g}' for one in task['horizons'])}),"
    elif task["classes"]:
        what += f" ({', '.join(safe(one) for one in task['classes'])})"
    else:
        what += ", on every pixel" if unit == "image" else ", a quantity"
    purpose = safe(card["purpose"]) if card["purpose"] else "The study does not state what the model is for."
    read = "images" if unit == "image" else f"{len(task['features'])} features"
    return [
        "## What it is for",
        "",
        purpose,
        "",
        f"{what} from {read} with a {safe(card['model']['name'])} model. "
        f"It was trained {card['trained']}{', finished ' + safe(card['finished']) if card['finished'] else ''}.",
    ]


def data(card: Facts) -> list[str]:
    facts = card["data"]
    train, validation, test = (str(facts["rows"][part]) for part in ("train", "validation", "test"))
    sites, units = facts["sites"], f"{unit_of_card(card)}s"
    lines = [
        "## Data",
        "",
        f"{sites} site{'' if sites == 1 else 's'}: {train} {units} for training, {validation} for "
        f"validation and {test} held out for testing.",
    ]
    if unit_of_card(card) == "image":
        lines.append(COUNTED)
    if card["left_out"]:
        many = card["left_out"]
        lines.append(
            f"{many} site{' was' if many == 1 else 's were'} left out: the model was retrained as if "
            f"{'it' if many == 1 else 'they'} had never taken part."
        )
    if facts["withheld"]:
        lines.append(
            f"Counts and scores of {facts['withheld']} sites are withheld: some have fewer than "
            f"{facts['smallest_cell']} {units} in a part; the others are withheld so that those cannot be inferred."
        )
    if facts["by_site"]:
        rows = [
            [safe(name), *(str(parts[part]) for part in ("train", "validation", "test"))]
            for name, parts in facts["by_site"].items()
        ]
        lines += ["", *table(["Site", "Train", "Validation", "Test"], rows)]
    return lines


def unit_of_card(card: Facts) -> str:
    return unit_of_task(PredictionTask.model_validate(card["task"], context=TOLERANT))


def main_first(metric: str, names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: name != metric)


def figures(card: Facts) -> list[str]:
    units = f"{unit_of_card(card)}s"
    lines = ["## How good it is", "", f"On held-out {units} of the sites that trained it, weighted by {units}."]
    if card["repeats"] > 1:
        lines.append(f"Mean of {card['repeats']} random splits.")
    for method in card["methods"]:
        lines += ["", f"### {safe(method['label'])} ({safe(method['name'])})", ""]
        if not method["figures"]:
            lines.append("No site could report a score.")
            continue
        rows = [
            [label_of(name), figure_text(method["figures"][name]), f"{meaning_of(name)}; {direction(name)}".strip("; ")]
            for name in main_first(card["metric"], list(method["figures"]))
        ]
        lines += table(["Measure", f"Value ({method['interval_level']:.0%} interval)", "Meaning"], rows)
        lines += clinical_lines(method)
        named = {name: one[card["metric"]] for name, one in method["by_site"].items() if card["metric"] in one}
        if named:
            lines += [
                "",
                *table(["Site", label_of(card["metric"])], [[safe(n), figure_text(o)] for n, o in named.items()]),
            ]
    return lines


def clinical_lines(method: Facts) -> list[str]:
    """Calibration and operating point, a sentence each."""
    lines = []
    if calibration := method.get("calibration"):
        lines += [
            "",
            f"Calibration in the large {figure_text(calibration['in_the_large'])} (0 is right), slope "
            f"{figure_text(calibration['slope'])} (1 is right).",
        ]
    if point := method.get("operating_point"):
        shares = ", ".join(f"{SHARES[name]} {figure_text(point[name])}" for name in SHARES)
        lines += ["", f"From a predicted risk of {number(point['threshold'])} on a patient is flagged: {shares}."]
    return lines


def groups(card: Facts) -> list[str]:
    lines: list[str] = []
    for method in card["methods"]:
        for column, one in method["groups"].items():
            lines += ["", f"### {safe(method['label'])}, by {safe(column)}", ""]
            rows = [[safe(name), figure_text(one["groups"][name].get(card["metric"], {}))] for name in one["groups"]]
            lines += table(["Group", label_of(card["metric"])], rows)
            if one["withheld"]:
                lines.append(f"{one['withheld']} groups are withheld: too few patients.")
    return ["## For groups of patients", *lines] if lines else []


def privacy(card: Facts) -> list[str]:
    facts = card["privacy"]
    lines = ["## Privacy", "", "No patient record left its site."] if "real" in card["trained"] else ["## Privacy", ""]
    for name, spent in facts["spent"].items():
        lines.append(f"{safe(name)}: {safe(spent.get('words', ''))}")
    if facts["promised"] and not facts["spent"]:
        said = facts["promised"]
        lines.append(f"Promised: epsilon {safe(said.get('epsilon'))}, delta {safe(said.get('delta'))}.")
    if not facts["spent"] and not facts["promised"]:
        lines.append(
            "No differential privacy: nothing limits what the model itself reveals about a single patient. "
            "Share it only with people who may see such data."
        )
    if facts["transforms"]:
        lines.append(f"Messages were transformed by: {', '.join(safe(name) for name in facts['transforms'])}.")
    return lines


def cost(card: Facts) -> list[str]:
    lines = ["## Cost of training"]
    for method in card["methods"]:
        lines += [
            "",
            f"{safe(method['label'])}: {method['rounds']} rounds, {method['seconds']:.1f} s, "
            f"{format_bytes(method['bytes_down'])} to the sites and {format_bytes(method['bytes_up'])} back."
            + (f" {safe(method['energy'])}" if method["energy"] else ""),
        ]
        counts = method["took_part"]
        if counts and len(set(counts.values())) == 1:
            many, each = len(counts), next(iter(counts.values()))
            lines.append(
                f"{many} site{'' if many == 1 else 's'} took part, in {each} round{'' if each == 1 else 's'} each."
            )
        elif counts:
            lines.append("Rounds per site: " + ", ".join(f"{safe(n)} {c}" for n, c in counts.items()) + ".")
    return lines


def limits(card: Facts) -> list[str]:
    lines = [
        "## Limits",
        "",
        "- It was tested on patients of the same sites and the same time as its training patients; how it performs at "
        "another hospital, or later, is not known.",
        "- It is not a medical device. A clinician decides; look at the scores of your own site first.",
    ]
    metric = card["metric"]
    for method in card["methods"]:
        values = {
            name: one[metric]["value"] for name, one in method["by_site"].items() if "value" in one.get(metric, {})
        }
        lower = is_lower_better(metric)
        if len(values) > 1 and lower is not None:
            worst = (max if lower else min)(values, key=lambda name: values[name])
            lines.append(
                f"- {safe(method['label'])} performs worst at {safe(worst)}: {label_of(metric)} "
                f"{number(values[worst])}."
            )
        main = method["figures"].get(metric, {})
        if "value" in main and "low" not in main:
            lines.append(f"- No interval was computed for the {label_of(metric)} of {safe(method['label'])}.")
        open_ = [name for name, one in method["figures"].items() if "value" not in one]
        if open_:
            lines.append(f"- Not defined for {safe(method['label'])}: {', '.join(label_of(name) for name in open_)}.")
    if card["remarks"]:
        remarks = "a note" if card["remarks"] == 1 else f"{card['remarks']} notes"
        lines.append(f"- See the run's report: it has {remarks} on the data.")
    if not card["purpose"]:
        lines.append("- Its purpose is not recorded: do not use it for anything that matters.")
    return lines


def reporting(card: Facts) -> list[str]:
    """The items of TRIPOD+AI: what the run fills, and what is for people."""
    items = card["reporting"]
    counts = tripod_counts(items)
    known = [one for one in items if one["status"] != PEOPLE]
    rows = [[one["item"], one["name"], one["status"], safe(one["words"])] for one in known]
    people = ", ".join(f"{one['name'].lower()} ({one['item']})" for one in items if one["status"] == PEOPLE)
    return [
        "## Reporting items (TRIPOD+AI)",
        "",
        f"Of {len(items)} items of the TRIPOD+AI statement (BMJ 2024; 385: e078378), {counts[FILLED]} are filled from "
        f"the run, {counts[PARTLY]} in part, and {counts[PEOPLE]} are for people. What is filled in part needs people "
        "as well.",
        "",
        *table(["Item", "About", "Status", "What the run says"], rows),
        "",
        f"For people: {people}.",
    ]


def identity(card: Facts) -> list[str]:
    versions = card["versions"]
    packages = ", ".join(f"{safe(name)} {safe(one)}" for name, one in versions["packages"].items())
    lines = [
        "## Versions and hashes",
        "",
        f"Made by wardround {safe(versions['wardround'])}, Python {safe(versions['python'])}, "
        f"on {safe(versions['platform'])}, seed {card['seed']}. With {packages}.",
        "",
    ]
    rows = [[safe(name), f"`{digest}`"] for name, digest in card["model"]["files"].items()]
    rows += [["study", f"`{card['hashes']['study']}`"], ["data", f"`{safe(card['hashes']['data'])}`"]]
    return lines + table(["What", "SHA-256"], rows)
