"""A site at work for one approved study: its own rows, what it keeps between rounds, and an answer to each question.

Everything here happens at the site. What an answer may hold is fixed by the topic: statistics of a named query, row
counts, an algorithm's answer, sums of losses, figures of quality. Rows, labels and predictions never leave.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround.core import trees
from wardround.core.chain import chain, first_carried, tailored
from wardround.core.components.recipes import Recipe, from_json, recipe_of
from wardround.core.contracts import Algorithm, Message, Params, Query, Site, Task, Transform
from wardround.core.errors import Refusal
from wardround.core.federation import PARTS, task_of
from wardround.core.files import write_whole
from wardround.data.preparation import Preparation
from wardround.data.site_rows import SiteRows, frame_for_schema, split_site_rows
from wardround.data.table import Table
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.requests import (
    AboutModel,
    AskQuery,
    BeginTraining,
    PrepareRows,
    Received,
    SecureStep,
    SettleSchema,
    ShareHalves,
    Topic,
    TrainRound,
    read_request,
)
from wardround.deploy.protocol.secure_precision import precision_of, ring_bits_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.kept_state import KeptState
from wardround.deploy.site.own_model import OwnFigures, keep_model
from wardround.deploy.site.release.agreement import (
    check_preparation,
    check_query,
    check_schema,
    check_sites,
    check_transforms,
)
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.deploy.site.release.model_quality import JudgedModel, figures_told, losses_told, risks_told
from wardround.deploy.site.release.model_shapes import (
    MessageShapes,
    check_first,
    check_model,
    is_bounded,
    opened,
    shapes_for,
    tasks_in,
    zeros_like,
)
from wardround.deploy.site.release.partner_questions import debit, given_to, refuse_course, terms_for, visible_rows
from wardround.deploy.site.release.privacy_guard import Promise, SiteFacts
from wardround.deploy.site.release.secure_round import SecureSite, sum_terms
from wardround.deploy.site.release.two_server_round import HalvesSite, charged_halves
from wardround.engine.predictions import score_rows
from wardround.engine.registry import make_from
from wardround.engine.split_round import OwnRows, carried_round, kind_at, own_params, row_of
from wardround.queries.cards import kinds_told
from wardround.queries.cells import in_cells
from wardround.study.assemble import model_of, private_from
from wardround.study.file import Study
from wardround.study.privacy import KIND

Header = dict[str, Any]


@dataclass
class StudyWorker:
    """One study at one site. `allow` raises a refusal for a recipe that the site's policy forbids."""

    site: str
    study: Study
    table: Table
    folder: Path
    allow: Callable[[Recipe], None]
    smallest_cell: int = 10
    smallest_sum: int = 3
    sums: SecureSite | None = None
    halves_site: HalvesSite | None = None
    promise: Promise | None = None
    """Of privacy, where the study has one."""
    take_transcript: Callable[[str, Message], Header] | None = None
    """Keeps and checks the coordinator's transcript; gives what the site says to it."""
    own: SiteRows | None = None
    number: int = -1
    sites: tuple[str, ...] = ()
    task: Task | None = None
    positive: int = 1
    preparation: Preparation | None = None
    parts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    kept: KeptState = field(init=False)
    _chains: dict[tuple[Transform, ...], Transform] = field(default_factory=dict)
    """The transforms of the last request as one."""
    _links: Any = None
    """The sites, and the transforms of the last request, found to be the approved ones."""
    _shapes: tuple[Mapping[str, Any], MessageShapes] | None = None
    """The last algorithm for the agreed task, and what its messages hold."""

    def __post_init__(self) -> None:
        self.kept = KeptState(self.folder / "kept")

    def query(self, asked: Received[AskQuery], message: Message) -> tuple[Header, Message]:
        """A statistic, by a query that is installed here; on the whole table only for its card."""
        recipe = from_json(asked.question.query)
        self.allow(recipe)
        check_query(recipe, message, self.study, None if self.own is None else self.own.schema.kinds)
        raw = asked.question.on == "raw"
        if raw and terms_for(recipe).rows != "table":
            raise Refusal("only the card query may read a whole table", remedy="query the training rows")
        if not raw and self.own is None:
            raise Refusal("statistics were requested before the sites agreed on a schema", remedy="prepare first")
        table, by = self.table.sites[self.site], self.study.data.split_by
        whole = Site(self.site, table, table[by] if by in table.columns else None)
        debit(self.folder, self.study, recipe, asked.header, message)
        if self.promise is not None:
            rows = 0 if self.own is None else len(self.own.parts[0])
            recipe = self.promise.statistic(recipe, asked.digest, rows, prepared=bool(self.parts))
        query: Query = make_from(in_own_cells(recipe, self.smallest_cell))
        return {}, query.ask(message, whole if raw or self.own is None else visible_rows(recipe, self.own))

    def settle(self, asked: Received[SettleSchema], _: Message) -> tuple[Header, Message]:
        """Take over the agreed schema and split the own rows."""
        if asked.question.seed != self.study.study.seed:
            raise Refusal(
                "the request splits the rows with a seed that is not the approved study's",
                remedy="ask for what was approved: the same statistic over many splits would reveal single patients",
            )
        schema = check_schema(asked.question.schema, self.study, self.table, self.site, self.smallest_cell)
        data, private = self.study.data, self.study.privacy is not None
        blank = self.study.privacy.blank if self.study.privacy else 0.0
        self.own = split_site_rows(
            self.site,
            frame_for_schema(self.table.sites[self.site], self.table, schema, private=private, blank=blank),
            self.table,
            schema,
            seed=asked.question.seed,
            shares=data.shares_at(self.site, self.study.study.user),
            by=data.split_by or "",
            stratify=not private,
        )
        self.remember("settle", asked)
        return {}, Message({})

    def prepare(self, asked: Received[PrepareRows], _: Message) -> tuple[Header, Message]:
        """Apply the fitted preparation; tells how many rows there are for each part."""
        if self.own is None:
            raise Refusal("the preparation came before the schema", remedy="start the study again")
        if self.promise is not None:
            self.promise.check_sites(asked.question.numbers)
        kinds = kinds_told(self.table.sites[self.site])
        told = in_cells(len(self.own.frame), self.smallest_cell)
        preparation = check_preparation(asked.question.preparation, self.study, self.own.schema, kinds, told)
        classes = self.own.schema.classes
        check_sites(asked.question.numbers, asked.question.positive, self.study, self.site, classes)
        three = self.own.prepare(preparation, f"site {self.site}, {self.table.origin}")
        schema = self.own.schema
        self.task = task_of(schema.task, preparation.shape, classes, self.table.target, schema.horizons)
        kind = self.task.label_type
        self.parts = {
            part: (x if preparation.image else np.ascontiguousarray(x, np.float32), np.ascontiguousarray(y, kind))
            for part, (x, y) in zip(PARTS, three, strict=True)
        }
        self.preparation = preparation
        self.sites, self.positive = tuple(asked.question.numbers), asked.question.positive
        self.number = self.sites.index(self.site)
        self.remember("prepare", asked)
        enough = [self._count(part) >= self.smallest_cell for part in PARTS]
        counts = np.array([len(self.parts[part][1]) for part in PARTS], np.int64) * enough
        words: Header = {"cell": self.smallest_cell}  # by which the coordinator knows how many more there may be
        if self.study.privacy is None:
            return words, Message({"rows": in_cells(counts, self.smallest_cell)})
        # The noise that a promise needs is found from the exact number, which that promise takes to be public.
        return words, Message({"rows": counts})

    def begin(self, asked: Received[BeginTraining], message: Message) -> tuple[Header, Message]:
        """Take over the model before the first round, from which follows what the site keeps at first."""
        if self.task is None:
            raise Refusal("training began before the rows were prepared", remedy="start the study again")
        if not is_bounded(message.arrays):
            raise Refusal("the model that came is not finite, or huge", remedy="start the study again")
        given = given_to(self.study, asked.question.algorithm, len(self.sites))
        check_first(message.arrays, model_of(self.study, self.task), given)
        self.kept.begin(asked, message)
        return {}, Message({})

    def round(self, asked: Received[TrainRound], message: Message) -> tuple[Header, Message]:
        """One site's half of a round. What the site keeps is on disk before its answer leaves."""
        method = self._method(asked)
        if method[1].sum_only:
            raise Refusal(
                "the approved study reveals only the sum of the answers, but a single answer was requested",
                remedy="ask for what was approved",
            )
        if method[1].products_only:
            raise Refusal(
                "the approved study hides single answers by two servers, but a readable answer was requested",
                remedy="ask for what was approved",
            )
        answer = self._answer(method, asked, message, asked.digest)
        return ({"status": Status.DIVERGED}, Message({})) if answer is None else ({}, answer)

    def secure(self, asked: Received[SecureStep], message: Message) -> tuple[Header, Message]:
        """One step of a round of which only the sum is opened."""
        assert self.sums is not None
        method = self._method(asked)
        if not method[1].sum_only:
            raise Refusal("the approved study has no secure sum", remedy="ask for what was approved")
        recipes = [from_json(one) for one in asked.question.transforms]
        if self.promise is not None:
            self.promise.check_sum(asked.question.recipe, asked.question.step, asked.question.letter)
        terms = sum_terms(
            self.study,
            self.sites,
            asked,
            precision_of(recipes),
            smallest=self.smallest_sum,
            silent=method[0].silent,
            ring_bits=ring_bits_of(recipes),
        )
        return self.sums.step(asked, message, terms, lambda: self._answer(method, asked, message, terms.request))

    def halves(self, asked: Received[ShareHalves], message: Message) -> tuple[Header, Message]:
        """A round for two servers: a masked half for the first, the rest sealed for the second."""
        assert self.halves_site is not None
        method = self._method(asked)
        if not method[1].products_only:
            raise Refusal("the approved study has no two servers", remedy="ask for what was approved")
        # What is charged is the round with this model: of all attempts at it the second server opens one.
        request = charged_halves(asked, message)
        return self.halves_site.share(asked, message, request, lambda: self._answer(method, asked, message, request))

    def _answer(
        self, method: tuple[Algorithm, Transform], asked: Received[Any], message: Message, request: str
    ) -> Message | None:
        """Train; none where the answer is not finite. What the site keeps is on the disk, what it costs is debited."""
        algorithm, transform = method
        number, seed = asked.round, asked.question.seed
        own = self._own(algorithm.part)
        if not self._check_model(asked, message.arrays, in_round=True) or not is_bounded(opened(transform, message)):
            return None  # no finite answer follows from it, whoever the patients are
        few, exact = self._count(algorithm.part) < self.smallest_cell, self.study.privacy is None
        if few and (exact or asked.question.algorithm.get("kind") == "probe"):
            own = OwnRows(own.x[:0], own.y[:0], own.site)  # nothing is told of so few
        carries = transform.init_carried is not None
        first = first_carried(transform, zeros_like(self._shapes_for(asked).made)) if carries else ()
        kept = self.kept.read(algorithm, asked, number - 1), self.kept.read_carried(first, asked, number - 1)
        if self.promise is not None:  # last of all that may be refused: what is debited is not given back
            assert self.task is not None
            known = SiteFacts(len(own.y), row_of(self.task), self.number, self.sites)
            self.promise.charge(asked.question.recipe, number, request, known)
            point("site.budget.charged")
        answer, keeps, finite = carried_round(algorithm, transform, message, kept, own, seed=seed, number=number)
        if not finite and self.study.privacy is None:
            return None
        # Under [privacy] there is no word for it: what is not finite after the noise is sent as zero.
        answer = answer if finite else trees.finite_or_zero(answer)
        keeps = keeps if finite else trees.finite_or_zero(keeps)
        self.kept.write(asked, number, *keeps)
        found: Message = jax.device_get(answer)
        return found

    def judge(self, asked: Received[AboutModel], message: Message) -> tuple[Header, Message]:
        """Sums of the losses of the own patients under the model that this site would use; none when they are few."""
        told = losses_told(self._judged(asked, message), self.smallest_cell, self.folder, self.promise, asked)
        return {}, Message(told)

    def figures(self, asked: Received[AboutModel], message: Message) -> tuple[Header, Message]:
        """How well the site's model does on its own test patients: exact for the site, coarse or none for others."""
        model = self._judged(asked, message)
        block = OwnFigures(self.folder, self.site, self.study, self.positive).keep(model.scores, model.task)
        if block is None:
            return {"figures": None}, Message({})
        told = figures_told(model, block, self.smallest_cell, self.folder, self.promise, self.positive, asked)
        risks = risks_told(model, self.study, self.smallest_cell, self.folder, self.positive)
        return {"figures": told, **({} if risks is None else {"risks": risks})}, Message({})

    def finish(self, asked: Received[AboutModel], message: Message) -> tuple[Header, Message]:
        """Keep the model that this site will use."""
        algorithm, transform = self._method(asked)
        model = Message({name: one for name, one in message.arrays.items() if name != "transcript"}, message.meta)
        recipe = from_json(asked.question.algorithm)
        keep_model(self, algorithm, self._params(algorithm, asked, model), asked.round, recipe)
        self.kept.drop_carried(asked, transform)
        return (self.take_transcript(asked.study, message) if self.take_transcript else {}), Message({})

    def _make(self, recipe: Recipe) -> Any:
        self.allow(recipe)
        if recipe.kind == KIND:
            return private_from(recipe)
        return make_from(in_own_cells(recipe, self.smallest_cell, self.table.images_each))

    def _method(self, asked: Received[Any]) -> tuple[Algorithm, Transform]:
        # Each is checked by `allow`; here, that none was left out or asked for in the place of another.
        recipes = [from_json(one) for one in asked.question.transforms]
        if self._links != (self.sites, recipes):
            check_transforms(recipes, self.study, self.sites)
            self._links = self.sites, recipes
        if asked.course is not None:
            refuse_course(self.study, asked)
        if asked.question.seed != self.study.study.seed:
            raise Refusal("the request has a seed that is not the approved study's", remedy="ask for what was approved")
        links = tuple(map(self._make, recipes))
        if links not in self._chains:
            self._chains = {links: chain(links)}
        algorithm: Algorithm = self._make(asked.question.recipe)
        known = self._shapes is not None and self._shapes[0] == asked.question.algorithm
        if not known and any(one != recipe_of(self.task) for one in tasks_in(asked.question.recipe)):
            raise Refusal("the request has another task than was agreed", remedy="start the study again")
        if self.promise is not None:
            self.promise.check(asked.question.recipe, silent=algorithm.silent)
        elif asked.question.recipe.kind == KIND:
            raise Refusal(
                "the approved study has no [privacy], but a private algorithm was requested",
                remedy="ask for what was approved",
            )
        return algorithm, self._chains[links]

    def _check_model(self, asked: Received[Any], arrays: Any, *, in_round: bool = False) -> bool:
        """See `check_model`; a probe is given several models, just as many as the choice announces."""
        return check_model(arrays, self._shapes_for(asked), in_round=in_round)

    def _shapes_for(self, asked: Received[Any]) -> MessageShapes:
        """Of the messages of the requested algorithm; worked out once. The transforms are always the study's."""
        words = asked.question.algorithm
        if self._shapes is None or self._shapes[0] != words:
            assert self.task is not None
            transform = next(iter(self._chains.values()))
            algorithm = tailored(self._make(asked.question.recipe), transform)
            model = model_of(self.study, self.task)
            given = given_to(self.study, words, len(self.sites))
            kind = kind_at(algorithm, self.number)
            self._shapes = words, shapes_for(algorithm, transform, model, self.task, len(self.sites), given, kind)
        return self._shapes[1]

    def _own(self, part: str) -> OwnRows:
        if part not in self.parts:
            raise Refusal("a round was requested before the rows were prepared", remedy="start the study again")
        x, y = self.parts[part]
        return OwnRows(x, y, self.number)

    def times_of(self, part: str) -> Any:
        """Of survival: how long the patients of a part were followed up; else none."""
        return None if self.own is None else self.own.times(self.own.parts[PARTS.index(part)])

    def _judged(self, asked: Received[AboutModel], message: Message) -> JudgedModel:
        algorithm, _ = self._method(asked)
        params = self._params(algorithm, asked, message)
        if asked.question.part not in self.parts:
            raise Refusal("a model was to be judged before the rows were prepared", remedy="start the study again")
        part = asked.question.part
        x, y = self.parts[part]
        assert self.task is not None
        scores = score_rows(algorithm, params, x, y, self.task, self.times_of(part))
        fitted = None if algorithm.personal is None else self._count("train")
        return JudgedModel(scores, self.task, fitted, self._patients(part))

    def _patients(self, part: str) -> Any:
        """Whose each row of a part is, where the study says that patients have several."""
        by = self.study.data.split_by
        if self.own is None or not by:
            return None
        return self.own.frame[by].astype(str).to_numpy()[self.own.parts[PARTS.index(part)]]

    def _count(self, part: str) -> int:
        """Patients of a part: those with many rows count once."""
        whose = self._patients(part)
        return len(self.parts[part][1]) if whose is None else len(set(whose))

    def _params(self, algorithm: Algorithm, asked: Received[Any], message: Message) -> Params:
        self._check_model(asked, message.arrays)
        sent = Message(message.arrays["sent"], message.meta)
        common: Params = message.arrays["params"]
        kept = self.kept.read(algorithm, asked, asked.round)
        return own_params(algorithm, sent, common, kept, self._own("train"), seed=asked.question.seed)

    # ---- a site that was started again finds where it was ----

    def remember(self, topic: str, asked: Received[Any]) -> None:
        """Write down what the sites agreed on, so that it needs not be asked for again after a crash."""
        write_whole(self.folder / f"{topic}.json", json.dumps(asked.header).encode())

    def recall(self) -> None:
        """Take up what was agreed on before this process was started."""
        settled, prepared = self.folder / "settle.json", self.folder / "prepare.json"
        if settled.exists():
            self.settle(read_request(Topic.SETTLE, json.loads(settled.read_bytes())), Message({}))
        if prepared.exists():
            self.prepare(read_request(Topic.PREPARE, json.loads(prepared.read_bytes())), Message({}))
