"""One contract, three transports: a study ends alike, to the bit, in one process, over CellNet and as a FLARE job."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from safetensors.numpy import load_file

from tests.support import flare_project, in_process
from tests.support.adversary.monitor import AGED, later_patients, monitor_of
from tests.support.adversary.noise import DECLARED
from tests.support.processes import parties
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.queue import with_members
from wardround.deploy.demo import PURPOSE
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.decisions import deny, store_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.datasets import add, read_datasets, remove
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.release.privacy_budget import ledger_path
from wardround.deploy.transport.flare_export import export
from wardround.deploy.trust.transcript.entries import transcript_folder
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.privacy.budget import Budget
from wardround.runs.explain.selection_file import KEPT
from wardround.study.file import Study, parse_study

NAMES = in_process.NAMES
ROUNDS = 2
GRACE = {"quorum": 2, "deadline": 2.0}
STUDIES: dict[str, dict[str, Any]] = {
    "plain": {"algorithm": in_process.KEPT},
    "secure": {"transforms": [{"name": "secure_sum"}]},
    "private": {
        "privacy": {"epsilon": 0.5, "delta": 1e-3},
        "data": {"preparation": {"smallest_cell": 10, **DECLARED}},
    },
    "partners": {"study": {"user": "freetown"}, "partners": {"name": "gradient_distance", "errors": False, "top": 1}},
    "absent": {"algorithm": in_process.KEPT, "deploy": GRACE},
    "denied": {},
}
ABSENT, DENYING = "kenema", "bo"


class Ended(NamedTuple):
    """How a study ended."""

    state: str
    why: str
    run: Path

    @property
    def bits(self) -> dict[str, bytes]:
        arrays = load_file(self.run / "model.safetensors")
        return {f"{name} {array.dtype} {array.shape}": array.tobytes() for name, array in arrays.items()}

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / "rounds.jsonl").read_text().splitlines()]

    def read(self, name: str) -> dict[str, Any]:
        words: dict[str, Any] = json.loads((self.run / name).read_bytes())
        return words


class World(Protocol):
    """A consortium over one transport; `without` names a site that takes no part."""

    home: CoordinatorHome
    homes: dict[str, SiteHome]

    def end(self, study: Study, without: str | None = None) -> Ended: ...


def ended_at(home: CoordinatorHome, study: str) -> Ended:
    state = json.loads((home.folder(study) / "state.json").read_bytes())
    return Ended(state["state"], state["why"], home.folder(study) / "run")


class InOneProcess:
    def __init__(self, folder: Path) -> None:
        self.consortium = in_process.Consortium(folder, NAMES)
        self.home, self.homes = self.consortium.home, self.consortium.homes

    def end(self, study: Study, without: str | None = None) -> Ended:
        self.consortium.away = {without} if without else set()
        try:
            self.consortium.conduct(study)
        except Refusal as refusal:
            return Ended("failed", str(refusal), self.consortium.run(study))
        return Ended("finished", "", self.consortium.run(study))


class OverCellNet:
    """Real processes over mutual TLS; the absent site's is not there."""

    def __init__(self, consortium: parties.Consortium) -> None:
        self.consortium, self.home, self.homes = consortium, consortium.home, consortium.homes

    def end(self, study: Study, without: str | None = None) -> Ended:
        if without:
            self.consortium.kill(without)
            parties.until(lambda: without not in self.consortium.status()["present"], 60, "its going")
        name = self.consortium.queue(study)
        self.consortium.ended(name, 240)
        if without:
            self.consortium.start(without)
            self.consortium.connected()
        return ended_at(self.consortium.home, name)


class OverFlare:
    """Jobs of a FLARE project, which only begin when all sites are there: the absent one has not decided."""

    def __init__(self, project: flare_project.Federation) -> None:
        self.project, self.home, self.homes = project, project.coordinator, project.homes

    def end(self, study: Study, without: str | None = None) -> Ended:
        name = study_id(study)
        decided = [site for site in NAMES if (self.homes[site].path / "decisions" / f"{name}.json").exists()]
        job = export(study, self.project.folder / name, NAMES)
        approving = [] if decided else [site for site in NAMES if site != without]
        self.project.submit([job], meanwhile=lambda: self.project.approve(name, approving))
        assert (self.project.coordinator.folder(name) / "state.json").exists(), self.project.log()[-4000:]
        return ended_at(self.project.coordinator, name)


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> World:
    return InOneProcess(tmp_path_factory.mktemp("in"))


@pytest.fixture(scope="module")
def cellnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pytest.importorskip("nvflare", reason="the network needs wardround[deploy]")
    if sys.platform != "linux":
        pytest.skip("the parties fork")
    with parties.consortium_in(tmp_path_factory.mktemp("c"), names=NAMES) as made:
        made.start()
        made.connected(seconds=120)
        yield OverCellNet(made)


@pytest.fixture(scope="module")
def flare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pytest.importorskip("nvflare", reason="a job needs wardround[deploy]")
    folder = tmp_path_factory.mktemp("f")
    flare_project.provision(folder, NAMES)
    with flare_project.running(folder, NAMES) as project:
        yield OverFlare(project)


def later_table(world: World, study: Study) -> None:
    """Every site registers the patients of a later year under another name, and approves the study on these."""
    for name, home in world.homes.items():
        path = home.path / "later.csv"
        first = Path(read_datasets(home)["demo"].settings["path"])
        later_patients(first, aged=name == AGED).to_csv(path, index=False)
        add(home, "later", "csv", {"path": str(path)})
        store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
        approve(home, study_id(study), by=f"admin-{name}", data="later")


def exchange_study() -> Study:
    """Sites exchange classifiers, and each chooses at home whose decides for whom."""
    return parse_study(
        {
            "study": {"name": "exchange", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": 10}},
            "analysis": {
                "name": "classifier_selection",
                "outcome": "ebola",
                "positive": "confirmed",
                "columns": ["age", "temperature", "contact", "fever", "malaria_test"],
                "points": ["youden"],
                "k": 10,
                "shuffles": 19,
                "room": 16_384,
            },
        },
        where="test",
    )


def study_of(case: str) -> Study:
    return in_process.study_of(case, ROUNDS, **STUDIES[case])


@pytest.fixture(scope="module")
def worlds(request: pytest.FixtureRequest) -> Any:
    """How a study ended over a transport; each is conducted once over each."""
    done: dict[tuple[str, str], tuple[World, Ended]] = {}

    def end(transport: str, case: str) -> tuple[World, Ended]:
        if (transport, case) not in done:
            world: World = request.getfixturevalue(transport)
            if case == "monitor":
                _, trained = end(transport, "plain")
                study = with_members(monitor_of(trained.run.parent.name), world.home)
                later_table(world, study)
            elif case == "exchange":
                study = with_members(exchange_study(), world.home)
                for home in world.homes.values():
                    set_policy(home.policy_path, "components", "*")
            else:
                study = with_members(study_of(case), world.home)
            if case == "denied":
                name = study_id(study)
                store_offer(world.homes[DENYING], name, study.model_dump(mode="json"), "researcher")
                deny(world.homes[DENYING], name, by="administrator", why="not now")
            done[transport, case] = world, world.end(study, ABSENT if case == "absent" else None)
            if case == "monitor":  # other studies find the one dataset that there was
                for home in world.homes.values():
                    remove(home, "later")
        return done[transport, case]

    return end


def everywhere(*cases: str, quick: tuple[str, ...] = ()) -> Any:
    """These studies over every transport; over a network only the quick ones are not slow, and none over FLARE's."""
    at_once = {("in_one_process", case) for case in cases} | {("cellnet", case) for case in quick}
    found = [
        pytest.param(transport, case, marks=[] if (transport, case) in at_once else pytest.mark.slow)
        for transport in ("in_one_process", "cellnet", "flare")
        for case in cases
    ]
    return pytest.mark.parametrize(("transport", "case"), found)


STEP = 0.25
"""The widest step in which these small sites tell a figure."""


def shape_of(told: Any) -> Any:
    """The same without the numbers."""
    if isinstance(told, dict):
        return {key: shape_of(one) for key, one in told.items()}
    return "number" if isinstance(told, float) else told


def numbers_in(told: Any) -> list[float]:
    if isinstance(told, dict):
        return [number for key in sorted(told) for number in numbers_in(told[key])]
    return [told] if isinstance(told, float) else []


@everywhere("plain", "secure", "partners", "absent", quick=("plain",))
def test_a_study_ends_with_the_same_bits_over_every_transport(worlds: Any, transport: str, case: str) -> None:
    (_, ended), (_, expected) = worlds(transport, case), worlds("in_one_process", case)
    assert (ended.state, ended.why) == ("finished", "")
    assert ended.bits == expected.bits
    assert [(one["round"], one["sites"]) for one in ended.rounds] == [
        (one["round"], one["sites"]) for one in expected.rounds
    ]
    assert ended.read("result.json")["sites"] == expected.read("result.json")["sites"]
    scores = [one.read("result.json")["methods"][0]["scores"] for one in (ended, expected)]
    # Sites tell figures in steps, and which of two steps is drawn by a secret of the site.
    assert shape_of(scores[0]) == shape_of(scores[1])
    assert max(abs(one - other) for one, other in zip(*map(numbers_in, scores), strict=True)) <= STEP


@everywhere("plain", quick=("plain",))
def test_all_sites_train_in_every_round(worlds: Any, transport: str, case: str) -> None:
    _, ended = worlds(transport, case)
    assert [(one["round"], tuple(one["sites"])) for one in ended.rounds] == [(1, NAMES), (2, NAMES)]


def bytes_sent(home: CoordinatorHome | SiteHome, study: str) -> int:
    """What left a party for a study, by its audit log."""
    entries = [json.loads(line)["entry"] for line in home.audit_path.read_bytes().splitlines()]
    return sum(int(one["bytes"]) for one in entries if one["kind"] == "sent" and one["study"] == study)


@everywhere("plain", "secure", "partners", quick=("plain",))
def test_every_byte_is_counted_as_the_audit_logs_count_it(worlds: Any, transport: str, case: str) -> None:
    """Offers, agreement, judging, figures and the end too; once they made two thirds that nobody was told of."""
    world, ended = worlds(transport, case)
    study, told = ended.run.parent.name, ended.read("result.json")["methods"][0]["meters"]["traffic"]
    assert told["bytes_down"] == bytes_sent(world.home, study)
    assert told["bytes_up"] == sum(bytes_sent(home, study) for home in world.homes.values())
    assert sum(one["bytes_down"] for one in ended.rounds) == told["bytes_down"]
    moved = sum(one["measures"].get("line_bytes", 0) for one in ended.rounds)
    # Over our own network no model travels twice, so the line moves less than was said.
    assert 0 < moved < told["bytes_down"] + told["bytes_up"] if transport == "cellnet" else moved == 0


@everywhere("secure")
def test_a_secure_sum_is_close_to_the_plain_mean_and_its_answers_are_not_sent(
    worlds: Any, transport: str, case: str
) -> None:
    world, ended = worlds(transport, case)
    assert [tuple(one["sites"]) for one in ended.rounds] == [NAMES] * ROUNDS
    for home in world.homes.values():
        entries = [json.loads(line)["entry"] for line in home.audit_path.read_bytes().splitlines()]
        ours = [one for one in entries if one["kind"] == "sent" and one["study"] == ended.run.parent.name]
        assert not [one for one in ours if one["topic"] == "round"]
        # Six steps a round: advertise, share, check, mask, agree, reveal.
        assert len([one for one in ours if one["topic"] == "secure"]) == 6 * ROUNDS


@everywhere("private")
def test_privacy_is_charged_alike_over_every_transport(worlds: Any, transport: str, case: str) -> None:
    """Sites draw their noise themselves, so the models differ; what it costs each of them does not."""
    (world, ended), (other, expected) = worlds(transport, case), worlds("in_one_process", case)
    assert ended.state == "finished"
    assert ended.read("agreement.json")["privacy"] == expected.read("agreement.json")["privacy"]
    costs = [one.read("result.json")["methods"][0]["meters"]["privacy"] for one in (ended, expected)]
    assert costs[0] == costs[1]
    for name in NAMES:
        ledgers = [Budget(ledger_path(one.homes[name])).charges() for one in (world, other)]
        debits = [[(one.round, one.level, one.steps) for one in entries] for entries in ledgers]
        assert debits[0] == debits[1]
        # Training patients pay for each round, validation patients for each look, test patients for the figures.
        paid = {level: [number for number, one, _ in debits[0] if one == level] for _, level, _ in debits[0]}
        assert paid == {"sample": [1, 2], "validation": [1, 2], "test": [1]}


@everywhere("partners")
def test_the_same_partner_is_chosen_over_every_transport(worlds: Any, transport: str, case: str) -> None:
    (_, ended), (_, expected) = worlds(transport, case), worlds("in_one_process", case)
    chosen = [one.read("partners.json") for one in (ended, expected)]
    assert chosen[0]["partners"] == chosen[1]["partners"]
    assert len(chosen[0]["partners"]) == 1
    assert chosen[0]["score"] == chosen[1]["score"]


@everywhere("partners")
def test_a_choice_of_partners_alarms_no_site_and_is_not_replayed(worlds: Any, transport: str, case: str) -> None:
    if transport == "flare":
        pytest.skip("a study over FLARE's network has no transcript")
    world, ended = worlds(transport, case)
    found = replay(read_source(ended.run))
    assert (found.problem, found.replayed) == ("", ROUNDS)
    assert any("how partners were chosen" in one for one in found.unchecked)
    for home in world.homes.values():
        path = transcript_folder(home.folder(ended.run.parent.name)) / "findings.json"
        if path.exists():  # only the partners are given the model
            assert json.loads(path.read_text())["problems"] == []


@everywhere("absent")
def test_an_absent_site_is_named_with_the_reason(worlds: Any, transport: str, case: str) -> None:
    _, ended = worlds(transport, case)
    for one in ended.rounds:
        assert one["sites"] == [name for name in NAMES if name != ABSENT]
        reason = "has not decided yet" if transport == "flare" else "was not connected"
        assert reason in one["measures"]["absent"][ABSENT]


@everywhere("monitor")
def test_a_model_is_watched_alike_over_every_transport(worlds: Any, transport: str, case: str) -> None:
    (_, ended), (_, expected) = worlds(transport, case), worlds("in_one_process", case)
    assert (ended.state, ended.why) == ("finished", "")
    told, other = (one.read("result.json")["sites"] for one in (ended, expected))
    for one, same in zip(told, other, strict=True):
        assert one["name"] == same["name"]
        for window, again in zip(one["windows"], same["windows"], strict=True):
            # Which of two steps a mean risk is told as is drawn by a secret of the site.
            assert abs(window.pop("predicted") - again["predicted"]) <= 1 / 32
            assert window == {key: value for key, value in again.items() if key != "predicted"}
    wrong = {(one["name"], window["window"]) for one in told for window in one["windows"] if window["verdict"]}
    assert wrong == {(AGED, "2025-Q3"), (AGED, "2025-Q4"), (AGED, "all")}


@everywhere("exchange")
def test_classifiers_are_exchanged_alike_over_every_transport(worlds: Any, transport: str, case: str) -> None:
    """Files of the same bytes reach every site, each keeps its own choice, and counts in cells are all that is told."""
    (world, ended), (other, expected) = worlds(transport, case), worlds("in_one_process", case)
    assert (ended.state, ended.why) == ("finished", "")
    told, same = (one.read("result.json") for one in (ended, expected))
    assert told["numbers"] == same["numbers"]
    assert told["words"] == same["words"]
    for name in NAMES:
        kept = [one.homes[name].folder(end.run.parent.name) / KEPT for one, end in ((world, ended), (other, expected))]
        files = [{path.name: path.read_bytes() for path in sorted(folder.iterdir())} for folder in kept]
        assert files[0] == files[1]
        assert json.loads(files[0]["selection.json"])["site"] == name
    # The words of the log tell that a classifier left, once; the second answer is counts.
    for home in world.homes.values():
        entries = [json.loads(line)["entry"] for line in home.audit_path.read_bytes().splitlines()]
        sent = [one for one in entries if one["kind"] == "sent" and one["study"] == ended.run.parent.name]
        assert len([one for one in sent if one["topic"] == "analysis"]) == 2


@everywhere("denied")
def test_a_site_that_denies_ends_the_study_and_is_named(worlds: Any, transport: str, case: str) -> None:
    _, ended = worlds(transport, case)
    assert ended.state == "failed"
    assert "will not" in ended.why
    assert "denied" in ended.why
    assert "not now" in ended.why
    assert f"site {DENYING}" in ended.why
    assert not (ended.run / "rounds.jsonl").exists() or ended.rounds == []
