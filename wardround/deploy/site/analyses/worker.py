"""A site at work for one approved analysis: it agrees on columns, and answers each exchange from its own rows.

Nothing is answered but what the approved study names, with its settings; an answer has the arrays and shapes that the
same question has for a table without patients, so that what leaves never depends on who is in the table. A site with
fewer rows than its smallest cell answers as if it had none.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround.core.analysis import Agreed, AgreedColumn, Analysis
from wardround.core.codes.json_arrays import unpack
from wardround.core.components.recipes import Recipe, from_json, recipe_of, to_json
from wardround.core.contracts import Message, Query, Site
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.data.column_agreement import columns_of_analysis, no_rows, rows_of_analysis
from wardround.data.table import Table
from wardround.deploy.protocol.requests import (
    AgreeColumns,
    AskAnalysis,
    AskQuery,
    Received,
    SecureStep,
    Topic,
    read_request,
)
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.analyses import asked_questions
from wardround.deploy.site.analyses.answered_rows import FILE, remember_rows
from wardround.deploy.site.analyses.releases import most_numbers, refuse_exposed
from wardround.deploy.site.release.agreement import check_sites
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.deploy.site.release.model_shapes import is_bounded
from wardround.deploy.site.release.secure_round import SecureSite, sum_terms
from wardround.engine.registry import make_from
from wardround.privacy.accountant import Step
from wardround.privacy.budget import Budget
from wardround.privacy.secure_sum.fixed_point import RING
from wardround.privacy.secure_sum.wide_point import PRECISION, to_digits
from wardround.queries.cells import in_cells
from wardround.queries.names_of import MOST_NAMES
from wardround.runs.explain.selection_file import KEPT
from wardround.study.analyses.analysis import analysis_of
from wardround.study.analyses.analysis_noise import analysis_noise, is_noised, with_noise
from wardround.study.file import Study
from wardround.study.transform_chain import links_of

Header = dict[str, Any]
LONGEST_WORD = 500
REMEDY = "ask for what was approved"
ALL_OF_IT = "all exchanges"
"""What is charged for at once, where an analysis adds noise of its own."""


@dataclass
class AnalysisWorker:
    """One analysis at one site. `allow` raises a refusal for a recipe that policy or approved study forbid."""

    site: str
    study: Study
    folder: Path
    allow: Callable[[Recipe], None]
    own: Site
    """The columns of the analysis, as the site holds them."""
    smallest_cell: int = 10
    smallest_sum: int = 3
    sums: SecureSite | None = None
    agreed: Agreed | None = None
    budget: Callable[[], Budget] | None = None
    """The site's ledger, for [privacy]."""
    rows: Site | None = None
    """The same as all sites agreed to read them."""
    words_denied: Callable[[], tuple[str, ...]] = tuple
    """As the policy says now."""
    unspoken: tuple[str, ...] = ()
    """The denied words that `rows` are without."""

    @classmethod
    def start(
        cls,
        *,
        site: str,
        study: Study,
        table: Table,
        folder: Path,
        allow: Callable[[Recipe], None],
        smallest_cell: int,
        sums: SecureSite | None = None,
        budget: Callable[[], Budget] | None = None,
        words_denied: Callable[[], tuple[str, ...]] = tuple,
    ) -> "AnalysisWorker":
        """Read the site's columns, and take up what was agreed on before this process was started."""
        made = analysis_of(study)
        noised = is_noised(study, made)
        own = Site(site, columns_of_analysis(table.sites[site], made.columns, f"site {site}", noised=noised))
        worker = cls(site, study, folder, allow, own, smallest_cell=smallest_cell, sums=sums, budget=budget)
        worker.words_denied = words_denied
        path = folder / "agree.json"
        if path.exists():
            worker._take(read_request(Topic.AGREE, json.loads(path.read_bytes())).question)
        return worker

    @property
    def parts(self) -> tuple[()]:
        """Nothing is held back."""
        return ()

    def query(self, asked: Received[AskQuery], message: Message) -> tuple[Header, Message]:
        """What kinds of columns there are, and words that are not rare."""
        recipe = from_json(asked.question.query)
        self.allow(recipe)
        if recipe.name == "names_of":
            named = unpack(message.arrays.get("columns", np.zeros(0, np.uint8)))
            if not isinstance(named, list) or not set(named) <= set(self.own.table.columns):
                raise Refusal("the query names_of is not about the columns of the analysis", remedy=REMEDY)
        query: Query = make_from(in_own_cells(recipe, self.smallest_cell))
        return {}, query.ask(message, self.own)

    def agree(self, asked: Received[AgreeColumns], _: Message) -> tuple[Header, Message]:
        """Take over what all sites take the columns to be; tells how many rows there are."""
        check_sites(asked.question.numbers, 0, self.study, self.site, ())
        self._take(asked.question)
        write_whole(self.folder / "agree.json", json.dumps(asked.header).encode())
        rows = np.int64(in_cells(len(self.own.table), self.smallest_cell))
        return {"cell": self.smallest_cell}, Message({"rows": rows})

    def _take(self, question: AgreeColumns) -> None:
        columns = {
            name: AgreedColumn(*checked(kind, question.levels.get(name, ()))) for name, kind in question.kinds.items()
        }
        if list(columns) != list(analysis_of(self.study).columns):
            raise Refusal("the agreed columns are not those of the approved analysis", remedy=REMEDY)
        declared, texts = self.study.data.preparation.categories, analysis_of(self.study).texts
        for name, column in columns.items():
            if (column.kind == "text") != (name in texts):
                raise Refusal(f"{name!r} is taken for free text, or not, against the approved analysis", remedy=REMEDY)
            if column.kind == "category" and name in declared and list(column.levels) != list(declared[name]):
                raise Refusal(f"the words of {name!r} are not those that the approved study declares", remedy=REMEDY)
        agreed = Agreed(tuple(question.numbers), columns)
        self.rows, self.unspoken = rows_of_analysis(self.own, agreed), ()
        self.agreed = agreed

    def keep_words_back(self, agreed: Agreed, rows: Site, texts: Sequence[str]) -> Site:
        """The rows without the words that the policy denies; made once, and anew where the policy has changed."""
        denied = self.words_denied() if texts else ()
        if denied == self.unspoken:
            return rows
        self.rows, self.unspoken = rows_of_analysis(self.own, agreed, denied), denied
        return self.rows

    def analysis(self, asked: Received[AskAnalysis], message: Message) -> tuple[Header, Message]:
        """The site's answer in one exchange."""
        if self.study.transforms:
            raise Refusal(
                "of the approved study only the sum of the answers is opened, and a single one was requested",
                remedy=REMEDY,
            )
        refuse_exposed(self.study, self.smallest_cell)
        return {}, self.answer(asked.question.recipe, message, asked.round, asked.digest)

    def secure(self, asked: Received[SecureStep], message: Message) -> tuple[Header, Message]:
        """One step of an exchange of which only the sum is opened, and that of all sites: a part would be no answer."""
        assert self.sums is not None
        question = asked.question
        said = [to_json(recipe_of(one)) for one in links_of(self.study)]
        if not said or list(question.transforms) != said or question.seed != self.study.study.seed:
            raise Refusal("the approved study has no such secure sum", remedy=REMEDY)
        if self.agreed is None:
            raise Refusal("an exchange was requested before the sites agreed on columns", remedy="agree first")
        self.allow(question.recipe)
        sites = self.agreed.sites
        terms = sum_terms(self.study, sites, asked, PRECISION, smallest=self.smallest_sum, silent=False)
        terms = replace(terms, fewest=max(terms.fewest, len(terms.sites)))

        def ring() -> Message:
            return Message({RING: to_digits(self.answer(question.recipe, message, asked.round, terms.request))})

        return self.sums.step(asked, message, terms, ring)

    def answer(self, recipe: Recipe, message: Message, number: int, request: str) -> Message:
        """Noised under [privacy], and debited from the site's ledger before the noise is drawn: once for a request."""
        self.allow(recipe)
        if self.agreed is None or self.rows is None:
            raise Refusal("an exchange was requested before the sites agreed on columns", remedy="agree first")
        if not is_bounded(message.arrays):
            raise Refusal("the request has numbers that are not finite, or too large", remedy=REMEDY)
        made: Analysis = make_from(in_own_cells(recipe, self.smallest_cell))
        asked_questions.remember_question(self.folder / asked_questions.FILE, made, message)
        rows = self.keep_words_back(self.agreed, self.rows, made.texts)
        nobody = no_rows(self.agreed, self.site)
        few = len(rows.table) < self.smallest_cell
        # Noise hides a difference of few, and a refusal would tell of it.
        if not few and not is_noised(self.study, made):
            remember_rows(self.folder.parent.parent / FILE, made, self.agreed, rows, self.smallest_cell)
        pattern, most = made.ask(self.agreed, message, nobody), most_numbers(self.study)
        told = checked_answer(pattern, pattern, most)  # too large an answer is refused before it is computed
        if not few:
            self.debit_own_noise(made)
            told = checked_answer(made.ask(self.agreed, message, rows), pattern, most)
        if made.keep is not None and not few:
            for name, content in made.keep(self.agreed, message, rows).items():
                (self.folder / KEPT).mkdir(exist_ok=True)
                write_whole(self.folder / KEPT / Path(name).name, content)
        noise = analysis_noise(self.study, made, self.agreed)
        if noise is None:
            return told
        self.ledger().debit(study_id(self.study), number, [noise.step], level="sample", request=request)
        return with_noise(told, noise, None)

    def ledger(self) -> Budget:
        """To be debited, before any noise is drawn."""
        if self.budget is None:
            raise Refusal("this site has no ledger to debit", remedy="ask its administrator")
        return self.budget()

    def debit_own_noise(self, made: Analysis) -> None:
        """All that an analysis with noise of its own may cost a patient, once, before its first answer.

        Patients who are learned from and those held out are in different sums: none is in more than is debited.
        """
        if made.own_noise is not None:
            cost = made.own_noise()
            steps = [Step(1.0, cost.multiplier, cost.sums)]
            self.ledger().debit(study_id(self.study), 1, steps, level="sample", request=ALL_OF_IT)


def checked(kind: str, levels: Any) -> tuple[Any, tuple[str, ...]]:
    words = tuple(levels)
    sound = (kind in ("number", "text") and not words) or (kind == "category" and 0 < len(words) == len(set(words)))
    if not sound or any(len(word) > LONGEST_WORD for word in words) or len(words) > MOST_NAMES * 1000:
        raise Refusal("the agreed columns are neither numbers nor categories", remedy=REMEDY)
    return kind, words


def checked_answer(found: Message, pattern: Message, most: int) -> Message:
    """An answer in double precision; refused where it has other shapes than one for no patients, or more numbers."""
    given, structure = jax.tree.flatten(found.arrays)
    arrays = [np.asarray(one, np.float64) for one in given]
    shapes = [np.shape(one) for one in jax.tree.leaves(pattern.arrays)]
    alike = str(structure) == str(jax.tree.structure(pattern.arrays))
    if not alike or [one.shape for one in arrays] != shapes:
        raise Refusal("the answer would have arrays whose shapes tell of patients", remedy="do without this analysis")
    count = sum(one.size for one in arrays)
    if count > most:
        raise Refusal(
            f"the answer would have {count} numbers, and the approved list has {most}",
            remedy="ask for less: fewer columns, or fewer words",
        )
    if not all(np.isfinite(one).all() for one in arrays):
        raise Refusal(
            "the answer is not finite",
            remedy="check the columns for values that overflow; scale them, or leave them out",
        )
    return Message(jax.tree.unflatten(structure, arrays))
