"""Attack C3 and its relatives: a coordinator that signs certificates cannot play other sites to one that pins them."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary_root import Puppet, replace_with_puppet
from wardround.core.contracts import Message
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.request_handler import RequestHandler
from wardround.privacy.secure_sum.fixed_point import ring_vector

SUM = [{"name": "secure_sum"}]


class Stopped(BaseException):
    """Ends a study that would ask for ever."""


class Attack:
    """Attack C3: two of three sites are the coordinator's own, so the sum minus their answers is the victim's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.consortium = in_process.Consortium(folder)
        self.study = self.consortium.full(in_process.study_of("c3", rounds=1, transforms=SUM))
        for name in ("freetown", "kenema"):
            replace_with_puppet(self.consortium, name, self.study)
        self.answers: dict[str, np.ndarray] = {}
        """What each site masked: those of its own sites the coordinator knows, the victim's it wants to know."""
        self.opened: list[np.ndarray] = []
        self.refused: list[str] = []
        self.here = threading.local()
        unmask = in_process.coordinator_sum.unmask_sum

        def watching(answer: Message) -> Any:
            self.answers[self.here.name] = ring_vector(answer)
            return self.answers[self.here.name]

        def watched(server: Any) -> Any:
            self.opened.append(unmask(server))
            return self.opened[-1]

        monkeypatch.setattr(in_process.site_sum, "ring_vector", watching)
        monkeypatch.setattr(in_process.coordinator_sum, "unmask_sum", watched)
        self.consortium.change = self.hear
        self.conduct = lambda: self.consortium.conduct(self.study)

    def watch_handlers(self) -> None:
        def watched(name: str, answer: Any) -> Any:
            def respond(*given: Any) -> bytes:
                self.here.name = name
                return bytes(answer(*given))

            return respond

        for name, handler in self.consortium.handlers.items():
            self.consortium.transport.sites[name] = watched(name, handler.answer)

    def hear(self, site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:  # noqa: ARG002
        said = read_reply(reply)
        if site == "bo" and said.status is Status.REFUSED:
            self.refused.append(said.why)
            raise Stopped
        return reply


def test_a_coordinator_that_plays_every_other_site_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = Attack(tmp_path, monkeypatch)
    attack.watch_handlers()
    with pytest.raises(Stopped):
        attack.conduct()
    assert attack.opened == []
    assert attack.answers == {}, "the victim masked nothing"
    assert "the key sent for freetown is not the pinned one" in attack.refused[0]


def test_the_attack_succeeds_on_a_site_that_pins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control: whoever believes any certificate of the authority has its answer opened, bit by bit."""
    attack = Attack(tmp_path, monkeypatch)
    access = Puppet(attack.consortium.homes["bo"])
    attack.consortium.handlers["bo"] = RequestHandler(access)
    attack.watch_handlers()
    access.store_offer(study_id(attack.study), attack.study.model_dump(mode="json"), "researcher")
    approve(attack.consortium.homes["bo"], study_id(attack.study), by="admin")
    attack.conduct()
    found = attack.opened[0] - attack.answers["freetown"] - attack.answers["kenema"]
    assert found.any()
    np.testing.assert_array_equal(found, attack.answers["bo"])
