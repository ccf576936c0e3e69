"""How a coordinator stands: which sites are there and since when, every study with what goes on, and who acts next."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wardround import __version__
from wardround.core import clock
from wardround.deploy.coordinator.consortium import is_running
from wardround.deploy.coordinator.queue import queued_studies
from wardround.deploy.coordinator.studies.lines import known_lines
from wardround.deploy.coordinator.studies.next_steps import next_steps
from wardround.deploy.coordinator.studies.traffic import read_traffic
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.wire import PROTOCOL
from wardround.deploy.trust.certificates import certificate_summary, read_certificate
from wardround.report.notes import compression_notes
from wardround.runs.json_files import read_json
from wardround.runs.read import read_rounds


def coordinator_status(home: CoordinatorHome) -> dict[str, Any]:
    """Who is there, who is late and why, and every study: for people and for programs."""
    alive, status = is_running(home), home.status()
    here = set(status.get("present", ())) if alive else set()
    running = dict(status.get("running") or {}) if alive else {}
    missing = {site: why for words in running.values() for site, why in (words.get("missing") or {}).items()}
    revoked, lines = home.revoked(), known_lines(home)
    sites = []
    for path in sorted((home.path / "sites").glob("*.pem")):
        name, until = path.stem, certificate_summary(read_certificate(path)).until
        sites.append(
            {
                "name": name,
                "present": name in here and name not in revoked,
                "since": ((status.get("connections") or {}).get(name) or {}).get("since"),
                "late": missing.get(name, ""),
                "moving": dict((status.get("moving") or {}).get(name) or {}) if alive else {},
                "line": lines.get(name),
                "warning": (status.get("warnings") or {}).get(name, "") if alive else "",
                "version": (status.get("versions") or {}).get(name, "") if alive else "",
                "revoked": str(revoked[name].get("when", "")) if name in revoked else "",
                "until": f"{until:%Y-%m-%d}",
                "expired": until < clock.now(),
            }
        )
    found = studies(home, status if alive else {})
    for one in found:
        steps = next_steps(one, here, running=alive)
        one["next"] = [step._asdict() for step in steps]
    return {
        "consortium": home.settings.consortium,
        "listen": home.settings.listen,
        "running": alive,
        "since": status.get("since") if alive else None,
        "version": f"{__version__} (protocol {PROTOCOL})",
        "sites": sites,
        "studies": found,
    }


def studies(home: CoordinatorHome, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every study, the newest first: its state and since when, its round, what travelled, what it spends."""
    queue = queued_studies(home)
    found = [study_facts(home, path, status, queue) for path in (home.path / "studies").glob("*/study.json")]
    return sorted(found, key=lambda one: (-one["submitted"], one["study"]))


def study_facts(home: CoordinatorHome, path: Path, status: Mapping[str, Any], queue: Sequence[str]) -> dict[str, Any]:
    name = path.parent.name
    content = read_json(path, "queue the study again with `wardround coordinator run`")
    words = content["study"]
    ended = read_json(path.parent / "state.json", "") if (path.parent / "state.json").exists() else {}
    now = (status.get("running") or {}).get(name) or {}
    current = bool(now)
    state = "running" if current else "queued" if name in queue else str(ended.get("state", "interrupted"))
    rounds, _ = read_rounds(path.parent / "run")  # a last line that is being written is left alone
    last = max([int(one["round"]) for one in rounds], default=0)
    down, up = read_traffic(path.parent)
    submitted = float(content.get("submitted", path.stat().st_mtime))
    queued = home.path / "queue" / f"{name}.json"
    since = (
        now.get("since")
        if current
        else read_json(queued, "").get("queued")
        if state == "queued" and queued.exists()
        else ended.get("at")
    )
    offers = (status.get("offers") or {}).get(name) or {}
    number = max(last, int(now.get("round") or 0)) if current else last
    return {
        "study": name,
        "state": state,
        "since": since or submitted,
        "submitted": submitted,
        "why": str(ended.get("why", "")) if state not in ("running", "queued", "finished") else "",
        "submitter": content.get("submitter", ""),
        "amends": content.get("amends", ""),
        "round": number,
        "rounds": words["study"]["rounds"],
        "monitors": (words.get("monitor") or {}).get("study", ""),
        "approved": list(offers.get("approved", ())),
        "pending": dict(offers.get("pending", {})) if status else dict.fromkeys(words["deploy"]["sites"], ""),
        "left_out": dict(offers.get("left_out", {})),
        "doing": now.get("doing") or None,
        "waiting": dict(now.get("missing") or {}),
        "seconds_a_site": now.get("seconds") or words["deploy"]["deadline"],
        "seconds_left": seconds_left(rounds, words["study"]["rounds"]) if current else None,
        # What a study of an earlier version moved is known of its rounds alone.
        "bytes_down": down or sum(int(one["bytes_down"]) for one in rounds),
        "bytes_up": up or sum(int(one["bytes_up"]) for one in rounds),
        "epsilon": (words.get("privacy") or {}).get("epsilon"),
        "epsilon_so_far": epsilon_so_far(rounds),
        "compression": compression_notes(rounds),
        "folder": str(path.parent / "run"),
    }


def seconds_left(rounds: Sequence[Mapping[str, Any]], of: int) -> float | None:
    """What the rounds to come take if they take as long as the last ones; none before there was one."""
    last = [float(one["seconds"]) for one in rounds[-5:]]
    done = max([int(one["round"]) for one in rounds], default=0)
    return max(0, of - done) * sum(last) / len(last) if last else None


def epsilon_so_far(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """The epsilon of the rounds up to now, at most; none where nothing is promised."""
    told = [one["measures"]["privacy"].get("epsilon") for one in rounds if "privacy" in one.get("measures", {})]
    return told[-1] if told else None
