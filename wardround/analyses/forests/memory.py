"""What a site keeps between two exchanges, so that no row is binned or scored twice; lost, it is worked out again."""

import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from wardround.analyses.forests.plan import TreeOutcome
from wardround.analyses.forests.question import Common
from wardround.analyses.forests.rows import LearningRows
from wardround.core.analysis import Agreed
from wardround.statistics.trees.bins import Layout, Numbers
from wardround.statistics.trees.course import BinnedRows, RowCourse

MOST_TABLES = 256


@dataclass
class Kept:
    """Of one table: its rows, and once bins are agreed on, these binned and how far they are."""

    table: "weakref.ref[Any]"
    agreed: Agreed
    outcome: TreeOutcome
    rows: LearningRows
    edges: Numbers | None = None
    common: Common | None = None
    layout: Layout | None = None
    binned: BinnedRows | None = None
    course: RowCourse | None = None


class SiteMemory:
    """By the table itself: another table, or a new copy, is another site's."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Kept] = OrderedDict()

    def find(self, name: str, table: Any, agreed: Agreed) -> Kept | None:
        kept = self._kept.get((name, id(table)))
        if kept is None or kept.table() is not table or kept.agreed != agreed:
            return None
        self._kept.move_to_end((name, id(table)))
        return kept

    def keep(self, name: str, table: Any, agreed: Agreed, outcome: TreeOutcome, rows: LearningRows) -> Kept:
        kept = Kept(weakref.ref(table), agreed, outcome, rows)
        self._kept[name, id(table)] = kept
        while len(self._kept) > MOST_TABLES:
            self._kept.popitem(last=False)
        return kept
