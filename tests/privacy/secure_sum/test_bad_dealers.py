"""A site that deals bad shares is named and left out before anybody masks, and nobody can make an honest one open."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.support import secure_sum_round as rounds
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum import group
from wardround.privacy.secure_sum.messages import BadMessage, SumMessage, sign
from wardround.privacy.secure_sum.server import advance, receive, unanswered_complaints, unmask_sum
from wardround.privacy.secure_sum.shares import Shares, shares_to_json
from wardround.privacy.secure_sum.site import check, mask, open_shares

BAD, HOLDER = "site-001", "site-002"


def dealt_badly(count: int = 7, holders=(HOLDER,)):
    """A round in which one dealer's sealed shares for these holders cannot be opened; all have checked theirs."""
    one = rounds.begun(count).until("advertise")
    messages = one.answers("share")
    content = json.loads(json.dumps(messages[BAD].content))
    for holder in holders:
        content["sealed"][holder]["sealed"] = "00" * 80
    messages[BAD] = sign(replace(messages[BAD], content=content), rounds.long_term(BAD))
    one.take(messages)
    one.take(one.answers("check"))
    return one


def finished(one, left: set[str]) -> None:
    """The round goes on to the end, and its sum is that of the others."""
    for step in ("mask", "agree", "reveal"):
        one.take(one.answers(step))
    assert set(one.server.survivors) == left
    assert unmask_sum(one.server).tolist() == rounds.in_python(one.vectors, left)


def test_a_dealer_that_does_not_open_is_named_and_the_round_goes_on_without_it():
    one = dealt_badly()
    one.server, asked = advance(one.server)
    assert (one.server.step, set(asked)) == ("open", {BAD})
    assert unanswered_complaints(one.server) == {
        BAD: "site-002 got a wrong share of its secrets, and it has not opened the right one"
    }
    finished(one, set(one.session.roster) - {BAD})


def test_a_dealer_that_opens_the_right_share_stays_and_its_holder_uses_it():
    one = dealt_badly()
    dealt = one.sites[BAD].parcels[HOLDER]
    # The cheat has to own up to what it sent, or it would not open.
    sent = one.server.dealt[BAD]
    true = rounds.to_json(one.said[-1])["content"]
    assert true == {"complaints": {}}
    digest = one.server.verdicts[HOLDER].complaints[BAD]
    one.sites[BAD] = replace(one.sites[BAD], parcels={**one.sites[BAD].parcels, HOLDER: dealt._replace(digest=digest)})
    one.take(one.answers("open"))
    assert unanswered_complaints(one.server) == {}
    # The holder counts at the end: all but the threshold are lost, and it is among those who reveal.
    for step in ("mask", "agree"):
        one.take(one.answers(step))
    assert one.sites[HOLDER].held[BAD] == dealt.shares
    lost = [name for name in one.session.roster if name not in (BAD, HOLDER)][:2]
    one.take(one.answers("reveal", lost))
    assert unmask_sum(one.server).tolist() == rounds.in_python(one.vectors, one.session.roster)
    assert sent.sealed[HOLDER]["sealed"] == "00" * 80


def test_what_is_opened_must_be_what_was_committed_to():
    one = dealt_badly()
    one.server, asked = advance(one.server)
    digest = one.server.verdicts[HOLDER].complaints[BAD]
    parcel = one.sites[BAD].parcels[HOLDER]
    liar = replace(
        one.sites[BAD], parcels={HOLDER: parcel._replace(shares=Shares(5, parcel.shares.key), digest=digest)}
    )
    _, said = open_shares(liar, rounds.carried(asked[BAD]))
    with pytest.raises(BadMessage, match="opened a share for site-002 that it has not committed to") as told:
        receive(one.server, said)
    assert told.value.sender == BAD
    for content in (
        {"opened": {}},
        {"opened": {HOLDER: 5}},
        {"opened": {HOLDER: {"seed": "00" * 32}}},
        {"opened": {HOLDER: {"seed": "ff" * 32, "key": "00" * 32}}},
    ):
        with pytest.raises(BadMessage):
            receive(one.server, sign(replace(said, content=content), rounds.long_term(BAD)))
    # A coordinator that tells the holder another share finds it as strict.
    one.server, asked = advance(one.server)
    message = rounds.carried(asked[HOLDER])
    dealers = sorted([*message.content["dealers"], BAD])
    for opened, why in (({}, "has not opened"), ({BAD: shares_to_json(Shares(5, 6))}, "has not committed to")):
        lie = replace(message, content={"dealers": dealers, "opened": opened})
        with pytest.raises(BadMessage, match=why):
            mask(one.sites[HOLDER], lie, np.zeros(5, np.uint64))


def test_a_coordinator_cannot_make_an_honest_dealer_open_anything():
    """It changes what it passes on, so that holders complain; forges complaints; or collects those of the colluding."""
    one = rounds.begun(7).until("share")
    one.server, asked = advance(one.server)
    message = rounds.carried(asked[HOLDER])
    shares = message.content["shares"]
    changed = {**shares, BAD: {**shares[BAD], "sealed": "00" * 80}}
    after, complaint = check(one.sites[HOLDER], replace(message, content={"shares": changed}))
    assert set(complaint.content["complaints"]) == {BAD} == set(after.disputed)
    # The honest coordinator's own half would not count it either.
    with pytest.raises(BadMessage, match="complains about another share than site-001 dealt to it") as told:
        receive(one.server, complaint)
    assert told.value.sender == HOLDER
    for name, request in asked.items():
        one.sites[name], _ = check(one.sites[name], rounds.carried(request))
    dealer = one.sites[BAD]

    def passed_on(**complaints) -> SumMessage:
        return SumMessage("open", one.session.hex, "coordinator", {"complaints": complaints})

    def told_by(holder: str, digest: str, key: str | None = None) -> dict:
        words = {"complaints": {BAD: digest}}
        signed = sign(SumMessage("check", one.session.hex, holder, words), rounds.long_term(key or holder))
        return {**words, "signature": signed.signature}

    true = {name: parcel.digest for name, parcel in dealer.parcels.items()}
    words = {"complaints": dict(complaint.content["complaints"]), "signature": complaint.signature}
    cases = [
        ({HOLDER: words}, "it was changed on the way"),
        ({HOLDER: told_by(HOLDER, true[HOLDER], "site-003")}, "site-002 has not signed this complaint"),
        ({HOLDER: told_by(HOLDER, true["site-003"])}, "it was changed on the way"),
        ({HOLDER: {**words, "signature": ""}}, "has not signed"),
        ({HOLDER: "nonsense"}, "cannot be read"),
        ({BAD: words}, "cannot be read"),
        ({"zurich": words}, "cannot be read"),
        # Two of seven may be dishonest: three that complain about an honest dealer cannot be.
        ({name: told_by(name, true[name]) for name in ("site-000", "site-002", "site-003")}, "at most 2 may be"),
    ]
    for complaints, why in cases:
        with pytest.raises(BadMessage, match=why) as told:
            open_shares(dealer, passed_on(**complaints))
        assert told.value.sender == "coordinator"
    # Who lies about its share is shown it again, which it knows; nobody else's.
    _, said = open_shares(dealer, passed_on(**{HOLDER: told_by(HOLDER, true[HOLDER])}))
    assert said.content == {"opened": {HOLDER: shares_to_json(dealer.parcels[HOLDER].shares)}}


def test_complaints_that_cannot_be():
    one = rounds.begun(4).until("share")
    messages = one.answers("check")
    for complaints, why in (({"zurich": "00" * 32}, "dealt it nothing"), ({HOLDER: "00" * 32}, "dealt it nothing")):
        wrong = sign(replace(messages[HOLDER], content={"complaints": complaints}), rounds.long_term(HOLDER))
        with pytest.raises(BadMessage, match=why) as told:
            receive(one.server, wrong)
        assert told.value.sender == HOLDER


def test_with_too_few_good_dealers_nothing_is_masked():
    """Of four sites three are needed, and two cheat: nobody masks, so nobody has spent anything."""
    one = rounds.begun(4).until("advertise")
    messages = one.answers("share")
    for name in ("site-000", BAD):
        content = json.loads(json.dumps(messages[name].content))
        content["sealed"][HOLDER]["sealed"] = "00" * 80
        messages[name] = sign(replace(messages[name], content=content), rounds.long_term(name))
    one.take(messages)
    one.take(one.answers("check"))
    one.server, _ = advance(one.server)
    with pytest.raises(Refusal, match="nly 2 of 4 sites answered in the step 'open'"):
        advance(one.server)


def test_shares_of_one_polynomial_are_known_by_their_commitments_alone():
    """Values of 5 + 3x at 0, 1, 2, 3, with two coefficients: each changed value, and each lower threshold, is seen."""
    points = {place: group.public_point(5 + 3 * place) for place in range(4)}
    for _ in range(20):
        assert group.are_shares(points, 2)
        assert group.are_shares(points, 3)
        assert not group.are_shares(points, 1)
        for place in points:
            assert not group.are_shares({**points, place: group.public_point(77)}, 2)
            # Three coefficients fit any three of four values: one more is needed to see it.
            assert not group.are_shares({**points, place: group.public_point(77)}, 3)
    # By hand: at 0, 1, 2 the second difference a - 2b + c of a line is 0; a dual word is a multiple of (1, -2, 1).
    word = group.random_dual_word((0, 1, 2), 2)
    assert word[1] == -2 * word[0] % group.ORDER
    assert word[2] == word[0]


def test_points_are_those_of_the_standard():
    # RFC 8032, section 5.1: the generator has y = 4/5; twice it is its sum with itself; the order takes it to nothing.
    prime = 2**255 - 19
    y = 4 * pow(5, -1, prime) % prime
    assert group.public_point(1) == y.to_bytes(32, "little")
    assert group.combination([1, 1], [group.public_point(1)] * 2) == group.public_point(2)
    assert group.combination([3, group.ORDER - 1], map(group.public_point, (1, 3))) == group.public_point(group.ORDER)
    one, other = group.random_scalar(), group.random_scalar()
    assert group.shared_point(one, group.public_point(other)) == group.shared_point(other, group.public_point(one))
    assert group.shared_point(one, group.public_point(other)) == group.public_point(one * other % group.ORDER)
    assert group.shared_point(5, bytes(32)) is None
    assert group.scalar_from(group.to_bytes(7)) == 7
    assert group.scalar_from(group.ORDER.to_bytes(32, "little")) is None
