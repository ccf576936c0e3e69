"""A finished run in Python: its figures as data frames, its charts, and its models ready to use."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from wardround.api.monitor_report import MonitorReport
from wardround.core.contracts import Algorithm
from wardround.core.errors import Refusal
from wardround.core.federation import task_of
from wardround.monitor.session import MonitorSettings, default_folder, monitor_patients
from wardround.monitor.windows import parse_every
from wardround.predict.adaptation import Adaptation
from wardround.predict.explanation import Explanation, explain
from wardround.predict.patients import PatientRows, clean_patients, read_patients
from wardround.predict.predictor import Predictor, load_predictor
from wardround.predict.site_adaptation import adapt_model
from wardround.predict.table import predict_table
from wardround.report.clinical import calibration, decision_curve, forest
from wardround.report.html.charts import Chart
from wardround.report.monitor.page import write_page
from wardround.report.run import score_charts
from wardround.report.run.page import write_report
from wardround.report.run.progress_charts import progress
from wardround.runs.model_file import ModelFacts
from wardround.runs.read import read_result
from wardround.runs.result import RunResult
from wardround.runs.run import Run, read_run
from wardround.runs.sites import horizons_of
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import compared_methods, own_method


@dataclass(frozen=True)
class FinishedRun:
    """The run in a folder; a notebook shows its scores as a table."""

    folder: Path
    study: Study | None = None
    """What it came from, where that is needed to make a model again that is one's own."""

    @cached_property
    def run(self) -> Run:
        """All that the folder tells, typed."""
        return read_run(self.folder)

    @cached_property
    def result(self) -> RunResult:
        """The content of result.json, typed."""
        found = read_result(self.folder)
        if found is None or not isinstance(found.result, RunResult):
            raise Refusal(
                "this run has no result yet",
                where=str(self.folder),
                remedy="finish it with resume=True",
            )
        return found.result

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A line for every method, site and metric: value, low, high (of the interval)."""
        rows = []
        for method in self.run.methods:
            blocks = {**method.scores.sites, "all": method.scores.weighted}
            for site, figures in blocks.items():
                for metric, figure in figures.items():
                    rows.append(
                        {
                            "method": method.name,
                            "site": site,
                            "metric": metric,
                            "value": figure.value,
                            "low": figure.low,
                            "high": figure.high,
                        }
                    )
        return pd.DataFrame(rows, columns=["method", "site", "metric", "value", "low", "high"])

    @cached_property
    def differences(self) -> pd.DataFrame:
        """How methods differ, with intervals, p-values and verdicts."""
        return pd.DataFrame([one.plain() for one in self.run.differences])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A line for every round of every method, repeat and asking site ("" where it was for all)."""
        rows = [
            {"method": course.method, "repeat": course.repeat, "user": course.user, "round": number, "loss": loss}
            for course in self.run.courses
            for number, loss in zip(course.rounds, course.loss, strict=True)
        ]
        return pd.DataFrame(rows, columns=["method", "repeat", "user", "round", "loss"])

    def figure(self, name: str = "scores") -> Any:
        """A chart of the report as a Plotly figure.

        Scores, differences, calibration, decisions (decision curves), forest, or progress by method.
        """
        from plotly.graph_objects import Figure

        drawn: dict[str, Chart | None] = {
            "scores": score_charts.scores(self.run),
            "differences": score_charts.differences(self.run),
            "calibration": calibration.leader_chart(self.run),
            "decisions": decision_curve.all_curves(self.run),
            "forest": forest.leader_chart(self.run),
            **{
                f"progress {method.name}": chart
                for method, chart in zip(self.run.methods, progress(self.run), strict=False)
            },
        }
        charts = {key: chart for key, chart in drawn.items() if chart is not None}
        if name not in charts:
            raise Refusal(f"this run has no chart called {name!r}", remedy=f"there are {', '.join(charts)}")
        chart = charts[name]
        return Figure(chart.traces, {**chart.layout, "title": {"text": chart.title}, "margin": {"t": 70}})

    def model(self, site: str | None = None, method: str | None = None, *, adapted: bool = True) -> Predictor:
        """A model of the run: the common one, or that of a site; as `adapt` adapted it, unless told otherwise."""
        return load_predictor(self.folder, method, site, adapted=adapted, make=self._make_algorithm)

    def adapt(
        self,
        patients: pd.DataFrame,
        *,
        site: str | None = None,
        method: str | None = None,
        outcome: str | None = None,
        by: str | None = None,
    ) -> Adaptation:
        """Recalibrate a model on a site's own patients and choose an operating point; `predict` then uses both."""
        return adapt_model(
            self.folder,
            lambda facts: read_patients(patients, facts),
            site=site,
            method=method,
            outcome=outcome,
            by=by,
            make=self._make_algorithm,
        )[1]

    def monitor(
        self,
        patients: pd.DataFrame,
        *,
        by: str,
        outcome: str | None = None,
        every: str | int = "month",
        reference: pd.DataFrame | None = None,
        site: str | None = None,
        method: str | None = None,
        date_format: str | None = None,
        identity: str | None = None,
        false_alarms: float = 0.05,
        tolerance: float = 0.1,
        out: str | Path | None = None,
    ) -> MonitorReport:
        """Watch a model on new patients, whose dates are in the column `by`; goes on from the last call.

        Does what `wardround monitor` does, with the same state: `out` is its folder, by default in the run folder.
        """
        if not 0 < false_alarms < 1 or tolerance < 0:
            raise Refusal(
                "false_alarms is a chance, and tolerance a share of the odds",
                where=f"false_alarms={false_alarms}, tolerance={tolerance}",
                remedy="give false_alarms between 0 and 1, such as 0.05, and tolerance from 0 on, such as 0.1",
            )
        folder = default_folder(self.folder, site) if out is None else Path(out)
        name = None if reference is None else "the reference"
        windows = parse_every(str(every))
        settings = MonitorSettings(by, outcome, windows, name, date_format, identity, false_alarms, tolerance)
        summary = monitor_patients(
            self.folder,
            patients,
            folder,
            settings,
            site=site,
            method=method,
            reference=reference,
            make=self._make_algorithm,
        )
        return MonitorReport(summary, write_page(folder, summary))

    def _make_algorithm(self, facts: ModelFacts) -> Algorithm | None:
        """By the study, which knows parts that no installed component makes."""
        if facts.recipe is not None or self.study is None:
            return None
        methods = [own_method(self.study), *(compared_methods(self.study) if self.study.compare else ())]
        method = next(one for one in methods if one.name == facts.method)
        words = facts.task
        task = task_of(words.kind, facts.shape, words.classes, words.target, horizons_of(words))
        return assemble.build(self.study, method, task, [one.name for one in self.run.hospitals])

    def predict(self, patients: pd.DataFrame, *, site: str | None = None, method: str | None = None) -> pd.DataFrame:
        """Predictions for new patients, with what was missing or outside the range of training."""
        model = self.model(site, method)
        rows = clean_patients(PatientRows.of_frame(patients, "the data frame"), model.facts)
        found = predict_table(model, rows)
        return found.drop(columns="row").set_index(patients.index)

    def explain(self, patients: pd.DataFrame, *, site: str | None = None, method: str | None = None) -> Explanation:
        """What moved each prediction, column by column: contributions that add up to it."""
        model = self.model(site, method)
        return explain(model, read_patients(patients, model.facts), where="the data frame")

    def report(self) -> Path:
        """The report, written anew."""
        return write_report(self.folder)

    def _repr_html_(self) -> str:
        main = self.scores[self.scores["metric"] == self.run.metric]
        table = main.pivot_table("value", "site", "method", sort=False)
        return str(table.to_html(float_format=lambda value: f"{value:.3f}"))


def load(folder: str | Path, study: Study | None = None) -> FinishedRun:
    """The run in a folder that `run` or `compare` wrote, here or on the command line.

    A run with a model or an algorithm of your own needs the study that names it.
    """
    path = Path(folder)
    read_run(path)
    return FinishedRun(path, study)
