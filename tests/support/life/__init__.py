"""A consortium that lives: its coordinator's service over handlers in the same process, told by commands only."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import tiny_study as tiny
from wardround.deploy.coordinator.consortium import lock_home
from wardround.deploy.coordinator.events import Event
from wardround.deploy.coordinator.service import Coordinator
from wardround.deploy.demo import PURPOSE, make_coordinator, make_site, write_patients
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.transport.contract import Asked, Unanswered
from wardround.deploy.transport.transfers.exchange import Movement

NAMES = ("bo", "freetown", "kenema", "makeni", "waterloo")
Capture = pytest.CaptureFixture[str]


class LocalParty:
    """The coordinator's end of a network of handlers in this process; `away` says who is not connected."""

    def __init__(self) -> None:
        self.handlers: dict[str, RequestHandler] = {}
        self.away: set[str] = set()
        self.refused: dict[str, dict[str, int]] = {}
        self.watchers: list[Callable[[str, bool], None]] = []
        self.asked: list[tuple[str, str]] = []

    @property
    def present(self) -> frozenset[str]:
        return frozenset(self.handlers) - self.away

    def ask(self, target: str, topic: str, body: bytes, *, within: float) -> bytes:  # noqa: ARG002
        if target not in self.present:
            raise Unanswered(target, "it is not connected", gone=True)
        self.asked.append((target, str(topic)))
        return self.handlers[target].answer(str(topic), "server", body)

    def begin(self, target: str, topic: str, body: bytes, *, within: float, most: int = 0) -> Asked:  # noqa: ARG002
        asked = Asked()

        def answer() -> None:
            try:
                asked.set_result(self.ask(target, topic, body, within=within))
            except BaseException as error:
                asked.set_exception(error)

        threading.Thread(target=answer, daemon=True).start()
        return asked

    def speeds(self) -> dict[str, tuple[float, float]]:
        return {}

    def movements(self) -> dict[str, Movement]:
        return {}

    def watch(self, watcher: Callable[[str, bool], None]) -> None:
        self.watchers.append(watcher)


class Living:
    """Homes of a coordinator and its sites, and the coordinator's service; `turn` lets it work until nothing is due."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self.folder, self.names = folder, tuple(names)
        self.home = make_coordinator(folder / "hub", 1)
        self.tables = write_patients(folder, self.names)
        self.homes = {name: make_site(folder / name, name, self.home, self.tables[name]) for name in self.names}
        for home in self.homes.values():
            set_policy(home.policy_path, "statistics", "100000")
        self.party, self.heard = LocalParty(), list[Event]()
        for name in self.names:
            self.restart(name)
        self.begin()

    def begin(self) -> None:
        """The coordinator's process, from what is on its disk; sites are looked after when a test says so."""
        self.coordinator = Coordinator(self.home, self.heard.append, self.party)  # type: ignore[arg-type]
        self.coordinator.maintenance.maintain_soon = lambda *sites: None  # type: ignore[method-assign]

    def restart(self, name: str) -> None:
        """A site's process, the same way."""
        self.party.handlers[name] = RequestHandler(HomeAccess(self.homes[name]))

    def turn(self, turns: int = 3) -> None:
        """Let the coordinator look around, and conduct what can begin."""
        desk = self.coordinator.desk
        for _ in range(turns):
            desk._visited.clear()
            self.coordinator.look(wait=True)
            while (name := desk.next_study()) is not None:
                self.coordinator.run(name)

    def state(self, study: str) -> str:
        (found,) = [one for one in self.status()["studies"] if one["study"] == study]
        return str(found["state"])

    def status(self) -> dict[str, Any]:
        from wardround.deploy.coordinator.status import coordinator_status

        return coordinator_status(self.home)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """As while `coordinator start` runs."""
        with lock_home(self.home):
            yield

    # ---- by commands ----

    def study_file(self, name: str, **tables: Any) -> Path:
        words: dict[str, Any] = {
            "study": {"name": name, "seed": 278, "rounds": 1, "purpose": PURPOSE},
            "data": {
                "source": "csv",
                "path": "patients.csv",
                "target": "ebola",
                "positive": "confirmed",
                "preparation": {"smallest_cell": 10},
            },
            "model": {"name": "logistic", "l2": 0.01},
            "algorithm": {"name": "fed_avg", "learning_rate": 0.1},
            "evaluation": {"resamples": 20},
        }
        for table, values in tables.items():
            words[table] = values if isinstance(values, list) else {**words.get(table, {}), **values}
        lines = []
        for table, values in words.items():
            for one in values if isinstance(values, list) else [values]:
                lines.append(f"[[{table}]]" if isinstance(values, list) else f"[{table}]")
                lines += [f"{key} = {tiny.toml(value)}" for key, value in one.items()]
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def run(self, capsys: Capture, path: Path, *more: str) -> str:
        """`coordinator run`, while the coordinator is at work; gives the study's identity."""
        with self.at_work():
            said = self.hub(capsys, "run", path, "--by", "Anna Sesay", *more, "--json")
        return str(said.json["study"])

    def hub(self, capsys: Capture, *words: str | Path) -> tiny.Said:
        return tiny.call(capsys, "coordinator", *words, "--home", self.home.path)

    def site(self, capsys: Capture, name: str, *words: str | Path) -> tiny.Said:
        return tiny.call(capsys, "site", *words, "--home", self.homes[name].path)

    def approve(self, study: str, *names: str) -> None:
        """As `site approve --yes --anyway` does after it has shown the study, which takes longer."""
        for name in names or self.names:
            approve(self.homes[name], study, by=f"admin of {name}")

    def spoil(self, name: str, column: str, value: Any) -> pd.DataFrame:
        """Let a site's table have a wrong value in the first rows; gives the table as it was."""
        right = pd.read_csv(self.tables[name])
        wrong = right.astype({column: object})
        wrong.loc[:2, column] = value
        wrong.to_csv(self.tables[name], index=False)
        return right
