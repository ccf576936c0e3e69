"""What a monitor found, in words."""

from wardround.monitor.drift import LARGE, MODERATE, Distance
from wardround.monitor.state import AlarmRaised
from wardround.monitor.summary import MonitorSummary, WindowFigures
from wardround.report import numbers

PREDICTION = "the prediction itself"


def verdict(summary: MonitorSummary) -> str:
    """The answer in one sentence."""
    kinds = {alarm.what for alarm in summary.alarms}
    if kinds == {"calibration", "input"}:
        return "Alarm: the model's predictions are no longer right, and the patients have changed."
    if "calibration" in kinds:
        return "Alarm: the model's predictions are not right for these patients."
    if "input" in kinds:
        return "Alarm: the patients are no longer like those of the reference."
    return "No alarm: nothing has changed beyond chance."


def alarm_sentences(summary: MonitorSummary) -> list[str]:
    return [alarm_sentence(summary, alarm) for alarm in summary.alarms]


def alarm_sentence(summary: MonitorSummary, alarm: AlarmRaised) -> str:
    """What rang, when, and how much evidence there was."""
    evidence = f"evidence {evidence_text(alarm.capital)}, limit {numbers.short_number(alarm.limit)}"
    if alarm.what == "input":
        return f"{column_name(alarm.column or '')}: values have moved (found in window {alarm.window}; {evidence})."
    return f"Calibration: found in window {alarm.window} ({evidence}). {direction(summary, alarm.window)}".rstrip()


def evidence_text(capital: float) -> str:
    """
    >>> evidence_text(3.14), evidence_text(5e65)
    ('3.1', 'over a million')
    """
    return numbers.short_number(capital) if capital < 1e6 else "over a million"


def direction(summary: MonitorSummary, name: str) -> str:
    """Whether predictions were too high or too low in that window."""
    window = next((one for one in summary.windows if one.name == name), None)
    if window is None or window.predicted is None or window.observed.value is None:
        return ""
    word = "low" if window.observed.value > window.predicted else "high"
    told = numbers.score(window.predicted) if summary.quantity else numbers.share(window.predicted)
    seen = numbers.score(window.observed.value) if summary.quantity else numbers.share(window.observed.value)
    return f"Predictions were too {word} there: {told} predicted, {seen} observed."


def column_name(name: str) -> str:
    return PREDICTION if name == "(prediction)" else name


def scope_sentence(summary: MonitorSummary) -> str:
    compared = (
        f"the {summary.reference_patients:,} of the first window"
        if summary.reference == "the first window"
        else f"{summary.reference_patients:,} patients of {summary.reference}"
    )
    many = len(summary.windows)
    windows = f"{many} window{'' if many == 1 else 's'}"
    return f"{summary.patients:,} patients in {windows} were compared with {compared}."


def outcome_sentence(summary: MonitorSummary) -> str:
    if not summary.known:
        return "No outcome is known yet, so only inputs were watched."
    unwatched = (
        ""
        if summary.watches_calibration
        else " They are not watched yet: that takes 40 outcomes at a time, or a --reference with outcomes."
    )
    last = next(window for window in reversed(summary.windows) if window.known)
    return f"The outcome of {summary.known:,} is known. {window_sentence(summary, last)}{unwatched}"


def window_sentence(summary: MonitorSummary, window: WindowFigures) -> str:
    """Predicted and observed of one window."""
    predicted, observed = window.predicted, window.observed
    assert predicted is not None
    assert observed.value is not None
    if summary.quantity:
        told = numbers.score(predicted)
        return f"In window {window.name}, the mean was {with_interval(observed)} and {told} was predicted."
    if not summary.risk:
        return (
            f"In window {window.name}, {numbers.share(observed.value)} were predicted rightly; the model expected"
            f" {numbers.share(predicted)}."
        )
    area = f"; area under the ROC curve {with_interval(window.auc)}" if window.auc.value is not None else ""
    return (
        f"In window {window.name}, {numbers.share(observed.value)} had the outcome and {numbers.share(predicted)} were"
        f" predicted to{area}."
    )


def with_interval(figure: Distance) -> str:
    """
    >>> with_interval(Distance(0.81, 0.7, 0.9)), with_interval(Distance(None))
    ('0.810 (0.700 to 0.900)', '')
    """
    if figure.value is None:
        return ""
    if figure.low is None or figure.high is None:
        return numbers.score(figure.value)
    return f"{numbers.score(figure.value)} ({numbers.score(figure.low)} to {numbers.score(figure.high)})"


def size_word(figure: Distance) -> str:
    """What a population stability index is commonly called, if its interval leaves no doubt that it is so large."""
    least = figure.low or 0.0
    return "large shift" if least >= LARGE else "moderate shift" if least >= MODERATE else ""


def promise(summary: MonitorSummary) -> str:
    """What the alarm promises, and by which test."""
    percent = numbers.share(summary.alpha)
    slack = (
        f"Odds up to {numbers.share(summary.tolerance)} off are not counted. "
        if summary.tolerance and not summary.quantity
        else ""
    )
    calibration = (
        "On the errors, bets are laid on the rank of each among all before (a conformal test martingale)."
        if summary.quantity
        else "On calibration, bets are laid against the predicted risks: likelihood ratios of fixed shifts (Arnold,"
        f" Henzi and Ziegel 2023). {slack}"
    ).strip()
    return (
        f"The chance that this monitor ever raises a false alarm is at most {percent}, however often it is looked at."
        f" Half of it is for calibration, half is shared by the {len(summary.columns)} inputs. {calibration} On every"
        " input, bets are laid on the rank of each patient's value among all before (Vovk, Gammerman and Shafer 2005)."
        " Evidence is the capital that these bets have won, starting from 1; by Ville's inequality it ever reaches a"
        " limit L with a chance of at most 1 in L while nothing has changed. The promise holds for patients who come"
        " independently of each other: seasons, or one family after another, are changes, too."
    )
