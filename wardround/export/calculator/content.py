"""What the calculator's program reads: columns, the model's arrays, the outcome, how to explain."""

import math
from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, TextColumn
from wardround.evaluate.clinical.calibration_fit import SURE
from wardround.export.network import Network, PlainModel, evaluate, plain_model, smooth_map
from wardround.export.trial_rows import refuse_difference, trial_table
from wardround.predict.explanation import FIRST, NARROWEST, TOLERANCE, typical_row
from wardround.predict.predictor import Predictor, Rows, refuse_survival
from wardround.predict.table import FAR, range_of

MAP_WORDS = {"log_odds", "intercept", "slope"}
MOST_NUMBERS = 2_000_000
"""Parameters above which a page would be too large for a telephone."""


def calculator_content(predictor: Predictor) -> dict[str, Any]:
    """Plain values; refused for a model of arrays, one of others' components, or one too large for a page."""
    refuse_survival(predictor, "a calculator")
    preparation = predictor.preparation
    model = plain_model(predictor)
    many = sum(layer.kernel.size + layer.bias.size for _, part in model.parts for layer in part.dense)
    if many > MOST_NUMBERS:
        raise Refusal(
            f"the model has {many:,} parameters, too many for a page",
            where=f"model of {predictor.facts.study}",
            remedy="export it to ONNX, or train a smaller one",
        )
    table = trial_table(preparation)
    smooth = smooth_map(predictor)
    found = evaluate(model, preparation.apply(table))
    if smooth is not None and predictor.adaptation is not None:
        found = predictor.adaptation.apply(found, predictor.positive)
    refuse_difference(found, predictor.predict(table), "calculator")
    return {
        "columns": [
            column_content(column, predictor.facts.units.get(column.name, "")) for column in preparation.columns
        ],
        "parts": [part_content(float(share), part) for share, part in model.parts],
        "outcome": outcome_content(predictor, model),
        "explanation": {
            "typical": shortest(typical_row(preparation)),
            "first": FIRST,
            "tolerance": TOLERANCE,
            "narrowest": NARROWEST,
        },
        "far": FAR,
    }


def outcome_content(predictor: Predictor, model: PlainModel) -> dict[str, Any]:
    facts, found = predictor.facts, smooth_map(predictor)
    several = "classes" if predictor.positive is None else "risk"
    return {
        "kind": "value" if model.regression else several,
        "name": readable(facts.task.target),
        "classes": list(facts.task.classes),
        "positive": predictor.positive,
        # The model's own probabilities have single precision, and so has what they are compared with.
        "single": found is None,
        "threshold": float(np.float32(predictor.threshold)) if found is None else predictor.threshold,
        "map": None if found is None else {**found.model_dump(include=MAP_WORDS), "sure": SURE},
        "unit": facts.units.get(facts.task.target, ""),
    }


def column_content(column: NumberColumn | TextColumn, unit: str) -> dict[str, Any]:
    said: dict[str, Any] = {"name": column.name, "label": label_of(column.name), "indicator": column.indicator}
    if isinstance(column, TextColumn):
        return said | {"kind": "category", "categories": list(column.categories), "fill": column.fill}
    return said | {
        "kind": "number",
        "unit": unit,
        "fill": column.fill,
        "center": column.center,
        "scale": column.scale,
        "low": column.low,
        "high": column.high,
        "range": range_of(column),
        "seen": column.seen is not None,
        "range_words": range_words(column, unit),
    }


def range_words(column: NumberColumn, unit: str) -> str:
    """
    >>> range_words(NumberColumn("age", seen=(0.0, 81.5)), "years"), range_words(NumberColumn("age"), "")
    ('0 to 81.5 years', '')
    """
    ends = range_of(column)
    if ends is None:
        return ""
    digits = 6 - math.ceil(math.log10(max(*map(abs, ends), 1e-9)))  # those that single precision has
    low, high = (f"{round(end, digits) + 0.0:.6g}" for end in ends)
    return f"{low} to {high}{f' {unit}' if unit else ''}"


def part_content(share: float, network: Network) -> dict[str, Any]:
    return {
        "share": share,
        "shift": None if network.shift is None else shortest(network.shift),
        "layers": [{"kernel": shortest(layer.kernel), "bias": shortest(layer.bias)} for layer in network.dense],
    }


def shortest(array: Rows) -> list[float]:
    """Single-precision numbers by as few digits as give them back when they are rounded to single precision again."""
    flat = np.asarray(array, np.float32).ravel()
    found = [float(str(value)) for value in flat]
    exact = np.asarray(found, np.float32) == flat
    return [short if same else float(value) for short, same, value in zip(found, exact, flat, strict=True)]


def readable(name: str) -> str:
    """
    >>> readable("days_since_symptoms"), readable("pH")
    ('days since symptoms', 'pH')
    """
    return " ".join(name.replace("_", " ").split()) or name


def label_of(name: str) -> str:
    """A column's name as it stands before its field: with a capital, unless it has one of its own.

    >>> label_of("days_since_symptoms"), label_of("pH")
    ('Days since symptoms', 'pH')
    """
    words = readable(name)
    return words[:1].upper() + words[1:] if words.islower() else words


def step_of(column: NumberColumn) -> float:
    """How far an arrow key moves a number: the power of ten below a fifth of its spread.

    >>> step_of(NumberColumn("age", scale=17.0)), step_of(NumberColumn("temperature", scale=0.8))
    (1.0, 0.1)
    """
    return float(10.0 ** math.floor(math.log10(column.scale / 5))) if column.scale > 0 else 1.0
