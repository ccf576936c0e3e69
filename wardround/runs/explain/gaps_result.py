"""The result of `gaps`: for which practices another organisation's model is better or more consistent."""

from typing import Any

from pydantic import Field

from wardround.runs.fields import ByName, Flag, Many, Number, ResultPart, Table, Text, Texts, Whole


class GapDifference(ResultPart):
    """Local less other, on the local test patients; its interval is corrected for the number of comparisons."""

    value: Number
    low: Number
    high: Number


class StopGap(ResultPart):
    """Classifier selection as a stop-gap: whom the other organisation's model would decide for."""

    train_p: Number
    rows: Whole
    handled: Whole
    right: Whole
    wrong: Whole
    success: Number
    low: Number
    high: Number
    test_p: Number
    used: Flag
    """Whether the validation test, corrected for the number of gaps, lets it be used."""


class PracticeGap(ResultPart):
    """One practice at one organisation, against one other."""

    practice: Text
    organisation: Text
    other: Text
    train_rows: Whole
    test_rows: Whole
    other_train_rows: Whole
    local_score: Number
    other_score: Number
    performance: GapDifference
    entropy: GapDifference
    verdict: Text = Field(json_schema_extra={"enum": ["gap", "performance", "entropy"]})
    """A potential gap; or what speaks against it."""
    sized_performance: GapDifference | None = None
    """The same with trainings of equal size,"""
    sized_entropy: GapDifference | None = None
    sized_verdict: Text = ""
    holm_p: Number
    """Of the entropy difference, corrected after Holm."""
    stop_gap: StopGap | None = None


class OwnScore(ResultPart):
    """A model on the test patients of its own organisation."""

    practice: Text
    organisation: Text
    rows: Whole
    value: Number
    low: Number
    high: Number


class GapsResult(ResultPart):
    """Of `gaps`."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "gaps"})
    question: Text
    """What is predicted, in words."""
    metric: Text
    settings: Table
    organisations: Texts
    practices: Texts
    left_out: ByName[Text]
    """Practices that could not be compared, and why."""
    own: Many[OwnScore]
    gaps: Many[PracticeGap]
    words: Texts
    truth: Any = None
    notes: Texts
