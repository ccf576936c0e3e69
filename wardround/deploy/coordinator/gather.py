"""How long a round over real sites waits, and for how many sites. One policy for every exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wardround.core.errors import Refusal


@dataclass
class Patience:
    """A site is given `floor` seconds, or `factor` times what the slowest of it took before, whichever is longer.

    `quorum` sites must answer, or all that are left where they are fewer; with fewer than `fewest` left a study ends.
    """

    quorum: int
    floor: float = 60.0
    factor: float = 5.0
    most: float = 3600.0
    fewest: int = 1
    _slowest: float = 0.0

    @property
    def deadline(self) -> float:
        return min(self.most, max(self.floor, self.factor * self._slowest))

    def took(self, seconds: float) -> None:
        self._slowest = max(0.8 * self._slowest, seconds)

    def staying(self, cohort: Sequence[str], left: Mapping[str, str], number: int) -> list[str]:
        """Those of a round's sites who have not left for good; refused where they are too few to go on."""
        here = [site for site in cohort if site not in left]
        fewest = max(1, min(self.fewest, len(cohort)))
        if len(here) >= fewest:
            return here
        why = "; ".join(f"{site}: {left[site]}" for site in cohort if site in left)
        if fewest > 1:
            raise Refusal(
                f"{len(here)} of the {fewest} sites that a round needs at least are left ({why})",
                where=f"round {number}",
                remedy="offer the study anew, to other sites or with a smaller [deploy] quorum",
            )
        raise Refusal(
            f"no site is left in this study ({why})",
            where=f"round {number}",
            remedy='let each train alone with [algorithm] name = "local", or offer the study anew',
        )
