"""A consortium over `in_process` with a second server of its own organisation."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.numpy import load_file

from tests.support.in_process import Consortium, Died, study_of
from wardround.core.contracts import Message
from wardround.deploy.coordinator.consortium import admit
from wardround.deploy.coordinator.queue import with_parties
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.party.enrolment import join
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.second.approvals import approve_as_second
from wardround.deploy.second.home import SecondHome, begin_second
from wardround.deploy.second.request_handler import SecondHandler
from wardround.deploy.transport.contract import Unanswered
from wardround.runs.folder import RunFolder
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.workflows.run import run

SECOND = "ministry"
FIVE = ("bo", "freetown", "kenema", "makeni", "waterloo")
BAD = "kenema"
"""A site whose outcomes are turned round, so that it pulls the other way."""
MULTI_KRUM = {"name": "multi_krum", "bad": 1}
MILD = {"aggregator": {"name": "multi_krum", "bad": 0, "keep": 3}, "deploy": {"quorum": 4, "deadline": 2.0}}
"""A study that goes on without one of its five sites."""


def make_second(path: Path, coordinator: CoordinatorHome, organisation: str = "Ministry of Health") -> SecondHome:
    """A second server that the consortium has signed."""
    words = coordinator.settings
    home = begin_second(path, SECOND, words.listen, words.name, organisation)
    carried = coordinator.path.parent / f"{SECOND}.csr"
    carried.write_bytes(home.request_path.read_bytes())
    join(home, admit(coordinator, carried).path, coordinator.authority_path)
    return home


class PairedConsortium(Consortium):
    """Five sites, of which one is bad, and a second server."""

    def __init__(self, folder: Path, names: tuple[str, ...] = FIVE) -> None:
        super().__init__(folder, names)
        self.second = make_second(folder / "elsewhere", self.home)
        self.undecided = False
        """Whether the second server's organisation has yet to decide."""
        self.restart_second()
        turn_outcomes(self.tables[BAD])

    def restart_second(self) -> None:
        self.transport.sites[SECOND] = SecondHandler(self.second).answer

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        if site != SECOND:
            return super().ask(site, topic, body, within)
        header, _ = decode(body)
        self.asked.append((site, topic, header["round"]))
        try:
            reply = self.transport.ask(site, topic, body, within)
        except Died:
            self.deaths.append(SECOND)
            self.restart_second()
            raise Unanswered(site, "it disconnected before it answered", gone=True) from None
        if topic == "offer" and read_reply(reply).status is Status.WAITING and not self.undecided:
            approve_as_second(self.second, header["study"], by="officer")
            reply = self.transport.ask(site, topic, body, within)
        return self.change(site, topic, header, reply)

    def study(self, name: str, rounds: int = 2, *, bound: float = 8.0, **tables: Any) -> Study:
        """A study for two servers as it is queued: with all fingerprints."""
        deploy = {"second": SECOND, "sites": list(self.names), **tables.pop("deploy", {})}
        transforms = [{"name": "two_servers", "bound": bound}]
        words = {"aggregator": MULTI_KRUM, "transforms": transforms, **tables}
        return with_parties(study_of(name, rounds, deploy=deploy, **words), self.home)

    def simulated(self, study: Study) -> dict[str, Any]:
        """The model of the same words in simulation, on the same patients in one file."""
        frames = [pd.read_csv(path).assign(hospital=name) for name, path in self.tables.items()]
        pd.concat(frames).to_csv(self.folder / "patients.csv", index=False)
        data = study.data.model_copy(update={"path": str(self.folder / "patients.csv")})
        path = self.folder / "simulated" / study.study.name
        alone = study.model_copy(update={"data": data})
        run(alone, RunFolder.create(path, resume=False), [own_method(alone)], kind="run")
        return load_file(path / "model.safetensors")

    def deployed(self, study: Study) -> dict[str, Any]:
        return load_file(self.run(study) / "model.safetensors")


def turn_outcomes(path: Path) -> None:
    frame = pd.read_csv(path)
    kinds = sorted(frame["ebola"].dropna().unique())
    frame["ebola"] = frame["ebola"].map(dict(zip(kinds, reversed(kinds), strict=True)))
    frame.to_csv(path, index=False)


class Tapped(PairedConsortium):
    """Keeps all that passes the first server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.traffic: list[tuple[str, str, int, bytes, bytes]] = []
        self.first_model: dict[str, bytes] = {}

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        reply = super().ask(site, topic, body, within)
        self.traffic.append((site, topic, decode(body)[0]["round"], bytes(body), bytes(reply)))
        return reply

    def passed(self, topic: str, number: int = 1) -> list[tuple[bytes, bytes]]:
        return [(body, reply) for _, about, at, body, reply in self.traffic if (about, at) == (topic, number)]

    def tell_second(self, header: dict[str, Any], message: Message) -> Any:
        """What the second server says to a request of the first server's own making."""
        return read_reply(SecondHandler(self.second).answer("open", "server", encode(header, message)))


def stop_before(number: int, header: dict[str, Any], reply: bytes) -> bytes:
    if header["round"] == number:
        raise Died
    return reply


def closed(consortium: PairedConsortium, study: Any, number: int) -> dict[str, Any]:
    path = consortium.second.folder(study_id(study)) / "closed" / f"{number:08d}.json"
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
