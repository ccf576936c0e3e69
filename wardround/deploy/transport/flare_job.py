"""Runs a study inside a job of NVIDIA FLARE: the controller conducts it, the executor answers for the site.

What travels is our wire bytes in FLARE's tasks; who may approve, what is allowed, what left and where a run goes on is
ours, in the parties' homes. A lost job costs nothing but time: submitted again, the study goes on in the same round.
This module must never load `cellnet` or `cellnet_filter`, which keep CellNet from reading anything but bytes: FLARE's
own messages are more than that.
"""

import math
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
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
from wardround.core.files import lock_file
from wardround.deploy.coordinator.events import Event
from wardround.deploy.coordinator.queue import known_rows, record_end, write_submission
from wardround.deploy.coordinator.run_study import conduct
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.protocol.replies import refusal_to
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.transport.flare_export import HOME_FILE, TASK, read_job
from wardround.deploy.transport.site_register import REVOKED, SiteRegister
from wardround.deploy.trust.audit_log import event_entry
from wardround.runs.file_names import MANIFEST, MODEL, RESULT, ROUNDS
from wardround.runs.folder import RunFolder
from wardround.runs.json_files import read_json
from wardround.study.file import parse_study

LOOK = 0.2
"""Seconds between two looks at whether the job was aborted."""
ASKED = ("hello", *Topic)
RESULTS = (MANIFEST, RESULT, ROUNDS, MODEL)


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
        self.log_info(
            fl_ctx, f"an answer from {client.name} came too late and is not used; the site may be asked again"
        )

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        threading.Thread(target=self._watch, args=(abort_signal,), daemon=True).start()
        try:
            self._conduct(fl_ctx)
        except Refusal as refusal:
            self.system_panic(f"wardround: {refusal}", fl_ctx)
        except KeyboardInterrupt:  # how the engine says that it was told to stop
            self.log_info(fl_ctx, "the job was stopped; submit it again and the study continues in the same round")
        finally:
            self._stopped.set()

    def _conduct(self, fl_ctx: FLContext) -> None:
        workspace, job = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), fl_ctx.get_job_id()
        home = CoordinatorHome(home_in(workspace))
        config = Path(workspace.get_app_config_dir(job))
        content, sites = read_job(config)
        study = parse_study(content, where=f"the job {job}")
        # FLARE has authenticated who submits; what the job says of itself would be worth nothing.
        submitter = str((fl_ctx.get_prop(FLContextKey.JOB_META) or {}).get(JobMetaKey.SUBMITTER_NAME.value, ""))
        submission = Submission(study, tuple(sites), submitter, known_rows(home))
        folder, log = home.folder(submission.id), home.log()
        transport = FlareTransport(self, SiteRegister(home, log, submission.id), self._stopped)
        with lock_job(folder):
            write_submission(folder, study, submitter)
            (folder / "state.json").unlink(missing_ok=True)
            log.append(event_entry("started", study=submission.id, job=str(job), submitter=submitter))
            try:
                run = RunFolder.open_or_create(folder / "run")
                conduct(submission, run, transport, lambda event: self.log_info(fl_ctx, event_words(event)))
            except Refusal as refusal:
                record_end(folder, log, submission.id, "failed", str(refusal))
                raise
            record_end(folder, log, submission.id, "finished", "")
            copy_results(folder / "run", Path(workspace.get_run_dir(job)) / "wardround")

    def _watch(self, abort_signal: Signal) -> None:
        while not self._stopped.wait(LOOK):
            if abort_signal.triggered:
                self._stopped.set()

    def connected(self) -> frozenset[str]:
        names = (client.name for client in self._engine.get_clients())
        return frozenset(name for name in names if not self.communicator.get_client_disconnect_time(name))

    def exchange(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        """One question to one site as a task of FLARE's; raises with the reason where there is no answer."""
        done, answers = threading.Event(), []

        def came(client_task: Any, fl_ctx: FLContext) -> None:
            answers.append(client_task.result)
            client_task.result = None  # FLARE would keep the bytes until it looks at its tasks again
            done.set()

        task = Task(
            TASK,
            Shareable({"topic": str(topic), "body": body}),
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
                dead = site not in self.connected()
                why = "its part of the job has ended" if dead else f"no answer within {within:.0f} s"
                raise Unanswered(site, why, gone=dead)
        answer = answers[0]
        if answer.get_return_code() != ReturnCode.OK or not isinstance(answer.get("body"), bytes):
            raise Unanswered(site, f"FLARE reports {answer.get_return_code()} for this site; see its log")
        return bytes(answer["body"])


@dataclass(frozen=True)
class FlareTransport:
    """Fulfils the contract inside a job: the controller asks, the coordinator's home tells who belongs to us."""

    controller: StudyController
    register: SiteRegister
    stopped: threading.Event

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        if self.register.is_revoked(site):
            raise Unanswered(site, REVOKED, gone=True)
        return self.controller.exchange(site, topic, body, within)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        return self.register.announce(topic, bodies)

    def present(self) -> frozenset[str]:
        return self.controller.connected() - self.register.revoked_names()

    def revoked(self) -> Mapping[str, str]:
        return self.register.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.register.certificates()


class StudyExecutor(Executor):  # type: ignore[misc]
    """A site's half. It takes no settings, and reads nothing that the site did not register and approve itself."""

    def __init__(self) -> None:
        super().__init__()
        self._handler: RequestHandler | None = None

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
            if self._handler is None:
                self._handler = handler_of(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), site)
            # Only the server gives tasks to a job's process; FLARE has checked its certificate.
            reply = self._handler.answer(topic, self._handler.coordinator, body)
        except Refusal as refusal:
            self.log_error(fl_ctx, str(refusal))
            reply = refusal_to(body, site, str(refusal))
        answer = make_reply(ReturnCode.OK)
        answer["body"] = reply
        return answer


def home_in(workspace: Workspace) -> Path:
    """The party's home, as the file in its own kit says."""
    path = Path(workspace.get_site_config_dir()) / HOME_FILE
    remedy = "run `wardround flare connect` with this kit and the party's home"
    home = read_json(path, remedy).get("home")
    if not isinstance(home, str) or not Path(home).is_absolute():
        raise Refusal("the file does not name a folder", where=str(path), remedy=remedy)
    return Path(home)


def handler_of(workspace: Workspace, site: str) -> RequestHandler:
    home = SiteHome(home_in(workspace))
    if home.settings.name != site:
        raise Refusal(
            f"FLARE knows this site as '{site}', but its folder belongs to '{home.settings.name}'",
            where=str(home.path),
            remedy="use the same name for both: create the folder with `wardround site init`",
        )
    home.log().append(event_entry("started", site=site, by="a job of FLARE"))
    return RequestHandler(HomeAccess(home))


@contextmanager
def lock_job(folder: Path) -> Iterator[None]:
    """Be the only job at this study; a killed process lets go by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "job.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            lock_file(file, wait=False)
        except BlockingIOError:
            raise Refusal(
                "another job is running this study", where=folder.name, remedy="wait for it, or abort it in FLARE"
            ) from None
        yield
    finally:
        os.close(file)


def copy_results(run: Path, results: Path) -> None:
    """Lay the results where FLARE's `download_job` finds them."""
    results.mkdir(parents=True, exist_ok=True)
    for name in (one for one in RESULTS if (run / one).exists()):  # a monitor has neither rounds nor a model
        shutil.copyfile(run / name, results / name)


def event_words(event: Event) -> str:
    """What happened, for FLARE's log."""
    told = "; ".join(f"{one.name}: {getattr(event, one.name)}" for one in fields(event) if getattr(event, one.name))
    return f"wardround, {type(event).__name__}: {told}"
