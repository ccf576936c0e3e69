"""A study as a job of a really provisioned FLARE project: a server and two sites, each a process of FLARE's own.

Every kit allows our class and nothing else, and nobody may ship code. The server's part of the first job is made to
die in its third round, when both sites have answered; submitted again it must go on, and end as the simulation does.
"""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support.flare_project import LEAD, Federation, kits_in, provision, running
from tests.support.results import plain
from wardround import __version__
from wardround.cli.app import main
from wardround.core.errors import Refusal
from wardround.deploy.demo import demo_study
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.transport.flare_export import CONTROLLER, EXECUTOR, connect, export, job_files
from wardround.deploy.trust.audit_log import examine
from wardround.runs.folder import RunFolder
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.workflows.run import run

pytest.importorskip("nvflare", reason="nvflare is not installed (the extra wardround[deploy])")

SITES = ("freetown", "kenema")


def small_study() -> Study:
    return demo_study(rounds=3)


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with homes and patients, and the kits as FLARE's provisioning makes them."""
    folder = tmp_path_factory.mktemp("flare")
    provision(folder, SITES)
    return folder, kits_in(folder)


@pytest.fixture(scope="module")
def federation(provisioned: tuple[Path, Path]) -> Iterator[Federation]:
    with running(provisioned[0], SITES, WARDROUND_CRASH_AT="coordinator.round.all_answered:3") as here:
        yield here


@pytest.fixture(scope="module")
def ended(federation: Federation) -> tuple[Federation, list[dict[str, Any]]]:
    """The study, approved by both sites; its job submitted, lost in the middle, and submitted again.

    Beside the first: a job that names a class of FLARE's which no site allows, and one that brings code along.
    """
    study = small_study()
    job = export(study, federation.folder / "job", SITES)
    other = export(demo_study(rounds=4), federation.folder / "other", SITES)
    config = other / "app_site" / "config" / "config_fed_client.json"
    config.write_text(config.read_text().replace(EXECUTOR, "nvflare.app_common.np.np_trainer.NPTrainer"))
    code = export(demo_study(rounds=5), federation.folder / "code", SITES)
    (code / "app_site" / "custom").mkdir()
    (code / "app_site" / "custom" / "mine.py").write_text("print('mine')\n")

    told = federation.submit([job, other, code], [job], meanwhile=lambda: federation.approve(study_id(study)))
    return federation, told


@pytest.mark.slow
def test_a_lost_job_submitted_again_ends_as_the_simulation_does(
    ended: tuple[Federation, list[dict[str, Any]]],
) -> None:
    federation, told = ended
    assert told[0]["status"] != "FINISHED:COMPLETED", "the first job was to be lost"
    assert told[-1]["status"] == "FINISHED:COMPLETED", federation.log()[-4000:]
    study = small_study()
    done = federation.coordinator.folder(study_id(study)) / "run"
    # The same patients in one file, with a column that says whose they are, as a simulation has them.
    frames = {name: pd.read_csv(federation.folder / f"{name}.csv") for name in SITES}
    whole = federation.folder / "all.csv"
    pd.concat([frame.assign(hospital=name) for name, frame in frames.items()]).to_csv(whole, index=False)
    content = study.model_dump(mode="json")
    simulated = Study.model_validate({**content, "data": {**content["data"], "path": str(whole)}})
    folder = RunFolder.create(federation.folder / "simulated", resume=False)
    expected = plain(run(simulated, folder, [own_method(simulated)], kind="run"))
    ours, theirs = load_file(done / "model.safetensors"), load_file(folder.path / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert any(np.abs(value).max() > 0.01 for value in ours.values()), "nothing was learned"
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-5, rtol=0)
    result = json.loads((done / "result.json").read_bytes())
    figures = [one["methods"][0]["scores"]["weighted"]["roc_auc"]["value"] for one in (result, expected)]
    # Ten patients of the rarer outcome are the fewest that a site tells it of: a step of 1/8, up or down by a secret.
    assert figures[0] == pytest.approx(figures[1], abs=1 / 8)


@pytest.mark.slow
def test_no_round_counts_twice(ended: tuple[Federation, list[dict[str, Any]]]) -> None:
    federation, _ = ended
    done = federation.coordinator.folder(study_id(small_study()))
    rounds = [json.loads(line) for line in (done / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [(one["round"], tuple(one["sites"])) for one in rounds] == [(1, SITES), (2, SITES), (3, SITES)]
    for home in federation.homes.values():
        looked = examine(home.audit_path, home.public_keys())
        assert looked.findings == []
        left = [one for one in looked.entries if one["kind"] == "sent" and one["topic"] == "round"]
        assert [one["round"] for one in left] == [1, 2, 3], "an answer is computed and told once"


@pytest.mark.slow
def test_the_first_job_died_in_the_third_round_and_who_submits_is_who_flare_says(
    ended: tuple[Federation, list[dict[str, Any]]],
) -> None:
    federation, _ = ended
    log = examine(federation.coordinator.audit_path, federation.coordinator.public_keys())
    assert log.findings == []
    ours = [one for one in log.entries if one.get("study") == study_id(small_study())]
    words = [(one["kind"], one.get("topic", "")) for one in ours]
    begun = [number for number, word in enumerate(words) if word == ("started", "")]
    assert len(begun) == 2, "two jobs began"
    asked = [words[begun[0] : begun[1]].count(("sent", "round")), words[begun[1] :].count(("sent", "round"))]
    assert asked == [3 * len(SITES), len(SITES)], "three rounds in the first job, the third again in the second"
    assert {one["submitter"] for one in ours if one["kind"] == "started"} == {LEAD}


@pytest.mark.slow
def test_results_can_be_downloaded_with_the_job(ended: tuple[Federation, list[dict[str, Any]]]) -> None:
    federation, told = ended
    stored = [path for path in (federation.folder / "stores").rglob("workspace*") if told[-1]["job_id"] in str(path)]
    run = federation.coordinator.folder(study_id(small_study())) / "run"
    with zipfile.ZipFile(stored[0]) as archive:
        for name in ("result.json", "model.safetensors"):
            assert archive.read(f"wardround/{name}") == (run / name).read_bytes()


@pytest.mark.slow
def test_other_classes_and_code_are_refused(ended: tuple[Federation, list[dict[str, Any]]]) -> None:
    federation, told = ended
    _, other, code, _ = told
    assert "FINISHED:COMPLETED" not in (other["status"], code["status"])
    for name, home in federation.homes.items():
        logs = [path.read_text() for path in (federation.kits / name).rglob("log.txt")]
        assert any("NPTrainer" in log and "not in allow_list" in log for log in logs)
        assert not [path for path in (home.path / "offers").iterdir() if path.stem != study_id(small_study())]
    assert "BYOC not permitted" in json.dumps(code) + federation.log()


# ---- without a running project ----


def asked_of(kit: Path, site: str, content: Any, *, topic: str = "hello", task: str = "wardround") -> Any:
    """What the executor in a site's kit answers, with FLARE's own context around it."""
    from nvflare.apis.fl_constant import FLContextKey, ReservedKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.apis.signal import Signal
    from nvflare.apis.workspace import Workspace

    from wardround.deploy.transport.flare_job import StudyExecutor

    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, site, private=True, sticky=False)
    context.set_prop(FLContextKey.WORKSPACE_OBJECT, Workspace(str(kit), site), private=True, sticky=False)
    return StudyExecutor().execute(task, Shareable({"topic": topic, "body": content}), context, Signal())


HELLO = {"protocol": 1, "wardround": __version__, "study": "s", "round": 7, "nonce": "ab"}


def test_a_site_whose_home_is_missing_or_another_s_refuses_in_words(
    provisioned: tuple[Path, Path], tmp_path: Path
) -> None:
    kit = kit_of(tmp_path / "kit", {})
    told, _ = decode(asked_of(kit, "kenema", encode(HELLO))["body"])
    assert (told["status"], told["site"], told["round"], told["nonce"]) == ("refused", "kenema", 7, "ab")
    assert "wardround flare connect" in told["why"]
    connect(kit, provisioned[0] / "freetown")
    told, _ = decode(asked_of(kit, "kenema", encode(HELLO))["body"])
    assert told["status"] == "refused"
    assert "its folder belongs to 'freetown'" in told["why"]
    told, _ = decode(asked_of(kit, "freetown", encode(HELLO))["body"])
    assert told["status"] == "ok"


def test_an_executor_answers_no_other_task_no_certificate_and_nothing_but_bytes(
    provisioned: tuple[Path, Path], tmp_path: Path
) -> None:
    kit = kit_of(tmp_path / "kit", {})
    connect(kit, provisioned[0] / "freetown")
    for answer in (
        asked_of(kit, "freetown", encode(HELLO), task="train"),
        asked_of(kit, "freetown", encode(HELLO), topic="renewal"),
        asked_of(kit, "freetown", encode(HELLO), topic="certificate"),
        asked_of(kit, "freetown", {"an": "object"}),
    ):
        assert answer.get_return_code() == "BAD_TASK_DATA"
        assert "body" not in answer


def test_a_second_job_at_the_same_study_is_refused(tmp_path: Path) -> None:
    from wardround.deploy.transport.flare_job import lock_job

    with lock_job(tmp_path / "s"), pytest.raises(Refusal, match="Another job"), lock_job(tmp_path / "s"):
        pass
    with lock_job(tmp_path / "s"):
        pass


def test_a_job_is_json_and_names_nothing_but_our_two_classes(tmp_path: Path) -> None:
    folder = export(small_study(), tmp_path / "job", SITES)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == sorted(job_files(small_study(), SITES))
    assert all(name.endswith(".json") for name in files)
    texts = {name: json.loads((folder / name).read_text()) for name in files}
    server = texts["app_server/config/config_fed_server.json"]
    site = texts["app_site/config/config_fed_client.json"]
    assert server["workflows"] == [{"id": "study", "path": CONTROLLER, "args": {}}]
    assert [one["executor"] for one in site["executors"]] == [{"path": EXECUTOR, "args": {}}]
    assert texts["meta.json"]["mandatory_clients"] == list(SITES)
    assert Study.model_validate(texts["app_server/config/study.json"]["study"]) == small_study()


def test_the_job_does_not_load_what_would_keep_flare_from_its_own_messages() -> None:
    code = (
        "import sys, wardround.deploy.transport.flare_job\n"
        "never = {'wardround.deploy.transport.cellnet_filter', 'wardround.deploy.transport.cellnet'}\n"
        "assert not never & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("sites", "said", "word"),
    [([], [], "must name its sites"), (["server"], [], "cannot be the name"), (["bo"], ["freetown"], "not for bo")],
)
def test_sites_that_cannot_be_are_refused(sites: list[str], said: list[str], word: str, tmp_path: Path) -> None:
    study = small_study()
    study = study.model_copy(update={"deploy": study.deploy.model_copy(update={"sites": said})})
    with pytest.raises(Refusal, match=word):
        export(study, tmp_path / "job", sites)
    assert not (tmp_path / "job").exists()


def kit_of(folder: Path, rights: Any) -> Path:
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    (folder / "startup" / "fed_client.json").write_text("{}")
    (folder / "local" / "resources.json.default").write_text(
        json.dumps({"class_allow_list": ["a.B"], "components": []})
    )
    (folder / "local" / "authorization.json.default").write_text(json.dumps({"permissions": rights}))
    return folder


def test_connecting_adds_our_class_and_takes_nothing_away(provisioned: tuple[Path, Path], tmp_path: Path) -> None:
    kit = kit_of(tmp_path / "kit", {"project_admin": "any", "lead": {"submit_job": "any", "byoc": "any"}})
    told = connect(kit, provisioned[0] / "freetown")
    again = connect(kit, provisioned[0] / "freetown")
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources == {"class_allow_list": ["a.B", EXECUTOR], "components": [], "allow_log_streaming": False}
    assert told["may_ship_code"] == again["may_ship_code"] == ["project_admin", "lead"]
    assert not (kit / "local" / "authorization.json").exists()


def test_connecting_only_us_ends_every_role_s_right_to_ship_code(
    provisioned: tuple[Path, Path], tmp_path: Path
) -> None:
    kit = kit_of(tmp_path / "kit", {"project_admin": "any", "lead": {"submit_job": "any", "byoc": "any"}})
    assert connect(kit, provisioned[0] / "freetown", only=True)["may_ship_code"] == []
    assert json.loads((kit / "local" / "resources.json").read_text())["class_allow_list"] == [EXECUTOR]
    rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
    assert rights["lead"] == {"submit_job": "any", "byoc": "none"}
    assert (rights["project_admin"]["submit_job"], rights["project_admin"]["byoc"]) == ("any", "none")


def test_the_command_line_exports_and_refuses_in_one_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "triage.toml"
    study.write_text('[study]\nname = "t"\nrounds = 3\n[data]\nsource = "csv"\npath = "p.csv"\ntarget = "ebola"\n')
    words = ["flare", "export", str(study), "--out", str(tmp_path / "job")]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "must name its sites" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main([*words, "--site", "kenema", "--site", "freetown", "--json"])
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sites"] == ["freetown", "kenema"]
    content = json.loads((tmp_path / "job" / "app_server" / "config" / "study.json").read_text())
    assert "path" not in content["study"]["data"], "where the coordinator has rows of its own is nobody's business"
    with pytest.raises(SystemExit) as left:
        main([*words, "--site", "kenema"])
    assert left.value.code == 2
    with pytest.raises(SystemExit) as left:
        main(["flare", "connect", str(tmp_path), "--home", str(tmp_path)])
    assert left.value.code == 2
    assert "not the startup kit of a FLARE server or site" in capsys.readouterr().err
