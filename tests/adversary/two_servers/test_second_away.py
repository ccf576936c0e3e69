"""A second server that is away, has not decided, or leaves."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.second_server import SECOND, Tapped
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import ApprovalPending, SitesAwaited
from wardround.deploy.party.decisions import withdraw
from wardround.deploy.protocol.study_id import study_id


@pytest.fixture
def consortium(tmp_path: Path) -> Tapped:
    return Tapped(tmp_path)


def test_a_second_server_that_is_away_is_waited_for(consortium) -> None:
    study = consortium.study("away", 1)
    consortium.away.add(SECOND)
    events: list[Any] = []

    def hear(event: Any) -> None:
        events.append(event)
        if isinstance(event, SitesAwaited) and event.sites == (SECOND,):
            consortium.away.discard(SECOND)

    consortium.conduct(study, hear)
    assert SitesAwaited((SECOND,), 1) in events


def test_a_study_waits_until_the_second_server_has_approved_it(consortium) -> None:
    study = consortium.study("undecided", 1)
    consortium.undecided = True
    heard: list[Any] = []

    def hear(event: Any) -> None:
        heard.append(event)
        consortium.undecided = not isinstance(event, ApprovalPending)

    consortium.conduct(study, hear)
    pending = [one for one in heard if isinstance(one, ApprovalPending) and one.sites == (SECOND,)]
    assert "has not decided yet" in pending[0].reasons[SECOND]


def test_a_withdrawal_of_the_second_server_ends_the_study(consortium) -> None:
    study = consortium.study("withdrawn", 2)

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic, header["round"]) == (SECOND, "open", 1):
            withdraw(consortium.second, study_id(study), by="officer")
        return reply

    consortium.change = change
    with pytest.raises(Refusal, match=f"(?s)has left.*{SECOND} withdrew from it"):
        consortium.conduct(study)
