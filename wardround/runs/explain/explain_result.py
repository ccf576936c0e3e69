"""The result of `explain`: whose classifier decides for which patients of a site, and how often rightly."""

from typing import Any

from pydantic import Field

from wardround.runs.fields import ByName, Flag, Many, Number, ResultPart, Table, Text, Texts, Whole
from wardround.runs.sites import PredictionTask


class ExchangedClassifier(ResultPart):
    """What a site sent to the others."""

    site: Text
    kind: Text
    bytes: Whole
    roc_auc: Number
    """On the held-out patients of its own site."""
    rows: Whole
    """Training rows."""


class HandedOver(ResultPart):
    """Patients for whom another site's classifier decides, and what that changes."""

    rows: Whole
    share: Number
    """Of the site's rows."""
    patients: Whole
    right: Whole
    """Decisions that became right,"""
    wrong: Whole
    """and that became wrong."""
    success: Number
    """Share of the changed decisions that became right,"""
    low: Number
    high: Number
    """with its 95 % interval, in which rows of the same patient count together."""
    p_value: Number
    """One-tailed binomial test, every row by itself."""
    by_patient: Number
    """The same test with patients in place of rows."""
    local_accuracy: Number
    other_accuracy: Number
    sources: ByName[int]
    """Rows by whose classifier decided."""


class ChoiceStrategy(ResultPart):
    """One way to choose: a competence threshold, rules, or rules and then a threshold."""

    name: Text = Field(json_schema_extra={"enum": ["threshold", "rules", "hybrid"]})
    p_value: Number
    """The smallest of all looks at the validation patients,"""
    corrected: Number
    """and corrected for their number and for rows of the same patient."""
    looks: Whole
    passes: Flag
    """Whether validation lets it be used."""
    confirmed: Flag
    """Whether the test patients confirm it, corrected for the number of strategies that passed."""
    rules: Whole
    """How many of the rules are used."""
    threshold: Number
    """Competence above which another classifier decides; none: everybody."""
    validation: HandedOver
    test: HandedOver
    """What it did to test patients, or would have done where it did not pass."""


class OperatingCell(ResultPart):
    """All strategies at one operating point."""

    point: Text
    words: Text
    keeps: Text
    """Whether other classifiers keep their own site's threshold or get a local one."""
    thresholds: ByName[Number]
    """From which risk on each classifier says yes."""
    explained: Number
    """Of the validation patients whom the threshold hands over, the share that rules describe;"""
    explained_test: Number
    """and of the test patients."""
    strategies: Many[ChoiceStrategy]

    def strategy(self, name: str) -> ChoiceStrategy | None:
        return next((one for one in self.strategies if one.name == name), None)


class RuleInWords(ResultPart):
    """A rule, and how many patients it concerns here and there."""

    words: Text
    source: Text
    """Whose classifier decides."""
    bound: Number
    """Lower bound on the mean competence of that classifier in this rule."""
    mean: Number
    prune_p: Number
    """How often shuffled patients give a rule as good."""
    used: Flag
    """Whether it is followed."""
    rows: Whole
    """Test rows that it takes, after the rules before it."""
    share: Number
    right: Whole
    wrong: Whole
    here: Number
    """Share of the site's training rows that it describes, whatever the rules before;"""
    there: Number
    """of those of the source,"""
    more_there: Number
    """and the p-value of "the source sees relatively more of them" (one-tailed z-test)."""
    rule: Table
    """As a program applies it."""


class SplitRecord(ResultPart):
    """What one split said at the first operating point: for repeats, and for a split by row."""

    seed: Whole
    by: Text
    """Whether patients or rows were split."""
    strategy: Text
    passes: Flag
    confirmed: Flag
    share: Number
    success: Number
    low: Number
    high: Number
    by_patient: Number
    rules: Texts


class SiteAnswer(ResultPart):
    """The answer for one site."""

    site: Text
    verdict: Text = Field(json_schema_extra={"enum": ["gain", "unconfirmed", "none"]})
    headline: Text
    sentences: Texts
    k: Whole
    k_by: Text
    train_rows: Whole
    validation_rows: Whole
    test_rows: Whole
    auc: ByName[Number]
    """ROC-AUC of every classifier on this site's test patients, by site."""
    rules: Many[RuleInWords]
    cells: Many[OperatingCell]
    splits: Many[SplitRecord]

    def cell(self, point: str, keeps: str) -> OperatingCell | None:
        return next((one for one in self.cells if (one.point, one.keeps) == (point, keeps)), None)


class ExplainResult(ResultPart):
    """Of `explain`: for which patients another site's classifier knows more, and how sure that is."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "explain"})
    task: PredictionTask
    settings: Table
    split_by: Text
    """The column that names the patient; empty where every row is one."""
    repeats: Whole
    classifiers: Many[ExchangedClassifier]
    absent: ByName[Text]
    """Sites that sent no classifier, and why."""
    sites: Many[SiteAnswer]
    truth: Any = None
    notes: Texts
