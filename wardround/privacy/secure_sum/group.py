"""The group in which sites agree on masks and commit to shares: the prime-order subgroup of edwards25519.

One group for both, so that a masking key's public half is at the same time the commitment to what is shared of it: a
dealer cannot deal shares of another key than the one its masks are made with. All arithmetic on points is libsodium's
(through PyNaCl); it refuses points that are not in the subgroup. Scalars are whole numbers modulo the group's order.

Whether committed shares lie on one polynomial is seen from the commitments alone (Cascudo and David, "SCRAPE: Scalable
Randomness Attested by Public Entities", ACNS 2017): values of a polynomial of low degree are orthogonal to every word
of the dual code, and other values are orthogonal to a random one with probability 1 / order. So a holder compares one
point a share, and nobody evaluates polynomials in the exponent, which n dealers with t coefficients would make n * t
multiplications for every holder.
"""

import secrets
from collections.abc import Iterable, Mapping

from nacl import bindings

ORDER = 2**252 + 27742317777372353535851937790883648493
SCALAR_BYTES = 32
POINT_BYTES = 32
IDENTITY = (1).to_bytes(POINT_BYTES, "little")


def random_scalar() -> int:
    """Uniform, and never 0."""
    return secrets.randbelow(ORDER - 1) + 1


def to_bytes(scalar: int) -> bytes:
    return scalar.to_bytes(SCALAR_BYTES, "little")


def scalar_from(content: bytes) -> int | None:
    """The scalar in these bytes; nothing where they are not its one form."""
    found = int.from_bytes(content, "little")
    return found if found < ORDER and len(content) == SCALAR_BYTES else None


def public_point(scalar: int) -> bytes:
    """The scalar times the group's generator: tells it to nobody, and fits no other scalar."""
    if scalar % ORDER == 0:
        return IDENTITY
    return bindings.crypto_scalarmult_ed25519_base_noclamp(to_bytes(scalar % ORDER))


def is_point(content: bytes) -> bool:
    """Whether these bytes are a point of the subgroup other than its identity."""
    return len(content) == POINT_BYTES and bool(bindings.crypto_core_ed25519_is_valid_point(content))


def shared_point(own: int, peer: bytes) -> bytes | None:
    """What two sites agree on (Diffie and Hellman); nothing where the other's key is not a point of the group."""
    try:
        return bindings.crypto_scalarmult_ed25519_noclamp(to_bytes(own), peer)
    except (RuntimeError, ValueError, TypeError):  # libsodium refuses without a reason
        return None


def sum_of(one: bytes, other: bytes) -> bytes:
    return bindings.crypto_core_ed25519_add(one, other)


def combination(scalars: Iterable[int], points: Iterable[bytes]) -> bytes | None:
    """The sum of points, each times its scalar; nothing where one of them is not a point of the group."""
    total = IDENTITY
    for scalar, point in zip(scalars, points, strict=True):
        if scalar % ORDER == 0:
            continue
        part = shared_point(scalar % ORDER, point)
        if part is None:
            return None
        total = sum_of(total, part)
    return total


def random_dual_word(places: Iterable[int], threshold: int) -> dict[int, int]:
    """Random factors under which the values, at these places, of any polynomial with `threshold` coefficients cancel.

    They are the values of a random polynomial of degree (places - threshold - 1), divided by the product of the place's
    distances from the others.
    """
    known = list(places)
    assert 1 <= threshold < len(known)
    mixer = [secrets.randbelow(ORDER) for _ in range(len(known) - threshold)]
    word = {}
    for place in known:
        distance, value = 1, 0
        for other in known:
            if other != place:
                distance = distance * (place - other) % ORDER
        for coefficient in mixer:
            value = (value * place + coefficient) % ORDER
        word[place] = value * pow(distance, -1, ORDER) % ORDER
    return word


def are_shares(points: Mapping[int, bytes], threshold: int) -> bool:
    """Whether commitments by place (0: the secret's) are to values of one polynomial with `threshold` coefficients."""
    word = random_dual_word(points, threshold)
    return combination(word.values(), points.values()) == IDENTITY
