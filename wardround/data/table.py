"""Raw rows of every site, before preparation: what a source or data set gives, and what a partition rearranges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.contracts import TaskKind

Kind = TaskKind


@dataclass(frozen=True)
class Table:
    """Each site's own rows, the target among the columns.

    `task` None means that it is told from the target. `positive` is the label that binary measures count as positive
    (None: the last in sorted order). `groups` names columns kept for fairness; they are features too, unless `aside`
    names them: columns that no model sees. `truth` is what a generator knows. What a study declares: `categories` are
    columns of words whatever these look like, `numbers` columns of numbers, `distinct` labels of the target that are
    different although only their case differs, `labels` classes that labeling functions vote for: rows without a target
    are then for training. `notes` say what was noticed while the rows were read.
    """

    sites: Mapping[str, pd.DataFrame]
    target: str
    origin: str
    task: Kind | None = None
    positive: str | None = None
    groups: tuple[str, ...] = ()
    truth: Mapping[str, Any] = field(default_factory=dict)
    aside: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    horizons: tuple[float, ...] = ()
    """Of survival: the times up to which the event is predicted;"""
    time: str = ""
    """and the column, set aside, that tells how long a patient was followed up."""
    read: Mapping[str, int] = field(default_factory=dict)
    """Rows of each site before cleaning left some out; empty where nothing was cleaned."""
    images_each: int = 1
    """Most images that one patient has at a real site, by the folders of its images; 1 where rows are patients."""

    @property
    def is_unlabelled(self) -> bool:
        """Whether rows may lack the target: labeling functions vote in its stead."""
        return bool(self.labels)


class SlicedSites(dict[str, pd.DataFrame]):
    """Sites whose rows lie one after another in one frame, of which each site's is a slice.

    So what is said of every site can be worked out for all of them at once (see `data.pooled.rows`).
    """

    def __init__(self, whole: pd.DataFrame, names: Sequence[str], first: np.ndarray[Any, Any]) -> None:
        self.whole = whole.reset_index(drop=True)
        self.first = first
        super().__init__()
        for name, begin, end in zip(names, first[:-1].tolist(), first[1:].tolist(), strict=True):
            own = self.whole.iloc[begin:end]
            own.index = pd.RangeIndex(end - begin)
            self[name] = own


class Partition(NamedTuple):
    """How one pool of rows becomes several sites.

    `split` gets the features, the target and a generator and gives, for every site, the positions of its rows (a row
    may be in no site, never in two). `alter`, if there is one, then changes a site's rows: it gets the site's index,
    the number of sites, its features, its target and a generator, and gives new features and target.
    """

    split: Callable[[pd.DataFrame, "pd.Series[Any]", np.random.Generator], list[np.ndarray[Any, Any]]]
    alter: (
        Callable[[int, int, pd.DataFrame, "pd.Series[Any]", np.random.Generator], tuple[pd.DataFrame, "pd.Series[Any]"]]
        | None
    ) = None
