"""Several studies at once: the same models to the last bit, and none of them can hold up, mix up or outlive another."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.deploy.coordinator.test_study_life import entries
from tests.support.life import Capture, Living
from wardround.deploy.coordinator.events import RoundDone, SitesAwaited, SitesReturned
from wardround.deploy.coordinator.studies.workload import MOST_UNDER_WAY, Workload
from wardround.deploy.party.decisions import read_decision
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import decode_header
from wardround.deploy.site import kept_state, request_handler
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.release.gate import STATISTICS
from wardround.deploy.site.release.grid_offset import NAME
from wardround.deploy.site.request_handler import RequestHandler, StudyTurns

NAMES = ("bo", "freetown")
ONE = {"algorithm": {"name": "scaffold", "learning_rate": 0.1}}
OTHER = {"algorithm": {"name": "scaffold", "learning_rate": 0.2}}
PATIENCE = 20.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Living:
    return Living(tmp_path_factory.mktemp("beside"), NAMES)


@pytest.fixture
def living(whole: Living) -> Iterator[Living]:
    yield whole
    whole.party.away.clear()
    whole.begin()


def submitted(living: Living, capsys: Capture, name: str, rounds: int = 2, **tables: Any) -> str:
    tables = {**tables, "study": {"rounds": rounds, **tables.get("study", {})}}
    return living.run(capsys, living.study_file(name, **tables))


def work(living: Living, *studies: str) -> None:
    """The coordinator's own loop, until nothing is queued any more."""
    living.coordinator.look(wait=True)
    for study in studies:
        living.approve(study)
        for name, home in living.homes.items():  # which way a figure is rounded is a study's own secret: here the same
            home.folder(study).mkdir(parents=True, exist_ok=True)
            (home.folder(study) / NAME).write_bytes(name.encode().ljust(32))
    living.coordinator.desk._visited.clear()
    living.coordinator.work(until_done=True)


def model_of(living: Living, study: str) -> dict[str, bytes]:
    model = load_file(living.home.folder(study) / "run" / "model.safetensors")
    return {name: array.tobytes() for name, array in sorted(model.items())}


def at_point(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[], None]) -> None:
    """Let the thread that answers at a site do this in the midst of its computation."""
    monkeypatch.setattr(kept_state, "point", lambda passed: do() if passed == name else None)


def test_two_studies_interleave_and_train_the_models_they_train_alone(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = []
    for name, words in (("a-alone", ONE), ("b-alone", OTHER)):
        study = submitted(living, capsys, name, **words)
        work(living, study)
        alone.append(model_of(living, study))
    # Every computation waits for one of the other study at the same site: unless both are at work there at once,
    # neither ends.
    barriers = {name: threading.Barrier(2) for name in NAMES}
    answering = threading.local()
    ask = living.party.ask

    def noted(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        answering.at = target
        return ask(target, topic, body, within=within)

    at_point(monkeypatch, "site.kept.saved", lambda: barriers[answering.at].wait(PATIENCE) and None)
    monkeypatch.setattr(living.party, "ask", noted)
    both = [submitted(living, capsys, name, **words) for name, words in (("a-beside", ONE), ("b-beside", OTHER))]
    living.heard.clear()
    work(living, *both)
    assert [living.state(study) for study in both] == ["finished", "finished"]
    assert [model_of(living, study) for study in both] == alone
    assert alone[0] != alone[1]
    rounds = [event.about for event in living.heard if isinstance(event, RoundDone)]
    assert sorted(rounds) == sorted(both * 2)
    assert rounds not in ([both[0]] * 2 + [both[1]] * 2, [both[1]] * 2 + [both[0]] * 2)


@pytest.mark.slow
def test_stopped_in_the_midst_of_both_a_new_process_goes_on_with_both(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [submitted(living, capsys, name, 12, **words) for name, words in (("a-stop", ONE), ("b-stop", OTHER))]
    living.heard.clear()
    seen = set[str]()
    tell = living.coordinator.observer

    def stop_in_both(event: Any) -> None:
        tell(event)
        seen.add(event.about if isinstance(event, RoundDone) else "")
        if seen >= set(both):
            living.coordinator.stopped.set()

    monkeypatch.setattr(living.coordinator, "observer", stop_in_both)
    work(living, *both)
    done = [event.about for event in living.heard if isinstance(event, RoundDone)]
    assert set(done) == set(both)
    assert len(done) < 24
    assert {living.state(study) for study in both} == {"queued"}
    living.begin()
    with living.at_work():
        living.coordinator.work(until_done=True)
    assert [living.state(study) for study in both] == ["finished", "finished"]
    for study in both:  # every round once, in its own folder
        rounds = [one for one in living.heard if isinstance(one, RoundDone) and one.about == study]
        assert [one.round for one in rounds] == list(range(1, 13))


@pytest.mark.slow
def test_a_long_round_at_a_site_holds_up_no_other_study_and_one_that_fails_ends_alone(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, quick = (submitted(living, capsys, name, 1, **ONE) for name in ("long", "quick"))
    ended, computing = threading.Event(), threading.local()
    ask, tell = living.party.ask, living.coordinator.observer

    def noted(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        computing.study = decode_header(body)[0].get("study")
        return ask(target, topic, body, within=within)

    def compute_for_long() -> None:
        if computing.study == long:
            assert ended.wait(PATIENCE)  # at work until the other study has ended
            raise OverflowError("a fault of ours")

    def hear(event: Any) -> None:
        tell(event)
        if getattr(event, "study", "") == quick and type(event).__name__ == "StudyEnded":
            ended.set()

    at_point(monkeypatch, "site.kept.before_save", compute_for_long)
    monkeypatch.setattr(living.party, "ask", noted)
    monkeypatch.setattr(living.coordinator, "observer", hear)
    monkeypatch.setattr("wardround.deploy.coordinator.gather.WaitPolicy.deadline", property(lambda self: 0.1))
    work(living, long, quick)
    assert living.state(quick) == "finished"
    assert living.state(long) == "failed"


@pytest.mark.slow
def test_a_study_that_waits_for_a_site_leaves_its_place_to_others(living: Living, capsys: Capture) -> None:
    waits = submitted(living, capsys, "waits", 1)
    living.coordinator.workload.most = 1
    living.coordinator.look(wait=True)
    living.approve(waits)
    living.coordinator.desk._visited.clear()
    living.coordinator.look(wait=True)
    living.party.away.add("freetown")  # after it approved
    working = threading.Thread(target=living.coordinator.work, kwargs={"until_done": True}, daemon=True)
    working.start()
    until(lambda: living.coordinator.workload.words().get(waits, {}).get("missing"))
    other = submitted(living, capsys, "other", 1, deploy={"sites": ["bo"]})
    until((living.homes["bo"].path / "offers" / f"{other}.json").exists)
    with living.at_work():
        facts = {one["study"]: one for one in living.status()["studies"]}
        assert facts[waits]["state"] == "running"
        assert facts[waits]["waiting"] == {"freetown": "it is not connected"}
        assert [step["who"] for step in facts[waits]["next"]] == ["freetown"]
    living.approve(other, "bo")
    until(lambda: living.state(other) == "finished")
    living.party.away.clear()
    working.join(PATIENCE)
    assert living.state(waits) == "finished"


def until(so: Callable[[], Any]) -> None:
    moment = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if so():
            return
        moment.wait(0.05)
    raise AssertionError("it did not come to that")


@pytest.mark.slow
def test_a_cancelled_study_stops_and_the_one_beside_it_ends_well(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = submitted(living, capsys, "gone", 40), submitted(living, capsys, "stays", 2)
    tell = living.coordinator.observer
    cancelled = threading.Event()

    def hear(event: Any) -> None:
        tell(event)
        if isinstance(event, RoundDone) and event.about == gone and not cancelled.is_set():
            cancelled.set()
            with living.at_work():
                assert living.hub(capsys, "cancel", gone).code == 0

    monkeypatch.setattr(living.coordinator, "observer", hear)
    work(living, gone, stays)
    assert (living.state(gone), living.state(stays)) == ("cancelled", "finished")


# ---- what studies share at a site ----


class SlowCount(HomeAccess):
    """Whoever counted the statistics takes his time before he tells one more."""

    def check_statistics(self, study: str) -> None:
        super().check_statistics(study)
        threading.Event().wait(0.2)


def test_the_last_statistic_of_a_dataset_is_told_to_one_of_two_studies_that_ask_at_once(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict[str, bytes]()
    ask = living.party.ask

    def keep_first_query(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        if topic == "query" and target == "bo":
            asked.setdefault(str(decode_header(body)[0]["study"]), body)
            living.coordinator.stopped.set() if len(asked) == 2 else None
        return ask(target, topic, body, within=within) if topic == "offer" else b""

    monkeypatch.setattr(living.party, "ask", keep_first_query)
    both = [submitted(living, capsys, name, 1) for name in ("count-a", "count-b")]
    work(living, *both)
    home = living.homes["bo"]
    sent = [one for one in entries(home.audit_path) if str(one.get("release", "")).startswith(STATISTICS)]
    told = {(one["study"], one["release"], one["slot"]) for one in sent}
    set_policy(home.policy_path, "statistics", str(len(told) + 1))
    handler, replies = RequestHandler(SlowCount(home)), list[Status]()
    threads = [
        threading.Thread(
            target=lambda body: replies.append(read_reply(handler.answer("query", "server", body)).status), args=(one,)
        )
        for one in asked.values()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    set_policy(home.policy_path, "statistics", "100000")
    assert sorted(replies) == sorted([Status.OK, Status.REFUSED])


def test_an_answer_in_the_making_does_not_leave_after_its_approval_moved(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a coordinator that amends a study while its first answer is computed gets that answer and all new ones."""
    study = submitted(living, capsys, "moves", 1, deploy={"quorum": 1})
    ask = living.party.ask
    new, states = list[str](), list[Status]()

    def amend_before_it_leaves(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        if topic == "query" and target == "bo" and not new:
            handler = living.party.handlers["bo"]
            compute = handler._compute

            def amend(*words: Any) -> Any:
                found = compute(*words)
                monkeypatch.undo()
                path = living.study_file("moves", study={"rounds": 1}, deploy={"quorum": 2})
                with living.at_work():
                    new.append(living.hub(capsys, "amend", study, path, "--by", "Anna Sesay", "--json").json["study"])
                offer = threading.Thread(target=lambda: living.coordinator.desk.look(wait=True))
                offer.start()
                offer.join(PATIENCE)
                return found

            monkeypatch.setattr(handler, "_compute", amend)
            reply = ask(target, topic, body, within=within)
            states.append(read_reply(reply).status)
            living.coordinator.stopped.set()
            return reply
        return ask(target, topic, body, within=within)

    monkeypatch.setattr(living.party, "ask", amend_before_it_leaves)
    work(living, study)
    home = living.homes["bo"]
    moved, before = read_decision(home, new[0]), read_decision(home, study)
    assert moved is not None
    assert before is not None
    assert (before.state, moved.state) == ("withdrawn", "approved")
    assert states != [Status.OK]
    assert entries(home.audit_path, kind="sent", study=study) == []
    with living.at_work():
        living.hub(capsys, "cancel", new[0])


def test_a_study_that_waits_does_not_count_and_its_end_is_its_own() -> None:
    workload = Workload(2)
    one, other = workload.enter("one"), workload.enter("other")
    assert not workload.has_room()
    workload.note("one", SitesAwaited(("bo",), 1))
    assert workload.has_room()
    assert workload.words()["one"]["missing"] == {"bo": "it is not connected"}
    assert workload.words()["other"]["missing"] == {}
    workload.note("one", SitesReturned())
    assert not workload.has_room()
    workload.end("other")
    assert (one.ended.is_set(), other.ended.is_set()) == (False, True)
    for number in range(MOST_UNDER_WAY):
        workload.enter(f"away-{number}")
        workload.note(f"away-{number}", SitesAwaited(("bo",), 1))
    workload.leave("one")
    assert not workload.has_room()  # each keeps its model in memory


def test_made_up_names_fill_no_memory_and_one_study_is_answered_one_at_a_time() -> None:
    turns, inside, most = StudyTurns(), list[str](), list[int]()

    def answer(study: str) -> None:
        with turns.of(study):
            inside.append(study)
            most.append(inside.count("one"))
            threading.Event().wait(0.01)
            inside.remove(study)

    threads = [
        threading.Thread(target=answer, args=(name,)) for name in ["one"] * 5 + [f"made-up-{n}" for n in range(9)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert turns._locks == {}


def test_a_site_lets_go_of_studies_that_nobody_asks_about_and_goes_on_with_them(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every approved study, ended or never begun in earnest, would keep its rows in memory until a restart."""
    monkeypatch.setattr(request_handler, "HELD_SHARE", 0.0)
    asked = dict[str, tuple[bytes, bytes]]()
    ask = living.party.ask

    def noted(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        reply = ask(target, topic, body, within=within)
        if (target, topic) == ("bo", "judge"):
            asked[str(decode_header(body)[0]["study"])] = body, reply
        return reply

    monkeypatch.setattr(living.party, "ask", noted)
    both = list[str]()
    for name in ("held", "held-next"):
        both.append(submitted(living, capsys, name, 1, **ONE))
        work(living, both[-1])
    first, second = both
    handler = living.party.handlers["bo"]
    assert set(handler._workers) == {second}
    body, reply = asked[first]
    again = handler.answer("judge", "server", body)
    assert read_reply(again).status is Status.OK
    assert again == reply
    assert set(handler._workers) == {first}


def test_the_setting_is_checked(tmp_path: Path) -> None:
    from wardround.core.errors import Refusal
    from wardround.deploy.coordinator.consortium import coordinator_settings
    from wardround.deploy.home import CoordinatorSettings
    from wardround.deploy.settings_files import validate

    words = coordinator_settings("triage", "hub", "127.0.0.1:8002", [])
    assert words.studies_at_once == 2
    with pytest.raises(Refusal, match="studies_at_once"):
        validate({**words.model_dump(), "studies_at_once": 0}, CoordinatorSettings, str(tmp_path))
