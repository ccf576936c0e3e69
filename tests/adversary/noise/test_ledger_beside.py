"""The head of the ledger while one study is charged and another's answer leaves."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import Consortium
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.site.release import privacy_budget
from wardround.deploy.site.release.privacy_budget import NAMED, anchor, budget_of
from wardround.privacy.accountant import Step


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> SiteHome:
    return Consortium(tmp_path_factory.mktemp("heads"), ("bo",)).homes["bo"]


def test_no_answer_names_a_half_written_head(home: SiteHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written in place and read at the same time, 3 of 100,000 heads were part old, part new.

    The audit log would name for ever a debit that never was, and nothing could leave the site any more.
    """
    budget_of(home).debit("one", 1, [Step(1.0, 90.0, 1)])
    named: list[Any] = []

    def name_head() -> None:
        try:
            named.append(anchor(home)[NAMED])
        except Refusal as refusal:
            named.append(str(refusal))

    def in_two_steps(handle: int, content: bytes, at: int) -> None:
        os.write(handle, content[:30])
        answering.start()
        answering.join(0.2)
        os.write(handle, content[30:])

    answering = threading.Thread(target=name_head)
    monkeypatch.setattr(privacy_budget, "write_at", in_two_steps)
    budget_of(home).debit("other", 1, [Step(1.0, 90.0, 1)])
    answering.join(10)
    lines = Path(home.path / privacy_budget.LEDGER).read_text().splitlines()
    assert named == [{"entries": len(lines), "hash": anchor(home)[NAMED]["hash"]}]
    assert budget_of(home).charges()[-1].study == "other"
