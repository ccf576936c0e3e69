"""The handler over a real home: nothing before approval, nothing that was not approved, everything in the log first."""

import hashlib
import os
import time
from typing import Any

import pytest

from tests.support import small_site as small
from wardround import __version__
from wardround.core.components.recipes import Recipe, recipe_of, to_json
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.party import decisions
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site import approvals
from wardround.deploy.site.authorization import HomeAccess, departures
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.trust.audit_log import examine
from wardround.queries.cards import cards, cards_of
from wardround.study import assemble
from wardround.study.methods import own_method
from wardround.study.transform_chain import transform_of


@pytest.fixture
def home(tmp_path):
    return small.make(tmp_path)


def request(study: str, **words) -> bytes:
    header = {"protocol": 1, "wardround": __version__, "study": study, "nonce": "ab", "round": 0, **words}
    return encode(header, Message({}))


def card(study: str) -> bytes:
    return request(study, query=to_json(recipe_of(cards(target="outcome", task=None))), on="raw")


def leavings(home) -> list[dict]:
    examined = examine(home.audit_path, home.public_keys())
    assert examined.findings == []
    return [entry for entry in examined.entries if entry["kind"] == "sent"]


def test_from_offer_to_withdrawal(home):
    handler, asked = RequestHandler(HomeAccess(home)), small.study()
    study = study_id(asked)

    def state(topic: str, content: bytes) -> str:
        return decode(handler.answer(topic, "server", content))[0]["status"]

    assert state("query", card(study)) == "waiting"
    words = {"content": asked.model_dump(mode="json"), "submitter": "anna"}
    assert state("offer", request(study, **words)) == "waiting"
    assert state("query", card(study)) == "waiting"
    assert leavings(home) == []
    approvals.approve(home, study, by="ben")
    assert state("offer", request(study, **words)) == "ok"
    reply = handler.answer("query", "server", card(study))
    (told,) = cards_of({"cards": [small_card(reply)]})
    assert (told.site, told.rows, set(told.kinds)) == ("freetown", 100, {"age", "pulse", "sex", "outcome"})
    # The log has what left, before and only once, also when the same is asked again.
    assert handler.answer("query", "server", card(study)) == reply
    (entry,) = leavings(home)
    assert (entry["bytes"], entry["sha256"]) == (len(reply), hashlib.sha256(reply).hexdigest())
    assert (entry["study"], entry["topic"], entry["to"]) == (study, "query", "server")
    decisions.withdraw(home, study, by="ben")
    assert state("query", card(study)) == "withdrawn"
    assert len(leavings(home)) == 1


def small_card(reply: bytes) -> dict:
    from wardround.core.codes.json_arrays import unpack

    return unpack(decode(reply)[1].arrays["card"])


def test_nothing_leaves_when_the_log_cannot_be_written(home):
    study = small.offered(home).id
    approvals.approve(home, study, by="ben")
    home.audit_path.with_name("audit.jsonl.head").unlink()
    answer = decode(RequestHandler(HomeAccess(home)).answer("query", "server", card(study)))
    assert answer[0]["status"] == "refused"
    assert "nothing is sent" in answer[0]["why"]
    assert answer[1].arrays == {}


def recipe_for(study) -> Recipe:
    from wardround.core.contracts import Task

    return recipe_of(assemble.build(study, own_method(study), Task((4,), ("0", "1"), "outcome")))


def test_what_is_asked_must_be_what_was_approved(home):
    asked = small.study(algorithm={"name": "fed_avg", "learning_rate": 0.5}, transforms=[{"name": "clip", "norm": 1.0}])
    offer = small.offered(home, asked)
    approvals.approve(home, offer.id, by="ben")
    access = HomeAccess(home)
    access.allow(offer.id, recipe_for(asked))
    access.allow(offer.id, recipe_of(transform_of(asked)))
    for changed, what in (
        ({"algorithm": {"name": "fed_sgd"}}, "algorithm fed_sgd"),
        ({"algorithm": {"name": "fed_avg", "learning_rate": 50.0}}, "algorithm fed_avg"),
        ({"algorithm": {"name": "fed_avg", "learning_rate": 0.5}, "model": {"name": "mlp"}}, "model mlp"),
        (
            {"algorithm": {"name": "fed_avg", "learning_rate": 0.5}, "aggregator": {"name": "median"}},
            "aggregator median",
        ),
    ):
        with pytest.raises(Refusal, match=f"the study does not include the {what}"):
            access.allow(offer.id, recipe_for(small.study(**changed)))
    looser = recipe_of(transform_of(small.study(transforms=[{"name": "clip", "norm": 9.0}])))
    with pytest.raises(Refusal, match="does not include the transform clip"):
        access.allow(offer.id, looser)
    with pytest.raises(Refusal, match="the component model/from_torch is not allowed"):
        access.allow(offer.id, Recipe("model", "from_torch"))
    assert departures(asked, Recipe("query", "cards")) == []


def test_an_unapproved_study_gets_neither_words_nor_rows(home):
    offer = small.offered(home)
    access = HomeAccess(home)
    for act in (
        lambda: access.approved_study(offer.id),
        lambda: access.table(small.study()),
        lambda: access.allow(offer.id, recipe_of(cards(target="outcome", task=None))),
    ):
        with pytest.raises(Refusal, match="not approved"):
            act()
    with pytest.raises(Refusal, match="is not a study"):
        access.folder("../x")


def test_another_policy_counts_at_once(home):
    study = small.offered(home).id
    approvals.approve(home, study, by="ben")
    access = HomeAccess(home)
    assert access.state(study) == ("ok", "")
    assert (access.name, access.smallest_cell(study)) == ("freetown", 1)
    set_policy(home.policy_path, "components", "algorithm/local")
    assert access.state(study)[0] == "denied"


def test_what_was_concluded_holds_until_a_file_changes(home, monkeypatch):
    """Looked at twice, read once; then a policy is edited in place, keeping its length and its time."""
    offer = small.offered(home)
    approvals.approve(home, offer.id, by="berta")
    access, reads = HomeAccess(home), []
    standing = approvals.approval_status

    def read(*words: Any) -> Any:
        reads.append(words)
        return standing(*words)

    monkeypatch.setattr("wardround.deploy.site.authorization.approval_status", read)
    time.sleep(0.1)  # what has just changed is never trusted
    assert [access.state(offer.id)[0] for _ in range(3)] == ["ok"] * 3
    assert len(reads) == 1
    before, text = os.stat(home.policy_path), home.policy_path.read_text()
    assert "triage research" in text
    home.policy_path.write_text(text.replace("triage research", "triage-research"))
    os.utime(home.policy_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert access.state(offer.id)[0] == "denied"
    home.policy_path.write_text(text)
    assert access.state(offer.id)[0] == "ok"
    decisions.withdraw(home, offer.id, by="berta")
    assert access.state(offer.id)[0] == "withdrawn"
