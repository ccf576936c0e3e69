"""[privacy] over sites' real homes: the noise is enough for each, the ledger is debited first, and nothing is free."""

import hashlib
import os
from collections.abc import Callable, Iterator
from math import ceil
from threading import Lock
from typing import Any

import pytest

from tests.support import in_process
from tests.support.adversary.private_rounds import (
    BATCH,
    DELTA,
    EPSILON,
    NAMES,
    ROUNDS,
    agreement,
    entries,
    listening,
    settings,
    study_of,
)
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.status import epsilon_so_far
from wardround.deploy.fault_points import CHARGED
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site import study_worker
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.privacy_summary import NOT_COVERED
from wardround.deploy.site.release.privacy_budget import budget_of, charged_epsilon
from wardround.deploy.site.study_summary import describe
from wardround.meters import privacy as meter
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.budget import Charge, epsilon_of
from wardround.privacy.sampling import OVERFLOW
from wardround.study.release_noise import release_noise


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("private"))


@pytest.fixture(autouse=True)
def nobody_disturbs(consortium: Any) -> Iterator[None]:
    ask = consortium.ask
    consortium.change = lambda site, topic, header, reply: reply
    yield
    consortium.ask = ask
    for home in consortium.homes.values():
        set_policy(home.policy_path, "epsilon", "none")
        set_policy(home.policy_path, "delta", "1e-5")


class Ended:
    """A private study that was conducted to its end, what it was asked and what it answered."""

    def __init__(self, consortium: Any) -> None:
        self.study = study_of("private")
        self.requests: dict[tuple[str, str, int], bytes] = {}
        self.replies: dict[tuple[str, str, int], bytes] = {}
        ask = consortium.ask

        def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
            key = (site, topic, decode(body)[0]["round"])
            reply: bytes = ask(site, topic, body, within)
            self.requests[key], self.replies[key] = body, reply
            return reply

        consortium.ask = asked
        self.result = consortium.conduct(self.study)
        consortium.ask = ask
        self.told = release_noise(self.study)
        told = agreement(consortium, self.study)
        self.noise = told["privacy"]["noise_multiplier"]
        self.rows = {site: counts[0] for site, counts in told["rows"].items()}
        spent = self.result["methods"][0]["meters"]["privacy"]["sample_epsilon_by_site"]
        self.dearest = max(NAMES, key=lambda site: spent[site])

    def steps(self, site: str, rounds: int = 1) -> Step:
        """By hand: a pass over n rows in batches of 32 is ceil(n / 32) sums, each row in each with probability 32/n."""
        rows = self.rows[site]
        return Step(BATCH / rows, self.noise, rounds * ceil(rows / BATCH))


@pytest.fixture(scope="module")
def ended(consortium: Any) -> Ended:
    return Ended(consortium)


def test_the_ledger_of_every_site_holds_what_its_rounds_did(consortium: Any, ended: Ended) -> None:
    assert len(set(ended.rows.values())) == 3
    assert min(ended.rows.values()) > BATCH
    for site in NAMES:
        ledger = entries(consortium, site, ended.study)
        assert [(one.level, one.round) for one in ledger] == [("sample", 1), ("sample", 2), ("sample", 3)]
        for one in ledger:
            (step,) = one.steps
            rate, noise, times = ended.steps(site)
            assert (step.noise_multiplier, step.times) == (noise, times)
            assert step.rate == pytest.approx(rate, rel=1e-6)


def test_looks_and_figures_are_debited_to_the_patients_of_whom_they_tell(consortium: Any, ended: Ended) -> None:
    """Three looks and one for a coordinator that died cost validation patients what was promised, as do the figures."""
    looks, figures = ended.told.looks or 0.0, ended.told.figures or 0.0
    for site in NAMES:
        watched = entries(consortium, site, ended.study, ("validation",))
        assert [(one.round, one.steps) for one in watched] == [(n, (Step(1.0, looks, 1),)) for n in (1, 2, 3)]
        judged = entries(consortium, site, ended.study, ("test",))
        assert [(one.round, one.steps) for one in judged] == [(1, (Step(1.0, figures, 1),))]
    assert 0.99 * EPSILON < epsilon([Step(1.0, looks, ROUNDS + 1)], DELTA) <= EPSILON
    assert 0.99 * EPSILON < epsilon([Step(1.0, figures, 1)], DELTA) <= EPSILON


def test_epsilon_is_the_accountants_kept_and_told_everywhere(consortium: Any, ended: Ended) -> None:
    told = ended.result["methods"][0]["meters"]["privacy"]
    within = DELTA - ROUNDS * OVERFLOW * max(ended.steps(site).times for site in NAMES)
    for site in NAMES:
        expected = epsilon([ended.steps(site, ROUNDS)], within)
        assert told["sample_epsilon_by_site"][site] == pytest.approx(expected, abs=1e-4)
    # The noise is the least that keeps the promise of the dearest site, to a thousandth.
    assert 0.99 * EPSILON < told["sample_epsilon"] <= EPSILON
    assert told["sample_epsilon"] == max(told["sample_epsilon_by_site"].values())
    assert told["site_epsilon"] is None
    assert told["words"].endswith(meter.NOT_COVERED)
    records = consortium.rounds(ended.study)
    assert [one["rows"] for one in records] == [sum(ended.rows.values())] * ROUNDS
    so_far = [one["measures"]["privacy"]["epsilon"] for one in records]
    assert so_far == sorted(so_far)
    assert 0 < so_far[0] < so_far[-1] <= EPSILON
    assert epsilon_so_far(records) == so_far[-1]
    assert ended.result["methods"][0]["meters"]["traffic"]["bytes_up"] == sum(one["bytes_up"] for one in records)


def test_the_same_request_costs_nothing_and_gives_the_same_bytes(consortium: Any, ended: Ended) -> None:
    consortium.restart("bo")
    before = len(entries(consortium, "bo", ended.study))
    for number in (1, ROUNDS):
        key = ("bo", "round", number)
        assert consortium.handlers["bo"].answer("round", "server", ended.requests[key]) == ended.replies[key]
    assert len(entries(consortium, "bo", ended.study)) == before


def test_a_site_debits_before_it_trains(consortium: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the k-th training begins, k debits are in the ledgers: a death afterwards cannot make one free."""
    study, train = study_of("debit_first", rounds=1), study_worker.carried_round
    debits: list[int] = []
    in_turn = Lock()  # sites train in threads: a count taken before another's is also noted before it

    def watched(*given: Any, **settings: Any) -> Any:
        with in_turn:
            debits.append(sum(len(entries(consortium, site, study)) for site in NAMES))
        return train(*given, **settings)

    monkeypatch.setattr(study_worker, "carried_round", watched)
    consortium.conduct(study)
    assert len(debits) == len(NAMES)
    assert all(paid >= number for number, paid in enumerate(debits, start=1))


def test_another_question_in_a_round_that_was_charged_gets_no_answer(consortium: Any, ended: Ended) -> None:
    """Else the coordinator would average the noise away by asking the same in other words."""
    header, message = decode(ended.requests["bo", "round", ROUNDS])
    for change in ({"nonce": "ab"}, {"wardround": "0.0"}):
        told, answer = decode(
            consortium.handlers["bo"].answer("round", "server", encode({**header, **change}, message))
        )
        assert (told["status"], answer.arrays) == ("refused", {})
        assert "asked before in other words" in told["why"]


def test_an_answer_that_may_have_left_is_never_made_anew(
    consortium: Any, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old answers are deleted after some rounds. Those of the last ones are there, whatever crash came, unless somebody
    deleted them."""
    replies = consortium.homes["freetown"].folder(study_id(ended.study)) / "replies"
    for path in replies.glob("round-*"):
        path.unlink()
    consortium.restart("freetown")
    handler = consortium.handlers["freetown"]
    told, answer = decode(handler.answer("round", "server", ended.requests["freetown", "round", 1]))
    assert (told["status"], answer.arrays) == ("refused", {})
    assert "no longer stored" in told["why"]
    # Nor the last one, which would be another one now: it is refused before any noise is drawn.
    with monkeypatch.context() as patched:
        patched.setattr(study_worker, "carried_round", None)
        told, answer = decode(handler.answer("round", "server", ended.requests["freetown", "round", ROUNDS]))
    assert (told["status"], answer.arrays) == ("refused", {})
    assert "no longer stored; a second one, under new noise, would reveal more" in told["why"]
    assert len(entries(consortium, "freetown", ended.study)) == ROUNDS


def test_a_noised_answer_is_on_the_disk_before_it_leaves(consortium: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no crash makes it necessary to draw another one: when the log says that it leaves, it is stored, and the
    disk was waited for. The same for losses and figures."""
    study, fsync, record = study_of("stored"), os.fsync, HomeAccess.record_sent
    synced: list[str] = []
    stored: dict[str, list[str]] = {}

    def waiting(file: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def recording(self: HomeAccess, entry: Any) -> None:
        name = f"{entry['topic']}-*.{entry['sha256']}"
        for path in (self.home.folder(entry["study"]) / "replies").glob(name):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
            assert any(one.startswith(f"{path.name}.") and one.endswith(".partial") for one in synced)
            stored.setdefault(entry["topic"], []).append(self.name)
        record(self, entry)

    monkeypatch.setattr(os, "fsync", waiting)
    monkeypatch.setattr(HomeAccess, "record_sent", recording)
    consortium.conduct(study)
    assert {topic: sorted(sites) for topic, sites in stored.items() if topic in ("round", "judge", "figures")} == {
        "round": sorted(ROUNDS * NAMES),
        "judge": sorted(ROUNDS * NAMES),
        "figures": sorted(NAMES),
    }


@pytest.mark.parametrize("point", [*CHARGED, "coordinator.round.recorded"])
def test_a_death_costs_no_privacy(consortium: Any, ended: Ended, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between debit and save the answer is lost; another is made for the same debit, and only that one leaves."""
    study = study_of(point)
    before = len(consortium.deaths)
    with monkeypatch.context() as armed:
        in_process.die_at(armed, point, 2)
        consortium.until_done(study)
    assert len(consortium.deaths) == before + 1
    assert agreement(consortium, study)["privacy"]["noise_multiplier"] == ended.noise
    for site in NAMES:
        assert [one.round for one in entries(consortium, site, study)] == [1, 2, 3]
        left = [one for one in consortium.left(site, study) if one["topic"] == "round"]
        assert [one["round"] for one in left] == [1, 2, 3]
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]
    assert len(consortium.rounds(study)[-1]["measures"]["privacy"]["patients"]) == 3


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "a longer clip": (settings(clip=10.0), "has clip 1.0 under [privacy], but the coordinator asks for 10.0"),
    "a larger delta": (settings(delta=0.004), "has delta 0.001"),
    "other batches": (settings(batch=8), "has batch None"),
    "noise from the seed": (settings(seeded=True), "follow from the study's seed"),
    "an unknown word": (settings(less=True), "names no private algorithm"),
    "the level of sites": (lambda recipe: {**recipe, "name": "site"}, "names no private algorithm"),
    "no noise at all": (lambda recipe: recipe["parts"][0], "an algorithm without noise was requested"),
    "another algorithm": (
        lambda recipe: {**recipe, "parts": [{**recipe["parts"][0], "settings": {"learning_rate": 9.0}}]},
        "does not include the algorithm fed_avg with these settings",
    ),
}


def test_less_than_was_approved_is_refused_and_nothing_leaves(consortium: Any, ended: Ended) -> None:
    """A coordinator that names less noise, or any other thing than was approved, gets no answer and no debit."""
    study, refused = study_of("tampered"), {}

    def hear(site: str, topic: str, body: bytes) -> None:
        header, message = decode(body)
        if (site, topic, header["round"]) != (ended.dearest, "round", 1):
            return
        handler = consortium.handlers[site]
        for name, (change, _) in TAMPERED.items():
            changed = {**header, "algorithm": change(header["algorithm"])}
            first = Message({"first": message.arrays["params"]})
            handler.answer("begin", "server", encode({**changed, "round": 0}, first))
            told, answer = decode(handler.answer("round", "server", encode(changed, message)))
            refused[name] = (told["status"], told["why"], answer.arrays)
        assert entries(consortium, site, study) == []

    listening(consortium, hear)
    consortium.conduct(study)
    assert {arrays == {} for _, _, arrays in refused.values()} == {True}
    for name, (_, why) in TAMPERED.items():
        assert (refused[name][0], why in refused[name][1]) == ("refused", True), refused[name]
    assert [one.round for one in entries(consortium, ended.dearest, study)] == [1, 2, 3]


def test_less_noise_than_the_promise_needs_is_refused_with_what_it_would_spend(consortium: Any, ended: Ended) -> None:
    """From the beginning on, so that all requests fit together. The noise was found for the dearest site: there a
    fiftieth less is too little."""
    study = study_of("weak", deploy={"quorum": 2})
    weak = settings(noise_multiplier=0.98 * ended.noise)

    def hear(site: str, topic: str, body: bytes) -> bytes | None:
        if site != ended.dearest or topic not in ("begin", "round"):
            return None
        header, message = decode(body)
        return encode({**header, "algorithm": weak(header["algorithm"])}, message)

    listening(consortium, hear)
    consortium.conduct(study)
    for one in consortium.rounds(study):
        why = one["measures"]["absent"][ended.dearest]
        assert why.startswith(
            "spent: With the noise that the coordinator names, 3 rounds would spend an epsilon of 0.51"
        )
        assert "and 0.5 was approved" in why
    assert entries(consortium, ended.dearest, study) == []
    assert not [one for one in consortium.left(ended.dearest, study) if one["topic"] == "round"]


def test_more_rounds_than_approved_are_not_answered(consortium: Any, ended: Ended) -> None:
    """The promise is for three rounds of this noise; a fourth would break it."""
    header, message = decode(ended.requests[ended.dearest, "round", ROUNDS])
    handler = consortium.handlers[ended.dearest]
    told, answer = decode(handler.answer("round", "server", encode({**header, "round": 4}, message)))
    assert (told["status"], answer.arrays) == ("refused", {})
    assert "approved study has the rounds 1 to 3" in told["why"]


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same patients at sites with ledgers of their own."""
    return in_process.Consortium(tmp_path_factory.mktemp("poor"))


def short_of_budget(consortium: Any, ended: Ended, site: str) -> None:
    """Let another study have spent so much that one round of ours fits under the cap, and two do not."""
    home = consortium.homes[site]
    set_policy(home.policy_path, "delta", str(DELTA))
    budget_of(home).debit("another-study", 1, [ended.steps(site, 24)])
    before = budget_of(home).charges()
    one, two = (
        epsilon_of([*before, Charge("sample", "ours", 1, "", (ended.steps(site, rounds),))], DELTA) for rounds in (1, 2)
    )
    set_policy(home.policy_path, "epsilon", str((one + two) / 2))


def test_a_site_whose_budget_is_spent_is_left_out_and_named(poor: Any, ended: Ended) -> None:
    short_of_budget(poor, ended, "kenema")
    study = study_of("spent", deploy={"quorum": 2})
    result = poor.conduct(study)
    records = poor.rounds(study)
    assert [one["sites"] for one in records] == [list(NAMES), ["bo", "freetown"], ["bo", "freetown"]]
    for one in records[1:]:
        assert one["measures"]["absent"]["kenema"].startswith("spent: The privacy budget does not allow another round")
    assert [one.round for one in entries(poor, "kenema", study)] == [1]
    first, last = [one for one in result["notes"] if "kenema" in one]
    assert first.startswith("kenema took no part from round 2 on: The privacy budget does not allow")
    assert last.startswith("No figures from kenema: "), "these would cost its test patients more than the cap, too"
    spent = result["methods"][0]["meters"]["privacy"]["sample_epsilon_by_site"]
    assert spent["kenema"] == pytest.approx(epsilon([ended.steps("kenema")], DELTA), abs=1e-4)
    # It has paid for a part of the model, so it gets the model.
    assert (poor.homes["kenema"].folder(study_id(study)) / "model.safetensors").exists()


@pytest.mark.slow
def test_with_fewer_left_than_the_quorum_the_study_stops_and_says_why(poor: Any, ended: Ended) -> None:
    set_policy(poor.homes["kenema"].policy_path, "epsilon", "none")
    short_of_budget(poor, ended, "bo")
    with pytest.raises(Refusal, match=r"2 of the 3 sites that a round needs.*bo: spent: .*budget.*\[deploy\] quorum"):
        poor.conduct(study_of("stops", deploy={"quorum": 3}))


def test_whoever_approves_reads_what_it_costs_what_is_spent_and_what_is_not_covered(
    consortium: Any, ended: Ended
) -> None:
    home = consortium.homes["bo"]
    policy = read_policy(home.policy_path)
    shown = describe(home, read_offer(home, study_id(ended.study)))
    text = " ".join(dict(shown.parts)["What it costs in privacy"])
    spent = charged_epsilon(home, policy, study_id(ended.study))
    # At the policy's delta the one table of the figures costs test patients most.
    parts = (
        ended.steps("bo", ROUNDS),
        Step(1.0, ended.told.looks or 0.0, ROUNDS),
        Step(1.0, ended.told.figures or 0.0),
    )
    assert spent == pytest.approx(max(epsilon([one], policy.delta) for one in parts), abs=1e-4)
    assert "Epsilon 0.5; your policy sets no limit" in text
    assert "This protects each of your patients" in text
    assert f"{spent:.3g} of it by this one" in text
    assert text.endswith(NOT_COVERED)
    assert NOT_COVERED == meter.NOT_COVERED
    assert shown.facts["epsilon_charged"] == pytest.approx(charged_epsilon(home, policy))
    assert shown.facts["bytes_a_round"] > 0
    other = study_of("told", {"level": "site", "epsilon": 1.0, "delta": DELTA})
    consortium.handlers["bo"].access.store_offer(study_id(other), other.model_dump(mode="json"), "researcher")
    text = " ".join(dict(describe(home, read_offer(home, study_id(other))).parts)["What it costs in privacy"])
    assert "your site as a whole" in text
    assert "protected by your own share of the noise only" in text
    set_policy(home.policy_path, "epsilon", "3")
    with pytest.raises(Refusal, match=r"stated at a delta of 0\.001"):
        approve(home, study_id(other), by="ben")
