"""Wardround: hospitals train models together in rounds, and no patient's record ever leaves its hospital.

From Python: build or read a study, run it, and use what comes out.

    import wardround as wr

    study = wr.build_study({"North": north, "South": south}, target="intensive_care", positive="yes")
    finished = wr.run(study)
    finished.scores
    finished.predict(tomorrow)

Every component is there by its name, such as `wr.fed_avg(learning_rate=0.1)`; see `wardround list`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wardround.api.commands import analyse, attack, compare, recommend_partners, run, tune
    from wardround.api.estimators import FederatedClassifier, FederatedRegressor
    from wardround.api.finished_analysis import FinishedAnalysis
    from wardround.api.finished_run import FinishedRun, load
    from wardround.api.objects import component
    from wardround.api.studies import build_study, read_study
    from wardround.api.trackers import track_mlflow, track_tensorboard
    from wardround.core.errors import Refusal
    from wardround.export.sklearn_model import sklearn_model
    from wardround.study.file import Study

_PLACES = {
    **dict.fromkeys(("analyse", "attack", "compare", "recommend_partners", "run", "tune"), "wardround.api.commands"),
    **dict.fromkeys(("FederatedClassifier", "FederatedRegressor"), "wardround.api.estimators"),
    "FinishedAnalysis": "wardround.api.finished_analysis",
    **dict.fromkeys(("FinishedRun", "load"), "wardround.api.finished_run"),
    **dict.fromkeys(("build_study", "read_study"), "wardround.api.studies"),
    **dict.fromkeys(("track_mlflow", "track_tensorboard"), "wardround.api.trackers"),
    "component": "wardround.api.objects",
    "Refusal": "wardround.core.errors",
    "Study": "wardround.study.file",
    "sklearn_model": "wardround.export.sklearn_model",
}

__all__ = [
    "FederatedClassifier",
    "FederatedRegressor",
    "FinishedAnalysis",
    "FinishedRun",
    "Refusal",
    "Study",
    "analyse",
    "attack",
    "build_study",
    "compare",
    "component",
    "load",
    "read_study",
    "recommend_partners",
    "run",
    "sklearn_model",
    "track_mlflow",
    "track_tensorboard",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Found when it is asked for, so that `import wardround` is quick; other names are those of components."""
    from importlib import import_module

    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name.startswith("_"):
        raise AttributeError(name)
    from wardround.api.objects import component
    from wardround.core.errors import Refusal

    try:
        return component(name)
    except Refusal as refusal:
        raise AttributeError(f"wardround has no {name!r}: {refusal.remedy}") from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
