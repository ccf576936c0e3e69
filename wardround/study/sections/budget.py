"""[budget]: what a training may cost before it is stopped."""

from pydantic import Field, model_validator

from wardround.study.sections.grid_intensity import WORLD, grams_per_kwh
from wardround.study.sections.section import Section

LIMITS = ("bytes", "flops", "seconds", "kilowatt_hours", "grams_co2")


class BudgetSection(Section):
    """Limits for each method and repeat; training stops before the round that would pass one of them."""

    bytes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """To the sites and back, together;"""
    flops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """floating-point operations of training, all sites together;"""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """from the first round on;"""
    kilowatt_hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """measured where the processor tells it, else estimated;"""
    grams_co2: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """of that electricity, by the grid it comes from."""
    country: str = WORLD
    """Whose grid the electricity comes from, by ISO 3166's three letters;"""
    grams_per_kwh: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """or its grams of CO2 per kWh;"""
    sites: dict[str, float] = Field(default_factory=dict)
    """or the grams per kWh of single sites that know theirs, by name."""

    @model_validator(mode="after")
    def _sound(self) -> "BudgetSection":
        if any(not 0 <= value < float("inf") for value in self.sites.values()):
            raise ValueError("the grams per kWh of a site must be 0 or more")
        if self.grams_per_kwh is not None and self.country != WORLD:
            raise ValueError("country and grams_per_kwh are two ways to say the same: give one of them")
        return self

    @property
    def limits(self) -> dict[str, float]:
        said = {name: getattr(self, name) for name in LIMITS}
        return {name: float(limit) for name, limit in said.items() if limit is not None}

    @property
    def intensity(self) -> float:
        """Grams per kWh where a site does not say its own."""
        return float(grams_per_kwh(self.country)) if self.grams_per_kwh is None else self.grams_per_kwh
