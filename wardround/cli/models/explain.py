"""`predict --explain`: contributions as columns of the table, as sentences and as a page."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import typer

from wardround.cli.models.predict import model_words
from wardround.predict.explanation import Explanation, waterfall
from wardround.predict.predictor import Predictor
from wardround.predict.table import MISSING, OUTSIDE, UNKNOWN
from wardround.report.prediction.page import explanation_page
from wardround.report.prediction.words import ExplainedPatient, Influence, explanation_lines

REMARKS = {
    MISSING: "Missing, so counted as typical",
    OUTSIDE: "Outside the range of training",
    UNKNOWN: "Never seen in training",
}


def add_explanations(predictor: Predictor, table: pd.DataFrame, found: Explanation, *, keep: int) -> list[list[str]]:
    """Put the sentences, the typical patient's score and every contribution beside the predictions; the sentences."""
    outputs = chosen_outputs(predictor, table)
    rows = np.arange(len(table))
    lines = [explanation_lines(patient) for patient in explained_patients(predictor, table, found, keep=keep)]
    added: dict[str, Any] = {
        "explanation": [" ".join(one[1:]) for one in lines],
        f"typical {score_name(predictor)}": found.baseline[outputs],
        **{
            f"contribution of {name}": found.contributions[rows, place, outputs]
            for place, name in enumerate(found.columns)
        },
    }
    for name, values in added.items():
        table[name] = values
    return lines


def chosen_outputs(predictor: Predictor, table: pd.DataFrame) -> "np.ndarray[Any, Any]":
    """For every row which output is explained: of three or more classes that of the predicted one."""
    task = predictor.facts.task
    if len(task.classes) <= 2:
        return np.zeros(len(table), np.int64)
    return np.array([task.classes.index(label) for label in table[task.target]])


def score_name(predictor: Predictor) -> str:
    """What contributions add up to."""
    task = predictor.facts.task
    if task.kind == "regression":
        return task.target
    return "log-odds" if len(task.classes) == 2 else "logit"


def explained_patients(
    predictor: Predictor, table: pd.DataFrame, found: Explanation, *, keep: int
) -> list[ExplainedPatient]:
    task, units, outputs = predictor.facts.task, predictor.facts.units, chosen_outputs(predictor, table)
    measured = f" ({units[task.target]})" if task.target in units else ""
    named = table.iloc[:, : max(1, keep)]
    patients = []
    for row, output in enumerate(outputs):
        steps = waterfall(found, row, int(output))
        looked_for = task.positive or "".join(task.classes[output : output + 1])
        patients.append(
            ExplainedPatient(
                name=" ".join(f"{column} {value}" for column, value in named.iloc[row].items()),
                what=f"probability of {looked_for} ({task.target})" if looked_for else f"{task.target}{measured}",
                share=task.kind != "regression",
                typical=steps[0][1],
                predicted=steps[-1][2],
                influences=tuple(
                    Influence(
                        found.columns[place],
                        value_text(found.values[row][place], units.get(found.columns[place], "")),
                        value_text(found.typical[place]),
                        float(found.contributions[row, place, output]),
                        before,
                        after,
                    )
                    for place, before, after in steps
                ),
                remarks=tuple(
                    f"{words}: {said}." for column, words in REMARKS.items() if (said := table[column].iloc[row])
                ),
            )
        )
    return patients


def value_text(value: Any, unit: str = "") -> str:
    """
    >>> value_text(81.0, "years"), value_text(1.699999999115), value_text("male"), value_text(None, "years")
    ('81 years', '1.7', 'male', '')
    """
    if value is None:
        return ""
    return f"{value:.6g}{f' {unit}' if unit else ''}" if isinstance(value, float) else str(value)


def page_content(predictor: Predictor, table: pd.DataFrame, found: Explanation, *, keep: int) -> bytes:
    patients = explained_patients(predictor, table, found, keep=keep)
    words = f"Predicted by {model_words(predictor)}."
    return explanation_page(predictor.facts.study, words, patients, score_name(predictor)).encode()


def print_explanations(lines: Sequence[Sequence[str]]) -> None:
    for first, *others in lines:
        typer.echo(first)
        for line in others:
            typer.echo(f"  {line}")
