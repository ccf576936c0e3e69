"""The items of TRIPOD+AI, each filled from the run as far as a run can know, or left to people.

Collins et al., "TRIPOD+AI statement: updated guidance for reporting clinical prediction models that use regression or
machine learning methods", BMJ 2024; 385: e078378. Numbers are those of the statement, names are ours. Nothing here is
finer than what the card tells anyway.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wardround.report import method_names
from wardround.report.clinical.calibration import percent
from wardround.report.metric_names import label_of
from wardround.report.unit import unit_of_task
from wardround.runs.result import RunResult

FILLED, PARTLY, PEOPLE = "filled", "partly", "for people"
ITEMS = {
    "1": "Title",
    "2": "Abstract",
    "3a": "Background and rationale",
    "3b": "Intended use, users and patients",
    "3c": "Known inequalities in health",
    "4": "Objectives",
    "5a": "Sources of the data",
    "5b": "Dates of the data",
    "6a": "Setting and centres",
    "6b": "Who could take part",
    "6c": "Treatments received",
    "7": "Preparation and checks of the data",
    "8a": "Outcome and its definition",
    "8b": "Who assessed the outcome",
    "8c": "Blinding of that assessment",
    "9a": "Choice of predictors",
    "9b": "Predictors and their definition",
    "9c": "Who assessed the predictors",
    "10": "Sample size",
    "11": "Missing values",
    "12a": "What the data were used for",
    "12b": "Form and scale of predictors",
    "12c": "Model, training and internal validation",
    "12d": "Differences between centres: method",
    "12e": "Measures of performance",
    "12f": "Updating of the model: method",
    "12g": "How predictions are calculated",
    "13": "Class imbalance",
    "14": "Fairness: method",
    "15": "Output and threshold of the model",
    "16": "Training against evaluation data",
    "17": "Ethical approval",
    "18a": "Funding",
    "18b": "Conflicts of interest",
    "18c": "Protocol",
    "18d": "Registration",
    "18e": "Sharing of data",
    "18f": "Sharing of code",
    "19": "Involvement of patients and the public",
    "20a": "Flow of participants",
    "20b": "Characteristics of participants",
    "20c": "Predictors against those of the development data",
    "21": "Participants and events in each analysis",
    "22": "The whole model",
    "23a": "Performance with intervals",
    "23b": "Differences between centres: results",
    "24": "Updating of the model: results",
    "25": "Interpretation",
    "26": "Limitations",
    "27a": "Poor or missing input",
    "27b": "What users must do and know",
    "27c": "Next steps",
}
Study = Mapping[str, Any]
Facts = Mapping[str, Any]


class ItemAnswer(NamedTuple):
    """What the run says about an item, and what is left to say."""

    status: str
    words: str


def tripod_items(study: Study, result: RunResult, card: Facts) -> list[dict[str, str]]:
    """All items in their order: number, name, status and words."""
    answers = {**from_study(study, result, card), **from_data(result, card), **from_results(result, card)}
    return [{"item": number, "name": name, **answer_of(answers, number)} for number, name in ITEMS.items()]


def answer_of(answers: Mapping[str, ItemAnswer], number: str) -> dict[str, str]:
    return answers[number]._asdict() if number in answers else {"status": PEOPLE}


def from_study(study: Study, result: RunResult, card: Facts) -> dict[str, ItemAnswer]:
    """What was planned."""
    data, split = study.get("data") or {}, study.get("data") or {}
    preparation = data.get("preparation") or {}
    shares = [f"{100 * share:.0f} %" for share in split.get("shares") or ()]
    by = f", all rows of one {split['split_by']} in one part" if split.get("split_by") else ""
    algorithms = {one.algorithm for one in result.methods}
    ways = "; ".join(method_names.meaning_of(name) or name for name in sorted(algorithms))
    personal = any(method_names.is_adapted(name) for name in algorithms)
    found = {
        "4": ItemAnswer(PARTLY, f"Development with internal validation of a model that predicts {result.task.target}."),
        "7": ItemAnswer(
            FILLED,
            "Every hospital prepares its rows in the same way; what that takes was fitted on training patients of all "
            "hospitals. Rows and values that were left out are in the report.",
        ),
        "11": ItemAnswer(
            FILLED,
            f"Gaps are filled with the {preparation.get('impute', 'median')} of all hospitals' training patients"
            + (", and a further feature says where they were." if preparation.get("indicators") else "."),
        ),
        "12a": ItemAnswer(
            FILLED, f"Random split within each hospital into training, validation and test ({', '.join(shares)}{by})."
        ),
        "12b": ItemAnswer(
            FILLED,
            f"Numbers enter linearly or through the network (scaling: {preparation.get('scale', 'standard')}), "
            "categories as one feature each.",
        ),
        "12c": ItemAnswer(
            FILLED,
            f"Model: {card['model']['name']}. Trained: {ways}. Rounds: "
            f"{', '.join(str(one.rounds) for one in result.methods)}. Splits: {card['repeats']}. All settings are in "
            "the manifest.",
        ),
        "12d": ItemAnswer(FILLED, "Every measure for each hospital, and its standard deviation between hospitals."),
        "12f": ItemAnswer(FILLED, adapted_words(personal)),
        "12g": ItemAnswer(FILLED, "By the model files named below, on columns prepared as in training."),
        "13": ItemAnswer(
            FILLED,
            class_words(study),
        ),
        "16": ItemAnswer(FILLED, "Test patients were drawn at random from those of the same hospitals."),
        "18c": ItemAnswer(PARTLY, "The study file, whose hash is below, was fixed before the run."),
        "18f": ItemAnswer(PARTLY, f"wardround {card['versions'].get('wardround')}, with the versions below."),
        "24": ItemAnswer(FILLED, adapted_words(personal)),
        "26": ItemAnswer(PARTLY, "The limits above; those of the data and of the setting are for people."),
        "27a": ItemAnswer(PARTLY, "A missing value is filled as in training, an unknown category counts as none."),
    }
    if not result.task.features:  # images come as they are
        found = {number: one for number, one in found.items() if number not in ("7", "11", "12b", "27a")}
    if card["purpose"]:
        found["3b"] = ItemAnswer(PARTLY, card["purpose"])
    if data.get("source"):
        found["5a"] = ItemAnswer(PARTLY, f"Source: {data['source']}, {card['trained']}.")
    return found


def class_words(study: Study) -> str:
    """How rare classes were made to count."""
    model, found = study.get("model") or {}, []
    if (study.get("aggregator") or {}).get("name") == "class_weighted":
        found.append("Classes were weighted when answers were combined (class_weighted).")
    if model.get("loss") == "weighted":
        found.append(f"A row with the outcome counted {model.get('positive_weight', 1.0):g} times in the loss.")
    if (model.get("downsample") or 1) < 1:
        found.append(
            f"Of looks at rows without the outcome {100 * model['downsample']:g} % counted, drawn anew each time."
        )
    return " ".join(found) or "Classes were neither weighted nor resampled."


def adapted_words(personal: bool) -> str:
    return (
        "The common model was adapted to each hospital's own patients; both are among the results."
        if personal
        else "The model was not updated after training."
    )


def from_data(result: RunResult, card: Facts) -> dict[str, ItemAnswer]:
    """Who the patients are."""
    rows, sites = card["data"]["rows"], card["data"]["sites"]
    unit = unit_of_task(result.task)
    counted = f"{rows['train']} training, {rows['validation']} validation and {rows['test']} test {unit}s"
    read = "Images as they are." if unit == "image" else None
    other = ", a mask of every image" if result.task.kind == "segmentation" else ", a quantity"
    classes = f" ({', '.join(result.task.classes)})" if result.task.classes else other
    found = {
        "6a": ItemAnswer(PARTLY, f"{sites} hospital{'' if sites == 1 else 's'}."),
        "8a": ItemAnswer(PARTLY, f"{result.task.target}{classes}."),
        "9b": ItemAnswer(PARTLY, read or f"{len(result.task.features)} features; their names are in model_card.json."),
        "10": ItemAnswer(PARTLY, f"{counted}; no calculation of the size needed was made."),
        "21": ItemAnswer(PARTLY, f"{counted}."),
    }
    if result.flow is not None and result.flow.all.read is not None:
        found["6b"] = ItemAnswer(PARTLY, "Rows without a known outcome, if there were any, were left out.")
        found["20a"] = ItemAnswer(FILLED, "In the report: who was included.")
    else:
        found["20a"] = ItemAnswer(PARTLY, f"In the report: {unit}s used; how many were left out was not told.")
    if result.patient_table is not None:
        found["20b"] = ItemAnswer(FILLED, "In the report: the patients, by hospital, with missing values.")
    return found


def from_results(result: RunResult, card: Facts) -> dict[str, ItemAnswer]:
    """How good the model is."""
    metrics = [label_of(name) for one in card["methods"][:1] for name in one["figures"]]
    curves = any(one.clinical is not None and one.clinical.calibration is not None for one in result.methods)
    found = {
        "12e": ItemAnswer(
            FILLED, ", ".join([*metrics, *(["calibration and decision curves"] if curves else [])]) + "."
        ),
        "22": ItemAnswer(FILLED, "The model files below hold all parameters."),
        "23a": ItemAnswer(FILLED, "The tables above, with intervals."),
        "23b": ItemAnswer(FILLED, "The tables above, hospital by hospital where patients are enough."),
        "15": ItemAnswer(FILLED, output_words(result)),
    }
    columns = sorted({column for one in result.methods for column in one.scores.groups})
    if columns:
        found["14"] = ItemAnswer(FILLED, f"Every measure for groups by {', '.join(columns)}, and gaps between them.")
    return found


def output_words(result: RunResult) -> str:
    if result.task.kind == "regression":
        return "A predicted value."
    if result.task.kind == "survival":
        return "The risk of the event by each horizon; no threshold was chosen."
    if result.task.kind == "segmentation":
        return "A probability for every pixel of an image, which is marked from one half on."
    point = next((one.clinical.operating_point for one in result.methods if one.clinical is not None), None)
    if point is None or point.threshold is None:
        return "A probability for each class; no threshold was chosen."
    chosen = "set by the study" if point.rule == "threshold" else f"chosen on validation patients ({point.rule})"
    if point.fallback:
        chosen = "a stand-in, since it could not be chosen"
    return f"A probability; patients are flagged from {percent(point.threshold)} on, {chosen}."


def tripod_counts(items: list[dict[str, str]]) -> dict[str, int]:
    return {status: sum(one["status"] == status for one in items) for status in (FILLED, PARTLY, PEOPLE)}
