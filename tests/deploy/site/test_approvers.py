"""Who approves is bound to a login of the machine where the policy says so; a typed name gets past nothing."""

from pathlib import Path

import pytest

from tests.support import small_site
from tests.support import tiny_study as tiny
from wardround.deploy.party.decisions import current_login, read_decision

Capture = pytest.CaptureFixture[str]


def test_a_typed_name_does_not_make_an_approver(tmp_path: Path, capsys: Capture) -> None:
    home = small_site.make(tmp_path)
    offer = small_site.offered(home)
    set_to = ["site", "policy", "set", "approvers"]
    assert tiny.call(capsys, *set_to, "somebody-else", "--home", home.path).code == 0
    asked = ["site", "approve", offer.id, "--yes", "--by", "somebody-else", "--home", home.path]
    refused = tiny.call(capsys, *asked)
    assert refused.code == 2
    assert f"{current_login()} may not approve studies here".casefold() in refused.err.casefold()
    assert tiny.call(capsys, *set_to, current_login(), "--home", home.path).code == 0
    assert tiny.call(capsys, *asked).code == 0
    decision = read_decision(home, offer.id)
    assert decision is not None
    assert (decision.by, decision.login) == ("somebody-else", current_login())
    assert f'"login":"{current_login()}"' in home.audit_path.read_text()
