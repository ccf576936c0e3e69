"""What a clinician asks of a model: calibration, net benefit, patients flagged, and what the model looks at."""

from pydantic import Field

from wardround.runs.fields import ByName, Flag, Many, Number, ResultPart, Text, Whole
from wardround.runs.scores import MetricValue


class CalibrationFigures(ResultPart):
    """Calibration in two numbers: 0 and 1 are right."""

    in_the_large: MetricValue
    """Above 0 the risk is told too low (a log-odds); for a quantity the mean of observed less predicted."""
    slope: MetricValue
    """Below 1 the predictions are too extreme."""


class CalibrationSummary(CalibrationFigures):
    """All sites as one, what was predicted and seen on average, and every site for itself."""

    predicted: Number
    observed: Number
    sites: ByName[CalibrationFigures] = Field(default_factory=dict)


class DecisionCurve(ResultPart):
    """Net benefit at every threshold; the lists go together."""

    thresholds: Many[Number]
    net_benefit: Many[Number]
    treat_all: Many[Number]
    gain: Many[Number]
    """Above the better of treating all and none."""
    rows: Whole
    low: Many[Number] = ()
    high: Many[Number] = ()
    gain_low: Many[Number] = ()
    gain_high: Many[Number] = ()


class FlagCounts(ResultPart):
    """Patients flagged and not flagged, with and without the outcome, and the four usual shares."""

    rows: Whole
    true_positives: Whole
    false_positives: Whole
    false_negatives: Whole
    true_negatives: Whole
    sensitivity: MetricValue
    specificity: MetricValue
    ppv: MetricValue
    npv: MetricValue
    rounding: Number = None
    """By how many patients the number of those flagged is off (standard deviation, at most), where sites rounded."""

    @property
    def flagged(self) -> int:
        return (self.true_positives or 0) + (self.false_positives or 0)

    @property
    def with_outcome(self) -> int:
        return (self.true_positives or 0) + (self.false_negatives or 0)


class OperatingPoint(ResultPart):
    """From which risk on a patient is flagged, how that was chosen, and whom it flags among test patients."""

    threshold: Number
    rule: Text
    """youden, sensitivity, specificity, net_benefit or threshold"""
    target: Number = None
    """What the rule asks for: a share, or a threshold probability."""
    validation_rows: Whole
    """Patients on whom it was chosen."""
    fallback: Text = ""
    """Why it is 0.5 and not what the rule asks for."""
    all: FlagCounts
    sites: ByName[FlagCounts] = Field(default_factory=dict)


class ColumnImportance(ResultPart):
    """How far one column moves the prediction."""

    column: Text
    value: Number
    """Below 0 where a higher value of the column lowers the prediction."""
    highest: Text = ""
    """Of a column of categories, the one that raises the prediction most."""
    directed: Flag = False
    """Whether the sign means something: of a number, in a model with one output."""
    low: Number = None
    """Lowest and highest over the shuffles."""
    high: Number = None


class ModelImportance(ResultPart):
    """What the model looks at, the most important column first."""

    kind: Text
    """standardised coefficient, or permutation"""
    metric: Text = ""
    """What gets worse when a column is shuffled."""
    rows: Whole
    """Patients it was measured on."""
    columns: Many[ColumnImportance] = ()
    reason: Text = ""
    """Why there is none."""


class HorizonFigures(ResultPart):
    """Survival at one horizon, all test patients as one."""

    horizon: Number
    predicted: Number
    """Mean risk of the event by then, as predicted,"""
    observed: Number
    """and as seen: one minus the Kaplan-Meier curve, with its interval."""
    low: Number
    high: Number
    events: Whole
    followed: Whole
    """Patients who were followed up to the horizon without the event."""
    brier: Number
    brier_same_for_all: Number
    """The Brier score of telling every patient the risk that was seen."""


class ClinicalFigures(ResultPart):
    """Of the first split, whose models are kept; what does not apply to the task is left out."""

    calibration: CalibrationSummary | None = None
    decision_curve: DecisionCurve | None = None
    operating_point: OperatingPoint | None = None
    classes: ByName[FlagCounts] = Field(default_factory=dict)
    """Of more than two classes: each against the rest."""
    importance: ModelImportance | None = None
    horizons: Many[HorizonFigures] = ()
    """Of survival."""

    @property
    def threshold(self) -> float:
        """The risk from which a patient is flagged; one half where none was chosen."""
        point = self.operating_point
        return 0.5 if point is None or point.threshold is None else float(point.threshold)
