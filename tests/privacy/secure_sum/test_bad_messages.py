"""Every message that cannot be right is refused, with whose it was and why; nothing is counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import secure_sum_round as rounds
from tests.support.amount import examples
from wardround.privacy.secure_sum.group import ORDER, public_point, to_bytes
from wardround.privacy.secure_sum.messages import BadMessage, SumMessage, from_json, sign, to_json
from wardround.privacy.secure_sum.server import receive, unmask_sum
from wardround.privacy.secure_sum.site import share

BAD, OTHER = "site-001", "site-002"
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
