"""A site refuses every message of the coordinator that cannot be right, and says why; nothing is revealed."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support import secure_sum_round as rounds
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.group import public_point
from wardround.privacy.secure_sum.messages import BadMessage, SumMessage, sign
from wardround.privacy.secure_sum.site import advertise, agree, mask, reveal, sign_agreement

BAD, OTHER = "site-001", "site-002"
ANSWERED = rounds.USUAL
"""Steps in which every site says something; what is opened after complaints is in test_bad_dealers.py."""
ACTS = {**rounds.ACTS, "mask": lambda site, message: mask(site, message, np.zeros(5, np.uint64))}


def asked(step: str, count: int = 4, silent=None):
    """A site before this step, and the coordinator's message for it."""
    one = rounds.begun(count)
    one.until(ANSWERED[ANSWERED.index(step) - 1], silent)
    sites = dict(one.sites)
    one.answers(step, (silent or {}).get(step, ()))
    return sites[BAD], rounds.carried(one.asked[BAD]), one


def declined(site, message, words: str, sender: str = "coordinator") -> None:
    with pytest.raises(BadMessage, match=words) as told:
        ACTS[message.step](site, message)
    assert told.value.sender == sender


@pytest.mark.parametrize("step", ANSWERED[1:])
def test_a_site_follows_only_its_coordinator_session_and_order(step):
    site, message, one = asked(step)
    declined(site, replace(message, sender=OTHER), "only the coordinator leads", OTHER)
    declined(site, replace(message, session="00" * 32), "another study, round or attempt")
    for other in set(ANSWERED[1:]) - {step}:
        declined(site, replace(message, step=other), f"asks site-001 for '{other}', and '{site.step}' is next")
    # Asked for the same twice: the new state does not do it again.
    declined(one.sites[BAD], message, f"asks site-001 for '{step}', and '{one.sites[BAD].step}' is next")
    assert one.sites[BAD].step == (*rounds.STEPS, "finished")[rounds.STEPS.index(step) + 1]


def test_keys_passed_on_to_a_site():
    site, message, _ = asked("share")
    adverts = message.content["adverts"]

    def telling(changed) -> SumMessage:
        return replace(message, content={"adverts": changed})

    other = adverts[OTHER]
    declined(site, telling({**adverts, "zurich": other}), "zurich, which is not on the roster")
    declined(site, telling({**adverts, OTHER: {**other, "more": ""}}), "the keys of site-002 cannot be read")
    # A key put in by the coordinator, to sit between two sites.
    declined(site, telling({**adverts, OTHER: {**other, "masking": "11" * 32}}), "not signed by site-002", OTHER)
    swapped = {**other, "masking": other["sharing"], "sharing": other["masking"]}
    declined(site, telling({**adverts, OTHER: swapped}), "not signed by site-002", OTHER)
    declined(site, telling({name: one for name, one in adverts.items() if name != BAD}), "the keys of site-001")
    few = {name: adverts[name] for name in ("site-001", "site-002")}
    declined(site, telling(few), "2 of 4 sites advertised keys, and 3 are needed")
    declined(site, telling([]), "no list 'adverts'")


def test_shares_passed_on_to_a_site():
    """What its dealer did not send so is complained about; what no dealer can have sent is the coordinator's."""
    site, message, _ = asked("check")
    shares = message.content["shares"]

    def telling(**changed) -> SumMessage:
        return replace(message, content={"shares": {**shares, OTHER: {**shares[OTHER], **changed}}})

    sealed = shares[OTHER]["sealed"]
    flipped = f"{int(sealed[:2], 16) ^ 1:02x}" + sealed[2:]
    point = public_point(5).hex()
    for changed in (
        {"sealed": flipped},
        {"sealed": shares["site-003"]["sealed"]},
        {"nonce": "00" * 12},
        {"commitments": [point, shares[OTHER]["commitments"][1]]},
        {"commitments": [shares[OTHER]["commitments"][0], point]},
    ):
        after, said = rounds.ACTS["check"](site, telling(**changed))
        assert set(said.content["complaints"]) == {OTHER} == set(after.disputed)
        assert OTHER not in after.held
    after, said = rounds.ACTS["check"](site, message)
    assert (said.content, set(after.held)) == ({"complaints": {}}, set(site.session.roster))
    declined(site, telling(sealed="00"), "not 80 bytes")
    declined(site, telling(commitments=["00" * 32]), "a commitment cannot be read")
    declined(site, telling(more=1), "the share of site-002 cannot be read")
    extra = {**shares, BAD: shares[OTHER]}
    declined(site, replace(message, content={"shares": extra}), "which advertised no keys")
    few = {OTHER: shares[OTHER]}
    declined(site, replace(message, content={"shares": few}), "2 of 4 sites shared their secrets")


def test_dealers_that_cannot_be():
    site, message, _ = asked("mask")
    roster = list(site.session.roster)

    def telling(dealers, opened=None) -> SumMessage:
        return replace(message, content={"dealers": dealers, "opened": opened or {}})

    for wrong in (None, "abc", [1, 2, 3], roster[::-1], [*roster, "zurich"], [*roster, roster[-1]]):
        declined(site, telling(wrong), "not sites that shared their secrets")
    declined(site, telling(roster, {OTHER: {"seed": "00" * 32, "key": "00" * 32}}), "not sites that shared")
    declined(site, telling([name for name in roster if name != BAD]), "leaves out site-001, which has dealt")
    declined(site, telling(roster[:2]), "2 of 4 sites dealt good shares")


def test_an_answer_of_another_form_is_refused_at_the_site():
    site, message, _ = asked("mask")
    for vector in (np.zeros(4, np.uint64), np.zeros(5, np.int64), np.zeros((5, 1), np.uint64)):
        with pytest.raises(Refusal, match="5 of uint64 were agreed"):
            mask(site, message, vector)


def test_survivors_that_cannot_be():
    site, message, _ = asked("agree")
    roster = list(site.session.roster)
    for wrong in (None, "abc", [1, 2, 3], roster[::-1], [*roster, "zurich"], [*roster, roster[-1]]):
        declined(site, replace(message, content={"survivors": wrong}), "not sites that shared their secrets")
    without = [name for name in roster if name != BAD]
    declined(site, replace(message, content={"survivors": without}), "which has answered, as lost")
    declined(site, replace(message, content={"survivors": roster[:2]}), "2 of 4 sites answered, and 3 are needed")


def test_two_stories_about_the_survivors_open_nothing():
    """A coordinator that wants both shares of a site tells some that it answered and others that it did not."""
    one = rounds.begun(4).until("mask")
    one.server, requests = rounds.advance(one.server)
    without = ["site-000", "site-001", "site-003"]
    messages = {}
    for name, request in requests.items():
        story = request if name in ("site-000", "site-002") else replace(request, content={"survivors": without})
        one.sites[name], messages[name] = agree(one.sites[name], story)
    signatures = {name: message.signature for name, message in messages.items()}
    told = SumMessage("reveal", one.session.hex, "coordinator", {"signatures": signatures})
    for name in ("site-000", "site-002"):
        with pytest.raises(BadMessage, match="has not signed the same survivors and keys"):
            reveal(one.sites[name], told)
    for name in ("site-001", "site-003"):
        with pytest.raises(BadMessage, match=r"has not signed the same|not among the survivors"):
            reveal(one.sites[name], told)
    # Only with those who were told the same, each story has too few.
    few = {name: signatures[name] for name in ("site-000", "site-002")}
    with pytest.raises(BadMessage, match="2 of 4 sites signed the same survivors, and 3 are needed"):
        reveal(one.sites["site-000"], replace(told, content={"signatures": few}))


def test_two_stories_about_the_keys_open_nothing():
    """A coordinator that leaves one site's keys out for some is found when they sign."""
    one = rounds.begun(5).until("mask")
    survivors = one.session.roster[:4]
    said = {
        name: sign(
            sign_agreement(replace(one.sites[name], survivors=survivors), name), rounds.long_term(name)
        ).signature
        for name in survivors
        if name != BAD
    }
    message = SumMessage("reveal", one.session.hex, "coordinator", {"signatures": said})
    before = replace(one.sites[BAD], step="reveal", survivors=survivors)
    few = {name: shares for name, shares in before.held.items() if name != "site-004"}
    for deceived in (replace(before, keys_digest="00" * 32), replace(before, held=few)):
        with pytest.raises(BadMessage, match="has not signed the same survivors and keys"):
            reveal(deceived, message)
    with pytest.raises(BadMessage, match="3 of 5 sites signed"):
        reveal(before, message)


def test_a_site_that_is_not_on_the_roster_or_whose_peers_are_unknown():
    one = rounds.begun(3)
    with pytest.raises(Refusal, match="urich is not on the roster"):
        advertise(one.session, "zurich", rounds.long_term(BAD), one.public)
    keys = {name: key for name, key in one.public.items() if name != OTHER}
    with pytest.raises(Refusal, match="long-term key of site-002 is not known"):
        advertise(one.session, BAD, rounds.long_term(BAD), keys)
    with pytest.raises(Refusal, match="long-term key of site-002 is not known"):
        rounds.start_sum(one.session, keys)


def test_a_masking_key_that_is_no_point_is_refused_by_the_sites_too():
    site, message, one = asked("share")
    content = {"sharing": message.content["adverts"][OTHER]["sharing"], "masking": "00" * 32}
    signed = sign(SumMessage("advertise", one.session.hex, OTHER, content), rounds.long_term(OTHER))
    adverts = {**message.content["adverts"], OTHER: {**content, "signature": signed.signature}}
    declined(site, replace(message, content={"adverts": adverts}), "its masking key is not valid", OTHER)
