"""A round of which only the sum is opened, over sites' real homes: right, bridging losses, and telling nothing else."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.noise import DECLARED
from wardround.core.contracts import Message
from wardround.core.errors import Diverged, Refusal
from wardround.deploy.fault_points import SUMMED
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.transport.contract import Unanswered
from wardround.privacy.distributed_noise import epsilon_from_rho, plan_for
from wardround.privacy.secure_sum import site as secure_sum_site
from wardround.privacy.secure_sum.fixed_point import ring_vector
from wardround.privacy.secure_sum.messages import STEPS

FOUR = ("bo", "freetown", "kenema", "makeni")
SUM = [{"name": "secure_sum"}]
QUORUM = {"quorum": 3, "deadline": 0.3}


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("four"), FOUR)


@pytest.fixture(autouse=True)
def nobody_disturbs(consortium: Any) -> None:
    consortium.change = lambda site, topic, header, reply: reply


@pytest.fixture(scope="module")
def plain(consortium: Any) -> Any:
    study = in_process.study_of("plain")
    consortium.conduct(study)
    return study


@pytest.fixture(scope="module")
def secure(consortium: Any) -> Any:
    study = in_process.study_of("secure", transforms=SUM)
    consortium.conduct(study)
    return study


def numbers(consortium: Any, study: Any) -> np.ndarray:
    model = consortium.model(study)
    return np.concatenate([np.frombuffer(model[name], np.float32) for name in sorted(model)])


def test_the_model_is_that_of_the_plain_sum_up_to_the_rounding(consortium: Any, plain: Any, secure: Any) -> None:
    """Four answers n * delta are each rounded to 2^-20, so their sum is off by at most 4 / 2 * 2^-20; divided by some
    hundred patients, and passed on through three rounds, that is far below 1e-6."""
    assert np.abs(numbers(consortium, secure) - numbers(consortium, plain)).max() < 1e-6
    assert not np.array_equal(numbers(consortium, secure), np.zeros_like(numbers(consortium, secure)))
    assert [one["sites"] for one in consortium.rounds(secure)] == [list(FOUR)] * 3
    assert {topic for site, topic, number in consortium.asked[-60:]} >= {"secure"}


@pytest.mark.parametrize("step", [step for step in STEPS if step != "open"])
def test_one_site_that_is_lost_at_any_step_is_bridged(consortium: Any, plain: Any, step: str) -> None:
    """Of four sites three are enough. Lost before its vector came, it is not in the sum; after, it is."""

    def lose(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic, header["round"]) == ("kenema", "secure", 2) and header["step"] == step:
            raise Unanswered("", "it disconnected before it answered")
        return reply

    consortium.change = lose
    study = in_process.study_of(f"lost-{step}", transforms=SUM, deploy=QUORUM)
    consortium.conduct(study)
    counted = step in ("agree", "reveal")
    records = consortium.rounds(study)
    assert [one["round"] for one in records] == [1, 2, 3]
    assert [len(one["sites"]) for one in records] == [4, 4 if counted else 3, 4]
    if counted:
        assert np.abs(numbers(consortium, study) - numbers(consortium, plain)).max() < 1e-6
    else:
        assert "disconnected" in records[1]["measures"]["absent"]["kenema"]


def test_the_sum_without_a_lost_site_is_the_plain_sum_without_it(consortium: Any) -> None:
    def lose(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        hit = topic == "round" or (topic == "secure" and header["step"] == "mask")
        if site == "kenema" and hit and header["round"] == 2:
            raise Unanswered("", "it disconnected before it answered")
        return reply

    consortium.change = lose
    studies = [
        in_process.study_of("three", deploy=QUORUM),
        in_process.study_of("three-secure", transforms=SUM, deploy=QUORUM),
    ]
    for study in studies:
        consortium.conduct(study)
    assert np.abs(numbers(consortium, studies[0]) - numbers(consortium, studies[1])).max() < 1e-6


def exposed(consortium: Any, study: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of the vectors that sites are about to mask are seen by the coordinator, or written by it."""
    vectors: list[bytes] = []
    got: list[bytes] = []

    def watching(answer: Message) -> Any:
        vector = ring_vector(answer)
        vectors.append(vector.tobytes())
        return vector

    def hear(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        got.append(reply)
        return reply

    consortium.change = hear
    with monkeypatch.context() as patched, suppress(Refusal):
        patched.setattr(in_process.site_sum, "ring_vector", watching)
        consortium.conduct(study)
    assert len(vectors) >= 4
    written = [path.read_bytes() for path in consortium.run(study).rglob("*") if path.is_file()]
    # Eight numbers in a row would be enough to know it.
    return sum(any(vector[:64] in content for content in (*got, *written)) for vector in vectors)


def test_the_coordinator_never_holds_a_single_answer(consortium: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exposed(consortium, in_process.study_of("unseen", transforms=SUM), monkeypatch) == 0
    # Without masks the same search finds them all: in what the sites send in the first round.
    monkeypatch.setattr(secure_sum_site, "apply_masks", lambda vector, plus, minus: vector)
    assert exposed(consortium, in_process.study_of("bare", 1, transforms=SUM), monkeypatch) == 4


def test_a_site_gives_no_single_answer_away_when_it_is_asked_for_one(consortium: Any, secure: Any) -> None:
    requests: list[tuple[str, bytes]] = []
    ask = consortium.ask

    def listening(site: str, topic: str, body: bytes, within: float) -> bytes:
        requests.append((topic, body))
        return ask(site, topic, body, within)

    consortium.ask = listening
    try:
        consortium.conduct(in_process.study_of("asked", transforms=SUM))
    finally:
        consortium.ask = ask
    header, message = next(decode(body) for topic, body in requests if topic == "secure" and b'"mask"' in body[:4000])
    told, answer = decode(consortium.handlers["bo"].answer("round", "server", encode(header, message)))
    assert told["status"] == "refused"
    assert "only the sum" in told["why"]
    assert not answer.arrays


def test_no_site_reveals_a_round_twice(consortium: Any) -> None:
    """A coordinator that forgot what was revealed, or says so, gets no second sum of the same answers."""
    study = in_process.study_of("once", 1, transforms=SUM, deploy={"deadline": 0.3})
    consortium.conduct(study)
    run = consortium.run(study)
    lost = (run / name for name in ("rounds.jsonl", "result.json", "model.safetensors"))
    for path in (*run.rglob("*.sum"), *(run / "checkpoints").iterdir(), *lost):
        path.unlink()
    with pytest.raises(Refusal, match=r"sites refuse this round.*bo: .*already opened.*makeni: .*already opened"):
        consortium.conduct(study)
    assert not (run / "result.json").exists(), "a study whose every round failed has no result"


@pytest.mark.parametrize("point", SUMMED)
def test_a_death_around_the_opening_costs_nothing(
    consortium: Any, secure: Any, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who dies with its secrets is missing in that attempt: with all four wanted it is repeated.
    wanted = {} if point == "site.mask.recorded" else QUORUM
    study = in_process.study_of(point, transforms=SUM, deploy=wanted)
    before = len(consortium.deaths)
    with monkeypatch.context() as armed:
        in_process.die_at(armed, point, 2)
        consortium.until_done(study)
    assert len(consortium.deaths) == before + 1
    assert consortium.model(study) == consortium.model(secure)
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]
    assert [len(one["sites"]) for one in consortium.rounds(study)] == [4, 4, 4]


def test_a_site_that_is_started_again_stays_out_and_the_round_is_repeated(consortium: Any, secure: Any) -> None:
    """With all four wanted, an attempt that loses one before anything is revealed is made anew, with a new nonce."""
    done: list[str] = []

    def restart(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if not done and (site, topic, header["round"]) == ("bo", "secure", 2) and header["step"] == "share":
            done.append(header["session"]["nonce"])
            consortium.restart("bo")
        return reply

    consortium.change = restart
    study = in_process.study_of("restarted", transforms=SUM)
    consortium.conduct(study)
    assert done
    assert consortium.model(study) == consortium.model(secure)


def test_sites_that_go_away_while_they_reveal_are_waited_for(consortium: Any, secure: Any) -> None:
    """Two of four, where three are needed: they come back with their secrets, and the sum is that of all."""
    asked: list[str] = []

    def lose(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if topic == "secure" and (header["step"], header["round"]) == ("reveal", 2) and site in ("bo", "kenema"):
            asked.append(site)
            if asked.count(site) == 1:
                raise Unanswered("", "it disconnected before it answered")
        return reply

    consortium.change = lose
    study = in_process.study_of("waited-for", transforms=SUM, deploy=QUORUM)
    consortium.conduct(study)
    assert sorted(asked) == ["bo", "bo", "kenema", "kenema"]
    assert consortium.model(study) == consortium.model(secure)


def test_a_sum_that_cannot_be_opened_any_more_ends_the_study_with_the_reason(consortium: Any) -> None:
    """Two of four lose their secrets between signing and revealing; the other two have revealed."""

    def restart(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if topic == "secure" and (header["step"], header["round"]) == ("agree", 2) and site in ("bo", "kenema"):
            consortium.restart(site)
        return reply

    consortium.change = restart
    study = in_process.study_of("unopened", transforms=SUM, deploy=QUORUM)
    with pytest.raises(
        Refusal, match=r"cannot be opened: 2 sites revealed.*bo: refused: .*no longer takes part"
    ) as told:
        consortium.conduct(study)
    assert "round 2" in str(told.value)
    assert not (consortium.run(study) / "model.safetensors").exists()


def test_fewer_than_three_sites_are_refused(tmp_path: Path) -> None:
    two = in_process.Consortium(tmp_path, ("bo", "kenema"))
    with pytest.raises(Refusal, match=r"2 sites with patients take part.*fewer than 3"):
        two.conduct(in_process.study_of("two", transforms=SUM))
    assert not two.asked, "before anybody is offered anything"


@pytest.mark.parametrize("transforms", [[*SUM, {"name": "clip"}], [*SUM, *SUM]])
def test_a_secure_sum_that_is_not_the_last_is_refused_before_the_offer(consortium: Any, transforms: list[Any]) -> None:
    before = len(consortium.asked)
    with pytest.raises(Refusal, match="as the last of the transforms"):
        consortium.conduct(in_process.study_of(f"not-last-{transforms[1]['name']}", transforms=transforms))
    assert len(consortium.asked) == before


def test_two_servers_are_refused_before_the_offer(consortium: Any) -> None:
    before = len(consortium.asked)
    study = in_process.study_of("two-servers", transforms=[{"name": "two_servers"}], aggregator={"name": "multi_krum"})
    with pytest.raises(Refusal, match="names no second one"):
        consortium.conduct(study)
    assert len(consortium.asked) == before


def test_a_number_past_the_bound_names_its_site(consortium: Any) -> None:
    """Every site has some hundred patients, which no number up to 1 can count; nobody is asked for ever."""
    narrow = [{"name": "secure_sum", "bound": 1.0}]
    with pytest.raises(Diverged) as told:
        consortium.conduct(in_process.study_of("narrow", transforms=narrow, deploy=QUORUM))
    assert told.value.sites == FOUR
    assert "goes past 1, the largest number that the secure sum takes" in str(told.value)
    assert "raise the bound" in str(told.value)


def test_the_vector_takes_the_bytes_that_the_simulation_counts(consortium: Any) -> None:
    sizes: set[int] = set()

    def weigh(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if topic == "secure" and header["step"] == "mask":
            sizes.add(decode(reply)[1].arrays["vector"].nbytes)
        return reply

    consortium.change = weigh
    study = in_process.study_of("weighed", 1, transforms=SUM)
    consortium.conduct(study)
    # 8 bytes for every parameter, and for the count of patients.
    assert sizes == {8 * (len(numbers(consortium, study)) + 1)}


def test_what_is_about_to_be_masked_holds_the_sites_share_of_the_noise(
    consortium: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are cut to a length of 0.001, which is some 1049 units; the noise of each site is many times that."""
    vectors: list[np.ndarray] = []

    def watching(answer: Message) -> Any:
        vector = ring_vector(answer)
        vectors.append(vector.view(np.int64))
        return vector

    table = {"level": "site", "epsilon": 0.5, "delta": 0.01, "clip": 0.001}
    data = {"preparation": {"smallest_cell": 10, **DECLARED}}
    study = in_process.study_of("noised", 4, transforms=SUM, privacy=table, deploy={"quorum": 3}, data=data)
    with monkeypatch.context() as patched:
        patched.setattr(in_process.site_sum, "ring_vector", watching)
        result = consortium.conduct(study)
    settled = json.loads((consortium.run(study) / "agreement.json").read_bytes())["privacy"]
    # Three of four must answer, so each adds a third of the variance, one lost or none.
    entries = len(vectors[0]) - 1
    plan = plan_for(0.5, 0.01, 4, clip=0.001, entries=entries, fraction_bits=20, sites=3)
    assert settled == {"noise_multiplier": pytest.approx(plan.noise_multiplier), "answers": 3, "whole_numbers": True}
    assert len(vectors) == 16
    assert all(vector[-1] == 2**20 for vector in vectors), "every site counts the same"
    noise = np.concatenate([vector[:-1] for vector in vectors]).astype(float)
    assert plan.site_deviation > 4 * 1049
    assert np.std(noise) == pytest.approx(plan.site_deviation, rel=5 / np.sqrt(2 * len(noise)))
    # Four answered in every round: a third more variance than was promised.
    cost = epsilon_from_rho(4 * plan.rho * 3 / 4, 0.01)
    assert result["methods"][0]["meters"]["privacy"]["site_epsilon"] == pytest.approx(cost, rel=1e-6)
    assert cost < 0.5
