"""A site restored whole from a backup: log, ledger and answers fit each other, and have forgotten what left since.

The attack is a coordinator that asks for the forgotten rounds once more, for other models. Where it shows the site what
it countersigned, as an honest one does at first contact, it gets nothing; where it keeps that to itself, it gets them.
"""

import shutil
from pathlib import Path
from typing import Any

import jax
import pytest
from typer.testing import CliRunner

from tests.support import in_process
from tests.support.adversary.actors import LyingCoordinator
from wardround.cli.app import app
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approval_status, approve, promised_epsilon
from wardround.deploy.site.release.privacy_budget import budget_of
from wardround.deploy.trust.audit_log import event_entry, examine, verify
from wardround.deploy.trust.log_heads import read_witness
from wardround.privacy.accountant import Step
from wardround.runs.json_files import read_json

SITE = "bo"
STUDY = in_process.study_of("backup", 4)


class Restored:
    """A consortium of one site, which was copied after the first round and put back after the third."""

    def __init__(self, folder: Path) -> None:
        self.consortium = in_process.Consortium(folder, (SITE,))
        self.home, self.copy = self.consortium.homes[SITE], folder / "backup"
        self.warnings: dict[str, str] = {}
        self.carer = Maintenance(self.consortium.home, self.consortium.transport, self.warnings.__setitem__)
        self.one = LyingCoordinator(self.consortium, self.consortium.full(STUDY))
        self.one.conduct("round", 2)
        self.carer.maintain(SITE)
        shutil.copytree(self.home.path, self.copy)
        self.one.conduct("round", 3)
        budget_of(self.home).debit("another", 1, [Step(1.0, 9.0, 1)])
        self.carer.maintain(SITE)
        assert self.warnings[SITE] == ""
        shutil.rmtree(self.home.path)
        shutil.copytree(self.copy, self.home.path)
        self.consortium.restart(SITE)

    def again(self) -> Any:
        """Round 2, which was answered and is forgotten, for another model."""
        asked = self.one.last(SITE, "round", round=2)
        other = jax.tree.map(lambda array: array + 1e-3 if array.dtype.kind == "f" else array, asked.message.arrays)
        return self.one.alter(asked, Message(other, asked.message.meta))


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    return Restored(tmp_path_factory.mktemp("restored"))


def test_a_restored_site_answers_nothing_until_its_administrator_accepts_it(restored: Restored) -> None:
    home, hub, study = restored.home, restored.consortium.home, study_id(restored.one.study)
    assert verify(home.audit_path, home.public_keys()) == [], "the log alone shows nothing"
    assert budget_of(home).charges() == [], "nor does the ledger, and a debit is forgotten"
    assert restored.again().status is Status.OK, "a coordinator that keeps quiet is answered: this remains"
    # First contact: the coordinator shows what it countersigned.
    restored.carer.maintain(SITE)
    assert "audit log was restored from an older copy: it was rolled back to entry" in restored.warnings[SITE]
    told = restored.again()
    assert (told.status, told.message.arrays) == (Status.WAITING, {})
    assert "was rolled back; its administrator has to decide" in told.why
    restored.consortium.restart(SITE)
    assert restored.again().status is Status.WAITING, "nor after another start"
    with pytest.raises(Refusal, match="was rolled back to entry"):
        approve(home, study, by="anna")
    # The administrator looks into it and accepts.
    promised = promised_epsilon(home)
    done = CliRunner().invoke(
        app, ["site", "accept-restore", "--by", "anna", "--why", "disk failed", "--home", str(home.path)]
    )
    assert done.exit_code == 0, done.output
    assert study in done.output
    assert approval_status(home, study)[0] is Status.DENIED
    assert restored.again().status is Status.DENIED, "what has left for it is not known any more"
    with pytest.raises(Refusal, match=r"decided before the files of this site were restored.*ask for a changed study"):
        approve(home, study, by="anna")
    assert promised_epsilon(home) == promised, "and what it promised stays promised"
    # Both sides go on, and say in their logs that there was a break.
    restored.carer.maintain(SITE)
    restored.carer.maintain(SITE)
    assert restored.warnings[SITE] == ""
    assert [one["site"] for one in examine(hub.audit_path).entries if one["kind"] == "restored"] == [SITE]
    (noted,) = [one for one in examine(home.audit_path, home.public_keys()).entries if one["kind"] == "restored"]
    assert (noted["by"], noted["why"], noted["studies"]) == ("anna", "disk failed", [study])
    assert verify(home.audit_path, home.public_keys()) == []
    (kept,) = (hub.path / "heads").glob(f"{SITE}.2*.json")
    assert verify(home.audit_path, None, witnesses=[read_witness(kept)]), "the old end shows what was lost"
    with pytest.raises(Refusal, match="nothing is to be accepted"):
        raise_from(CliRunner().invoke(app, ["site", "accept-restore", "--by", "anna", "--home", str(home.path)]))


def raise_from(result: Any) -> None:
    assert result.exit_code != 0
    raise result.exception if isinstance(result.exception, Refusal) else Refusal(result.output)


def test_a_log_that_was_rewritten_and_has_grown_beyond_is_found_too(tmp_path: Path) -> None:
    consortium = in_process.Consortium(tmp_path, (SITE,))
    warnings: dict[str, str] = {}
    carer = Maintenance(consortium.home, consortium.transport, warnings.__setitem__)
    home = consortium.homes[SITE]
    files = [home.audit_path, home.audit_path.with_name("audit.jsonl.head")]
    before = [path.read_bytes() for path in files]
    home.log().append(event_entry("sent", what="what nobody shall know"))
    carer.maintain(SITE)
    for path, content in zip(files, before, strict=True):
        write_whole(path, content)
    home.log().append(*[event_entry("test", what=str(number)) for number in range(20)])
    consortium.restart(SITE)
    carer.maintain(SITE)
    assert "is not the one that was countersigned" in warnings[SITE]
    assert read_json(home.restored_path, "")["found"]["head"]["who"] == SITE


def test_nobody_can_make_up_a_later_head_of_a_site(tmp_path: Path) -> None:
    """Else any coordinator could halt a site: a head of another site, and one with a forged signature, halt nothing."""
    consortium = in_process.Consortium(tmp_path, (SITE, "kenema"))
    warnings: dict[str, str] = {}
    carer = Maintenance(consortium.home, consortium.transport, warnings.__setitem__)
    for site in (SITE, "kenema"):
        carer.maintain(site)
    path = consortium.home.witness_path(SITE)
    own, other = path.read_bytes(), consortium.home.witness_path("kenema").read_bytes()
    entries = read_witness(path).head.entries
    for lie in (other, own.replace(f'"entries":{entries}'.encode(), f'"entries":{entries + 9}'.encode())):
        path.write_bytes(lie)
        carer.maintain(SITE)
        assert "is no head of this site's audit log" in warnings[SITE]
        assert not consortium.homes[SITE].restored_path.exists()
