"""Long trials of recovery with real processes over mutual TLS (`make soak`), and what shorter tests share with them.

`python tests/faults/soak.py TRIAL [TIMES]` with TRIAL one of
  sweep     die at every named point, be started again, end with the same bits (TIMES times, each at other passings)
  chaos     200 rounds with a kill -9 of somebody every few seconds: no round hung, lost or doubled
  recovery  how soon a coordinator is back, and how soon a dead or silent site is noticed
  memory    1,000 rounds: the coordinator's memory does not grow
  week      weeks of studies side by side: denied, amended, cancelled, withdrawn from, with outages and an upgrade
Whatever goes wrong ends the trial with an AssertionError; figures are printed.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.processes import parties

Consortium, COORDINATOR, until, study_of = (
    parties.Consortium,
    parties.COORDINATOR,
    parties.until,
    parties.study_of,
)
KEPT = {"name": "scaffold", "learning_rate": 0.1}
"""An algorithm of which both sides keep something between rounds."""
OFTEN = {
    "site.request.received": 16,
    "site.reply.before_save": 16,
    "site.reply.saved": 16,
    "site.audit.written": 16,
    "site.reply.ready": 16,
    "site.reply.partial": 10,
    "coordinator.round.one_answered": 48,
    "site.kept.before_save": 3,
    "site.kept.saved": 3,
    "site.kept.partial": 3,
    "coordinator.round.before_asking": 3,
    "coordinator.round.all_answered": 3,
    "coordinator.round.concluded": 3,
    "coordinator.round.recorded": 3,
    "coordinator.checkpoint.saved": 3,
    "coordinator.checkpoint.partial": 3,
}
"""How often a point is passed in a study of three rounds, about; the others once."""


def say(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def undisturbed(consortium: Any, name: str, rounds: int = 3, **tables: Any) -> str:
    """A study that nobody disturbs; gives its identity."""
    study = consortium.queue(study_of(name, rounds, **{"algorithm": KEPT, **tables}))
    assert consortium.ended(study, 60 + 2 * rounds)["state"] == "finished"
    return str(study)


def same_as(consortium: Any, study: str, reference: str) -> None:
    """The same bits, every round once, nothing left a site twice, and the logs are whole."""
    from wardround.deploy.trust.audit_log import verify

    assert consortium.state(study)["state"] == "finished", consortium.state(study)
    assert consortium.model(study) == consortium.model(reference), "other bits"
    assert [one["round"] for one in consortium.rounds(study)] == [one["round"] for one in consortium.rounds(reference)]
    for name in consortium.names:
        left, expected = consortium.left(name, study), consortium.left(name, reference)
        hashes = [one["sha256"] for one in left]
        assert len(hashes) == len(set(hashes)), f"something left {name} twice"
        told = [sorted((one["topic"], one["round"]) for one in part) for part in (left, expected)]
        assert told[0] == told[1], f"{name}: {told}"
        assert verify(consortium.homes[name].audit_path) == []
    assert verify(consortium.home.audit_path) == []


def die_at(consortium: Any, point: str, study: Any, reference: str, who: str) -> tuple[bool, float]:
    """Conduct a study in which one party dies at a point; gives whether it did, and the seconds until the end."""
    process = consortium.processes[who]
    process.crash_at(point)
    name = consortium.queue(study)
    begun = time.monotonic()

    def died_or_done() -> bool:
        consortium.approve(name)
        done = bool(consortium.state(name)) and not (consortium.home.path / "queue" / f"{name}.json").exists()
        return process.dead or done

    until(died_or_done, 120, f"{point} or an end")
    died = process.dead
    if died:
        consortium.start(who)
    else:
        process.crash_at("nowhere")
    consortium.ended(name, 120)
    same_as(consortium, name, reference)
    return died, time.monotonic() - begun


def sweep(consortium: Any, turn: int, reference: str) -> list[str]:
    """Every point once; gives those that were not passed as often as asked for."""
    from wardround.deploy.fault_points import POINTS

    missed = []
    for number, point in enumerate(POINTS):
        most = OFTEN.get(point, 1)
        count = 1 + (turn * 7 + number) % most if most > 3 else 1 + turn % most
        who = COORDINATOR if point.startswith("coordinator.") else consortium.names[(turn + number) % 3]
        died, seconds = die_at(
            consortium, f"{point}:{count}", study_of(f"sweep-{turn}-{number}", algorithm=KEPT), reference, who
        )
        say(f"{point}:{count}", who, "died" if died else "was not reached", f"{seconds:.1f} s")
        if not died:
            missed.append(f"{point}:{count}")
    return missed


def chaos(consortium: Any, rounds: int, pause: Callable[[], float], reference: str) -> int:
    """One study, and a kill -9 of somebody after every pause; gives how many there were."""
    study = consortium.queue(study_of("chaos", rounds, algorithm=KEPT))
    kills = 0
    while not consortium.state(study):
        end = time.monotonic() + pause()
        while time.monotonic() < end and not consortium.state(study):
            consortium.approve(study)
            time.sleep(0.05)
        if consortium.state(study):
            break
        who = random.choice((COORDINATOR, COORDINATOR, *consortium.names))
        done = len(consortium.rounds(study))
        consortium.kill(who)
        consortium.start(who)
        kills += 1
        say(f"round {done}: killed {who}")
        until(
            lambda done=done: (
                consortium.approve(study),
                len(consortium.rounds(study)) > done or consortium.state(study),
            )[1],
            120,
            "a further round",
        )
    until(lambda: not (consortium.home.path / "queue" / f"{study}.json").exists(), 60, "the end")
    same_as(consortium, study, reference)
    return kills


def recovery(consortium: Any, times: int) -> dict[str, list[float]]:
    """Seconds: the coordinator killed and started until all are back, and until the next round is done; a site killed
    until it is missed; a site gone silent (stopped) until it is missed."""
    told: dict[str, list[float]] = {"back": [], "next round": [], "killed site": [], "silent site": []}
    study = consortium.queue(study_of("recovery", 5000, algorithm=KEPT))
    until(lambda: (consortium.approve(study), len(consortium.rounds(study)) >= 3)[1], 120)
    for turn in range(times):
        done = len(consortium.rounds(study))
        consortium.kill(COORDINATOR)
        before = time.time()
        started = time.monotonic()
        consortium.start(COORDINATOR)
        until(
            lambda before=before: consortium.status().get("at", 0) > before and len(consortium.status()["present"]) == 3
        )
        told["back"].append(time.monotonic() - started)
        until(lambda done=done: len(consortium.rounds(study)) > done)
        told["next round"].append(time.monotonic() - started)
        site = consortium.names[turn % 3]
        started = time.monotonic()
        consortium.kill(site)
        until(lambda site=site: site not in consortium.status()["present"])
        told["killed site"].append(time.monotonic() - started)
        consortium.start(site)
        consortium.connected()
        started = time.monotonic()
        consortium.processes[site].signal(signal.SIGSTOP)
        until(lambda site=site: site not in consortium.status()["present"])
        told["silent site"].append(time.monotonic() - started)
        consortium.processes[site].signal(signal.SIGCONT)
        consortium.connected()
        say({key: round(values[-1], 2) for key, values in told.items()})
    return told


def memory(consortium: Any, rounds: int) -> list[tuple[int, float]]:
    """The coordinator's resident megabytes, every so many rounds."""
    import psutil

    study = consortium.queue(study_of("memory", rounds, algorithm=KEPT))
    process = psutil.Process(consortium.processes[COORDINATOR].pid)
    seen: list[tuple[int, float]] = []
    every = max(1, rounds // 10)
    while not consortium.state(study):
        consortium.approve(study)
        done = consortium.status().get("running", {}).get(study, {}).get("round") or 0
        if done >= every * (len(seen) + 1):
            seen.append((done, process.memory_info().rss / 1e6))
            say("round", done, f"{seen[-1][1]:.1f} MB")
        time.sleep(0.1)
    assert consortium.state(study)["state"] == "finished"
    return seen


def week(consortium: Any, number: int) -> None:
    """Five days, each with two studies side by side; the one that nothing happens to always finishes.

    The quick test of the same story, with a clock that is told the time, is tests/deploy/coordinator/test_a_week.py.
    """
    from wardround.deploy.coordinator.queue import read_submission
    from wardround.deploy.coordinator.studies.amendment import amend, cancel, without_sites
    from wardround.deploy.party.decisions import deny, withdraw
    from wardround.deploy.trust.audit_log import verify

    def queue(day: str, rounds: int = 6, **deploy: Any) -> str:
        words = {"quorum": 2, "deadline": 2, **deploy}
        return str(consortium.queue(study_of(f"{day}-{number}", rounds, algorithm=KEPT, deploy=words)))

    def offered(study: str, site: str) -> bool:
        return (consortium.homes[site].path / "offers" / f"{study}.json").exists()

    def trains(*studies: str) -> bool:
        for study in studies:
            consortium.approve(study)
        return all(consortium.rounds(study) for study in studies)

    def end(study: str, state: str = "finished") -> None:
        assert consortium.ended(study, 240)["state"] == state, consortium.state(study)

    monday = [queue("monday-a"), queue("monday-b", deadline=3)]
    until(lambda: trains(*monday), 120, "two studies that train")
    for study in monday:
        end(study)
    say(f"week {number}, monday: two side by side")
    calm, denied = queue("tuesday-a"), queue("tuesday-b", quorum=3, deadline=3)
    until(lambda: offered(denied, "kenema"), 60, "an offer")
    deny(consortium.homes["kenema"], denied, by="admin-kenema", why="short of staff")
    end(denied, "failed")
    end(calm)
    study, submitter = read_submission(consortium.home.folder(denied))
    amended = amend(consortium.home, denied, without_sites(study, ["kenema"]), submitter)
    end(amended)
    assert "kenema" not in consortium.rounds(amended)[-1]["sites"]
    say(f"week {number}, tuesday: denied, amended")
    calm, wrong = queue("wednesday-a", 12), queue("wednesday-b", 500, deadline=3)
    until(lambda: trains(calm, wrong), 120, "both")
    cancel(consortium.home, wrong, by="anna", why="wrong outcome")
    end(wrong, "cancelled")
    end(calm)
    say(f"week {number}, wednesday: cancelled beside one that went on")
    calm, left = queue("thursday-a", 12), queue("thursday-b", 40, deadline=3)
    until(lambda: trains(calm, left), 120, "both")
    consortium.restart(COORDINATOR)  # an outage
    withdraw(consortium.homes["bo"], left, by="admin-bo", why="consent revoked")
    end(left)
    assert "bo" not in consortium.rounds(left)[-1]["sites"]
    end(calm)
    say(f"week {number}, thursday: the coordinator was killed, a site withdrew")
    consortium.kill("freetown")
    consortium.start("freetown", version="9.9.9")  # an upgrade
    consortium.connected()
    friday = [queue("friday-a"), queue("friday-b", deadline=3)]
    for study in friday:
        end(study)
    consortium.restart("freetown")
    consortium.connected()
    for home in (consortium.home, *consortium.homes.values()):
        assert verify(home.audit_path) == []
    say(f"week {number}, friday: an upgrade; all logs are whole")


def main(trial: str, times: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="wardround-soak-"))
    seed = int(os.environ.get("WARDROUND_SEED", time.time_ns() % 1_000_000))
    random.seed(seed)
    say(trial, "in", folder, "seed", seed)
    with parties.consortium_in(folder) as consortium:
        consortium.start()
        consortium.connected()
        if trial == "sweep":
            reference = undisturbed(consortium, "undisturbed")
            for turn in range(times):
                missed = sweep(consortium, turn, reference)
                say(f"sweep {turn + 1} of {times}: all the same bits; not reached: {missed or 'none'}")
        elif trial == "chaos":
            reference = undisturbed(consortium, "undisturbed", 200 * times)
            say("undisturbed rounds are done")
            kills = chaos(consortium, 200 * times, lambda: random.uniform(1.0, 8.0), reference)
            say(f"{200 * times} rounds, {kills} kills: the same bits, every round once")
        elif trial == "recovery":
            told = recovery(consortium, times)
            say(json.dumps({key: [min(values), max(values)] for key, values in told.items()}))
            assert max(told["back"]) <= 10
            assert max(*told["killed site"], *told["silent site"]) <= 30
        elif trial == "memory":
            seen = memory(consortium, 1000 * times)
            # Once everything is compiled and every buffer has been used, nothing may come on top.
            assert seen[-1][1] <= 1.05 * seen[len(seen) // 3][1], seen
        elif trial == "week":
            for number in range(1, 3 * times + 1):
                week(consortium, number)
        else:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else 1)
