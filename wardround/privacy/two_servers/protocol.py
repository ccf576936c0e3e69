"""Two servers choose robustly among updates that neither of them sees; only the products of the updates are opened.

After He, Karimireddy and Jaggi, "Secure Byzantine-Robust Machine Learning", 2020, with products of whole matrices
instead of one for every pair, so that n sites cost n vectors between the servers and not n².

An update x_i is written as whole numbers modulo 2^64. Its site draws a mask r_i, stretched from a seed, and sends
m_i = x_i - r_i to server A and the seed to server B. With rows M, R and X = M + R, and a random U that A subtracts,

    X X' = M M' + (M - U) R' + R (M - U)' + R R' + Z,    Z = U R' + R U',

where A knows the first term, B (to whom A sends M - U, the one large message) the next three, and Z, a matrix of n x n
numbers which nobody needs data for, is dealt to both as random summands. Both add up what they have and open the sum,
the Gram matrix of the updates. From it follow all distances, hence Krum, Multi-Krum and the distances of Weight
Erosion; then A and B each add up their halves with the chosen weights, and that one sum is opened.

Who deals Z must know U and R, so it must not be a server's friend: dealers are sites drawn by lot, in a square of
`side` x `side` of them. U is the sum of one part a row, R of one part a column; a dealer knows the parts of its row and
column only. It takes `side` dealers together with a server to break it, at no cost but the dealers' work.

What is told: to both servers the inner products (so lengths, angles, distances) of all updates, who took part, and the
weights; to who reads the result the weighted sum. Krum's result IS the update of one site: prefer Multi-Krum. The two
servers must not collude: together they know everything. Servers are taken to be curious and correct, so that they open
one sum a meeting and no second one with other weights; sites may lie.
A site that makes its numbers wrap around is found by Cauchy-Schwarz or, at the latest, by the length of the sum.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.masks import CHUNK, KEY_BYTES, Ring, derive_key, digest, stream
from wardround.privacy.two_servers.gram import LENGTH_BITS, Gram

FEWEST = 3
SLACK = 1e-6
"""Lengths may pass the bound by so much, since entries are rounded."""
Draw = Callable[[int], bytes]
"""So many random bytes: the operating system's, or a test's."""


@dataclass(frozen=True)
class Meeting:
    """One robust sum of one round; its digest is bound into every key, so nothing fits into another meeting.

    `bound` is the greatest length of an update, `entries` its numbers, `side` the rows and columns of dealers.
    """

    study: str
    round: int
    nonce: str
    sites: tuple[str, ...]
    entries: int
    bound: float
    side: int = 1
    model: str = ""
    """The hash of what all sites were sent, where there is one."""

    def __post_init__(self) -> None:
        where = f"study {self.study}, round {self.round}"
        if len(set(self.sites)) != len(self.sites) or len(self.sites) < FEWEST:
            raise Refusal(
                f"two servers need at least {FEWEST} sites of different names, and were given {len(self.sites)}",
                where=where,
                remedy="let more sites take part, each under a name of its own",
            )
        if self.entries < 1 or self.side < 1 or not (math.isfinite(self.bound) and self.bound > 0):
            raise Refusal(
                f"{self.entries} entries, a bound of {self.bound:g} and a square of {self.side} dealers a side "
                "cannot make a sum",
                where=where,
                remedy="give each a number above 0",
            )

    @property
    def fraction_bits(self) -> int:
        """Binary places that leave room for the bound; below 0 where updates are very long."""
        return math.floor(LENGTH_BITS - math.log2(self.bound))

    @cached_property
    def digest(self) -> bytes:
        words = (
            self.study,
            str(self.round),
            self.nonce,
            str(self.entries),
            self.bound.hex(),
            str(self.side),
            self.model,
        )
        return digest(b"two servers", *(word.encode() for word in (*words, *self.sites)))


class ForA(NamedTuple):
    """What a site sends to server A: the masked update, and what pins down the seeds that others get."""

    meeting: bytes
    site: str
    masked: Ring
    commitments: tuple[bytes, ...]


class ForB(NamedTuple):
    """What a site sends to server B: one seed a column; the dealers of a column get the seed of their column."""

    meeting: bytes
    site: str
    seeds: tuple[bytes, ...]


class Deal(NamedTuple):
    """A dealer's summands of Z: a seed for server A, numbers for server B."""

    for_a: bytes
    for_b: Ring


# ---- at a site ----


def share_update(
    meeting: Meeting, site: str, update: np.ndarray[Any, Any], draw: Draw = os.urandom
) -> tuple[ForA, ForB]:
    """The two halves of an update, each of which alone is noise."""
    values = np.asarray(update, np.float64)
    length = float(np.linalg.norm(values))
    if values.shape != (meeting.entries,) or not length <= meeting.bound * (1 + SLACK):
        raise Refusal(
            f"an update of shape {values.shape} and length {length:g} was to be shared, where {meeting.entries} "
            f"numbers of length {meeting.bound:g} at most were agreed on",
            where=f"site {site}, round {meeting.round}",
            remedy="clip updates to the bound (transform clip), and compare the models on both sides",
        )
    whole = np.rint(np.ldexp(values, meeting.fraction_bits)).astype(np.int64).view(np.uint64)
    seeds = tuple(draw(KEY_BYTES) for _ in range(meeting.side))
    for begin, mask in stretch_seeds(meeting, b"mask", [(site, seeds)]):
        whole[begin : begin + mask.shape[1]] -= mask[0]
    return (
        ForA(meeting.digest, site, whole, tuple(commitment(meeting, site, seed) for seed in seeds)),
        ForB(meeting.digest, site, seeds),
    )


def commitment(meeting: Meeting, site: str, seed: bytes) -> bytes:
    return digest(b"two servers seed", meeting.digest, site.encode(), seed)


def stretch_seeds(
    meeting: Meeting, purpose: bytes, seeds: Sequence[tuple[str, Sequence[bytes]]]
) -> Iterator[tuple[int, Ring]]:
    """Row by row the sum of what a site's seeds stretch to, and where the piece begins; a row a site."""
    sources = [
        [stream(derive_key(seed, meeting.digest, purpose, site.encode())) for seed in own] for site, own in seeds
    ]
    for begin in range(0, meeting.entries, CHUNK):
        size = min(CHUNK, meeting.entries - begin)
        piece = np.zeros((len(sources), size), np.uint64)
        for place, own in enumerate(sources):
            for source in own:
                piece[place] += np.frombuffer(source.update(bytes(8 * size)), "<u8")
        yield begin, piece


# ---- who takes part ----


class Roll(NamedTuple):
    """Whose two halves came and fit together, in the order of the meeting; and why the others are left out."""

    sites: tuple[str, ...]
    left_out: Mapping[str, str]


def admit_sites(meeting: Meeting, for_a: Sequence[ForA], for_b: Sequence[ForB]) -> Roll:
    """The servers compare what they got (names, digests and commitments only), and agree on whom to count."""
    problems: dict[str, str] = {}
    commitments: dict[str, tuple[bytes, ...]] = {}
    seeds: dict[str, tuple[bytes, ...]] = {}
    parcels: list[ForA | ForB] = [*for_a, *for_b]
    for parcel in parcels:
        site, first = parcel.site, isinstance(parcel, ForA)
        if site not in meeting.sites:
            problems[site] = "it was not invited"
        elif parcel.meeting != meeting.digest:
            problems[site] = "what it sent belongs to another round or attempt"
        elif site in (commitments if first else seeds):
            problems[site] = "it sent a half twice"
        elif isinstance(parcel, ForA):
            commitments[site] = parcel.commitments
            if parcel.masked.shape != (meeting.entries,) or parcel.masked.dtype != np.uint64:
                problems[site] = "its masked update has the wrong size"
        else:
            seeds[site] = parcel.seeds
    for site in meeting.sites:
        if site in problems:
            continue
        if site not in commitments or site not in seeds:
            problems[site] = "one of its halves did not come"
        elif tuple(commitment(meeting, site, seed) for seed in seeds[site]) != commitments[site] or any(
            len(seed) != KEY_BYTES for seed in seeds[site]
        ):
            problems[site] = "its halves do not belong together"
        elif len(seeds[site]) != meeting.side:
            problems[site] = f"it sent {len(seeds[site])} seeds where {meeting.side} were agreed on"
    return Roll(tuple(site for site in meeting.sites if site not in problems), problems)


# ---- at a dealer ----


def deal_products(
    meeting: Meeting,
    column: int,
    row_seed: bytes,
    column_seeds: Mapping[str, bytes],
    commitments: Mapping[str, tuple[bytes, ...]],
    draw: Draw = os.urandom,
) -> Deal:
    """A dealer's part of Z, from the seed of its row (server A's) and those of its column (one a site)."""
    for site, seed in column_seeds.items():
        if commitments[site][column] != commitment(meeting, site, seed):
            raise Refusal(
                f"{site} gave this dealer another seed than it committed to",
                where=f"round {meeting.round}",
                remedy=f"leave {site} out of this round",
            )
    names = sorted(column_seeds, key=meeting.sites.index)
    blinds = stretch_seeds(meeting, b"blind", [(site, [row_seed]) for site in names])
    masks = stretch_seeds(meeting, b"mask", [(site, [column_seeds[site]]) for site in names])
    product = np.zeros((len(names), len(names)), np.uint64)
    for (_, blind), (_, mask) in zip(blinds, masks, strict=True):
        product += multiply_transposed(blind, mask)
    seed = draw(KEY_BYTES)
    return Deal(seed, product + product.T - summand(meeting, seed, len(names)))


def summand(meeting: Meeting, seed: bytes, sites: int) -> Ring:
    """A random symmetric matrix."""
    source = stream(derive_key(seed, meeting.digest, b"summand"))
    numbers = np.frombuffer(source.update(bytes(8 * sites * sites)), "<u8").reshape(sites, sites)
    upper = np.triu(numbers)
    return upper + np.triu(upper, 1).T


def multiply_transposed(a: Ring, b: Ring) -> Ring:
    """a b' modulo 2^64; for these shapes `einsum` is the quickest of NumPy's ways."""
    result: Ring = np.einsum("ij,kj->ik", a, b)
    return result


def weighted_sum(factors: Ring, rows: Ring) -> Ring:
    """The sum of rows, each times its factor, modulo 2^64."""
    result: Ring = np.einsum("i,ij->j", factors, rows)
    return result


# ---- at the servers ----


def row_seeds(meeting: Meeting, draw: Draw = os.urandom) -> tuple[bytes, ...]:
    """Server A draws one a row of dealers, and tells each to the dealers of that row only."""
    return tuple(draw(KEY_BYTES) for _ in range(meeting.side))


def blind_updates(
    meeting: Meeting, masked: Mapping[str, Ring], rows: Sequence[bytes], roll: Roll
) -> Iterator[tuple[int, Ring]]:
    """A to B, piece by piece: the masked updates, masked once more."""
    for begin, blind in stretch_seeds(meeting, b"blind", [(site, rows) for site in roll.sites]):
        yield begin, piece_of(masked, roll, begin, blind.shape[1]) - blind


def piece_of(masked: Mapping[str, Ring], roll: Roll, begin: int, size: int) -> Ring:
    return np.stack([masked[site][begin : begin + size] for site in roll.sites])


def share_of_a(meeting: Meeting, masked: Mapping[str, Ring], deals: Sequence[bytes], roll: Roll) -> Ring:
    """A's summand of the Gram matrix."""
    total = np.zeros((len(roll.sites), len(roll.sites)), np.uint64)
    for begin in range(0, meeting.entries, CHUNK):
        piece = piece_of(masked, roll, begin, CHUNK)
        total += multiply_transposed(piece, piece)
    for seed in deals:
        total += summand(meeting, seed, len(roll.sites))
    return total


def share_of_b(
    meeting: Meeting,
    seeds: Mapping[str, Sequence[bytes]],
    pieces: Iterator[tuple[int, Ring]],
    deals: Sequence[Ring],
    roll: Roll,
) -> Ring:
    """B's summand of the Gram matrix, from what A sent."""
    total = np.zeros((len(roll.sites), len(roll.sites)), np.uint64)
    masks = stretch_seeds(meeting, b"mask", [(site, seeds[site]) for site in roll.sites])
    for (_, piece), (_, mask) in zip(pieces, masks, strict=True):
        cross = multiply_transposed(piece, mask)
        total += cross + cross.T + multiply_transposed(mask, mask)
    for part in deals:
        total += part
    return total


def open_gram(meeting: Meeting, of_a: Ring, of_b: Ring, roll: Roll) -> Gram:
    """The two summands together, read as signed numbers."""
    return Gram(roll.sites, (of_a + of_b).view(np.int64), meeting.fraction_bits)


def half_of_a(masked: Mapping[str, Ring], weights: Mapping[str, int]) -> Ring:
    """A's half of the weighted sum; weights are whole numbers, and sites without one do not count."""
    chosen = {site: weight for site, weight in weights.items() if weight}
    total = np.zeros_like(next(iter(masked.values())))
    for site, weight in chosen.items():
        total += masked[site] if weight == 1 else masked[site] * np.uint64(weight)
    return total


def half_of_b(meeting: Meeting, seeds: Mapping[str, Sequence[bytes]], weights: Mapping[str, int]) -> Ring:
    """B's half, which it sends to A (or both send theirs to who may read the result)."""
    chosen = [(site, weight) for site, weight in weights.items() if weight]
    total = np.zeros(meeting.entries, np.uint64)
    factors = np.array([weight for _, weight in chosen], np.uint64)
    for begin, mask in stretch_seeds(meeting, b"mask", [(site, seeds[site]) for site, _ in chosen]):
        total[begin : begin + mask.shape[1]] = weighted_sum(factors, mask)
    return total


def open_mean(meeting: Meeting, gram: Gram, weights: Mapping[str, int], of_a: Ring, of_b: Ring) -> np.ndarray[Any, Any]:
    """The weighted mean; refused where its length is not what the Gram matrix says, since then somebody wrapped."""
    total = (of_a + of_b).view(np.int64).astype(np.float64)
    expected = gram.squared_length(weights)
    if not math.isclose(float(total @ total), expected, rel_tol=1e-9, abs_tol=1.0):
        names = ", ".join(site for site, weight in weights.items() if weight)
        raise Refusal(
            f"the sum of {names} is not as long as their distances say: one of them sent numbers past the bound",
            where=f"study {meeting.study}, round {meeting.round}",
            remedy="do the round once more with other sites, and find out which of them it was",
        )
    return np.ldexp(total, -meeting.fraction_bits) / max(1, sum(weights.values()))
