"""Survival at the study's horizons: which risk was predicted, which was seen, and whether the model helps."""

from collections.abc import Sequence

from wardround.report.clinical.calibration import percent
from wardround.report.clinical.leader import leader_first, others_below, which_model
from wardround.report.html.markup import Html, bullets, join, paragraph, safe, table
from wardround.report.numbers import score
from wardround.report.run.times import time_text
from wardround.runs.clinical.figures import HorizonFigures
from wardround.runs.result import MethodResult
from wardround.runs.run import Run

HELPS = "Brier score: the squared error of the predicted risk, with weights for patients who were lost from sight"


def horizons_section(run: Run) -> Html:
    """A sentence and a line of the table for every horizon; nothing where the task is another."""
    shown = leader_first(run, tuple(one for one in run.methods if one.clinical is not None and one.clinical.horizons))
    if not shown:
        return Html("")
    words = (
        "Not every patient was followed up to every horizon, so shares cannot simply be counted: what was seen is read "
        "from the Kaplan-Meier curve of the test patients, which uses everybody for as long as they were seen."
    )
    return join(
        [
            paragraph(safe(words)),
            which_model(run, shown),
            of_method(run, shown[0]),
            others_below(shown, lambda method: of_method(run, method)),
        ]
    )


def of_method(run: Run, method: MethodResult) -> Html:
    figures = method.clinical.horizons if method.clinical is not None else ()
    return join([bullets([safe(horizon_words(run, one)) for one in figures]), horizon_table(run, figures)])


def horizon_words(run: Run, one: HorizonFigures) -> str:
    """What one horizon shows, for a clinician."""
    when, told = time_text(run, one.horizon), percent(one.predicted or 0.0)
    if one.observed is None or one.low is None or one.high is None:
        return f"By {when} the model predicts a risk of {told} on average; what came is not known."
    ends = f"95 % interval {percent(one.low)} to {percent(one.high)}"
    seen = f"By {when} the model predicts a risk of {told} on average; {percent(one.observed)} had the event ({ends})"
    predicted = one.predicted or 0.0
    if one.low < one.high and predicted > one.high:
        verdict = "the model predicts too much risk"
    elif one.low < one.high and predicted < one.low:
        verdict = "the model predicts too little risk"
    else:
        verdict = "no miscalibration of the average is shown"
    return f"{seen}: {verdict}. {use_words(one)}"


def use_words(one: HorizonFigures) -> str:
    """Whether the risks of single patients are better than the same risk for everybody."""
    if one.brier is None or one.brier_same_for_all is None or one.brier_same_for_all <= 0:
        return ""
    gain = 1 - one.brier / one.brier_same_for_all
    if gain <= 0:
        return "The risks of single patients are no better than telling everybody the same risk."
    return f"The squared error is {percent(gain)} lower than if everybody were told the same risk."


def horizon_table(run: Run, figures: Sequence[HorizonFigures]) -> Html:
    rows = [
        [
            time_text(run, one.horizon),
            f"{one.events or 0:,}",
            f"{one.followed or 0:,}",
            percent(one.predicted or 0.0),
            percent(one.observed or 0.0),
            score(one.brier or 0.0),
            score(one.brier_same_for_all or 0.0),
        ]
        for one in figures
    ]
    columns = ["Horizon", "Events by then", "Followed up to it", "Risk predicted", "Risk seen", "Brier", "Same for all"]
    return table(f"Test patients at each horizon. {HELPS}", columns, rows)
