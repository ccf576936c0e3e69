"""A first server that asks for one model twice, among other sites the second time: the difference is one answer."""

from pathlib import Path

import pytest

from tests.support.in_process import Died
from tests.support.second_server import FIVE, MILD, SECOND, Tapped, closed, stop_before
from wardround.deploy.coordinator.gather import Gatherer, WaitPolicy
from wardround.deploy.coordinator.two_servers.attempt import Attempt, RoundLost, TwoServerRound
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.requests import TrainRound
from wardround.deploy.protocol.robust_choice import rule_of
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode


@pytest.fixture
def consortium(tmp_path: Path) -> Tapped:
    return Tapped(tmp_path)


def test_the_same_model_in_a_later_round_is_not_opened_among_other_sites(consortium) -> None:
    """The difference of the two sums would be one site's answer."""
    study = consortium.study("again", 3, **MILD)
    consortium.change = lambda site, topic, header, reply: stop_before(2, header, reply)
    with pytest.raises(Died):
        consortium.conduct(study)
    header, sent = decode(consortium.passed("halves")[0][0])
    one = TwoServerRound(
        gatherer=Gatherer(study_id(study), consortium, WaitPolicy(3)),
        number=3,
        method=TrainRound(header["algorithm"], header["transforms"], header["seed"]),
        sent=sent,
        entries=header["meeting"]["entries"],
        bound=header["meeting"]["bound"],
        rule=rule_of(study, FIVE),
        second=SECOND,
        folder=consortium.folder / "lie",
        limit="",
        agreed=agreed_in(consortium.homes[FIVE[0]].folder(study_id(study))),
        weight_problem=lambda site, weight: None,
    )
    chosen = closed(consortium, study, 1)["chosen"]
    consortium.change = lambda site, topic, header, reply: reply
    others = sorted(set(FIVE) - {chosen[0]})
    attempt = Attempt(one.model, "1" * 32, "ab" * 32, "cd" * 32, others, [])
    with pytest.raises(RoundLost, match="difference of the two sums"):
        one.attempt(attempt, 3)
    assert not (consortium.second.folder(study_id(study)) / "closed" / "00000003.json").exists()
