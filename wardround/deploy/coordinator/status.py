"""How a coordinator stands: which sites are there and which are late, and every study with its rounds and its costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from wardround import __version__
from wardround.deploy.coordinator.consortium import is_running
from wardround.deploy.coordinator.queue import queued_studies
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.wire import PROTOCOL
from wardround.deploy.trust.certificates import certificate_summary, read_certificate
from wardround.runs.json_files import read_json
from wardround.runs.read import read_rounds


def coordinator_status(home: CoordinatorHome) -> dict[str, Any]:
    """Who is there, who is late and why, and every study: for people and for programs."""
    alive, status = is_running(home), home.status()
    here = set(status.get("present", ())) if alive else set()
    missing = dict(status.get("missing") or {}) if alive else {}
    revoked = home.revoked()
    sites = []
    for path in sorted((home.path / "sites").glob("*.pem")):
        name = path.stem
        sites.append(
            {
                "name": name,
                "present": name in here and name not in revoked,
                "late": missing.get(name, ""),
                "warning": (status.get("warnings") or {}).get(name, "") if alive else "",
                "version": (status.get("versions") or {}).get(name, "") if alive else "",
                "revoked": str(revoked[name].get("when", "")) if name in revoked else "",
                "until": f"{certificate_summary(read_certificate(path)).until:%Y-%m-%d}",
            }
        )
    return {
        "consortium": home.settings.consortium,
        "listen": home.settings.listen,
        "running": alive,
        "version": f"{__version__} (protocol {PROTOCOL})",
        "sites": sites,
        "studies": studies(home, status if alive else {}),
    }


def studies(home: CoordinatorHome, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every study of the home: its state, its round, what travelled, what it spends and how long a site is given."""
    queue = queued_studies(home)
    found = []
    for path in sorted((home.path / "studies").glob("*/study.json")):
        name = path.parent.name
        content = read_json(path, "queue the study again with `wardround coordinator run`")
        words = content["study"]
        ended = read_json(path.parent / "state.json", "") if (path.parent / "state.json").exists() else {}
        current = status.get("study") == name
        state = "running" if current else "queued" if name in queue else str(ended.get("state", "interrupted"))
        rounds, _ = read_rounds(path.parent / "run")  # a last line that is being written is left alone
        last = max([int(one["round"]) for one in rounds], default=0)
        found.append(
            {
                "study": name,
                "state": state,
                "why": str(ended.get("why", "")) if state == "failed" else "",
                "submitter": content.get("submitter", ""),
                "round": max(last, int(status.get("round") or 0)) if current else last,
                "rounds": words["study"]["rounds"],
                "monitors": (words.get("monitor") or {}).get("study", ""),
                "waiting": dict(status.get("missing") or {}) if current else {},
                "seconds_a_site": (status.get("seconds") if current else None) or words["deploy"]["deadline"],
                "bytes_down": sum(int(one["bytes_down"]) for one in rounds),
                "bytes_up": sum(int(one["bytes_up"]) for one in rounds),
                "epsilon": (words.get("privacy") or {}).get("epsilon"),
                "epsilon_so_far": epsilon_so_far(rounds),
                "folder": str(path.parent / "run"),
            }
        )
    return found


def epsilon_so_far(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """The epsilon of the rounds up to now, at most; none where nothing is promised."""
    told = [one["measures"]["privacy"].get("epsilon") for one in rounds if "privacy" in one.get("measures", {})]
    return told[-1] if told else None
