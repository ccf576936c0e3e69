"""Every site deals the products of its own mask, so that no site ever learns another site's.

`protocol` writes Z = U R' + R U' with dealers who know all masks of a column. Over real sites each site i is the dealer
of its own column instead: it knows its mask r_i, is told the seed of U by server A, and splits the numbers u_j r_i into
random summands, one for each server. Server A then learns nothing more with any number of sites as its friends (they
know U, which is A's own, and their own masks). Server B must not have a single friend among the sites: B holds
X - U, so who tells it U tells it everything.

A site that deals wrong numbers would move its own distances, hence pass as a good one. So it deals one more product,
with a vector u that nobody else uses, and A sends v = u + sum of c_j u_j with coefficients drawn after the deals have
come; B knows every mask and finds v r_i by itself. A wrong deal passes once in 2^(64 - t) tries, where 2^t divides its
error; v is as good as random, and tells B nothing of U.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wardround.privacy.secure_sum.masks import KEY_BYTES, Ring, derive_key, stream
from wardround.privacy.two_servers.protocol import (
    Draw,
    Meeting,
    Roll,
    multiply_transposed,
    piece_of,
    stretch_seeds,
    weighted_sum,
)

CHECK = "server check"
"""In the place of a site's name: no site can be called so, since names have no spaces."""


class OwnDeal(NamedTuple):
    """A site's summands of u_j r_i, in the order of the meeting's sites, and of the check: a seed for A, numbers for
    B."""

    for_a: bytes
    for_b: Ring


class Blinds(NamedTuple):
    """What server A sends to B: the masked updates masked once more, a row a site, and the vector of the check."""

    updates: Ring
    check: Ring


def deal_own(meeting: Meeting, site: str, seed: bytes, row_seed: bytes, draw: Draw = os.urandom) -> OwnDeal:
    """At a site: the products of its own mask with all of U, split in two."""
    names = (*meeting.sites, CHECK)
    blinds = stretch_seeds(meeting, b"blind", [(name, [row_seed]) for name in names])
    masks = stretch_seeds(meeting, b"mask", [(site, [seed])])
    total = np.zeros(len(names), np.uint64)
    for (_, blind), (_, mask) in zip(blinds, masks, strict=True):
        total += multiply_transposed(blind, mask)[:, 0]
    own = draw(KEY_BYTES)
    return OwnDeal(own, total - own_summands(meeting, site, own))


def own_summands(meeting: Meeting, site: str, seed: bytes) -> Ring:
    """What server A makes of the seed it was dealt."""
    source = stream(derive_key(seed, meeting.digest, b"own summands", site.encode()))
    return np.frombuffer(source.update(bytes(8 * (len(meeting.sites) + 1))), "<u8").copy()


def summands_of(meeting: Meeting, deals: Mapping[str, Ring], roll: Roll) -> Ring:
    """One server's summand of Z, from the columns that the sites of the roll dealt."""
    places = [meeting.sites.index(site) for site in roll.sites]
    products = np.stack([deals[site][places] for site in roll.sites], axis=1)
    return products + products.T


# ---- at server A ----


def coefficients_of(meeting: Meeting, seed: bytes, roll: Roll) -> Ring:
    """The weights of the check, drawn by A when all deals are in."""
    source = stream(derive_key(seed, meeting.digest, b"check"))
    drawn = np.frombuffer(source.update(bytes(8 * len(meeting.sites))), "<u8")
    return drawn[[meeting.sites.index(site) for site in roll.sites]]


def blind(meeting: Meeting, masked: Mapping[str, Ring], row_seed: bytes, coefficients: Ring, roll: Roll) -> Blinds:
    """All that B needs of A's half, without telling it."""
    updates = np.empty((len(roll.sites), meeting.entries), np.uint64)
    check = np.empty(meeting.entries, np.uint64)
    seeds = [(site, [row_seed]) for site in (*roll.sites, CHECK)]
    for begin, piece in stretch_seeds(meeting, b"blind", seeds):
        end = begin + piece.shape[1]
        np.subtract(piece_of(masked, roll, begin, piece.shape[1]), piece[:-1], out=updates[:, begin:end])
        np.add(weighted_sum(coefficients, piece[:-1]), piece[-1], out=check[begin:end])
    return Blinds(updates, check)


def check_sums(meeting: Meeting, deals: Mapping[str, Ring], coefficients: Ring, roll: Roll, of: Sequence[str]) -> Ring:
    """One server's summands of v r_i, a number for each site in `of`: A sends its own to B, who compares.

    `roll` are those whom the coefficients are for.
    """
    places = [meeting.sites.index(site) for site in roll.sites]
    rows = np.stack([deals[site] for site in of])
    total: Ring = rows[:, places] @ coefficients + rows[:, -1]
    return total


# ---- at server B ----


class MaskProducts(NamedTuple):
    """What B finds with the masks that it knows: its summand of the Gram matrix, without Z, and v r_i of every site."""

    gram: Ring
    check: Ring


def mask_products(meeting: Meeting, seeds: Mapping[str, Sequence[bytes]], blinds: Blinds, roll: Roll) -> MaskProducts:
    """In one pass over everything, piece by piece."""
    count = len(roll.sites)
    gram, check = np.zeros((count, count), np.uint64), np.zeros(count, np.uint64)
    for begin, mask in mask_pieces(meeting, seeds, roll):
        end = begin + mask.shape[1]
        cross = multiply_transposed(blinds.updates[:, begin:end], mask)
        gram += cross + cross.T + multiply_transposed(mask, mask)
        check += multiply_transposed(mask, blinds.check[None, begin:end])[:, 0]
    return MaskProducts(gram, check)


def mask_pieces(meeting: Meeting, seeds: Mapping[str, Sequence[bytes]], roll: Roll) -> Iterator[tuple[int, Ring]]:
    return stretch_seeds(meeting, b"mask", [(site, seeds[site]) for site in roll.sites])
