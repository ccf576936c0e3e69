"""Nothing runs before it is approved, by somebody else than who asks, in exactly the words that were approved."""

import json
from datetime import date

import pytest

from tests.support import small_site as small
from wardround.core.errors import Refusal
from wardround.deploy.party import decisions
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site import approvals
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.trust.audit_log import examine
from wardround.runs.folder import digest

HASH = "0123456789abcdef" * 2


@pytest.fixture
def home(tmp_path):
    return small.make(tmp_path)


def kinds(home) -> list[str]:
    return [entry["kind"] for entry in examine(home.audit_path, home.public_keys()).entries]


def test_both_sides_call_a_study_the_same():
    study = small.study()
    words = study.model_dump(mode="json")
    assert study_id(study) == f"triage-{digest(words)[:32]}"
    # As it comes out of a message and a file: the same words, hence the same name.
    again = small.parse_study(json.loads(json.dumps(words)), where="test")
    assert study_id(again) == study_id(study)


def test_an_offer_waits_and_the_same_again_changes_nothing(home):
    offer = small.offered(home)
    assert approvals.approval_status(home, offer.id) == ("waiting", "freetown has not decided yet")
    assert small.offered(home, submitter="mallory") == offer
    assert decisions.offers(home) == [offer]
    assert kinds(home).count("offered") == 1
    assert approvals.approval_status(home, f"other-{HASH}")[0] == "waiting"


def test_an_approval_lets_it_run_until_its_day(home):
    offer = small.offered(home)
    decision = approvals.approve(home, offer.id, by="ben", until=date(2026, 12, 31), today=date(2026, 11, 1))
    assert (decision.state, decision.by, decision.hash) == ("approved", "ben", offer.hash)
    assert (decision.data, decision.until) == ("patients", "2026-12-31")
    assert decisions.read_decision(home, offer.id) == decision
    assert approvals.approval_status(home, offer.id, today=date(2026, 12, 31)) == ("ok", "")
    state, why = approvals.approval_status(home, offer.id, today=date(2027, 1, 1))
    assert (state, "expired on 2026-12-31" in why) == ("denied", True)
    assert kinds(home)[-2:] == ["offered", "approved"]


@pytest.mark.parametrize("by", ["anna", "Anna", " a n n a ", "ANNA\t"])
def test_who_submits_does_not_approve(home, by):
    offer = small.offered(home)
    with pytest.raises(Refusal, match="submitted this study and cannot approve it"):
        approvals.approve(home, offer.id, by=by)
    assert decisions.read_decision(home, offer.id) is None


def test_without_a_name_nobody_approves_anything(home):
    nameless = small.offered(home, submitter=" ")
    with pytest.raises(Refusal, match="does not say who submitted"):
        approvals.approve(home, nameless.id, by="ben")
    named = small.offered(home, small.study(study={"rounds": 6}))
    for by in ("", "  ", "b\x1b[2Jen", "x" * 201):
        with pytest.raises(Refusal, match=r"(?i)the name of the person who decides is missing"):
            approvals.approve(home, named.id, by=by)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("purposes", "sepsis", "the purpose 'triage research' is not among"),
        ("components", "algorithm/*,aggregator/*", "the component model/logistic is not allowed"),
        ("columns", "age,pulse", "column 'outcome' is not allowed"),
        ("columns_denied", "age,pulse,sex", "the policy allows no input column of the dataset patients"),
        ("smallest_cell", "10", "the policy's smallest cell is 10"),
        ("epsilon", "3", "no such guarantee"),
        ("expires", "2020-01-01", "the policy expired on 2020-01-01"),
    ],
)
def test_the_policy_is_asked_at_approval_and_again_for_every_request(home, key, value, reason):
    offer = small.offered(home)
    before = home.policy_path.read_bytes()
    set_policy(home.policy_path, key, value)
    with pytest.raises(Refusal) as refused:
        approvals.approve(home, offer.id, by="ben")
    assert reason in str(refused.value)
    assert decisions.read_decision(home, offer.id) is None
    home.policy_path.write_bytes(before)
    approvals.approve(home, offer.id, by="ben")
    assert approvals.approval_status(home, offer.id)[0] == "ok"
    if key == "columns_denied":
        return  # columns withheld later are missing in the table itself: see test_registered
    set_policy(home.policy_path, key, value)
    state, why = approvals.approval_status(home, offer.id)
    assert state == "denied"
    assert reason in why


def test_a_study_needs_columns_that_are_there(home):
    asked = small.study(data={"split_by": "ward", "groups": ["race"]})
    with pytest.raises(Refusal, match=r"no column 'race'.*no column 'ward'"):
        approvals.approve(home, small.offered(home, asked).id, by="ben")


def test_an_approval_cannot_outlive_the_policy(home):
    set_policy(home.policy_path, "expires", "2040-01-01")
    offer = small.offered(home)
    with pytest.raises(Refusal, match="the policy expires on 2040-01-01, before 2040-01-02"):
        approvals.approve(home, offer.id, by="ben", until=date(2040, 1, 2))
    assert approvals.approve(home, offer.id, by="ben").until == "2040-01-01"


def test_a_denial_tells_why_and_may_be_thought_over(home):
    offer = small.offered(home)
    decisions.deny(home, offer.id, by="ben", why="too many rounds")
    state, why = approvals.approval_status(home, offer.id)
    assert (state, why.endswith(": too many rounds")) == ("denied", True)
    approvals.approve(home, offer.id, by="ben")
    assert approvals.approval_status(home, offer.id)[0] == "ok"
    with pytest.raises(Refusal, match="withdraw it with"):
        decisions.deny(home, offer.id, by="ben")


def test_a_withdrawal_counts_at_once_and_is_final(home):
    offer = small.offered(home)
    with pytest.raises(Refusal, match="not decided yet"):
        decisions.withdraw(home, offer.id, by="ben")
    approvals.approve(home, offer.id, by="ben")
    decisions.withdraw(home, offer.id, by="clara", why="moved")
    assert approvals.approval_status(home, offer.id)[0] == "withdrawn"
    with pytest.raises(Refusal, match="a withdrawal is final"):
        approvals.approve(home, offer.id, by="ben")
    assert kinds(home)[-2:] == ["approved", "withdrawn"]


def test_epsilon_is_never_given_back(home):
    for number, state in enumerate(("approved", "withdrawn")):
        one = decisions.Decision(f"s{number}-{HASH}", "", state, "ben", "2031-05-01", epsilon=1.25)
        decisions.record_decision(home, one)
    assert approvals.promised_epsilon(home) == 2.5
    assert approvals.promised_epsilon(home, beside=f"s0-{HASH}") == 1.25


def test_changed_words_are_not_what_was_approved(home):
    """Somebody edits the stored offer; and somebody edits offer and hash: either way it does not run."""
    offer = small.offered(home)
    approvals.approve(home, offer.id, by="ben")
    path = decisions.offer_path(home, offer.id)
    content = json.loads(path.read_bytes())
    content["study"]["study"]["rounds"] = 5000
    path.write_text(json.dumps(content))
    with pytest.raises(Refusal, match=r"(?i)the stored offer was changed"):
        approvals.approval_status(home, offer.id)
    content["hash"] = digest(content["study"])
    path.write_text(json.dumps(content))
    with pytest.raises(Refusal, match=r"(?i)the stored offer was changed"):
        approvals.approval_status(home, offer.id)


def test_a_decision_about_other_words_does_not_count(home):
    offer = small.offered(home)
    approvals.approve(home, offer.id, by="ben")
    path = decisions.decision_path(home, offer.id)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "hash": "00" * 32}))
    assert approvals.approval_status(home, offer.id) == (
        "denied",
        "freetown approved a different version of this study",
    )
    path.write_text("{}")
    with pytest.raises(Refusal, match=r"(?i)the decision is damaged"):
        approvals.approval_status(home, offer.id)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", f"a/b-{HASH}", "", "triage", "triage-XYZ", "t-0123456789ab", f"t-{HASH}\n", "x" * 400]
)
def test_a_name_that_is_no_study_reaches_no_file(home, name):
    for act in (decisions.read_decision, decisions.read_offer, approvals.approval_status):
        with pytest.raises(Refusal, match="is not a study"):
            act(home, name)


def test_an_offer_must_be_what_it_calls_itself(home):
    words = small.study().model_dump(mode="json")
    with pytest.raises(Refusal, match=f"calls itself triage-{HASH}"):
        decisions.store_offer(home, f"triage-{HASH}", words, "anna")
    with pytest.raises(Refusal, match=r"(?i)unknown key"):
        decisions.store_offer(home, f"triage-{HASH}", {**words, "code": "import os"}, "anna")
    with pytest.raises(Refusal, match="too long"):
        decisions.store_offer(home, f"triage-{HASH}", {"x": "y" * (1 << 20)}, "anna")
    assert decisions.offers(home) == []


def test_offers_cannot_fill_the_disk(home, monkeypatch):
    monkeypatch.setattr(decisions, "MOST_OFFERS", 2)
    for rounds in (1, 2):
        small.offered(home, small.study(study={"rounds": rounds}))
    with pytest.raises(Refusal, match="2 studies have already been offered"):
        small.offered(home, small.study(study={"rounds": 3}))


def test_a_study_is_meant_by_its_name_where_there_is_one_of_it(home):
    first = small.offered(home)
    assert decisions.resolve(home, "triage") == decisions.resolve(home, first.id) == first
    second = small.offered(home, small.study(study={"rounds": 6}))
    with pytest.raises(Refusal, match="2 studies are called 'triage'"):
        decisions.resolve(home, "triage")
    assert decisions.resolve(home, second.id) == second
    # Whoever decides means the one that waits for it, where there is one.
    with pytest.raises(Refusal, match="2 studies are called 'triage'"):
        decisions.resolve(home, "triage", undecided=True)
    decisions.deny(home, first.id, by="ben")
    assert decisions.resolve(home, "triage", undecided=True) == second
    with pytest.raises(Refusal, match="2 studies are called 'triage'"):
        decisions.resolve(home, "triage")
    with pytest.raises(Refusal, match=r"(?i)no study called 'sepsis' was offered"):
        decisions.resolve(home, "sepsis")


def test_a_study_is_meant_by_the_beginning_of_its_identity_where_there_is_one_of_it(home):
    first, second = small.offered(home), small.offered(home, small.study(study={"rounds": 6}))
    assert [len(one.id.rpartition("-")[2]) for one in (first, second)] == [32, 32]  # 128 bits
    same = next(at for at, (a, b) in enumerate(zip(first.id, second.id, strict=True)) if a != b)
    assert decisions.resolve(home, first.id[: same + 1]) == first
    assert decisions.resolve(home, second.id[: same + 1]) == second
    with pytest.raises(Refusal, match="2 studies are called 'triage'"):
        decisions.resolve(home, "triage")
    for wrong in ("triag", "triage-", first.id[: same + 1] + "x", ""):
        with pytest.raises(Refusal, match=r"(?i)no study called"):
            decisions.resolve(home, wrong)
    # A study whose NAME is such a beginning: nobody approves the one and means the other.
    small.offered(home, small.study(study={"name": first.id[: same + 1]}))
    decisions.deny(home, first.id, by="ben")
    for undecided in (False, True):
        with pytest.raises(Refusal, match="2 studies are called"):
            decisions.resolve(home, first.id[: same + 1], undecided=undecided)
    assert decisions.resolve(home, first.id) == first


@pytest.mark.parametrize("harm", ["\x1b[31m", "\x1b]52;c;eA==\x07", "\r", "\u202e", "\u200b", "\x9b2J"], ids=repr)
def test_a_study_that_could_not_be_shown_as_it_is_is_not_stored(home, harm):
    study = small.study(study={"purpose": f"triage{harm}"})
    with pytest.raises(Refusal, match=r"(?i)control characters or invisible marks") as refused:
        small.offered(home, study)
    assert harm not in str(refused.value)
    assert decisions.offers(home) == []


def test_an_invisible_mark_makes_nobody_a_second_person(home):
    offer = small.offered(home, submitter="An\u200bna\x1b[0m\u202e")
    assert offer.submitter == "Anna[0m"
    plain = small.offered(home, small.study(study={"rounds": 6}), submitter="an\u200bna")
    with pytest.raises(Refusal, match=r"(?i)anna submitted this study"):
        approvals.approve(home, plain.id, by="Anna")
