"""A consortium asks whether its model ages: what comes back, what is refused, what is told before it is approved."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.predict.known_model import write_known_model
from tests.support import in_process
from tests.support import tiny_study as tiny
from tests.support.adversary.monitor import AGED, PATIENTS, later_patients, monitor_of, trained_consortium
from tests.support.adversary.questions import keep_policies
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.queue import with_monitored
from wardround.deploy.party.decisions import read_offer, store_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve, reasons_against, statistics_used
from wardround.deploy.site.own_model import own_model
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.study_summary import describe
from wardround.predict.predictor import read_predictor
from wardround.report.run.page import write_report
from wardround.runs.folder import digest
from wardround.study.file import Study, parse_study, read_study

SITE = "bo"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made, trained = trained_consortium(tmp_path_factory.mktemp("monitor"))
    return made, made.id(trained)


@pytest.fixture(autouse=True)
def as_before(world: Any) -> Iterator[None]:
    made, _ = world
    texts = {path: path.read_bytes() for path in made.tables.values()}
    with keep_policies(made):
        yield
    for path, text in texts.items():
        path.write_bytes(text)


@pytest.fixture(scope="module")
def asked(world: Any) -> tuple[Study, dict[str, Any]]:
    made, trained = world
    study = monitor_of(trained)
    return study, made.conduct(study)


def test_it_tells_where_and_since_when_the_model_ages(asked: Any) -> None:
    _, result = asked
    assert (result["kind"], result["outcome"], result["notes"]) == ("monitor", "ebola", [])
    found = {(site["name"], one["window"]): one["verdict"] for site in result["sites"] for one in site["windows"]}
    wrong = {place: verdict for place, verdict in found.items() if verdict}
    assert wrong == {(AGED, "2025-Q3"): "too low", (AGED, "2025-Q4"): "too low", (AGED, "all"): "too low"}
    assert len(found) == 3 * 5


def test_the_figures_are_those_of_the_site_in_cells(world: Any, asked: Any) -> None:
    made, trained = world
    _, result = asked
    rows = pd.read_csv(made.tables[SITE])
    predictor = read_predictor(own_model(made.homes[SITE].folder(trained), trained))
    risk = predictor.predict(rows)[:, predictor.positive]
    quarter = pd.PeriodIndex(rows["admitted"], freq="Q").astype(str).str.replace("Q", "-Q")
    (own,) = [site for site in result["sites"] if site["name"] == SITE]
    assert own["cell"] == 10
    for one in own["windows"][:-1]:
        here = quarter == one["window"]
        assert one["patients"] == here.sum() // 10 * 10
        # 150 patients or so: the grid of their mean has the step 2 / 150 rounded up to a power of two, 1/64.
        assert one["predicted"] * 64 == round(one["predicted"] * 64)
        assert abs(one["predicted"] - risk[here].mean()) < 1 / 64
        assert one["low"] < (rows["ebola"][here] == "confirmed").mean() < one["high"]
    assert own["windows"][-1]["patients"] == PATIENTS


def test_it_is_recorded_and_charged_once(world: Any, asked: Any) -> None:
    made, _ = world
    study, _ = asked
    (left,) = made.left(SITE, study)
    assert (left["release"], left["topic"]) == ("query/outcomes_by_window", "query")
    home = made.homes[SITE]
    before = statistics_used(home, "demo")
    again = made.conduct(study)  # a coordinator that was started anew asks the same, and is given the same bytes
    assert again == asked[1]
    assert statistics_used(home, "demo") == before
    assert before - statistics_used(home, "demo", beside=study_id(study)) == 1
    assert len(made.left(SITE, study)) == 1


@pytest.mark.parametrize(
    "where",
    ["coordinator.offer.approved", "coordinator.result.before_save", "site.reply.before_save", "site.reply.ready"],
)
def test_it_survives_a_death(world: Any, asked: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, trained = world
    in_process.die_at(monkeypatch, where)
    made.deaths.clear()
    study = monitor_of(trained, f"dies-{where}")
    result = made.until_done(study)
    assert made.deaths
    assert result["sites"] == asked[1]["sites"]
    assert len(made.left(SITE, study)) == 1


def test_another_study_about_the_same_model_and_patients_is_told_the_same(world: Any, asked: Any) -> None:
    made, trained = world
    assert made.conduct(monitor_of(trained, "again"))["sites"] == asked[1]["sites"]


def test_without_a_model_or_dates_or_outcomes_it_cannot_be_approved(world: Any) -> None:
    made, trained = world
    home, table = made.homes[SITE], made.tables[SITE]
    rows = pd.read_csv(table)

    def reason(frame: pd.DataFrame | None = None, **words: Any) -> str:
        (rows if frame is None else frame).to_csv(table, index=False)
        study = monitor_of(**{"trained": trained, "name": "refused", **words})
        store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
        found = reasons_against(home, read_offer(home, study_id(study)), None)
        with pytest.raises(Refusal):
            approve(home, study_id(study), by="admin")
        (only,) = found
        return only

    assert "left no model here" in reason(trained="trained-" + "0" * 32)
    assert "has no column 'ill'" in reason(outcome="ill")
    assert "has no column 'admitted'" in reason(rows.drop(columns="admitted"))
    assert "no row has a date" in reason(rows.assign(admitted=None)).lower()
    assert "cannot be read as dates" in reason(rows.assign(admitted="spring"))
    assert "is missing in all" in reason(rows.assign(ebola=None))
    assert "the model knows" in reason(outcome="malaria_test")
    assert "has 10 patients whose outcome is known" in reason(rows[:9])
    assert "'age' is missing" in reason(rows.drop(columns="age"))
    assert "reports groups of 5 patients" in reason(smallest_cell=5)


def test_a_model_of_a_quantity_is_refused(world: Any) -> None:
    made, _ = world
    home, trained = made.homes[SITE], "weights-" + "1" * 32
    write_known_model(home.folder(trained), classes=())
    rows = pd.DataFrame({"age": np.ones(40), "sex": "f", "ill": np.ones(40), "admitted": "2025-01-01"})
    rows.to_csv(made.tables[SITE], index=False)
    study = monitor_of(trained, "quantity", outcome="ill")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    (reason,) = reasons_against(home, read_offer(home, study_id(study)), None)
    assert "Only the risk of one outcome can be counted" in reason


def test_a_column_that_the_model_needs_and_the_policy_withholds(world: Any) -> None:
    made, trained = world
    home = made.homes[SITE]
    set_policy(home.policy_path, "columns_denied", "temperature")
    study = monitor_of(trained, "withheld")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    assert "column 'temperature' is not allowed" in reasons_against(home, read_offer(home, study_id(study)), None)
    # One that the model does not read changes nothing.
    set_policy(home.policy_path, "columns_denied", "name")
    pd.read_csv(made.tables[SITE]).assign(name="A. Kamara").to_csv(made.tables[SITE], index=False)
    assert reasons_against(home, read_offer(home, study_id(study)), None) == []
    approved = approve(home, study_id(study), by="admin")
    assert "name" not in approved.columns
    assert {"temperature", "admitted", "ebola"} <= set(approved.columns)


def test_an_administrator_reads_what_leaves(world: Any, asked: Any) -> None:
    made, trained = world
    study, _ = asked
    home = made.homes[SITE]
    shown = describe(home, read_offer(home, study_id(study)))
    words = "\n".join(sentence for _, sentences in shown.parts for sentence in sentences)
    for expected in (
        f"The model that the study {trained} left here is looked at. Dates: admitted. Outcome: ebola (confirmed is"
        " counted).",
        "600 rows have a date, 600 of them an outcome. 4 quarters would be told of",
        "Once: for each quarter, at most the last 36, and for these together:",
        "in multiples of 10",
        "nothing is trained",
        "Installed components only: query/outcomes_by_window.",
        "this study uses up to 1 of",
    ):
        assert expected in words
    assert "round" not in words.replace("rounded", "")
    assert [one["kind"] for one in shown.facts["releases"]] == ["query/outcomes_by_window", "refusal"]


def test_a_site_that_cannot_answer_is_left_out_and_named(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, trained = world
    study = monitor_of(trained, "without", deploy={"deadline": 0.2})
    before = made.change
    path = made.tables[SITE]

    def unreadable_after_approval(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) == (SITE, "offer"):
            path.write_text("age\n1\n")
        return reply

    monkeypatch.setattr(made, "change", unreadable_after_approval)
    result = made.conduct(study)
    assert [site["name"] for site in result["sites"]] == [name for name in made.names if name != SITE]
    (note,) = result["notes"]
    assert note.startswith("bo gave no answer: ")
    assert "cannot be read as the study says" in note
    assert before is not made.change


def test_rows_without_a_date_or_an_outcome_are_left_out(world: Any) -> None:
    """Of 600 patients 30 have no date and 60 others no outcome: 510 are counted."""
    made, trained = world
    rows = pd.read_csv(made.tables[SITE])
    rows.loc[rows.index % 20 == 0, "admitted"] = None
    rows.loc[rows.index % 10 == 5, "ebola"] = None
    rows.to_csv(made.tables[SITE], index=False)
    result = made.conduct(monitor_of(trained, "gaps"))
    (own,) = [site for site in result["sites"] if site["name"] == SITE]
    assert own["windows"][-1]["patients"] == 510


# ---- for people ----


def test_the_page_and_the_words(world: Any, asked: Any) -> None:
    made, _ = world
    from wardround.cli.study_progress import found_by_monitor

    run = made.run(asked[0])
    lines = found_by_monitor(run)
    assert lines[0] == "The model is no longer right at kenema."
    assert lines[1].startswith("kenema: predictions were too low in 2 windows from 2025-Q3 to 2025-Q4 (")
    page = write_report(run).read_text()
    assert "The model is no longer right at kenema." in page
    assert "about 5 % at most" in page


def test_a_study_file_needs_only_the_model_and_the_dates(world: Any, tmp_path: Any) -> None:
    made, trained = world
    path = tmp_path / "ages.toml"
    path.write_text('[study]\nname = "ages"\n\n[monitor]\nstudy = "trained"\ndate = "admitted"\n')
    (made.home.folder(trained) / "state.json").write_text(json.dumps({"state": "finished"}))
    words = in_process.study_of("trained", 2).model_dump(mode="json")
    (made.home.folder(trained) / "study.json").write_text(json.dumps({"study": words, "submitter": "me"}))
    full = with_monitored(read_study(path), made.home)
    assert full.monitor is not None
    assert (full.monitor.study, full.monitor.outcome) == (trained, "ebola")
    assert full.data.settings["target"] == "ebola"
    assert parse_study(full.model_dump(mode="json"), where="again") == full
    for name in ("trainde", "trained-x"):
        other = full.model_copy(update={"monitor": full.monitor.model_copy(update={"study": name})})
        with pytest.raises(Refusal, match="no study called"):
            with_monitored(other, made.home)
    (made.home.folder(trained) / "state.json").write_text(json.dumps({"state": "failed"}))
    with pytest.raises(Refusal, match="has not finished"):
        with_monitored(read_study(path), made.home)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"privacy": {"epsilon": 1.0}}, r"\[privacy\] is not used"),
        (
            {"data": {"source": "csv", "target": "ebola", "cleaning": {"drop_rows": {"age": [3]}}}},
            "cleaning is not used",
        ),
        ({"algorithm": {"name": "fed_prox"}}, r"\[algorithm\] is not used"),
    ],
)
def test_what_a_monitor_does_not_use_is_refused_on_both_sides(world: Any, more: Any, words: str) -> None:
    made, trained = world
    said = {"study": trained, "date": "admitted", "outcome": "ebola"}
    with pytest.raises(Refusal, match=words):
        parse_study({"study": {"name": "more"}, "monitor": said, **more}, where="test")
    # A lying coordinator offers it all the same.
    home, study = made.homes[SITE], monitor_of(trained, "more").model_dump(mode="json")
    lie = {**study, **({key: {**(study.get(key) or {}), **value} for key, value in more.items()})}
    name = f"more-{digest(lie)[:32]}"
    with pytest.raises(Refusal, match=words):
        store_offer(home, name, lie, "researcher")


def test_it_is_not_trained_in_a_simulation(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.write_study(tmp_path, monitor={"study": "tiny", "date": "admitted"})
    for command in ("run", "check"):
        said = tiny.call(capsys, command, path)
        assert said.code == 2
        assert "trains nothing" in said.err
    path.write_text(path.read_text().replace('date = "admitted"', 'date = "admitted"\nevery = "day"'))
    said = tiny.call(capsys, "check", path)
    assert "'every' cannot be 'day'" in said.err


def test_later_patients_are_as_the_tests_take_them_to_be(tmp_path: Any) -> None:
    rows = pd.DataFrame({"ebola": ["no"] * 50})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    aged = later_patients(tmp_path / "rows.csv", aged=True)
    late = aged["admitted"] >= "2025-07-01"
    assert (aged.loc[~late, "ebola"] == "no").all()
    assert (aged.loc[late, "ebola"] == "confirmed").mean() == pytest.approx(0.95, abs=0.01)
