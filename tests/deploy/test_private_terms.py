"""What a private study may say and what is approved: levels, caps, what noise cannot cover, and what people read."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.noise import DECLARED
from tests.support.adversary.private_rounds import (
    DELTA,
    NAMES,
    PROMISE,
    ROUNDS,
    agreement,
    entries,
    listening,
    settings,
    study_of,
)
from wardround.cli.consortium.status import status_lines
from wardround.core.contracts import RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.privacy_plan import Accounts
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.policy import Policy, decide
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.release.privacy_budget import spending_sentence, total_sentences
from wardround.privacy.accountant import Step, epsilon, renyi_epsilon
from wardround.privacy.distributed_noise import epsilon_from_rho
from wardround.study.file import Study, parse_study


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


def test_a_cap_of_nothing_lets_nothing_leave(consortium: Any) -> None:
    study = study_of("capped", deploy={"quorum": 2})

    def hear(site: str, topic: str, body: bytes) -> None:
        if (topic, decode(body)[0]["round"]) == ("round", 2):
            set_policy(consortium.homes["bo"].policy_path, "epsilon", "0")

    listening(consortium, hear)
    consortium.conduct(study)
    assert {one["round"] for one in consortium.left("bo", study)} <= {0, 1, 2**30}
    assert [one["topic"] for one in consortium.left("bo", study)][-1] == "judge"
    assert [one.round for one in entries(consortium, "bo", study)] == [1]
    assert "no longer allows it" in consortium.rounds(study)[1]["measures"]["absent"]["bo"]
    offer = read_offer(consortium.homes["bo"], study_id(study))
    policy = read_policy(consortium.homes["bo"].policy_path)
    assert decide(policy, offer.study)[0].startswith("it would spend an epsilon of 0.5; 0 of 0")


def numbers(consortium: Any, study: Study) -> np.ndarray[Any, Any]:
    model = consortium.model(study)
    return np.concatenate([np.frombuffer(model[name], np.float32) for name in sorted(model)])


def test_hardly_any_noise_and_no_cut_is_the_plain_study(consortium: Any) -> None:
    """Batches of all rows, so that every one is drawn; gradients of rows are far shorter than 100; noise of 1e-6 * 100
    on sums over a hundred rows moves the model by 1e-6 a step. All rows are for training: a private split does not look
    at outcomes, and a plain one does."""
    whole = {"name": "fed_avg", "learning_rate": 0.1, "batch_size": 256}
    data = {"preparation": {"smallest_cell": 10, **DECLARED}, "shares": [1.0, 0.0, 0.0]}
    plain: Study = in_process.study_of("plain", 1, algorithm=whole, data=data)
    consortium.conduct(plain)
    study = study_of(
        "hardly", {"noise_multiplier": 1e-6, "clip": 100.0, "delta": DELTA}, algorithm=whole, rounds=1, data=data
    )
    result = consortium.conduct(study)
    assert np.abs(numbers(consortium, plain)).max() > 0.005
    assert np.abs(numbers(consortium, study) - numbers(consortium, plain)).max() < 1e-4
    assert result["methods"][0]["meters"]["privacy"]["sample_epsilon"] is None or (
        result["methods"][0]["meters"]["privacy"]["sample_epsilon"] > 1000
    )


@pytest.mark.parametrize("secure", [False, True])
def test_whole_sites(consortium: Any, secure: bool) -> None:
    """Three sums of noise z are one of z / sqrt(3); each of three sites adds z / sqrt(3), which is seen of one."""
    adapting = {"quantile": 0.5} if secure else {}
    table = {"level": "site", "epsilon": 1.0, "delta": DELTA, **adapting}
    more = {"transforms": [{"name": "secure_sum"}]} if secure else {}
    study, refused = study_of(f"sites-{secure}", table, **more), []

    def hear(site: str, topic: str, body: bytes) -> None:
        header, message = decode(body)
        if (site, topic) == ("bo", "round"):  # as if many more shared the noise, so that each would add less
            changed = {**header, "algorithm": settings(answers=1000)(header["algorithm"])}
            refused.append(decode(consortium.handlers["bo"].answer("round", "server", encode(changed, message)))[0])

    listening(consortium, hear)
    result = consortium.conduct(study)
    assert {(one["status"], one["why"][:45]) for one in refused} == (
        set() if secure else {("refused", "The noise would be shared by 1000 sites, but ")}
    )
    told = result["methods"][0]["meters"]["privacy"]
    settled = agreement(consortium, study)["privacy"]
    noise = settled["noise_multiplier"]
    assert settled["answers"] == 3
    for site in NAMES:
        assert [(one.level, one.round, one.steps) for one in entries(consortium, site, study)] == [
            ("site", number, (Step(1.0, noise, 1),)) for number in (1, 2, 3)
        ]
    # Inside a secure sum it is noise in whole numbers, known by its concentrated privacy 3 / (2 z²).
    cost = epsilon_from_rho(3 / (2 * noise**2), DELTA) if secure else epsilon([Step(1.0, noise / 3**0.5, 1)], DELTA)
    assert settled["whole_numbers"] is secure
    assert told["site_epsilon"] == pytest.approx(cost, abs=2e-3)
    assert 0.99 < told["site_epsilon"] <= 1.0
    if secure:
        assert told["site_epsilon_towards_coordinator"] is None
        assert "clip" in consortium.rounds(study)[-1]["measures"]["told"]
    else:
        alone = epsilon([Step(1.0, noise / 3**0.5, ROUNDS)], DELTA)
        assert told["site_epsilon_towards_coordinator"] == pytest.approx(alone, abs=1e-4)


REFUSED = {
    "maml": ({"algorithm": {"name": "meta", "kind": "maml"}}, {}, "differentiates gradients"),
    "contexts": ({"algorithm": {"name": "context_features", "shape": [29]}}, {}, "looks at the losses"),
    "delta": ({}, {"epsilon": 1.0, "delta": 0.05}, r"delta of 0\.05 is above one in the \d+ patients"),
    "median": ({"aggregator": {"name": "median"}}, {"level": "site", "epsilon": 1.0}, "must see single answers"),
    "seeded": ({}, {"epsilon": 1.0, "seeded": True}, "come from the study's seed"),
    "answers": ({}, {"level": "site", "epsilon": 1.0, "answers": 4}, "shared by 4 sites"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_noise_cannot_cover_is_refused_before_the_first_round(consortium: Any, name: str) -> None:
    tables, privacy, why = REFUSED[name]
    words = study_of(name, privacy or None).model_dump(mode="json", exclude_none=True)
    study = parse_study({**words, **tables}, where="test")
    with pytest.raises(Refusal, match=why):
        consortium.conduct(study)
    assert not any(one["topic"] in ("round", "judge") for site in NAMES for one in consortium.left(site, study))
    assert not (consortium.run(study) / "agreement.json").exists()


def test_an_epsilon_of_nothing_is_no_study() -> None:
    for wrong in (0.0, -1.0):
        with pytest.raises(Refusal, match="greater than 0"):
            study_of("nothing", {"epsilon": wrong})


def test_the_policy_forbids_noise_that_hides_nothing(consortium: Any) -> None:
    policy = Policy(purposes=["*"], components=["*"], columns=["*"], smallest_cell=1, epsilon=3.0)
    seeded = study_of("a", {**PROMISE, "delta": 1e-6, "seeded": True}).model_dump(mode="json")
    assert any("come from the study's seed" in one for one in decide(policy, seeded))
    wide = study_of("b").model_dump(mode="json")
    assert any("stated at a delta of 0.001, but the policy's at 1e-05" in one for one in decide(policy, wide))


def test_site_and_coordinator_tell_promised_spent_and_left() -> None:
    """3 allowed, 1.25 promised: 1.75 is left to promise."""
    policy = Policy(epsilon=3.0)
    assert total_sentences(policy, 1.25, 0.3456) == [
        "The policy allows an epsilon of 3: 1.25 is promised to approved studies, 0.346 is spent, and 1.75 is still "
        "available."
    ]
    assert total_sentences(Policy(), 0.0, 0.0) == []
    assert spending_sentence(1.0, 0.25) == "epsilon 0.25 of 1 spent"
    assert spending_sentence(None, 0.0) == ""
    study = {"study": "a", "state": "running", "round": 2, "rounds": 3, "why": "", "seconds_a_site": 60.0}
    sums = {"bytes_down": 10, "bytes_up": 10, "epsilon": 1.0, "epsilon_so_far": 0.75}
    facts = {"listen": "x:1", "running": True, "consortium": "c", "sites": [], "studies": [{**study, **sums}]}
    assert "; epsilon 1; at most 0.75 spent so far" in "\n".join(status_lines(facts))


def test_few_patients_are_taken_to_be_as_many_as_cost_most_and_newcomers_are_counted() -> None:
    """A site with fewer than ten training rows tells 0. In batches of 32 it takes one step a pass, with every row."""
    study = study_of("few", {"noise_multiplier": 2.0, "delta": DELTA})
    task, sites = Task((4,), ("no", "yes"), "ebola"), ("bo", "freetown", "kenema")
    accounts = Accounts(study, task, sites, [])
    record = RoundRecord(1, ("bo", "freetown"), 2, 0, 0.0, 0.0, 0, 0, {})
    rows = {"bo": (0, 0, 0), "freetown": (100, 10, 10)}
    first = accounts.annotate(record, rows)
    told = first.measures["privacy"]["patients"]
    assert first.rows == 100
    assert told == {"bo": [[1.0, 2.0, 1]], "freetown": [[pytest.approx(0.32), 2.0, 4]]}
    assert first.measures["privacy"]["epsilon"] == pytest.approx(renyi_epsilon([Step(1.0, 2.0, 1)], DELTA))
    # The third site joined later, with 64 rows: two steps of half of them.
    later = replace(record, round=2, sites=sites, count=3)
    told = accounts.annotate(later, {**rows, "kenema": (64, 8, 8)}).measures["privacy"]
    assert told["patients"]["kenema"] == [[0.5, 2.0, 2]]
    assert told["epsilon"] == pytest.approx(renyi_epsilon([Step(1.0, 2.0, 2)], DELTA))
    # A sum that could not be opened tells nothing and costs nothing.
    lost = accounts.annotate(replace(record, round=3, sites=(), count=0), rows).measures["privacy"]
    assert (lost["patients"], lost["epsilon"]) == ({"every site, at most": []}, told["epsilon"])
