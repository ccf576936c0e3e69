"""The model that a site uses itself, kept at the site: it needs nobody else to predict with it."""

from pathlib import Path

from wardround.core.contracts import Algorithm, Params, Task
from wardround.data.preparation import Preparation
from wardround.runs.file_names import MODEL
from wardround.runs.model_file import write_model
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.model_facts import model_facts


def keep_model(
    folder: Path,
    study: Study,
    algorithm: Algorithm,
    params: Params,
    task: Task,
    *,
    positive: int,
    preparation: Preparation | None,
    rounds: int,
) -> None:
    """Write the common model, or the site's personal one, with all that a prediction needs."""
    facts = model_facts(
        study, own_method(study), algorithm, task, positive=positive, preparation=preparation, rounds=rounds
    )
    write_model(folder / MODEL, params, facts)
