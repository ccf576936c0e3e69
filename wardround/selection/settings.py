"""How a site chooses: one frozen set of settings, with the values of the thesis as defaults."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wardround.selection.competence import EPSILON, Pick
from wardround.selection.decision_list import LEAST_SHARE, MOST_RULES
from wardround.selection.k_choice import GRID
from wardround.selection.operating_points import Keeps, PointOfUse, operating_point
from wardround.selection.permutation_test import SHUFFLES
from wardround.selection.rule_search import RuleBy

PAPER_POINTS = (operating_point("sensitivity", 0.9), operating_point("specificity", 0.9))


@dataclass(frozen=True)
class SelectionSettings:
    """The first operating point and `keeps` are the ones that the answer is about; the others are shown beside it."""

    points: Sequence[PointOfUse] = PAPER_POINTS
    keeps: Keeps = "local"
    k: int | None = 100
    """Neighbours; None chooses by `k_by`."""
    k_by: Literal["folds", "divergence"] = "folds"
    k_grid: Sequence[int] = GRID
    pick: Pick = "competence"
    epsilon: float = EPSILON
    rules_from: Literal["patients", "neighbours"] = "patients"
    """What rules are looked for in: each patient's own difference in loss, or competence among its neighbours."""
    rules_by: RuleBy = "clearest"
    both_ways: bool = True
    """Whether rules are also looked for in the thesis' way, and those taken that validation favours."""
    features: int = 2
    least: float = LEAST_SHARE
    most_rules: int = MOST_RULES
    level: float = 0.05
    prune: bool = True
    shuffles: int = SHUFFLES
    gaps: bool = False
    """Whether a rule may be that a column is not recorded."""
    own_rows: Literal["left_out", "counted"] = "left_out"
    """Whether a validation patient is a neighbour of itself; counted as printed, which makes validation look better."""
    corrected: bool = True
    """Whether the validation test is corrected for the number of looks and rows of the same patient."""
