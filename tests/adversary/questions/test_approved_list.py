"""What was approved is what counts: columns, the list of all that may leave, sizes, refusals without end."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.adversary.questions import (
    SITE,
    entries,
    keep_policies,
    liar,
    study_of,
    with_patient_numbers,
)
from wardround.core.contracts import Message
from wardround.deploy.party import decisions
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site import approvals
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.release.release_list import REFUSALS


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return with_patient_numbers(tmp_path_factory.mktemp("questions"))


@pytest.fixture(autouse=True)
def as_before(consortium: Any) -> Iterator[None]:
    with keep_policies(consortium):
        yield


def test_a_column_denied_amid_a_study_ends_it(consortium: Any) -> None:
    """`temperature` is no column that the study names: it is only read."""
    one = liar(consortium, "denied", "round", 4)
    access = HomeAccess(consortium.homes[SITE])
    assert access.state(study_id(one.study))[0] is Status.OK
    set_policy(consortium.homes[SITE].policy_path, "columns_denied", "temperature")
    said = one.alter(one.last(SITE, "round", round=1), round=2)
    assert said.status is Status.DENIED
    assert "column 'temperature' is not allowed" in said.why
    assert one.replay(one.last(SITE, "round", round=1)).status is Status.DENIED


def test_a_column_allowed_after_the_approval_is_not_read(consortium: Any) -> None:
    home = consortium.homes[SITE]
    set_policy(home.policy_path, "columns_denied", "temperature")
    study = study_of("later")
    decisions.store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    approvals.approve(home, study_id(study), by="admin")
    set_policy(home.policy_path, "columns_denied", "")
    table = HomeAccess(home).table(study)
    assert "temperature" not in table.sites[SITE].columns
    assert "age" in table.sites[SITE].columns


def test_a_list_that_grew_since_the_approval_is_not_answered(consortium: Any) -> None:
    one = liar(consortium, "grown", "round", 4)
    set_policy(consortium.homes[SITE].policy_path, "smallest_cell", "5")
    said = one.replay(one.last(SITE, "round", round=1))
    assert said.status is Status.DENIED
    assert "approved a shorter list of what may leave" in said.why
    assert "groups of 5 patients, 10 approved" in said.why
    assert "\n" not in said.why
    # Approved again, with the list as it is now, it goes on.
    approvals.approve(consortium.homes[SITE], study_id(one.study), by="admin")
    assert one.replay(one.last(SITE, "round", round=1)).status in (Status.OK, Status.REFUSED)
    assert read_policy(consortium.homes[SITE].policy_path).smallest_cell == 5


def test_a_request_larger_than_any_of_the_study_is_not_even_decoded(consortium: Any) -> None:
    """64 MB where a model has a few hundred numbers; that the arrays are no arrays is not noticed any more."""
    one = liar(consortium, "large", "round", 4)
    asked = one.last(SITE, "round", round=1)
    large = {**asked.message.arrays, "more": np.zeros(16 << 20, np.float32)}
    body = bytearray(encode({**asked.header, "round": 2}, Message(large)))
    body[-(60 << 20) :] = b"x" * (60 << 20)
    said = one.deliver(SITE, "round", bytes(body))
    assert said.status is Status.REFUSED
    assert "are allowed for round" in said.why
    assert one.deliver(SITE, "hello", encode({**asked.header}, Message(large))).status is Status.REFUSED
    sent = entries(consortium, "sent", one.study)
    listed = {each.kind: each for each in HomeAccess(consortium.homes[SITE]).releases(study_id(one.study))}
    assert sent
    assert all(each["bytes"] <= listed[each["release"]].bytes for each in sent)


def test_refusals_are_written_down_once_each_and_not_without_end(consortium: Any) -> None:
    one = liar(consortium, "refusals", "round", 4)
    asked = one.last(SITE, "round", round=1)
    for _ in range(5):
        one.alter(asked, round=99)
    written = entries(consortium, "refused", one.study)
    assert len(written) == 1
    assert "rounds 1 to 3" in written[0]["why"]
    long = "x" * 5000
    for number in range(REFUSALS + 20):
        said = one.send(
            SITE,
            "query",
            {"query": {"kind": "query", "name": f"{number}{long}", "settings": {}, "parts": []}, "on": "raw"},
        )
        assert said.status is Status.REFUSED
        assert len(said.why) <= 2000
    written = entries(consortium, "refused", one.study)
    assert len(written) == REFUSALS
    assert all(len(each["request"]) == 32 and long not in json.dumps(each) for each in written)
    assert "not told any more" in said.why
    consortium.restart(SITE)
    assert "not told any more" in one.alter(asked, extra="word").why


def test_the_approval_names_all_that_left(consortium: Any) -> None:
    """A whole honest study: every reply in the audit log is of a listed kind, and no kind more often than listed."""
    one = liar(consortium, "honest")
    home = consortium.homes[SITE]
    decision = decisions.read_decision(home, study_id(one.study))
    assert decision is not None
    listed = {each["kind"]: each for each in decision.releases}
    used: dict[str, set[str]] = {}
    for each in entries(consortium, "sent", one.study):
        used.setdefault(each["release"], set()).add(each["slot"])
    spare = {"judge": 3}
    assert {kind: len(slots) for kind, slots in used.items()} == {
        kind: listed[kind]["times"] - spare.get(kind, 0) for kind in used
    }, "an honest study of three rounds asks for all that is listed but the looks for a coordinator that died"
    assert set(listed) - set(used) == {"diverged", "refusal"}
    (approved,) = entries(consortium, "approved", one.study)
    assert approved["releases_hash"] == decision.releases_hash
