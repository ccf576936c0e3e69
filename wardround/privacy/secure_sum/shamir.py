"""Shamir's secret sharing of 256-bit secrets: any `threshold` holders together know the secret, fewer know nothing.

Shamir, "How to Share a Secret", CACM 1979. Polynomials over the integers modulo 2^256 + 297, the smallest prime above
every secret. A share takes 33 bytes. Splitting costs holders x threshold multiplications, joining threshold squared.
"""

import secrets
from collections.abc import Iterable, Mapping

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, holders: Iterable[int], threshold: int) -> dict[int, int]:
    """One share for every holder (a number from 1 up): a polynomial's value there; its value at 0 is the secret."""
    assert len(secret) == SECRET_BYTES, "secrets are 256 bits"
    places = sorted(set(holders))
    assert 1 <= threshold <= len(places)
    assert places[0] >= 1
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)] + [int.from_bytes(secret, "big")]
    return {place: value_at(polynomial, place) for place in places}


def value_at(polynomial: Iterable[int], place: int) -> int:
    """Horner's rule; the highest power comes first."""
    value = 0
    for coefficient in polynomial:
        value = (value * place + coefficient) % PRIME
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
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        result[place] = above * pow(below, -1, PRIME) % PRIME
    return result


def join(shares: Mapping[int, int], by: Mapping[int, int] | None = None) -> bytes | None:
    """The secret from exactly `threshold` shares; nothing where they cannot be of one 256-bit secret."""
    factors = weights(shares) if by is None else by
    secret = sum(shares[place] * factor for place, factor in factors.items()) % PRIME
    return secret.to_bytes(SECRET_BYTES, "big") if secret < 2 ** (8 * SECRET_BYTES) else None
