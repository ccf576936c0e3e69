"""What has left a site is counted from its audit log: one that was moved or cut lets nothing out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.actors import LyingCoordinator
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.journals.journal_head import head_path
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.release.gate import ReleaseRecord

SITE = "bo"


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> LyingCoordinator:
    """An honest first round, and then a coordinator that wants more of it."""
    consortium = in_process.Consortium(tmp_path_factory.mktemp("moved"))
    made = LyingCoordinator(consortium, in_process.study_of("moved"))
    made.conduct("round", 4)
    return made


@pytest.fixture
def log(liar: LyingCoordinator) -> Iterator[Path]:
    """The site's log, put back after the test."""
    path = liar.consortium.homes[SITE].audit_path
    kept = {one: one.read_bytes() for one in (path, head_path(path))}
    yield path
    for one, content in kept.items():
        one.unlink(missing_ok=True)
        one.write_bytes(content)
    liar.consortium.restart(SITE)


def moved(path: Path) -> None:
    """As an administrator does when a log was damaged: a new one begins."""
    path.unlink()
    head_path(path).unlink()


def deleted(path: Path) -> None:
    path.unlink()


def cut_at_the_front(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    approved = next(number for number, line in enumerate(lines) if b'"kind":"approved"' in line)
    path.write_bytes(b"".join(lines[approved + 1 :]))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


CHANGES: list[Callable[[Path], None]] = [moved, deleted, cut_at_the_front, emptied]


def other_model(liar: LyingCoordinator) -> tuple[Any, Message]:
    first = next(one for one in liar.seen if (one.site, one.topic) == (SITE, "round"))
    params = {name: one + np.float32(1) for name, one in first.message.arrays["params"].items()}
    return first, Message({**first.message.arrays, "params": params})


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_a_log_that_does_not_go_back_to_the_approval_lets_nothing_out(
    liar: LyingCoordinator, log: Path, change: Callable[[Path], None]
) -> None:
    """Counted from nothing, round 1 would be answered once more, for a model of the coordinator's choice."""
    change(log)
    liar.consortium.restart(SITE)
    first, message = other_model(liar)
    for said in (liar.replay(first), liar.alter(first, message), liar.alter(first, message, round=2)):
        assert (said.status, said.message.arrays) == (Status.REFUSED, {})
        assert "does not go back to the approval" in said.why
    judged = liar.last(SITE, "judge")
    assert liar.replay(judged).status is Status.REFUSED


def test_the_same_with_an_honest_log(liar: LyingCoordinator) -> None:
    """The control: the first round is told again as it was, no other one, and the second one is answered."""
    liar.consortium.restart(SITE)
    first, message = other_model(liar)
    assert liar.replay(first).sha256 == first.reply.sha256
    assert "asked before in other words" in liar.alter(first, message).why
    assert liar.alter(first, message, round=2).status is Status.OK


def test_an_approval_anew_does_not_make_up_for_a_log_that_is_gone(liar: LyingCoordinator, log: Path) -> None:
    """Else a moved log and one more `site approve` would give every answer of the study once more."""
    home, study = liar.consortium.homes[SITE], liar.consortium.id(liar.study)
    decided = (home.path / "decisions" / f"{study}.json").read_bytes()
    moved(log)
    with pytest.raises(Refusal, match="does not go back to the earlier approval"):
        approve(home, study, by="ann")
    assert (home.path / "decisions" / f"{study}.json").read_bytes() == decided
    liar.consortium.restart(SITE)
    assert liar.replay(liar.last(SITE, "round", round=1)).status is Status.REFUSED


def test_with_the_log_it_is_approved_again_and_nothing_is_forgotten(liar: LyingCoordinator, log: Path) -> None:
    home, study = liar.consortium.homes[SITE], liar.consortium.id(liar.study)
    approve(home, study, by="ann")
    record = ReleaseRecord()
    record.read(home.audit_path)
    assert record.has_approval(study)
    assert "round" in {one.kind for one in record.claims(study)}
    liar.consortium.restart(SITE)
    first, message = other_model(liar)
    assert "asked before in other words" in liar.alter(first, message).why
