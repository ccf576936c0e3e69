"""Shamir's secret sharing: any `threshold` holders together know the secret, fewer know nothing.

Shamir, "How to Share a Secret", CACM 1979. Polynomials over the scalars of `group`, so that a share can be committed to
as a point and checked by whoever holds it before anything depends on it. A share takes 32 bytes. Splitting costs
holders x threshold multiplications, joining threshold squared.
"""

import secrets
from collections.abc import Iterable, Mapping

from wardround.privacy.secure_sum.group import ORDER


def split(secret: int, holders: Iterable[int], threshold: int) -> dict[int, int]:
    """One share for every holder (a number from 1 up): a polynomial's value there; its value at 0 is the secret."""
    assert 0 <= secret < ORDER, "secrets are scalars"
    places = sorted(set(holders))
    assert 1 <= threshold <= len(places)
    assert places[0] >= 1
    polynomial = [secrets.randbelow(ORDER) for _ in range(threshold - 1)] + [secret]
    return {place: value_at(polynomial, place) for place in places}


def value_at(polynomial: Iterable[int], place: int) -> int:
    """Horner's rule; the highest power comes first."""
    value = 0
    for coefficient in polynomial:
        value = (value * place + coefficient) % ORDER
    return value


def weights(places: Iterable[int]) -> dict[int, int]:
    """By what each share is multiplied so that the products add up to the secret (Lagrange, at 0).

    The same for all secrets shared among the same holders, so it is worth computing once.
    """
    known = list(places)
    result = {}
    for place in known:
        above, below = 1, 1
        for other in known:
            if other != place:
                above = above * other % ORDER
                below = below * (other - place) % ORDER
        result[place] = above * pow(below, -1, ORDER) % ORDER
    return result


def join(shares: Mapping[int, int], by: Mapping[int, int] | None = None) -> int:
    """The secret from exactly `threshold` shares."""
    factors = weights(shares) if by is None else by
    return sum(shares[place] * factor for place, factor in factors.items()) % ORDER
