"""Runs in the trackers that researchers know, MLflow and TensorBoard: off unless asked for, and only where you say.

    with track_mlflow("mlruns", study) as tracker:
        tracker.finish(run(study, on_round=tracker))

A tracker is told of every round and of the finished run: settings, losses, scores, and the report. Needs the extra
wardround[tracking].
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from wardround.api.finished_run import FinishedRun
from wardround.core import clock
from wardround.core.contracts import RoundRecord
from wardround.core.errors import Refusal
from wardround.runs.file_names import REPORT
from wardround.study.file import Study
from wardround.study.methods import Method

LONGEST = 500
"""Letters of a setting's value, beyond which MLflow would refuse it."""


class Tracker(Protocol):
    """Told of every round, and at last of the finished run."""

    def __call__(self, method: Method, repeat: int, record: RoundRecord) -> None: ...
    def finish(self, finished: FinishedRun) -> None: ...


def flat_settings(study: Study) -> dict[str, str]:
    """What the study says, one word a key: "algorithm.learning_rate" and the like."""
    found: dict[str, str] = {}

    def visit(part: Any, before: str) -> None:
        if isinstance(part, Mapping):
            for key, value in part.items():
                visit(value, f"{before}.{key}" if before else str(key))
        else:
            found[before] = (part if isinstance(part, str) else json.dumps(part))[:LONGEST]

    visit(study.model_dump(mode="json", exclude_none=True), "")
    return found


def round_figures(record: RoundRecord) -> dict[str, float]:
    """The numbers of a round that a chart can show."""
    loss = record.measures.get("validation_loss", {}).get("weighted")
    figures = {"seconds": record.seconds, "bytes_down": record.bytes_down, "bytes_up": record.bytes_up}
    return {**figures, **({} if loss is None else {"validation_loss": loss})}


def final_figures(finished: FinishedRun) -> dict[str, float]:
    """Every score that has a value, by method, metric and site."""
    scores = finished.scores.dropna(subset="value")
    places = scores["method"] + "/" + scores["metric"] + "/" + scores["site"]
    return dict(zip(places.tolist(), scores["value"].astype(float).tolist(), strict=True))


def place_of(method: Method, repeat: int) -> str:
    return f"{method.name}/repeat {repeat + 1}"


def missing_extra(what: str) -> Refusal:
    return Refusal(f"{what} is not installed", remedy='install it with: pip install "wardround[tracking]"')


def is_address(folder: str | Path) -> bool:
    return "://" in str(folder)


def mlflow_address(folder: str | Path) -> str:
    """Where MLflow keeps a store: a server's address as it is, of a folder its database."""
    if is_address(folder):
        return str(folder)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{Path(folder).resolve() / 'mlflow.db'}"


@contextmanager
def track_mlflow(folder: str | Path, study: Study, *, experiment: str | None = None) -> Iterator[Tracker]:
    """Write into an MLflow store, a local folder unless an address with :// is given."""
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise missing_extra("MLflow") from None
    client = MlflowClient(tracking_uri=mlflow_address(folder))
    name = experiment or study.study.name
    found = client.get_experiment_by_name(name)
    place = None if is_address(folder) else (Path(folder).resolve() / "artifacts").as_uri()
    number = found.experiment_id if found else client.create_experiment(name, artifact_location=place)
    run = client.create_run(number, run_name=study.study.name).info.run_id
    for key, value in flat_settings(study).items():
        client.log_param(run, key, value)

    class ToMlflow:
        def __call__(self, method: Method, repeat: int, record: RoundRecord) -> None:
            for key, value in round_figures(record).items():
                client.log_metric(run, f"{place_of(method, repeat)}/{key}", value, step=record.round)

        def finish(self, finished: FinishedRun) -> None:
            for key, value in final_figures(finished).items():
                client.log_metric(run, key, value)
            client.log_artifact(run, str(finished.folder / REPORT))

    try:
        yield ToMlflow()
    except BaseException:
        client.set_terminated(run, "FAILED")
        raise
    client.set_terminated(run)


@contextmanager
def track_tensorboard(folder: str | Path, study: Study) -> Iterator[Tracker]:
    """Write event files that `tensorboard --logdir FOLDER` shows, a curve for every method and repeat."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise missing_extra("TensorBoard") from None
    writers: dict[str, Any] = {}

    def write(place: str, figures: Mapping[str, float], step: int) -> None:
        if place not in writers:
            writers[place] = EventFileWriter(str(Path(folder) / study.study.name / place))
        values = [Summary.Value(tag=key, simple_value=value) for key, value in figures.items()]
        writers[place].add_event(Event(wall_time=clock.now().timestamp(), step=step, summary=Summary(value=values)))

    class ToTensorboard:
        def __call__(self, method: Method, repeat: int, record: RoundRecord) -> None:
            write(place_of(method, repeat), round_figures(record), record.round)

        def finish(self, finished: FinishedRun) -> None:
            write("scores", final_figures(finished), 0)

    try:
        yield ToTensorboard()
    finally:
        for writer in writers.values():
            writer.close()
