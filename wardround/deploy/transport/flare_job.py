"""Runs a study inside a job of NVIDIA FLARE: the controller conducts it, the executor lets the site's clerk answer.

What travels is our wire bytes in FLARE's tasks; who may approve, what is allowed, what left and where a run goes on is
ours, in the parties' homes. A lost job costs nothing but time: submitted again, the study goes on in the same round.
This module must never load `cellnet` or `cellnet_filter`, which keep CellNet from reading anything but bytes: FLARE's own
messages are more than that.
"""

import fcntl
import hashlib
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.run_study import conduct
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.protocol.wire import Malformed, decode, encode
from wardround.deploy.settings_files import read_json, write_json
from wardround.deploy.site.approvals import study_id
from wardround.deploy.site.authorization import SiteOffice
from wardround.deploy.site.request_handler import TOPICS, Clerk
from wardround.deploy.transport.flare_export import HOME_FILE, TASK, read_job
from wardround.deploy.trust.audit_log import Log, event_entry, sent_entry
from wardround.runs.folder import RunFolder
from wardround.study.file import parse_study

LOOK = 0.2
"""Seconds between two looks at whether the job was aborted."""
ASKED = ("hello", "offer", *TOPICS)
RESULTS = ("manifest.json", "result.json", "rounds.jsonl", "model.safetensors")


class StudyController(Controller):  # type: ignore[misc]
    """The server's half. It takes no settings: the study is in the job's configuration, the home in its own kit."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped = threading.Event()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare: all that matters is on the disk."""

    def stop_controller(self, fl_ctx: FLContext) -> None:  # noqa: ARG002 - FLARE's signature
        self._stopped.set()

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,  # noqa: ARG002 - FLARE's signature
        client_task_id: str,  # noqa: ARG002
        result: Shareable,  # noqa: ARG002
        fl_ctx: FLContext,
    ) -> None:
        self.log_info(fl_ctx, f"an answer of {client.name} came too late and is not used; it may be asked again")

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        threading.Thread(target=self._watch, args=(abort_signal,), daemon=True).start()
        try:
            self._conduct(fl_ctx)
        except Refusal as refusal:
            self.system_panic(f"wardround: {refusal}", fl_ctx)
        except KeyboardInterrupt:  # how the engine says that it was told to stop
            self.log_info(fl_ctx, "the job was stopped; submitted again, the study goes on in the same round")
        finally:
            self._stopped.set()

    def _conduct(self, fl_ctx: FLContext) -> None:
        workspace, job = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), fl_ctx.get_job_id()
        home = CoordinatorHome(home_in(workspace))
        config = Path(workspace.get_app_config_dir(job))
        content, sites = read_job(config)
        study = parse_study(content, where=f"the job {job}")
        name = study_id(study)
        # FLARE has authenticated who submits; what the job says of itself would be worth nothing.
        submitter = str((fl_ctx.get_prop(FLContextKey.JOB_META) or {}).get(JobMetaKey.SUBMITTER_NAME.value, ""))
        folder, log = home.folder(name), home.log()
        with only_job(folder):
            write_json(folder / "study.json", {"study": study.model_dump(mode="json"), "submitter": submitter})
            (folder / "state.json").unlink(missing_ok=True)
            log.append(event_entry("started", study=name, job=str(job), submitter=submitter))
            try:
                conduct(
                    study,
                    RunFolder.taken_up(folder / "run"),
                    sites,
                    partial(self._ask, log, name),
                    present=self._present,
                    submitter=submitter,
                    told=lambda word, facts: self.log_info(fl_ctx, in_words(word, facts)),
                    stopped=self._stopped,
                )
            except Refusal as refusal:
                ended(folder, log, name, "failed", str(refusal))
                raise
            ended(folder, log, name, "finished", "")
            hand_out(folder / "run", Path(workspace.get_run_dir(job)) / "wardround")

    def _watch(self, abort_signal: Signal) -> None:
        while not self._stopped.wait(LOOK):
            if abort_signal.triggered:
                self._stopped.set()

    def _present(self) -> frozenset[str]:
        names = (client.name for client in self._engine.get_clients())
        return frozenset(name for name in names if not self.communicator.get_client_disconnect_time(name))

    def _ask(self, log: Log, study: str, site: str, topic: str, body: bytes, within: float) -> bytes:
        """One question to one site as a task of FLARE's; raises with the reason where there is no answer."""
        hashed = hashlib.sha256(body).hexdigest()
        log.append(sent_entry({"study": study, "topic": topic, "to": site, "bytes": len(body), "sha256": hashed}))
        done, answers = threading.Event(), []

        def came(client_task: Any, fl_ctx: FLContext) -> None:
            answers.append(client_task.result)
            client_task.result = None  # FLARE would keep the bytes until it looks at its tasks again
            done.set()

        task = Task(
            TASK,
            Shareable({"topic": topic, "body": body}),
            timeout=math.ceil(within),
            result_received_cb=came,
            task_done_cb=lambda task, fl_ctx: done.set(),
        )
        with self._engine.new_context() as fl_ctx:
            self.send(task, fl_ctx, targets=[site])
            end = time.monotonic() + within
            while not done.wait(LOOK) and not self._stopped.is_set() and time.monotonic() < end:
                pass
            if not answers:
                self.cancel_task(task, fl_ctx=fl_ctx)
                dead = site not in self._present()
                raise TimeoutError("its part of the job has ended" if dead else f"no answer within {within:.0f} s")
        answer = answers[0]
        if answer.get_return_code() != ReturnCode.OK or not isinstance(answer.get("body"), bytes):
            raise ConnectionError(f"FLARE says {answer.get_return_code()} of this site; its log tells why")
        return bytes(answer["body"])


class StudyExecutor(Executor):  # type: ignore[misc]
    """A site's half. It takes no settings, and reads nothing that the site did not register and approve itself."""

    def __init__(self) -> None:
        super().__init__()
        self._clerk: Clerk | None = None

    def execute(
        self,
        task_name: str,
        shareable: Shareable,
        fl_ctx: FLContext,
        abort_signal: Signal,  # noqa: ARG002 - an answer is short, and saved whole before it is sent
    ) -> Shareable:
        topic, body = shareable.get("topic"), shareable.get("body")
        if task_name != TASK or topic not in ASKED or not isinstance(body, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        site = str(fl_ctx.get_identity_name())
        try:
            if self._clerk is None:
                self._clerk = clerk_of(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), site)
            # Only the server gives tasks to a job's process; FLARE has checked its certificate.
            reply = self._clerk.answer(topic, self._clerk.coordinator, body)
        except Refusal as refusal:
            self.log_error(fl_ctx, str(refusal))
            reply = refused(site, body, str(refusal))
        answer = make_reply(ReturnCode.OK)
        answer["body"] = reply
        return answer


def home_in(workspace: Workspace) -> Path:
    """The party's home, as the file in its own kit says."""
    path = Path(workspace.get_site_config_dir()) / HOME_FILE
    remedy = "run `wardround flare connect` with this kit and the party's home"
    home = read_json(path, remedy).get("home")
    if not isinstance(home, str) or not Path(home).is_absolute():
        raise Refusal("it names no home", where=str(path), remedy=remedy)
    return Path(home)


def clerk_of(workspace: Workspace, site: str) -> Clerk:
    home = SiteHome(home_in(workspace))
    if home.words.name != site:
        raise Refusal(
            f"FLARE knows this site as '{site}', and its home belongs to '{home.words.name}'",
            where=str(home.path),
            remedy="use the same name for both: make a home with `wardround site init`",
        )
    home.log().append(event_entry("started", site=site, by="a job of FLARE"))
    return Clerk(SiteOffice(home))


def refused(site: str, request: bytes, why: str) -> bytes:
    """A site's refusal where there is no clerk to speak for it."""
    try:
        header, _ = decode(request)
    except Malformed:
        header = {}
    bound = {key: header.get(key) for key in ("study", "round", "nonce")}
    return encode({"status": "refused", "why": why, **bound, "site": site})


@contextmanager
def only_job(folder: Path) -> Iterator[None]:
    """Be the only job at this study; a killed process lets go by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "job.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(
                "another job is at this study", where=folder.name, remedy="wait for it, or abort it in FLARE"
            ) from None
        yield
    finally:
        os.close(file)


def ended(folder: Path, log: Log, study: str, state: str, why: str) -> None:
    write_json(folder / "state.json", {"state": state, "why": why, "at": time.time()})
    log.append(event_entry(state, study=study, why=why))


def hand_out(run: Path, results: Path) -> None:
    """Lay the results where FLARE's `download_job` finds them."""
    results.mkdir(parents=True, exist_ok=True)
    for name in RESULTS:
        shutil.copyfile(run / name, results / name)


def in_words(word: str, facts: Mapping[str, Any]) -> str:
    told = "; ".join(f"{key}: {value}" for key, value in facts.items() if value)
    return f"wardround, {word}: {told}"
