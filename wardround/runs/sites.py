"""What every result tells of the data: what is predicted, and how many patients each site has."""

from wardround.runs.fields import Flag, Many, Name, Number, ResultPart, Text, Texts, Whole


class PredictionTask(ResultPart):
    """What is predicted from what."""

    kind: Text
    """classification, regression, survival or segmentation"""
    target: Text
    classes: Texts
    features: Texts
    positive: Name = None
    """Of two classes the one that is looked for."""
    horizons: Many[Number] = ()
    """Of survival: the times between which the classes are intervals."""
    images: Flag = False
    """Rows are images, of which a patient may have many."""


def horizons_of(task: PredictionTask) -> tuple[float, ...]:
    """Of survival, as numbers."""
    return tuple(float(one) for one in task.horizons if one is not None)


class SiteSummary(ResultPart):
    """A site and its patients in each part of the split."""

    name: Text
    train: Whole
    validation: Whole
    test: Whole
    prevalence: Number
    """Share of training patients with the outcome, of two classes; null where it may not be told."""
    test_prevalence: Number = None
    """The same of its test patients: the accuracy of always saying yes, told in simulated studies only."""

    @property
    def patients(self) -> int:
        return (self.train or 0) + (self.validation or 0) + (self.test or 0)
