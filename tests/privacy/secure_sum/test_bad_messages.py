"""Every message that cannot be right is refused, with whose it was and why; nothing is counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import secure_sum_round as rounds
from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.messages import BadMessage, SumMessage, from_json, sign, to_json
from wardround.privacy.secure_sum.server import receive, unmask_sum
from wardround.privacy.secure_sum.site import advertise, agree, mask, reveal, share, sign_agreement

BAD, OTHER = "site-001", "site-002"
ACTS = {
    "share": share,
    "mask": lambda site, message: mask(site, message, np.zeros(5, np.uint64)),
    "agree": agree,
    "reveal": reveal,
}


def at(step: str, count: int = 4, silent=None):
    """A round whose sites have answered in this step, their messages not yet taken."""
    one = rounds.begun(count)
    before = rounds.STEPS.index(step)
    if before:
        one.until(rounds.STEPS[before - 1], silent)
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


@pytest.mark.parametrize("step", rounds.STEPS)
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


@pytest.mark.parametrize("step", rounds.STEPS)
def test_out_of_order(step):
    one, messages = at(step)
    for other in set(rounds.STEPS) - {step}:
        wrong = resigned(messages[BAD], step=other)
        refused(one, wrong, f"message for '{other}' comes while '{step}' is under way")
    # A message of the step before, sent again.
    if one.said:
        refused(one, one.said[-1], "comes while", one.said[-1].sender)


@pytest.mark.parametrize("step", rounds.STEPS[1:])
def test_who_was_lost_cannot_come_back(step):
    before = rounds.STEPS[rounds.STEPS.index(step) - 1]
    one, messages = at(step, silent={name: [BAD] for name in rounds.STEPS[rounds.STEPS.index(before) :]})
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
    refused(one, changed("sealed", OTHER, {**sealed, "sealed": "00"}), "the sealed share is not 82 bytes")
    refused(one, changed("sealed", OTHER, {**sealed, "nonce": "00"}), "the nonce is not 12 bytes")
    refused(one, changed("commitments", OTHER, ["00" * 32]), "a commitment cannot be read")
    refused(one, changed("commitments", OTHER, ["00" * 32, 5]), "a commitment is not 32 bytes")
    refused(one, resigned(message, content={**message.content, "seed": "x"}), "the commitment to the seed")


def test_agreements_about_other_survivors_or_keys():
    one, messages = at("agree")
    content = messages[BAD].content
    refused(one, resigned(messages[BAD], content={**content, "survivors": content["survivors"][1:]}), "signs other")
    refused(one, resigned(messages[BAD], content={**content, "adverts": "00" * 32}), "signs other")


def test_wrong_shares_are_named_and_the_sum_is_opened_without_them():
    lost = "site-006"
    one, messages = at("reveal", 7, {"mask": [lost], "agree": [lost], "reveal": [lost]})
    message = messages[BAD]
    for part, dealer in (("seeds", OTHER), ("keys", lost)):
        share_of = message.content[part][dealer]
        wrong = f"{int(share_of, 16) ^ 1:066x}"
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


def test_a_dealer_whose_shares_do_not_fit_together_is_named():
    """It shares one seed and masks with another: the shares are as committed to, the secret is not."""
    one = rounds.begun(4).until("advertise")
    messages = one.answers("share", [BAD])
    site, request = one.sites[BAD], rounds.carried(one.asked[BAD])
    _, faulty = share(replace(site, seed=bytes(32)), request)
    honest, right = share(site, request)
    # What is dealt belongs to the seed 0; the commitment is to the true one, under which the vector will be masked.
    messages[BAD] = resigned(faulty, content={**faulty.content, "seed": right.content["seed"]})
    one.sites[BAD] = honest
    one.take(messages)
    for step in ("mask", "agree"):
        one.take(one.answers(step))
    messages = one.answers("reveal", [BAD])
    one.take(messages)
    with pytest.raises(BadMessage, match="shares that site-001 dealt of its mask do not fit together") as told:
        unmask_sum(one.server)
    assert told.value.sender == BAD


# ---- to a site ----


def asked(step: str, count: int = 4, silent=None):
    """A site before this step, and the coordinator's message for it."""
    one = rounds.begun(count)
    one.until(rounds.STEPS[rounds.STEPS.index(step) - 1], silent)
    sites = dict(one.sites)
    one.answers(step, (silent or {}).get(step, ()))
    return sites[BAD], rounds.carried(one.asked[BAD]), one


def declined(site, message, words: str, sender: str = "coordinator") -> None:
    with pytest.raises(BadMessage, match=words) as told:
        ACTS[message.step](site, message)
    assert told.value.sender == sender


@pytest.mark.parametrize("step", rounds.STEPS[1:])
def test_a_site_follows_only_its_coordinator_session_and_order(step):
    site, message, one = asked(step)
    declined(site, replace(message, sender=OTHER), "only the coordinator leads", OTHER)
    declined(site, replace(message, session="00" * 32), "another study, round or attempt")
    for other in set(rounds.STEPS[1:]) - {step}:
        declined(site, replace(message, step=other), f"asks site-001 for '{other}', and '{step}' is next")
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
    site, message, _ = asked("mask")
    shares = message.content["shares"]

    def telling(**changed) -> SumMessage:
        return replace(message, content={"shares": {**shares, OTHER: {**shares[OTHER], **changed}}})

    sealed = shares[OTHER]["sealed"]
    flipped = f"{int(sealed[:2], 16) ^ 1:02x}" + sealed[2:]
    declined(site, telling(sealed=flipped), "the share that site-002 dealt to site-001 was changed", OTHER)
    declined(site, telling(sealed=shares["site-003"]["sealed"]), "was changed", OTHER)
    declined(site, telling(nonce="00" * 12), "was changed", OTHER)
    declined(site, telling(commitments=["00" * 32, "00" * 32]), "a share it has not committed to", OTHER)
    declined(site, telling(sealed="00"), "not 82 bytes")
    declined(site, telling(more=1), "the share of site-002 cannot be read")
    extra = {**shares, BAD: shares[OTHER]}
    declined(site, replace(message, content={"shares": extra}), "which advertised no keys")
    few = {OTHER: shares[OTHER]}
    declined(site, replace(message, content={"shares": few}), "2 of 4 sites shared their secrets")


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
    one = rounds.begun(5).until("advertise")
    one.server, requests = rounds.advance(one.server)
    adverts = requests[BAD].content["adverts"]
    fewer = {name: advert for name, advert in adverts.items() if name != "site-004"}
    deceived, _ = share(one.sites[BAD], replace(requests[BAD], content={"adverts": fewer}))
    others = {}
    for name in one.session.roster:
        if name != BAD:
            others[name], _ = share(one.sites[name], requests[name])
    survivors = tuple(one.session.roster[:4])
    said = {
        name: sign(sign_agreement(replace(site, survivors=survivors), name), rounds.long_term(name)).signature
        for name, site in others.items()
        if name in survivors
    }
    before = replace(deceived, step="reveal", survivors=survivors)
    message = SumMessage("reveal", one.session.hex, "coordinator", {"signatures": said})
    with pytest.raises(BadMessage, match="has not signed the same survivors and keys"):
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


def test_a_masking_key_of_low_order_is_refused():
    one = rounds.begun(3)
    messages = one.answers("advertise")
    true = messages[OTHER]
    messages[OTHER] = resigned(messages[OTHER], content={**messages[OTHER].content, "masking": "00" * 32})
    one.take(messages)
    shares = one.answers("share", [OTHER])
    # The cheat goes on as if its true keys had been passed on.
    advert = {**true.content, "signature": true.signature}
    adverts = {**one.asked[OTHER].content["adverts"], OTHER: advert}
    _, shares[OTHER] = share(one.sites[OTHER], replace(one.asked[OTHER], content={"adverts": adverts}))
    one.take(shares)
    one.server, requests = rounds.advance(one.server)
    with pytest.raises(BadMessage, match="its masking key is not valid") as told:
        mask(one.sites[BAD], requests[BAD], np.zeros(5, np.uint64))
    assert told.value.sender == OTHER


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
@given(st.sampled_from(rounds.STEPS), PLAIN, st.data())
def test_any_content_is_taken_or_refused_and_never_breaks(step, content, data):
    if not MESSAGES:
        MESSAGES.update({name: at(name) for name in rounds.STEPS})
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
