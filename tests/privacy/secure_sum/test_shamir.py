"""Any threshold of holders know the secret, fewer know nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.privacy.secure_sum.group import ORDER
from wardround.privacy.secure_sum.shamir import join, split, value_at, weights

SECRETS = st.integers(0, ORDER - 1)


def test_a_line_by_hand():
    # 5 + 3x is 8 at 1, 11 at 2 and 20 at 5. Lagrange at 0 from the places 1 and 2: 2 * 8 - 1 * 11 = 5.
    assert [value_at([3, 5], place) for place in (1, 2, 5)] == [8, 11, 20]
    assert weights([1, 2]) == {1: 2, 2: ORDER - 1}
    for shares in ({1: 8, 2: 11}, {1: 8, 5: 20}, {2: 11, 5: 20}):
        assert join(shares) == 5


def test_a_parabola_by_hand():
    # 7 + 2x + x^2 is 10, 15, 22 at 1, 2, 3; at 0 from these places: 3 * 10 - 3 * 15 + 1 * 22 = 7.
    assert weights([1, 2, 3]) == {1: 3, 2: ORDER - 3, 3: 1}
    assert join({1: 10, 2: 15, 3: 22}) == 7


def test_the_modulus_is_the_order_of_the_group():
    # RFC 8032, section 5.1, spells it in decimal.
    spelled = 7237005577332262213973186563042994240857116359379907606001950938285454250989
    assert spelled == ORDER
    # Prime, by Fermat's test with several bases; so every share but 0 has an inverse.
    assert all(pow(base, ORDER - 1, ORDER) == 1 for base in (2, 3, 5, 7, 11))


@settings(max_examples=examples(50), deadline=None)
@given(SECRETS, st.data())
def test_any_threshold_of_shares_gives_the_secret(secret, data):
    holders = data.draw(st.sets(st.integers(1, 200), min_size=1, max_size=30))
    threshold = data.draw(st.integers(1, len(holders)))
    shares = split(secret, holders, threshold)
    some = data.draw(st.permutations(sorted(holders)))[:threshold]
    assert join({place: shares[place] for place in some}) == secret


@settings(max_examples=examples(50), deadline=None)
@given(SECRETS, SECRETS, st.integers(2, 12))
def test_one_share_too_few_fits_every_secret(secret, other, threshold):
    """For any other secret there is a last share that makes the same shares give that one."""
    shares = split(secret, range(1, threshold + 1), threshold)
    known = {place: shares[place] for place in range(1, threshold)}
    factors = weights(range(1, threshold + 1))
    part = sum(known[place] * factors[place] for place in known)
    last = (other - part) * pow(factors[threshold], -1, ORDER) % ORDER
    assert join({**known, threshold: last}) == other


def test_shares_are_drawn_anew_every_time():
    secret = 12345
    assert split(secret, [1, 2, 3], 2) != split(secret, [1, 2, 3], 2)
    # The polynomial is of the threshold's degree: two shares of three do not give a secret shared with threshold 3.
    shares = split(secret, [1, 2, 3], 3)
    assert join({place: shares[place] for place in (1, 2)}) != secret


def test_what_is_no_scalar_is_not_shared():
    with pytest.raises(AssertionError):
        split(ORDER, [1, 2], 2)
