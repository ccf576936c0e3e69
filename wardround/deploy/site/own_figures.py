"""How a study's model does for the site's own patients: exact figures, which stay at the site.

What leaves is coarse and leaves out small groups; whoever works at the site may know.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wardround.core.contracts import Report, Scores, Task
from wardround.core.files import write_whole
from wardround.evaluate.block import result_block
from wardround.evaluate.metrics import names_with
from wardround.report.metric_names import label_of
from wardround.runs.json_files import read_json
from wardround.study.file import Study

FILE = "figures.json"


@dataclass(frozen=True)
class OwnFigures:
    """Makes and keeps the figures of one study at one site."""

    folder: Path
    site: str
    study: Study
    positive: int
    """The place of the positive class."""

    def keep(self, scores: Scores, task: Task) -> Report | None:
        """The exact figures, which are now in the study's folder at the site; none where there are no patients."""
        if not len(scores.actual):
            return None
        block = result_block(
            scores,
            task,
            [self.site],
            metrics=names_with(task, self.study.study.metric),
            positive=self.positive,
            resamples=self.study.evaluation.resamples,
            seed=self.study.study.seed,
        )
        own = {"rows": block["rows"][self.site], "figures": block["sites"][self.site]}
        write_whole(self.folder / FILE, json.dumps(own, indent=1).encode())
        return block


def own_figures(folder: Path) -> dict[str, Any] | None:
    """What was kept; none before the study has ended."""
    path = folder / FILE
    return read_json(path, "they are written again when the study ends") if path.exists() else None


def figure_lines(own: dict[str, Any]) -> list[str]:
    """A sentence, and a line for every figure."""
    lines = [f"On {own['rows']:,} of your patients who were not used for training; these figures stay at your site:"]
    for name, told in own["figures"].items():
        value, low, high = (told.get(key) for key in ("value", "low", "high"))
        if value is None:
            lines.append(f"{label_of(name)}: not defined ({told.get('undefined', 'too few patients')})")
        else:
            between = f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
            lines.append(f"{label_of(name)}: {value:.3f}{between}")
    return lines
