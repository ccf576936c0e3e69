"""[privacy]: what is promised to patients or sites, and by which noise."""

from math import inf
from typing import Annotated, Literal

from pydantic import Field, model_validator

from wardround.study.sections.section import Section


class PrivacySection(Section):
    """Formal privacy: of every patient of a site ("sample") or of whole sites ("site")."""

    level: Literal["sample", "site"] = "sample"
    epsilon: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How much the model may tell, at most;"""
    noise_multiplier: float | None = Field(default=None, ge=1e-6, allow_inf_nan=False)
    """or the noise, as a multiple of `clip`."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    clip: float = Field(default=1.0, ge=1e-6, le=1e6)
    """The length to which a patient's gradient (or a site's answer) is cut."""
    batch: int | None = Field(default=None, ge=1)
    """Patients in a batch, as expected; by default the algorithm's batch_size."""
    seeded: bool = False
    """Noise from the study's seed, for tests: it protects nobody."""
    quantile: float | None = Field(default=None, gt=0, lt=1)
    """Level "site": adapt `clip` so that this share of the answers is shorter;"""
    rate: float = Field(default=0.2, gt=0)
    """at this rate,"""
    first_rate: float = Field(default=0.2, gt=0)
    """which falls to it from this one,"""
    count_share: float = Field(default=0.1, gt=0, lt=1)
    """with this share of what is spent."""
    answers: int | None = Field(default=None, ge=1)
    """Level "site": how many sites at least share the noise of a round; by default the fewest of all rounds."""
    whole_numbers: bool = False
    """Level "site": noise in whole numbers, added by the transform secure_sum; always so where there is one."""
    statistics: float = Field(default=0.1, gt=0, lt=1)
    """Level "sample": the share of epsilon for the statistics of the preparation, unless the columns are declared."""
    outcome: Annotated[tuple[float, float] | None, Field(strict=False)] = None
    """Level "sample": between what values the outcome of a regression lies; without, no loss and no figure is told."""

    @property
    def blank(self) -> float:
        """What a quantity counts as where it is not known: the middle of its range."""
        return 0.0 if self.outcome is None else sum(self.outcome) / 2

    @model_validator(mode="after")
    def _one_of_two(self) -> "PrivacySection":
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give either epsilon or noise_multiplier")
        if self.level == "sample" and (self.quantile is not None or self.answers is not None):
            raise ValueError('quantile and answers belong to level = "site"')
        if self.level == "site" and self.batch is not None:
            raise ValueError('batch belongs to level = "sample"')
        if self.outcome is not None and not -inf < self.outcome[0] < self.outcome[1] < inf:
            raise ValueError("outcome should be [low, high], two numbers in order")
        return self
