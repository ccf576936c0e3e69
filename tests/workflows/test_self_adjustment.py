"""A study that says nothing but its data: it finds its rate and its rounds, and a resumed run finds the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method
from wardround.workflows.retrain import retrain
from wardround.workflows.run import run
from wardround.workflows.self_adjustment import FILE, RATES, adjust, adjusts_itself
from wardround.workflows.training_plan import plan_methods

DATA = {"source": "triage", "hospitals": 3, "patients": 120}


def study_of(**tables: Any) -> Study:
    content = {"study": {"name": "bare"}, "data": DATA, "evaluation": {"resamples": 0}, **tables}
    return parse_study(content, where="here")


def open_to_adjust(study: Study) -> bool:
    setting = assemble.load_repeat(study, 0)
    return adjusts_itself(study, plan_methods(study, setting, [own_method(study)], 0))


@pytest.mark.parametrize(
    "tables",
    [
        {"study": {"name": "bare", "rounds": 50}},
        {"algorithm": {"name": "fed_avg", "learning_rate": 0.1}},
        {"stopping": {"patience": 3}},
        {"data": {**DATA, "shares": [0.8, 0.0, 0.2]}},
        {"privacy": {"noise_multiplier": 1.0, "delta": 1e-5}},
    ],
)
def test_what_a_study_says_is_left_alone(tables: dict[str, Any]) -> None:
    assert open_to_adjust(study_of())
    assert not open_to_adjust(study_of(**tables))


def test_defaults_end_near_the_pooled_fit_and_a_resumed_run_finds_the_same(tmp_path: Path) -> None:
    study = study_of()
    result = run(study, RunFolder.create(tmp_path / "a", resume=False), [own_method(study)], kind="run")
    method = result.methods[0]
    assert method.settings["learning_rate"] in RATES
    assert method.rounds is not None
    assert method.stopped_early or method.rounds == 200
    assert any("neither a learning rate nor a number of rounds" in note for note in result.notes)
    federation = assemble.load_repeat(study, 0).federation
    train, test = (federation.rows_of(part) for part in ("train", "test"))
    oracle = LogisticRegression(max_iter=1000).fit(federation.x[train], federation.y[train])
    area = roc_auc_score(federation.y[test], oracle.predict_proba(federation.x[test])[:, 1])
    pooled = method.scores.pooled["roc_auc"].value
    assert pooled is not None
    assert pooled > area - 0.02  # 72 test patients: one rank more or less is 0.001
    # The rates are read back, not searched again, and the training is the same.
    folder = RunFolder.create(tmp_path / "a", resume=True)
    before = (tmp_path / "a" / FILE).read_bytes()
    setting = assemble.load_repeat(study, 0)
    again = adjust(study, [own_method(study)], plan_methods(study, setting, [own_method(study)], 0), folder)
    assert (tmp_path / "a" / FILE).read_bytes() == before
    assert dict(again.methods[0].settings)["learning_rate"] == method.settings["learning_rate"]
    # Trained again without a site: at the same rate, and again until it is enough.
    less = retrain(tmp_path / "a", [result.sites[0].name], tmp_path / "b")
    assert less.methods[0].settings["learning_rate"] == method.settings["learning_rate"]
    assert less.methods[0].rounds != 50
    assert np.isfinite(less.methods[0].scores.pooled["roc_auc"].value or np.nan)
