"""Who takes part in rounds, when training stops, and how its model is judged."""

from typing import Annotated

from pydantic import Field, model_validator

from wardround.study.sections.section import Section


class ParticipationSection(Section):
    """Who takes part in a round: a share, a fixed number, or a pattern of presence; everybody by default."""

    fraction: float | None = Field(default=None, gt=0, le=1)
    cohort: int | None = Field(default=None, ge=1)
    present: dict[str, str] | None = None


class StoppingSection(Section):
    """Early stopping on the weighted validation loss, or on the asking site's own."""

    patience: int = Field(ge=1)
    smallest: float = Field(default=0.0, ge=0)
    user: bool = False
    """Look at the asking site's validation patients only."""


class OperatingPointSection(Section):
    """From which risk on a patient is flagged: one of these, chosen on validation patients."""

    sensitivity: float | None = Field(default=None, gt=0, le=1)
    """The highest threshold that finds this share of those with the outcome;"""
    specificity: float | None = Field(default=None, gt=0, le=1)
    """or the lowest that leaves this share of the others in peace;"""
    net_benefit: float | None = Field(default=None, gt=0, lt=1)
    """or that of the highest net benefit for whoever would act at this risk;"""
    threshold: float | None = Field(default=None, gt=0, lt=1)
    """or this risk itself."""

    @model_validator(mode="after")
    def _one_of_them(self) -> "OperatingPointSection":
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("give one of sensitivity, specificity, net_benefit and threshold")
        return self

    @property
    def rule(self) -> tuple[str, float]:
        """What was said, and its value."""
        ((name, value),) = self.model_dump(exclude_none=True).items()
        return name, float(value)


class EvaluationSection(Section):
    """How often the validation rows are looked at, and how sure the final figures are."""

    every: int = Field(default=1, ge=1)
    resamples: int = Field(default=1000, ge=0, le=100_000)
    sites: int = Field(default=1000, ge=1)
    """Sites evaluated at most; with more, these many are drawn once."""
    operating_point: OperatingPointSection | None = None
    """From which risk on a patient is flagged; by default where Youden's index is highest among validation patients."""
    risk_bands: list[Annotated[float, Field(gt=0, lt=1)]] = Field(default_factory=list, max_length=19)
    """Over real sites: cuts between bands of predicted risk. Each site then tells how many of its test patients with
    and without the outcome are in each band, rounded at random to multiples of its smallest cell; the report shows
    calibration, net benefit and patients flagged. By default nothing of it is told; every site has its own report."""
    course: bool = False
    """Record the accuracy on every site's test patients after every look, for a figure; nothing is chosen by it.
    Simulated studies only: real sites tell of their test patients once, at the end."""
    keep_predictions: bool = False
    """Write what is predicted for every test patient into the run folder: rows about patients, so not by default."""

    @property
    def threshold(self) -> float:
        """Over real sites, the risk from which a patient is flagged: as it is said, else one half."""
        from wardround.evaluate.clinical.operating_point import DEFAULT  # loads SciPy, which reading a study must not

        said = self.operating_point
        return said.threshold if said is not None and said.threshold is not None else DEFAULT

    @property
    def cuts(self) -> tuple[float, ...]:
        """The cuts between bands of risk, the threshold among them; none where no table is asked for."""
        return tuple(sorted({*self.risk_bands, self.threshold})) if self.risk_bands else ()
