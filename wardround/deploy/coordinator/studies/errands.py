"""What is left to be brought to sites after a study ended: the model to those who were away, and word of the end.

HOME/studies/STUDY/errands.json names them; RUN/finish.request is what brings the model, as it was sent to the others.
Sites are told that a study ended and how, never why another site made it fail.
"""

import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.studies.interruption import traffic_of
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.party.study_ends import ENDED
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.reply_form import largest_reply
from wardround.deploy.protocol.requests import Topic, request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed
from wardround.deploy.transport.contract import Transport, Unanswered, ask_at_most
from wardround.runs.json_files import read_json, write_json

WRITING = threading.Lock()
"""Several sites are visited at the same time, and each strikes off what it got."""
FILE, REQUEST = "errands.json", "finish.request"


def keep_model_for(run: Path, sites: Iterable[str], body: bytes) -> None:
    """Keep what brings the model for sites that were away when the others got it."""
    absent = sorted(sites)
    if absent:
        (run / REQUEST).write_bytes(body)
        write_json(run.parent / FILE, {**read_errands(run.parent), "model": absent})


def read_errands(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    return read_json(path, "delete it: the sites are then not told any more") if path.exists() else {}


def tell_end(folder: Path, parties: Iterable[str], state: str, *, why: str = "", replaced: str = "") -> None:
    """Let these be told how the study ended; `why` in words that every site may hear."""
    told = {"state": state, "why": why, "replaced": replaced}
    write_json(folder / FILE, {**read_errands(folder), "end": told, "ended": sorted(parties)})


def forget_end(folder: Path) -> None:
    """The study goes on: nobody is to be told any more that it ended."""
    words = {key: value for key, value in read_errands(folder).items() if key == "model"}
    (folder / FILE).unlink(missing_ok=True)
    if words:
        write_json(folder / FILE, words)


def studies_with_errands(home: CoordinatorHome) -> dict[str, set[str]]:
    """The parties that something is still to be brought to, by study."""
    found = {}
    for path in (home.path / "studies").glob(f"*/{FILE}"):
        with suppress(Refusal):
            words = read_errands(path.parent)
            found[path.parent.name] = {*words.get("model", ()), *words.get("ended", ())}
    return {study: parties for study, parties in found.items() if parties}


def run_errands(home: CoordinatorHome, transport: Transport, study: str, site: str, within: float) -> None:
    """Bring a site what there is for it; what does not arrive is brought the next time."""
    folder = home.folder(study)
    words = read_errands(folder)
    done = []
    if site in words.get("model", ()) and bring_model(transport, folder / "run" / REQUEST, site, within):
        done.append("model")
    if site in words.get("ended", ()):
        told = request_of_site({"study": study, **words["end"]})
        with suppress(Unanswered):
            transport.ask(site, ENDED, told, within)
            done.append("ended")
    if done:
        with WRITING:
            strike_off(folder, site, done)


def strike_off(folder: Path, site: str, done: Collection[str]) -> None:
    """What a site has got is not brought again."""
    words = read_errands(folder)
    left = {key: [one for one in words.get(key, ()) if one != site or key not in done] for key in ("model", "ended")}
    if not left["model"]:
        (folder / "run" / REQUEST).unlink(missing_ok=True)
    if any(left.values()):
        write_json(folder / FILE, {**words, **left})
    else:
        (folder / FILE).unlink(missing_ok=True)


def bring_model(transport: Transport, path: Path, site: str, within: float) -> bool:
    """Whether the site has the model now, or will never take it."""
    try:
        body = path.read_bytes()
        traffic, room = traffic_of(transport), largest_reply(Topic.FINISH)
        traffic.add(down=transport.announce(Topic.FINISH, {site: body}))
        reply = read_reply(ask_at_most(transport, site, Topic.FINISH, body, within, room), most=room)
        status = reply.status
        if status.is_answer:
            traffic.count_answer(site, Topic.FINISH, reply)
        traffic.save()
    except FileNotFoundError:
        return True
    except (Unanswered, Malformed, Refusal):
        return False
    return status is Status.OK or status.is_departure or status is Status.REFUSED
