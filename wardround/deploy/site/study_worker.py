"""A site at work for one approved study: its own rows, what it keeps between rounds, and an answer to each question.

Everything here happens at the site. What an answer may hold is fixed by the topic: statistics of a named query, row
counts, an algorithm's answer, sums of losses, figures of quality. Rows, labels and predictions never leave.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from wardround.core.chain import chain
from wardround.core.components.recipes import Recipe, from_json
from wardround.core.contracts import Algorithm, Message, Params, Query, Scores, Site, Task, Transform, Tree
from wardround.core.errors import Refusal
from wardround.core.federation import PARTS
from wardround.core.files import write_whole
from wardround.data.preparation import Preparation
from wardround.data.schema import Schema
from wardround.data.site_rows import SiteRows, frame_for_schema, split_site_rows
from wardround.data.table import Table
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.secure_precision import precision_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.own_figures import keep_figures
from wardround.deploy.site.release.disclosure import in_own_cells, told_figures, told_losses
from wardround.deploy.site.release.partner_questions import debit, refuse_course, seen_by, terms_for
from wardround.deploy.site.release.privacy_guard import Promise, SiteFacts, request_of
from wardround.deploy.site.release.secure_round import SecureSite
from wardround.engine.checkpoint import read_checkpoint, write_checkpoint
from wardround.engine.registry import make_from
from wardround.engine.split_round import OwnRows, own_params, predict_rows, row_of, site_round
from wardround.evaluate.block import result_block
from wardround.evaluate.metrics import names_with
from wardround.queries.cells import in_cells
from wardround.study.assemble import private_from
from wardround.study.file import Study
from wardround.study.privacy import KIND

KEPT_VERSIONS = 3
"""Rounds for which a site remembers what it kept: the coordinator may go back by one after a crash, never by more."""
Header = dict[str, Any]


@dataclass
class AtWork:
    """One study at one site. `allow` raises a refusal for a recipe that the site's policy forbids."""

    site: str
    study: Study
    table: Table
    folder: Path
    allow: Callable[[Recipe], None]
    smallest_cell: int = 10
    sums: SecureSite | None = None
    promise: Promise | None = None
    own: SiteRows | None = None
    number: int = -1
    sites: tuple[str, ...] = ()
    task: Task | None = None
    positive: int = 1
    parts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _starts: dict[str, Tree] = field(default_factory=dict)

    def query(self, header: Header, message: Message) -> tuple[Header, Message]:
        """A statistic, by a query that is installed here; on the whole table only for its card."""
        recipe = from_json(header["query"])
        self.allow(recipe)
        query: Query = make_from(in_own_cells(recipe, self.smallest_cell))
        raw = header["on"] == "raw"
        if raw and terms_for(recipe).rows != "table":
            raise Refusal("only its card may be asked of a whole table", remedy="ask about the training rows")
        if not raw and self.own is None:
            raise Refusal("statistics were asked for before the sites had agreed on a schema", remedy="prepare first")
        whole = Site(self.site, self.table.sites[self.site])
        debit(self.folder, self.study, recipe, header, message)
        return {}, query.ask(message, whole if raw or self.own is None else seen_by(recipe, self.own))

    def settle(self, header: Header, _: Message) -> tuple[Header, Message]:
        """Take over the agreed schema and split the own rows."""
        if int(header["seed"]) != self.study.study.seed:
            raise Refusal(
                "the rows were to be split by another seed than the approved study's",
                remedy="ask for what was approved: the same statistic over many splits would tell of single patients",
            )
        said = header["schema"]
        schema = Schema(dict(said["kinds"]), said["task"], tuple(said["classes"]), ())
        data = self.study.data
        frame = frame_for_schema(self.table.sites[self.site], self.table, schema)
        self.own = split_site_rows(
            self.site,
            frame,
            self.table,
            schema,
            seed=int(header["seed"]),
            shares=tuple(data.shares),
            by=data.split_by or "",
        )
        self.remember("settle", header)
        return {}, Message({})

    def prepare(self, header: Header, _: Message) -> tuple[Header, Message]:
        """Apply the fitted preparation; tells how many rows there are for each part."""
        if self.own is None:
            raise Refusal("a preparation came before the schema", remedy="start the study again")
        preparation = Preparation.from_json(header["preparation"])
        three = self.own.prepare(preparation, f"site {self.site}, {self.table.origin}")
        classes = self.own.schema.classes
        self.task = Task((len(preparation.features),), classes, self.table.target)
        kind = np.int32 if classes else np.float32
        self.parts = {
            part: (np.ascontiguousarray(x, np.float32), np.ascontiguousarray(y, kind))
            for part, (x, y) in zip(PARTS, three, strict=True)
        }
        self.sites, self.positive = tuple(map(str, header["numbers"])), int(header["positive"])
        self.number = self.sites.index(self.site)
        self.remember("prepare", header)
        counts = np.array([len(y) for _, y in self.parts.values()], np.int64)
        if self.study.privacy is None:
            return {}, Message({"rows": in_cells(counts, self.smallest_cell)})
        # The noise that a promise needs is found from the exact number, which that promise takes to be public.
        return {}, Message({"rows": np.where(counts < self.smallest_cell, 0, counts)})

    def round(self, header: Header, message: Message) -> tuple[Header, Message]:
        """One site's half of a round. What the site keeps is on disk before its answer leaves."""
        method = self._method(header)
        if method[1].sum_only:
            raise Refusal(
                "the approved study opens only the sum of the answers, and a single one was asked for",
                remedy="ask for what was approved",
            )
        answer = self._answer(method, header, message, header["request"])
        return ({"status": Status.DIVERGED}, Message({})) if answer is None else ({}, answer)

    def secure(self, header: Header, message: Message) -> tuple[Header, Message]:
        """One step of a round of which only the sum is opened."""
        assert self.sums is not None
        method = self._method(header)
        if not method[1].sum_only:
            raise Refusal("the approved study has no secure sum", remedy="ask for what was approved")
        precision = precision_of([from_json(one) for one in header["transforms"]])
        if self.promise is not None:
            self.promise.check_sum(from_json(header["algorithm"]), header["step"], header["letter"])
        request = request_of(header, header["session"]["model"])
        return self.sums.step(header, message, precision, lambda: self._answer(method, header, message, request))

    def _answer(
        self, method: tuple[Algorithm, Transform], header: Header, message: Message, request: str
    ) -> Message | None:
        """Train; none where the answer is not finite. What the site keeps is on the disk, what it costs is debited."""
        algorithm, transform = method
        number, seed = int(header["round"]), int(header["seed"])
        own = self._own(algorithm.part)
        if header["algorithm"]["kind"] == "probe" and len(own.y) < self.smallest_cell:
            own = OwnRows(own.x[:0], own.y[:0], own.site)  # nothing is told of so few
        kept = self._kept(algorithm, header, number - 1)
        if self.promise is not None:  # last of all that may be refused: what is debited is not given back
            assert self.task is not None
            known = SiteFacts(len(own.y), row_of(self.task), self.number, self.sites)
            self.promise.charge(from_json(header["algorithm"]), number, request, known)
            point("site.budget.charged")
        answer, keeps, finite = site_round(algorithm, transform, message, kept, own, seed=seed, number=number)
        if not finite:
            return None
        self._keep(header, number, keeps)
        found: Message = jax.device_get(answer)
        return found

    def judge(self, header: Header, message: Message) -> tuple[Header, Message]:
        """Sums of the losses of the own patients under the model that this site would use; none when they are few."""
        scores, task = self._scores(header, message, header["part"])
        return {}, Message(told_losses(scores, task, self.smallest_cell))

    def figures(self, header: Header, message: Message) -> tuple[Header, Message]:
        """How well the site's model does on its own test patients: exact for the site, coarse or none for others."""
        scores, task = self._scores(header, message, header["part"])
        if not len(scores.actual):
            return {"figures": None}, Message({})
        block = result_block(
            scores,
            task,
            [self.site],
            metrics=names_with(task, self.study.study.metric),
            positive=self.positive,
            resamples=self.study.evaluation.resamples,
            seed=self.study.study.seed,
        )
        keep_figures(self.folder, self.site, block)
        if len(scores.actual) < self.smallest_cell:
            return {"figures": None}, Message({})
        return {"figures": told_figures(block, scores, task, self.smallest_cell)}, Message({})

    def finish(self, header: Header, message: Message) -> tuple[Header, Message]:
        """Keep the model that this site will use."""
        algorithm, _ = self._method(header)
        params = self._params(algorithm, header, message)
        arrays = {name: np.ascontiguousarray(array) for name, array in jax.device_get(params).items()}
        words = json.dumps({"study": header["study"], "site": self.site, "round": header["round"]})
        write_whole(self.folder / "model.safetensors", save(arrays, metadata={"wardround": words}))
        return {}, Message({})

    def _made(self, content: Any) -> Any:
        recipe = from_json(content)
        self.allow(recipe)
        return private_from(recipe) if recipe.kind == KIND else make_from(recipe)

    def _method(self, header: Header) -> tuple[Algorithm, Transform]:
        # Each is checked by `allow`; that none was left out (a clipping, say) is checked here.
        said = [one.name for one in self.study.transforms]
        if [one.get("name") for one in header["transforms"]] != said:
            raise Refusal(
                f"the approved study says the transforms {said or 'none'}, and others were asked for",
                remedy="ask for what was approved",
            )
        refuse_course(self.study, header)
        links = [self._made(one) for one in header["transforms"]]
        algorithm: Algorithm = self._made(header["algorithm"])
        if self.promise is not None:
            self.promise.check(from_json(header["algorithm"]), len(self.sites), silent=algorithm.silent)
        return algorithm, chain(links)

    def _own(self, part: str) -> OwnRows:
        if part not in self.parts:
            raise Refusal("a round was asked for before the rows were prepared", remedy="start the study again")
        x, y = self.parts[part]
        return OwnRows(x, y, self.number)

    def _scores(self, header: Header, message: Message, part: str) -> tuple[Scores, Task]:
        algorithm, _ = self._method(header)
        params = self._params(algorithm, header, message)
        x, y = self.parts[part]
        assert self.task is not None
        return Scores(predict_rows(algorithm, params, x), y, np.array([0, len(y)])), self.task

    def _params(self, algorithm: Algorithm, header: Header, message: Message) -> Params:
        sent = Message(message.arrays["sent"], message.meta)
        common: Params = message.arrays["params"]
        kept = self._kept(algorithm, header, int(header["round"]))
        return own_params(algorithm, sent, common, kept, self._own("train"), seed=int(header["seed"]))

    # ---- what the site keeps between rounds ----

    def begin(self, header: Header, message: Message) -> tuple[Header, Message]:
        """Take over the model before the first round, from which follows what the site keeps at first."""
        refuse_course(self.study, header)
        path = self._first_path(header)
        for old in (self.folder / "kept").glob("course-*"):  # the coordinator has done with these
            if old != path.parent:
                shutil.rmtree(old)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, encode({}, message))
        self._starts.clear()
        return {}, Message({})

    def _kept(self, algorithm: Algorithm, header: Header, number: int) -> Tree:
        """What was kept in the last round, up to `number`, in which this site took part."""
        path = self._first_path(header)
        if str(path) not in self._starts:
            if not path.exists():
                raise Refusal("a round was asked for before it was begun", remedy="start the study again")
            first = decode(path.read_bytes())[1].arrays["first"]
            self._starts[str(path)] = jax.device_get(algorithm.init_client(first))
        start = self._starts[str(path)]
        versions = [at for at in self._versions(header) if at <= number]
        if not versions or not jax.tree.leaves(start):
            return start
        return read_checkpoint(self._kept_path(header, versions[-1]), {"kept": start})[0]["kept"]

    def _keep(self, header: Header, number: int, keeps: Tree) -> None:
        if not jax.tree.leaves(keeps):
            return
        point("site.kept.before_save")
        write_checkpoint(self._kept_path(header, number), {"kept": keeps}, {"round": number})
        point("site.kept.saved")
        for old in self._versions(header)[:-KEPT_VERSIONS]:
            self._kept_path(header, old).unlink(missing_ok=True)

    def _first_path(self, header: Header) -> Path:
        words = json.dumps(header["algorithm"], sort_keys=True)
        # Of a choice of partners each training has a folder of its own: nothing is kept from one to the next.
        course = int(header.get("course", 0))
        place = self.folder / "kept" / (f"course-{course}" if course else "")
        return place / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.first"

    def _kept_path(self, header: Header, number: int) -> Path:
        return self._first_path(header).with_suffix(f".{number:08d}.safetensors")

    def _versions(self, header: Header) -> list[int]:
        first = self._first_path(header)
        return sorted(int(path.name.split(".")[1]) for path in first.parent.glob(f"{first.stem}.*.safetensors"))

    # ---- a site that was started again finds where it was ----

    def remember(self, topic: str, header: Header) -> None:
        """Write down what the sites agreed on, so that it needs not be asked for again after a crash."""
        write_whole(self.folder / f"{topic}.json", json.dumps(header).encode())

    def recall(self) -> None:
        """Take up what was agreed on before this process was started."""
        for topic, act in (("settle", self.settle), ("prepare", self.prepare)):
            path = self.folder / f"{topic}.json"
            if path.exists():
                act(json.loads(path.read_bytes()), Message({}))
