"""What a study leaves at a site: the model that the site uses itself, and how it does for the site's own patients.

Whoever works there predicts with the model and asks nobody. What leaves of the figures is coarse, and leaves out small
groups; whoever works at the site may know the exact ones.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Algorithm, Params, Report, Scores, Task
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import read_decision
from wardround.deploy.site.datasets import read_datasets
from wardround.evaluate.block import result_block
from wardround.evaluate.metrics import names_with
from wardround.report.metric_names import label_of
from wardround.runs.file_names import MODEL
from wardround.runs.json_files import read_json
from wardround.runs.model_file import write_model
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.model_facts import how_read, model_facts

if TYPE_CHECKING:
    from wardround.deploy.site.study_worker import StudyWorker

FILE = "figures.json"


def keep_model(worker: "StudyWorker", algorithm: Algorithm, params: Params, rounds: int, recipe: Recipe) -> None:
    """Write the common model, or the site's personal one, with all that a prediction needs."""
    assert worker.task is not None
    facts = model_facts(
        worker.study,
        own_method(worker.study),
        algorithm,
        worker.task,
        positive=worker.positive,
        preparation=worker.preparation,
        rounds=rounds,
        recipe=recipe,
    )
    write_model(worker.folder / MODEL, params, facts)


def own_model(folder: Path, study: str) -> Path:
    """The file of the model that a study left here; refused before it has ended."""
    path = folder / MODEL
    if not path.exists():
        raise Refusal(
            "this study has left no model here",
            where=study,
            remedy="a site keeps its model when a study that it takes part in has ended; see `wardround site studies`",
        )
    return path


def own_reading(home: SiteHome, study: str) -> dict[str, Any]:
    """How the site reads the table that it approved the study for, such as with which separator."""
    decision = read_decision(home, study)
    entry = read_datasets(home).get(decision.data) if decision else None
    return how_read(entry.settings) if entry else {}


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
