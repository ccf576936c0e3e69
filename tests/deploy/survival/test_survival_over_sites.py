"""Survival over sites' real homes: the model of the simulation, figures in cells, and nothing of any time."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.adversary.noise import DECLARED
from tests.support.in_process import NAMES, Consortium, study_of
from wardround.core.errors import Refusal
from wardround.data.load import load
from wardround.data.survival.follow_up import with_follow_up
from wardround.data.survival.intervals import SurvivalOutcome
from wardround.data.table import Table
from wardround.deploy.party.decisions import read_offer, store_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.clinical.own_report import own_report
from wardround.deploy.site.own_model import own_figures
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release.agreement import check_schema
from wardround.deploy.site.release.privacy_budget import charged_epsilon
from wardround.deploy.site.study_summary import describe
from wardround.runs.folder import RunFolder
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method
from wardround.workflows.run import run

FOLLOW_UP = {"time": "days", "event": "died", "horizons": [200.0, 500.0], "drop": ["ebola"]}


def survival_study(name: str, rounds: int = 2, **tables: Any) -> Study:
    words = study_of(name, rounds).model_dump(mode="json", exclude_none=True)
    data = {key: value for key, value in words["data"].items() if key not in ("target", "positive")}
    words["data"] = {**data, **FOLLOW_UP, **tables.pop("data", {})}
    words.update(tables)
    return parse_study(words, where="test")


def followed(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same patients with a time of follow-up that their age shortens; a quarter is lost from sight early."""
    rng = np.random.default_rng(seed)
    died = rng.exponential(400 * np.exp(-(frame["age"].fillna(40) - 40) / 40))
    lost = rng.uniform(50, 1200, len(frame))
    return frame.assign(days=np.minimum(died, lost).round(1), died=(died <= lost).astype(int))


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    made = Consortium(tmp_path_factory.mktemp("survival"))
    for place, path in enumerate(made.tables.values()):
        followed(pd.read_csv(path), place).to_csv(path, index=False)
    return made


@pytest.fixture(scope="module")
def plain(consortium: Consortium) -> tuple[Study, dict[str, Any]]:
    study = survival_study("survival")
    return study, consortium.conduct(study)


def simulated(consortium: Consortium, study: Study) -> dict[str, Any]:
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    path = consortium.folder / "patients.csv"
    pd.concat(frames).to_csv(path, index=False)
    words = study.model_copy(update={"data": study.data.model_copy(update={"path": str(path)})})
    folder = RunFolder.create(consortium.folder / f"simulated {study.study.name}", resume=False)
    run(words, folder, [own_method(words)], kind="run")
    return load_file(folder.path / "model.safetensors")


def test_the_model_is_that_of_the_simulation(consortium, plain):
    study, deployed = plain
    assert deployed["task"]["kind"] == "survival"
    assert deployed["task"]["horizons"] == [200.0, 500.0]
    assert deployed["task"]["classes"] == ["by 200", "200 to 500", "after 500"]
    assert not {"days", "died"} & {name.split("=")[0] for name in deployed["task"]["features"]}
    ours, theirs = load_file(consortium.run(study) / "model.safetensors"), simulated(consortium, study)
    assert set(ours) == set(theirs)
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)


def test_figures_leave_on_a_grid_and_stay_exact_at_home(consortium, plain):
    study, deployed = plain
    for name in NAMES:
        told = deployed["methods"][0]["scores"]["sites"][name]
        exact = own_figures(consortium.homes[name].folder(consortium.id(study)))["figures"]
        assert set(told) == {"c_index", "integrated_brier", "horizon_gap", "log_loss"}
        rows = split_of(consortium, study, name)
        events, seen = (rows["died"] == 1) & (rows["days"] <= 500), rows["days"] >= 500
        few = min(events.sum(), seen.sum()) < 10
        for metric, step in (("c_index", 1 / 4), ("integrated_brier", 1 / 8), ("horizon_gap", 1 / 8)):
            assert (told[metric]["value"] is None) == few
            if few:
                assert "enough patients had the event" in told[metric]["undefined"]
            else:
                assert (told[metric]["value"] * 16).is_integer()
                assert abs(told[metric]["value"] - exact[metric]["value"]) <= step
        assert not (exact["c_index"]["value"] * 64).is_integer()
    assert deployed["methods"][0]["scores"]["sites"]["kenema"]["c_index"]["value"] is not None


def split_of(consortium: Consortium, study: Study, site: str) -> pd.DataFrame:
    """The test patients of a site, as the simulation splits them."""
    frames = {name: pd.read_csv(path).drop(columns="ebola") for name, path in consortium.tables.items()}
    table = with_follow_up(Table(frames, "died", "rows"), SurvivalOutcome("days", "died", (200.0, 500.0)))
    loaded = load(table, seed=study.study.seed, smallest_cell=10)
    place = list(frames).index(site)
    rows = loaded.order[place][-int(loaded.federation.counts[place, 2]) :]
    return frames[site].iloc[rows]


def test_nobody_is_right_or_wrong(consortium, plain):
    study, _ = plain
    for record in consortium.rounds(study):
        assert "validation_accuracy" not in record.get("measures", record)


def test_the_site_has_a_report_of_its_own(consortium, plain):
    study, _ = plain
    home = consortium.homes["bo"]
    own = own_report(home, read_offer(home, consortium.id(study)))
    figures = own.methods[0].clinical.horizons
    assert [one.horizon for one in figures] == [200.0, 500.0]
    assert all(0 < one.observed < 1 and one.low < one.observed < one.high for one in figures)


def test_the_approval_says_what_becomes_of_times(consortium, plain):
    study, _ = plain
    home = consortium.homes["bo"]
    summary = describe(home, read_offer(home, consortium.id(study)), None)
    words = " ".join(sentence for _, sentences in summary.parts for sentence in sentences)
    assert "From days and died this site makes the outcome: whether the event came by 200, 500" in words
    assert "no time of follow-up is sent" in words
    assert "two numbers about your validation patients (how many, their loss)" in words


def test_horizons_that_single_patients_out_beside_another_study_are_refused(consortium, plain):
    # Between 500 and the next time lies one patient: whose, the difference of two studies would tell.
    time = pd.read_csv(consortium.tables["bo"])["days"]
    near = float(np.sort(time[time > 500])[0])
    study, home = survival_study("close", data={"horizons": [200.0, near]}), consortium.homes["bo"]
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    with pytest.raises(Refusal, match=r"between its horizons and those of .* fewer patients"):
        approve(home, study_id(study), by="admin-bo")
    far = survival_study("far", data={"horizons": [200.0, 800.0]})
    store_offer(home, study_id(far), far.model_dump(mode="json"), "researcher")
    approve(home, study_id(far), by="admin-bo")


def test_other_intervals_than_the_approved_ones_are_refused(consortium):
    study = survival_study("schema")
    frame = pd.read_csv(consortium.tables["bo"]).drop(columns="ebola")
    table = with_follow_up(Table({"bo": frame}, "died", "bo"), SurvivalOutcome("days", "died", (200.0, 500.0)))
    said = {"kinds": {"age": "number"}, "task": "survival", "classes": ["by 200", "200 to 500", "after 500"]}
    assert check_schema(said, study, table, "bo", 10).horizons == (200.0, 500.0)
    for change in ({"classes": ["by 200", "200 to 501", "after 501"]}, {"task": "classification"}):
        with pytest.raises(Refusal):
            check_schema({**said, **change}, study, table, "bo", 10)
    for column in ("days", "died"):
        with pytest.raises(Refusal, match="set aside"):
            check_schema({**said, "kinds": {column: "number"}}, study, table, "bo", 10)


@pytest.mark.slow
def test_under_a_secure_sum_it_is_the_same_model(consortium, plain):
    study = survival_study("sums", transforms=[{"name": "secure_sum"}])
    consortium.conduct(study)
    ours, theirs = (load_file(consortium.run(one) / "model.safetensors") for one in (study, plain[0]))
    assert all(np.abs(ours[name] - theirs[name]).max() <= 1e-5 for name in theirs)


@pytest.mark.slow
def test_under_privacy_it_is_noised_and_debited(consortium):
    study = survival_study(
        "private",
        privacy={"epsilon": 3.0, "delta": 1e-3},
        data={"preparation": {"smallest_cell": 10, **DECLARED}},
        deploy={"sites": list(NAMES)},
    )
    told = consortium.conduct(study)
    figures = told["methods"][0]["scores"]["sites"]["bo"]
    for one in figures.values():  # 39 test patients are too few for a table of risks and times under noise
        assert one == {"value": None, "undefined": "too few patients for the noise that [privacy] needs"}
    assert told["methods"][0]["meters"]["privacy"]["sample_epsilon"] <= 3.0
    for home in consortium.homes.values():  # rounds, looks and figures
        assert charged_epsilon(home, read_policy(home.policy_path), consortium.id(study)) > 0
