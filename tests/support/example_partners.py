"""What `wardround partners` leaves behind for one asking hospital among five, hand-written, and a poisoned one."""

import copy
from typing import Any

ASKING = "Freetown"
SITES = ("Freetown", "Kenema", "Bo", "Makeni", "Port Loko")

RESULT: dict[str, Any] = {
    "format": 1,
    "kind": "partners",
    "study": "ebola triage",
    "metric": "roc_auc",
    "task": {"kind": "classification", "target": "outcome", "classes": ["ebola", "other"], "positive": "ebola"},
    "sites": [
        {"name": "Freetown", "train": 120, "validation": 40, "test": 64, "prevalence": 0.31},
        {"name": "Kenema", "train": 260, "validation": 86, "test": 86, "prevalence": 0.34},
        {"name": "Bo", "train": 96, "validation": 32, "test": 32, "prevalence": 0.27},
        {"name": "Makeni", "train": 180, "validation": 60, "test": 60, "prevalence": 0.58},
        {"name": "Port Loko", "train": 75, "validation": 25, "test": 25, "prevalence": 0.4},
    ],
    "asking": "Freetown",
    "verdict": {
        "helps": "yes",
        "partners": ["Kenema", "Bo"],
        "others": ["Makeni"],
        "headline": "Train with Kenema and Bo, not with Makeni.",
        "reasons": {
            "Kenema": "Its model fits your patients nearly as well as its own.",
            "Bo": "Its model fits your patients, but it has few patients of its own.",
            "Makeni": "Its model is misled by malaria, which is common there and rare with you.",
        },
        "unanswered": ["Port Loko"],
        "withdrawn": [],
        "gain": {
            "metric": "log_loss",
            "alone": 0.512,
            "together": 0.447,
            "everyone": 0.498,
            "difference": -0.065,
            "low": -0.112,
            "high": -0.018,
            "patients": 40,
            "words": "With Kenema and Bo your log loss falls from 0.512 to 0.447 on 40 patients not seen before.",
        },
    },
    "measures": [
        {
            "name": "ndoye",
            "label": "Transfer loss",
            "words": "How much worse a hospital's model does on your patients than on its own.",
            "cut": -0.08,
            "scores": {
                "Kenema": {"value": -0.012, "error": 0.021},
                "Bo": {"value": -0.043, "error": 0.034},
                "Makeni": {"value": -0.287, "error": 0.046},
            },
        },
        {
            "name": "leave_one_out",
            "label": "Leaving one out",
            "words": "How much your loss rises when that hospital is left out of the training.",
            "cut": 0.0,
            "scores": {
                "Kenema": {"value": 0.041, "error": 0.012},
                "Bo": {"value": 0.009, "error": 0.008},
                "Makeni": {"value": -0.051, "error": None},
            },
        },
        {
            "name": "gradient_distance",
            "label": "Distance of gradients",
            "words": "How differently the hospital would change a common model.",
            "cut": -1.0,
            "scores": {
                "Kenema": {"value": -0.62, "error": 0.11},
                "Bo": {"value": -0.95, "error": 0.2},
                "Makeni": {"value": -2.4, "error": 0.3},
            },
        },
    ],
    "agreement": [
        {"measure": "ndoye", "against": "leave_one_out", "rank_correlation": 1.0, "sites": 3, "note": ""},
        {
            "measure": "gradient_distance",
            "against": "leave_one_out",
            "rank_correlation": 0.5,
            "sites": 7,
            "note": "Bo and Makeni change places.",
        },
    ],
    "similarity": [
        {
            "name": "transfer",
            "label": "Loss of one hospital's model at another",
            "sites": ["Freetown", "Kenema", "Bo", "Makeni", "Port Loko"],
            "matrix": [
                [0.49, 0.46, 0.52, 0.81, None],
                [0.5, 0.43, 0.53, 0.77, None],
                [0.51, 0.47, 0.5, 0.84, None],
                [0.88, 0.9, 0.93, 0.41, None],
                [None, None, None, None, None],
            ],
            "rows": "patients of",
            "columns": "model of",
            "words": "Each cell is the log loss of the column's model on the row's patients; small means that it fits.",
        }
    ],
    "map": {
        "sites": [
            {"name": "Freetown", "x": -0.2, "y": 0.02},
            {"name": "Kenema", "x": -0.26, "y": 0.1},
            {"name": "Bo", "x": -0.19, "y": -0.14},
            {"name": "Makeni", "x": 0.65, "y": 0.02},
        ],
        "shown": 0.87,
        "from": "distances between the hospitals' models",
    },
    "pairs": [
        {
            "site": "Makeni",
            "words": "Its patients differ from yours in two respects.",
            "features": [
                {
                    "feature": "age",
                    "distance": 0.19,
                    "words": "Makeni's patients are younger (median about 24, yours 33).",
                    "beyond_chance": True,
                },
                {
                    "feature": "malaria",
                    "distance": 0.38,
                    "words": "Malaria tests are positive in 54 % there and 16 % here.",
                    "beyond_chance": True,
                },
                {
                    "feature": "fever",
                    "distance": 0.04,
                    "words": "Fever is recorded in 71 % there and 67 % here.",
                    "beyond_chance": False,
                },
            ],
        },
        {
            "site": "Kenema",
            "words": "",
            "features": [
                {"feature": "fever", "distance": 0.02, "words": "Fever: 66 % there, 67 % here.", "beyond_chance": False}
            ],
        },
        {
            "site": "Bo",
            "words": "Its patients are much like yours.",
            "features": [
                {
                    "feature": "contact",
                    "distance": 0.15,
                    "words": "Contact with a case is reported by 41 % there and 26 % here.",
                    "beyond_chance": True,
                }
            ],
        },
    ],
    "dilution": [
        {"site": "Freetown", "rows": 120, "row_share": 0.2521, "weight_share": 0.3333, "limit": 1.0, "over": False},
        {"site": "Kenema", "rows": 260, "row_share": 0.5462, "weight_share": 0.3333, "limit": 0.5, "over": True},
        {"site": "Bo", "rows": 96, "row_share": 0.2017, "weight_share": 0.3333, "limit": 0.4, "over": False},
    ],
    "feedback": [
        {
            "site": "Kenema",
            "rank": {"place": 1, "of": 3, "score": -0.012},
            "chosen": True,
            "words": ["You are the best partner of three for Freetown."],
            "weights": [
                {"feature": "contact", "words": "Contact counts twice as much in your model as elsewhere.", "z": 3.1}
            ],
            "shifted": [],
            "further_features": [],
        },
        {
            "site": "Makeni",
            "rank": {"place": 3, "of": 3, "score": -0.287},
            "chosen": False,
            "words": ["You were not chosen: malaria misleads your model elsewhere."],
            "weights": [],
            "shifted": [{"feature": "malaria", "words": "Malaria is far more common with you.", "distance": 0.38}],
            "further_features": [
                {"feature": "viral load", "words": "Recording the viral load would help you most.", "gain": 0.05}
            ],
        },
    ],
    "cost": {"bytes_up": 48_300, "bytes_down": 61_200, "rounds": 14, "seconds": 7.4},
    "notes": ["Age was missing for 14 patients and filled with the median of all hospitals."],
}


def example() -> dict[str, Any]:
    """A copy to change."""
    return copy.deepcopy(RESULT)


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same result with other names of hospitals, as keys and as values."""
    if isinstance(value, dict):
        return {names.get(key, key): renamed(entry, names) for key, entry in value.items()}
    if isinstance(value, list):
        return [renamed(entry, names) for entry in value]
    return names.get(value, value) if isinstance(value, str) else value


def poisoned(attacks: tuple[str, ...]) -> dict[str, Any]:
    """Every name and every sentence is an attack."""
    result: dict[str, Any] = renamed(example(), dict(zip(SITES, attacks, strict=False)))

    def spoiled(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoiled(entry, name) for name, entry in value.items()}
        if isinstance(value, list):
            return [spoiled(entry, key) for entry in value]
        told = ("words", "label", "headline", "note", "notes", "feature", "from", "rows", "columns", "study")
        return attacks[-1] + attacks[-2] + value if isinstance(value, str) and key in told else value

    spoiled_result: dict[str, Any] = spoiled(result)
    spoiled_result["verdict"]["reasons"] = dict.fromkeys(result["verdict"]["reasons"], attacks[0])
    return spoiled_result


def sized(count: int) -> dict[str, Any]:
    """One asking hospital and `count` - 1 others, of whom every third is taken."""
    names = [f"Hospital {number}" for number in range(1, count + 1)]
    others = names[1:]
    taken = others[: len(others) // 3]
    scores = {name: {"value": len(taken) / 10 - 0.05 - index / 10, "error": 0.1} for index, name in enumerate(others)}
    return {
        "format": 1,
        "kind": "partners",
        "study": "many",
        "asking": names[0],
        "sites": [{"name": name, "train": 50, "validation": 10, "test": 10, "prevalence": 0.3} for name in names],
        "verdict": {
            "helps": "yes" if taken else "no",
            "partners": taken,
            "others": others[len(taken) :],
            "gain": {"metric": "roc_auc", "alone": 0.7, "together": 0.75, "difference": 0.05, "low": 0.01, "high": 0.1},
        },
        "measures": [{"name": "evidence", "label": "All evidence", "words": "", "cut": 0.0, "scores": scores}],
        "similarity": [
            {
                "name": "transfer",
                "label": "Distance",
                "sites": names,
                "matrix": [[abs(i - j) / count for j in range(count)] for i in range(count)],
                "words": "",
            }
        ],
        "map": {
            "sites": [{"name": name, "x": (index * 7) % 11, "y": (index * 5) % 13} for index, name in enumerate(names)],
            "shown": 0.4,
            "from": "distance",
        },
        "pairs": [
            {"site": name, "features": [{"feature": "age", "distance": 0.2, "words": "Older.", "beyond_chance": True}]}
            for name in others
        ],
        "dilution": [{"site": name, "rows": 50, "row_share": 1 / count, "limit": 1, "over": False} for name in names],
        "feedback": [{"site": name, "rank": {"place": 1, "of": count}, "words": ["Well done."]} for name in others],
    }
