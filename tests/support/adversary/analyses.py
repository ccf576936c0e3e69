"""An analysis that a site approved, and a coordinator that then asks what it likes."""

from pathlib import Path
from typing import Any

import pandas as pd

from tests.support.in_process import Consortium
from wardround.core.components.recipes import to_json
from wardround.core.contracts import Message
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.demo import PURPOSE
from wardround.deploy.protocol.replies import Reply, read_reply
from wardround.deploy.protocol.requests import AgreeColumns, AskAnalysis, request_of
from wardround.deploy.site.approvals import approve
from wardround.study.analyses.analysis import analysis_recipe
from wardround.study.file import parse_study

SITE, CELL = "bo", 10
NOTHING = Message({})


class ApprovedAnalysis:
    """Puts an approved study to one site; `privacy` and the words of columns (`categories`) are the study's own."""

    def __init__(
        self,
        folder: Path,
        table: pd.DataFrame,
        *,
        name: str,
        privacy: dict[str, Any] | None = None,
        categories: dict[str, list[str]] | None = None,
        **settings: Any,
    ) -> None:
        self.consortium = Consortium(folder)
        table.to_csv(self.consortium.tables[SITE], index=False)
        preparation = {"smallest_cell": CELL, "categories": categories or {}}
        words = {
            "study": {"name": "asked", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x", "preparation": preparation},
            "analysis": {"name": name, **settings},
            **({"privacy": privacy} if privacy else {}),
        }
        self.study = parse_study(words, where="test")
        submission = Submission(self.study, self.consortium.names, "researcher")
        self.id = submission.id
        self.ask(submission.offer())
        approve(self.consortium.homes[SITE], self.id, by="admin")

    def ask(self, question: Any, message: Message = NOTHING, number: int = 0) -> Reply:
        request = request_of(question, message, study=self.id, number=number)
        return read_reply(self.consortium.transport.ask(SITE, question.topic, request.body, 10.0))

    def agree(self, levels: dict[str, list[str]] | None = None, **kinds: str) -> None:
        asked = AgreeColumns(kinds, levels or {}, sorted(self.consortium.names))
        reply = self.ask(asked)
        assert reply.status == "ok", reply.why

    def exchange(self, number: int, message: Message) -> Reply:
        return self.ask(AskAnalysis(to_json(analysis_recipe(self.study))), message, number)

    def restart(self) -> None:
        self.consortium.restart(SITE)
