"""What a monitor found, in Python: whether it rings, the windows and the inputs as data frames, and the page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from wardround.monitor.drift import Distance
from wardround.monitor.summary import MonitorSummary
from wardround.report.html.markup import safe
from wardround.report.monitor.text import alarm_sentences, outcome_sentence, scope_sentence, verdict


@dataclass(frozen=True)
class MonitorReport:
    """A notebook shows the answer and the windows."""

    summary: MonitorSummary
    """All figures, typed."""
    page: Path
    """The page for people, as `wardround monitor` writes it."""

    @property
    def alarm(self) -> bool:
        """Whether something changed beyond chance, now or in an earlier call."""
        return bool(self.summary.alarms)

    @property
    def sentences(self) -> list[str]:
        """The answer in words."""
        summary = self.summary
        return [verdict(summary), *alarm_sentences(summary), scope_sentence(summary), outcome_sentence(summary)]

    @property
    def windows(self) -> pd.DataFrame:
        """A line for every window: patients, predicted and observed, how good the predictions were."""
        return frame_of(
            [
                {"patients": one.patients, "known": one.known, "predicted": one.predicted}
                | distances(one, ("observed", "auc", "error", "sensitivity", "specificity", "flagged"))
                for one in self.summary.windows
            ],
            [one.name for one in self.summary.windows],
            "window",
        )

    @property
    def inputs(self) -> pd.DataFrame:
        """A line for every input in the last window, that with most evidence of a change first."""
        return frame_of(
            [
                distances(one, ("stability", "distance", "training"))
                | {"missing": one.missing, "outside": one.outside, "evidence": one.evidence}
                for one in self.summary.columns
            ],
            [one.name for one in self.summary.columns],
            "input",
        )

    def _repr_html_(self) -> str:
        return f"<p>{safe(self.sentences[0])}</p>{self.windows.to_html(float_format=lambda value: f'{value:.3f}')}"


def distances(of: Any, names: tuple[str, ...]) -> dict[str, float | None]:
    """Figures with the ends of their intervals."""
    found: dict[str, float | None] = {}
    for name in names:
        one: Distance = getattr(of, name)
        found |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
    return found


def frame_of(rows: list[dict[str, Any]], names: list[str], label: str) -> pd.DataFrame:
    return pd.DataFrame(rows, index=pd.Index(names, name=label))
