"""The two questions behind every curve by groups: how long follow-ups are, then who leaves in each interval.

Kaplan-Meier curves and cumulative incidences differ in what a site counts and in what is reported, not in this.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival.counts import Counted, read_counts
from wardround.analyses.survival.rows import levels_of
from wardround.analyses.survival.survey import Survey, check_times, edges_for, read_survey
from wardround.core.analysis import Agreed, kind_by_word
from wardround.core.contracts import Message

Values = np.ndarray[Any, Any]
KIND = kind_by_word("asked", {"survey": 1, "counts": 1})


class CurveState(NamedTuple):
    """What is known so far."""

    agreed: Agreed
    groups: tuple[str, ...]
    survey: Survey | None = None
    edges: Values | None = None
    counted: Counted | None = None


class CountedCourse(NamedTuple):
    """Where the common axis comes from: the study's edges, or as many round ones as it wants, and its horizons."""

    group: str
    times: tuple[float, ...]
    bins: int
    horizons: tuple[float, ...]
    check_units: bool

    def begin(self, agreed: Agreed) -> CurveState:
        check_times(self.times, self.bins)
        return CurveState(agreed, levels_of(agreed, self.group) if self.group else ("all",))

    def message(self, state: CurveState) -> Message | None:
        if state.survey is None:
            return Message({}, (("asked", "survey"),))
        return Message({"edges": state.edges}, (("asked", "counts"),)) if state.counted is None else None

    def step(self, state: CurveState, answers: Message) -> CurveState:
        if state.survey is None:
            survey = read_survey(answers.arrays, check_units=self.check_units)
            return state._replace(survey=survey, edges=edges_for(survey, self.times, self.bins, self.horizons))
        return state._replace(counted=read_counts(answers.arrays))
