"""Every message that cannot be right is refused, with whose it was and why; nothing is counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import secure_sum_round as rounds
from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.group import ORDER, public_point, to_bytes
from wardround.privacy.secure_sum.messages import BadMessage, SumMessage, from_json, sign, to_json
from wardround.privacy.secure_sum.server import receive, unmask_sum
from wardround.privacy.secure_sum.site import advertise, agree, mask, reveal, share, sign_agreement

BAD, OTHER = "site-001", "site-002"
ACTS = {**rounds.ACTS, "mask": lambda site, message: mask(site, message, np.zeros(5, np.uint64))}
ANSWERED = rounds.USUAL
"""Steps in which every site says something; what is opened after complaints is in test_bad_dealers.py."""


def at(step: str, count: int = 4, silent=None):
    """A round whose sites have answered in this step, their messages not yet taken."""
    one = rounds.begun(count)
    before = ANSWERED.index(step)
    if before:
        one.until(ANSWERED[before - 1], silent)
    return one, one.answers(step, (silent or {}).get(step, ()))


def resigned(message: SumMessage, **changes) -> SumMessage:
    """A faulty message that its site really signed."""
    return sign(replace(message, **changes), rounds.long_term(message.sender))


def refused(one, message: SumMessage, words: str, sender: str = BAD) -> None:
    before = one.server
    with pytest.raises(BadMessage, match=words) as told:
        receive(before, message)
    assert told.value.sender == sender
    assert f"step {message.step}" in str(told.value)
    assert before.senders == one.server.senders


# ---- to the coordinator ----


@pytest.mark.parametrize("step", ANSWERED)
def test_whatever_the_step(step):
    one, messages = at(step)
    message = messages[BAD]
    # Signed by another site, not at all, or changed after signing.
    refused(one, sign(message, rounds.long_term(OTHER)), "the signature is not site-001's")
    refused(one, replace(message, signature=""), "the signature is not site-001's")
    refused(one, replace(message, content={**message.content, "more": "00"}), "the signature is not site-001's")
    refused(one, resigned(message, content={**message.content, "more": "00"}), "does not hold exactly|signs other")
    # In another's name; from nobody on the roster.
    refused(one, replace(message, sender=OTHER), "the signature is not site-002's", OTHER)
    refused(one, replace(message, sender="zurich"), "not on the roster", "zurich")
    # From another attempt at the same round: a replay.
    refused(one, resigned(message, session="00" * 32), "another study, round or attempt")
    old = rounds.begun(4, nonce="ff" * 16).until(step)
    replayed = next(one for one in old.said if one.step == step and one.sender == BAD)
    refused(one, replayed, "another study, round or attempt")
    # A second copy of the same, and a second message that says something else.
    one.server = receive(one.server, message)
    refused(one, message, "second message for the same step")
    refused(one, resigned(message), "second message for the same step")


@pytest.mark.parametrize("step", ANSWERED)
def test_out_of_order(step):
    one, messages = at(step)
    for other in set(rounds.STEPS) - {step}:
        wrong = resigned(messages[BAD], step=other)
        refused(one, wrong, f"message for '{other}' comes while '{step}' is under way")
    # A message of the step before, sent again.
    if one.said:
        refused(one, one.said[-1], "comes while", one.said[-1].sender)


@pytest.mark.parametrize("step", ANSWERED[1:])
def test_who_was_lost_cannot_come_back(step):
    before = ANSWERED[ANSWERED.index(step) - 1]
    one, messages = at(step, silent={name: [BAD] for name in ANSWERED[ANSWERED.index(before) :]})
    refused(one, resigned(messages[OTHER], sender=BAD), "lost in an earlier step")


def test_vectors_only_where_they_belong_and_of_the_agreed_form():
    one, messages = at("mask")
    message = messages[BAD]
    refused(one, resigned(message, vector=None), "a vector belongs to the step 'mask'")
    refused(one, resigned(message, vector=message.vector[:-1]), r"a vector of \(4,\) uint64, and 5 ring elements")
    refused(one, resigned(message, vector=message.vector.reshape(1, 5)), "5 ring elements were agreed")
    changed = message.vector.copy()
    changed[0] += np.uint64(1)
    refused(one, replace(message, vector=changed), "the signature is not site-001's")
    one, messages = at("share")
    refused(one, resigned(messages[BAD], vector=np.zeros(5, np.uint64)), "a vector belongs to the step 'mask'")


def test_adverts():
    one, messages = at("advertise")
    message, other = messages[BAD], messages[OTHER]
    for wrong in ("", "00" * 31, "zz" * 32, "AB" * 32, 5, None, [0] * 32):
        refused(one, resigned(message, content={**message.content, "masking": wrong}), "not 32 bytes in hexadecimal")
    # No point of the group: not on the curve, of order 1, 2 and 8.
    eight = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"
    for wrong in ("02" + "00" * 31, "01" + "00" * 31, "ec" + "ff" * 30 + "7f", eight):
        refused(one, resigned(message, content={**message.content, "masking": wrong}), "masking key is not valid")
    # A key copied from another site.
    one.server = receive(one.server, other)
    copied = {**message.content, "masking": other.content["masking"]}
    refused(one, resigned(message, content=copied), "a key that site-002 advertises too")


def test_shares():
    one, messages = at("share")
    message = messages[BAD]

    def changed(part: str, holder: str, value) -> SumMessage:
        inner = {**message.content[part], holder: value}
        return resigned(message, content={**message.content, part: inner})

    sealed = message.content["sealed"][OTHER]
    refused(one, changed("sealed", BAD, sealed), "one share to each site")
    refused(one, changed("sealed", "zurich", sealed), "one share to each site")
    fewer = {name: value for name, value in message.content["sealed"].items() if name != OTHER}
    refused(one, resigned(message, content={**message.content, "sealed": fewer}), "one share to each site")
    refused(one, resigned(message, content={**message.content, "sealed": []}), "no list 'sealed'")
    refused(one, changed("sealed", OTHER, "00"), "a share cannot be read")
    refused(one, changed("sealed", OTHER, {**sealed, "sealed": "00"}), "the sealed share is not 80 bytes")
    refused(one, changed("sealed", OTHER, {**sealed, "nonce": "00"}), "the nonce is not 12 bytes")
    refused(one, changed("commitments", OTHER, ["00" * 32]), "a commitment cannot be read")
    refused(one, changed("commitments", OTHER, ["00" * 32, 5]), "a commitment is not 32 bytes")
    refused(one, resigned(message, content={**message.content, "seed": "x"}), "the commitment to the seed")
    # Commitments that are not to values of one polynomial of the threshold, and not to the key that was advertised.
    for place, what in ((0, "mask"), (1, "key")):
        pair = list(message.content["commitments"][OTHER])
        pair[place] = public_point(5).hex()
        refused(one, changed("commitments", OTHER, pair), f"dealt of its {what} do not fit together")
        pair[place] = "02" + "00" * 31
        refused(one, changed("commitments", OTHER, pair), "do not fit together")
    refused(one, resigned(message, content={**message.content, "seed": public_point(5).hex()}), "of its mask do not")
    _, of_other_key = share(replace(one.sites[BAD], step="share", masking=5), advertised(one, BAD, 5))
    refused(one, of_other_key, "shares that site-001 dealt of its key do not fit together")
    # A polynomial of a degree that is too high: all shares of three coefficients more.
    session = replace(one.session, roster=one.session.roster, approved=4)
    assert session.threshold == 3
    higher = {
        name: [public_point(value).hex(), pair[1]]
        for (name, pair), value in zip(message.content["commitments"].items(), (7, 11, 2, ORDER - 9), strict=True)
    }
    refused(one, resigned(message, content={**message.content, "commitments": higher}), "of its mask do not fit")


def advertised(one, name: str, masking: int) -> SumMessage:
    """The coordinator's message, as if the site had advertised another masking key."""
    message = rounds.carried(one.asked[name])
    content = {"sharing": message.content["adverts"][name]["sharing"], "masking": public_point(masking).hex()}
    signed = sign(SumMessage("advertise", one.session.hex, name, content), rounds.long_term(name))
    adverts = {**message.content["adverts"], name: {**content, "signature": signed.signature}}
    return replace(message, content={"adverts": adverts})


def test_agreements_about_other_survivors_or_keys():
    one, messages = at("agree")
    content = messages[BAD].content
    refused(one, resigned(messages[BAD], content={**content, "dealers": "00" * 32}), "signs other")
    refused(one, resigned(messages[BAD], content={**content, "survivors": content["survivors"][1:]}), "signs other")
    refused(one, resigned(messages[BAD], content={**content, "adverts": "00" * 32}), "signs other")


def test_wrong_shares_are_named_and_the_sum_is_opened_without_them():
    lost = "site-006"
    one, messages = at("reveal", 7, {"mask": [lost], "agree": [lost], "reveal": [lost]})
    message = messages[BAD]
    for part, dealer in (("seeds", OTHER), ("keys", lost)):
        share_of = message.content[part][dealer]
        wrong = to_bytes((int.from_bytes(bytes.fromhex(share_of), "little") + 1) % ORDER).hex()
        inner = {**message.content[part], dealer: wrong}
        refused(
            one, resigned(message, content={**message.content, part: inner}), f"its share of {dealer}'s secret is wrong"
        )
        fewer = {name: value for name, value in message.content[part].items() if name != dealer}
        refused(one, resigned(message, content={**message.content, part: fewer}), f"it reveals {part} of")
    # Another site's share, which is right there and wrong here.
    stolen = {**message.content["seeds"], OTHER: messages[OTHER].content["seeds"][OTHER]}
    refused(
        one, resigned(message, content={**message.content, "seeds": stolen}), "its share of site-002's secret is wrong"
    )
    # Both kinds for one site is more than was asked for.
    both = {**message.content["keys"], OTHER: message.content["seeds"][OTHER]}
    refused(one, resigned(message, content={**message.content, "keys": both}), "it reveals keys of 2 sites")
    # Without this site's message five are left of seven, as many as are needed.
    one.take({name: other for name, other in messages.items() if name != BAD})
    expected = rounds.in_python(one.vectors, set(one.session.roster) - {lost})
    assert unmask_sum(one.server).tolist() == expected


# ---- to a site ----


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


# ---- what is no message at all ----

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(PLAIN)
def test_anything_else_is_refused_as_such(words):
    with pytest.raises(BadMessage, match="not a message of a secure sum"):
        from_json(words)


MESSAGES = {}


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(ANSWERED), PLAIN, st.data())
def test_any_content_is_taken_or_refused_and_never_breaks(step, content, data):
    if not MESSAGES:
        MESSAGES.update({name: at(name) for name in ANSWERED})
    one, messages = MESSAGES[step]
    message = messages[BAD]
    part = data.draw(st.sampled_from([*message.content, "new"]))
    words = to_json(message)
    words["content"] = data.draw(st.sampled_from([content, {**message.content, part: content}]))
    problem = None
    try:
        read = from_json(words, message.vector)
        receive(one.server, sign(read, rounds.long_term(BAD)))
    except BadMessage as told:
        problem = told
    assert problem is None or problem.sender == BAD


def test_vectors_of_another_kind_are_refused_before_anything_else():
    _, messages = at("mask")
    for vector in (np.zeros(5, np.float32), np.zeros(5, np.int64), np.zeros((5, 1), np.uint64)):
        with pytest.raises(BadMessage, match="not of 64-bit ring elements"):
            from_json(to_json(messages[BAD]), vector)
    with pytest.raises(BadMessage, match="signature is too long"):
        from_json({**to_json(messages[BAD]), "signature": "00" * 1000}, messages[BAD].vector)
