"""A finished analysis in Python: its sentences, its tables as data frames, its numbers, its charts."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from wardround.core.errors import Refusal
from wardround.report.analysis.charts import chart_of
from wardround.report.html.markup import safe
from wardround.report.run.page import write_report
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.read import read_result


@dataclass(frozen=True)
class FinishedAnalysis:
    """The analysis in a folder; a notebook shows its sentences and its first table."""

    folder: Path

    @cached_property
    def result(self) -> AnalysisResult:
        """The content of result.json, typed."""
        found = read_result(self.folder)
        if found is None or not isinstance(found.result, AnalysisResult):
            raise Refusal("this folder holds no finished analysis", where=str(self.folder), remedy="run it again")
        return found.result

    @property
    def words(self) -> tuple[str, ...]:
        """What was found, the answer first."""
        return self.result.words

    @property
    def numbers(self) -> dict[str, Any]:
        """The same for programs, exact and by name."""
        return self.result.numbers

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by its name."""
        return {one.name: pd.DataFrame(list(one.rows), columns=list(one.columns)) for one in self.result.tables}

    def figure(self, name: str) -> Any:
        """A chart of the report as a Plotly figure."""
        from plotly.graph_objects import Figure

        drawn = {one.name: chart for one in self.result.charts if (chart := chart_of(one)) is not None}
        if name not in drawn:
            raise Refusal(
                f"this analysis has no chart called {name!r}", remedy=f"there are {', '.join(drawn) or 'none'}"
            )
        chart = drawn[name]
        return Figure(chart.traces, {**chart.layout, "title": {"text": chart.title}, "margin": {"t": 70}})

    def report(self) -> Path:
        """The report, written anew."""
        return write_report(self.folder)

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{safe(one)}</p>" for one in self.words)
        return words + "".join(table.to_html(index=False) for table in list(self.tables.values())[:1])
