"""How far a reader walks: the modules and changes of room of a simulated study, of one of its rounds, and of an answer.

    python -m benchmarks.walk          # a table, the modules in the order of their first visit, the busiest doors
    python -m benchmarks.walk --json   # the same as JSON

A room is the folder of a module. A change of room is a call from a function in one room to a function in another, or
the return from it; calls that go through another library (JAX calling a model) count as made by whoever called the
library. Imports do not count: everything is imported before.
"""

import argparse
import importlib
import io
import json
import pkgutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

import wardround
from wardround.engine import fit, simulate
from wardround.study.file import Study, parse_study

PACKAGE = str(Path(wardround.__file__).parent)
MOST_MODULES = {"simulated study": 60, "one round": 60, "deployed answer": 23}
MOST_CHANGES = {"simulated study": 150, "one round": 150}
BUSIEST = 15
"""Doors that are printed."""


@dataclass
class Walk:
    """What was passed through, in the order of first visits, and how often each door was used."""

    modules: dict[str, int] = field(default_factory=dict)
    """How often a function of each was called."""
    doors: Counter[tuple[str, str]] = field(default_factory=Counter)
    functions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Which function was called from which room, where that was another."""

    @property
    def changes(self) -> int:
        return sum(self.doors.values())

    @property
    def wings(self) -> int:
        """Changes from one first folder to another: deploy/site and deploy/trust are one wing."""
        return sum(count for (one, other), count in self.doors.items() if wing_of(one) != wing_of(other))


def room_of(module: str) -> str:
    return module.rpartition("/")[0] or "."


def wing_of(room: str) -> str:
    return room.partition("/")[0]


@contextmanager
def walking() -> Iterator[Walk]:
    """Count every call and return inside the package, in all threads that begin meanwhile."""
    walk, local = Walk(), threading.local()

    def observe(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if not hasattr(local, "stack"):
            local.stack = []
        stack: list[str] = local.stack
        if event == "call":
            module = code.co_filename[len(PACKAGE) + 1 :].removesuffix(".py")
            walk.modules[module] = walk.modules.get(module, 0) + 1
            step(stack[-1] if stack else "", room_of(module), f"{module}.{code.co_qualname}")
            stack.append(room_of(module))
        elif stack:  # a function that was under way when the walk began is not on the stack
            step(stack.pop(), stack[-1] if stack else "", "")

    def step(before: str, after: str, function: str) -> None:
        if before and after and before != after:
            walk.doors[before, after] += 1
            if function:
                walk.functions[before, function] += 1

    threading.setprofile(observe)
    sys.setprofile(observe)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def import_everything() -> None:
    for one in pkgutil.walk_packages([PACKAGE], "wardround."):
        importlib.import_module(one.name)


# ---- a simulated study ----


def small_study(folder: Path) -> Study:
    """Four hospitals with three numbers a patient, in a CSV file; five rounds of FedAvg."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 3)).round(3)
    outcome = generator.random(120) < 1 / (1 + np.exp(-x @ [1.5, -1.0, 0.5]))
    frame = pd.DataFrame(x, columns=["age", "pulse", "lactate"])
    sites = np.repeat(["bo", "freetown", "kenema", "makeni"], 30)
    frame.assign(hospital=sites, outcome=outcome.astype(int)).to_csv(folder / "patients.csv", index=False)
    words = {
        "study": {"name": "walk", "seed": 1, "rounds": 5},
        "data": {"source": "csv", "path": str(folder / "patients.csv"), "site": "hospital", "target": "outcome"},
        "algorithm": {"name": "fed_avg", "batch_size": 8},
        "evaluation": {"resamples": 20},
    }
    return parse_study(words, where="walk")


def simulated_study() -> Walk:
    """`wardround run`, from the parsed study to the report and the model card."""
    from wardround.cli.studies import run_command

    with tempfile.TemporaryDirectory() as place:
        study = small_study(Path(place))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), walking() as walk:
            run_command(study, kind="run", out=Path(place) / "run", resume=False, as_json=False)
    return walk


def one_round() -> Walk:
    """A round in the middle of the study, when its programs are compiled: training, judging, record, checkpoint."""
    from wardround.cli.studies import run_command

    walks: list[Walk] = []
    train: Callable[..., Any] = simulate.Simulation.train
    save: Callable[..., Any] = fit.save
    open_walks: list[Any] = []

    def begin(*given: Any) -> Any:
        if given[3][0][0] == 3:
            open_walks.append(walking())
            walks.append(open_walks[-1].__enter__())
        return train(*given)

    def end(*given: Any, **named: Any) -> Any:
        try:
            return save(*given, **named)
        finally:
            if open_walks:
                open_walks.pop().__exit__(None, None, None)

    with tempfile.TemporaryDirectory() as place:
        study = small_study(Path(place))
        simulate.Simulation.train, fit.save = begin, end  # type: ignore[assignment,method-assign]
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                run_command(study, kind="run", out=Path(place) / "run", resume=False, as_json=False)
        finally:
            simulate.Simulation.train, fit.save = train, save  # type: ignore[method-assign]
    return walks[0]


# ---- an answer of a site ----


def deployed_answer() -> Walk:
    """What a site does when it is asked for a round in the middle of a study."""
    from tests.support.in_process import Consortium, study_of

    walks: list[Walk] = []
    with tempfile.TemporaryDirectory() as place:
        consortium = Consortium(Path(place))
        plain = consortium.ask

        def ask(site: str, topic: str, body: bytes, within: float) -> bytes:
            rounds = [one for one in consortium.asked if one[:2] == ("bo", "round")]
            if (site, topic) != ("bo", "round") or len(rounds) != 2:
                return plain(site, topic, body, within)
            with walking() as walk:
                reply = consortium.handlers[site].answer(topic, "server", body)
            walks.append(walk)
            return reply

        consortium.ask = ask  # type: ignore[method-assign]
        consortium.conduct(study_of("walk", rounds=4))
    return walks[0]


WALKS: dict[str, Callable[[], Walk]] = {
    "simulated study": simulated_study,
    "one round": one_round,
    "deployed answer": deployed_answer,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--functions", action="store_true", help="also which function is called from which room")
    parser.add_argument("names", nargs="*", metavar="WALK", help=", ".join(WALKS))
    given = parser.parse_args()
    import_everything()
    walks = {name: WALKS[name]() for name in given.names or WALKS}
    if given.json:
        print(json.dumps({name: as_json(walk) for name, walk in walks.items()}))
        return
    print(f"{'walk':<18}{'modules':>9}{'at most':>9}{'changes':>9}{'at most':>9}{'of wing':>9}")
    for name, walk in walks.items():
        most = MOST_MODULES[name], MOST_CHANGES.get(name, "")
        print(f"{name:<18}{len(walk.modules):>9}{most[0]:>9}{walk.changes:>9}{most[1]:>9}{walk.wings:>9}")
    for name, walk in walks.items():
        print(f"\n{name}: modules in the order of their first visit, with calls")
        print("  " + ", ".join(f"{module} {calls}" for module, calls in walk.modules.items()))
        print(f"{name}: the busiest doors")
        for (one, other), count in both_ways(walk).most_common(BUSIEST):
            print(f"  {count:>6}  {one} <-> {other}")
        if given.functions:
            for (room, function), count in walk.functions.most_common(60):
                print(f"  {count:>6}  {room} -> {function}")


def both_ways(walk: Walk) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for (one, other), count in walk.doors.items():
        found[min(one, other), max(one, other)] += count
    return found


def as_json(walk: Walk) -> dict[str, Any]:
    doors = [{"rooms": list(rooms), "changes": count} for rooms, count in both_ways(walk).most_common()]
    return {"modules": walk.modules, "changes": walk.changes, "changes_of_wing": walk.wings, "doors": doors}


if __name__ == "__main__":
    main()
