"""Ranges of parameters, written in the annotation of a factory so that one check serves every component."""

from typing import Annotated, NamedTuple

from wardround.core.errors import Refusal


class Bound(NamedTuple):
    """From `low` to `high`; `open_low` excludes the lower end, `open_high` the upper."""

    low: float = float("-inf")
    high: float = float("inf")
    open_low: bool = False
    open_high: bool = False

    def is_met(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        words = []
        if self.low > float("-inf"):
            words.append(f"{'greater than' if self.open_low else 'at least'} {self.low:g}")
        if self.high < float("inf"):
            words.append(f"{'less than' if self.open_high else 'at most'} {self.high:g}")
        return " and ".join(words)


Positive = Annotated[float, Bound(low=0, open_low=True)]
NotNegative = Annotated[float, Bound(low=0)]
Share = Annotated[float, Bound(low=0, high=1)]
Half = Annotated[float, Bound(low=0, high=0.5, open_high=True)]
Momentum = Annotated[float, Bound(low=0, high=1, open_high=True)]
Count = Annotated[int, Bound(low=1)]
CountOrAll = Annotated[int, Bound(low=0)]
"""0 means all rows at once."""


class SiteNumbers(NamedTuple):
    """Marks a setting of one number a site, in their order; a study file gives it as a table by the sites' names."""

    def __str__(self) -> str:
        return "(one a site, in a study file as a table by their names)"


BySite = Annotated[tuple[float, ...], SiteNumbers()]
"""0 for a site of which nothing is said."""


def refuse_more_sites(setting: str, numbers: int, sites: int, where: str) -> None:
    """Numbers by site, of which there must be one for every site."""
    if sites > numbers:
        raise Refusal(
            f"{setting} has {numbers} numbers, and there are {sites} sites or more",
            where=where,
            remedy=f'give one for each site, or name single sites: {setting} = {{"North" = 0.5}}',
        )
