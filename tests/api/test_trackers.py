"""What MLflow and TensorBoard themselves read back is what the run recorded."""

import pytest

import wardround as wr
from wardround.api.trackers import mlflow_address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def study():
    return wr.build_study({"source": "triage"}, name="followed", rounds=3, evaluation={"resamples": 0})


def test_mlflow_holds_settings_losses_scores_and_the_report(study, tmp_path):
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=mlflow_address(tmp_path / "mlruns"))
    with wr.track_mlflow(tmp_path / "mlruns", study) as tracker:
        finished = wr.run(study, out=tmp_path / "run", on_round=tracker)
        tracker.finish(finished)
    (run,) = client.search_runs([client.get_experiment_by_name("followed").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm.name"] == "fed_avg"
    losses = client.get_metric_history(run.info.run_id, "fed_avg/repeat 1/validation_loss")
    assert [(one.step, one.value) for one in losses] == list(
        zip(finished.rounds["round"], finished.rounds["loss"], strict=True)
    )
    auc = finished.scores.query("site == 'all' and metric == 'roc_auc'")["value"].item()
    assert run.data.metrics["fed_avg/roc_auc/all"] == auc
    assert [one.path for one in client.list_artifacts(run.info.run_id)] == ["report.html"]


def test_a_run_that_fails_is_told_as_failed(study, tmp_path):
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=mlflow_address(tmp_path / "mlruns"))
    with pytest.raises(KeyboardInterrupt), wr.track_mlflow(tmp_path / "mlruns", study):
        raise KeyboardInterrupt
    (run,) = client.search_runs([client.get_experiment_by_name("followed").experiment_id])
    assert run.info.status == "FAILED"


def test_tensorboard_reads_a_curve_for_every_method(study, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with wr.track_tensorboard(tmp_path / "logs", study) as tracker:
        finished = wr.run(study, out=tmp_path / "run", on_round=tracker)
        tracker.finish(finished)
    events = accumulator.EventAccumulator(str(tmp_path / "logs/followed/fed_avg/repeat 1")).Reload()
    read = events.Scalars("validation_loss")
    assert [one.step for one in read] == [1, 2, 3]
    assert [one.value for one in read] == pytest.approx(finished.rounds["loss"].tolist(), rel=1e-6)
