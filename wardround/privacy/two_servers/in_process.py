"""A robust sum by two servers with all parties in one process, in the order in which messages travel.

For benchmarks, tests and trying it out: whoever has all parties in one process has nothing to hide from them.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from wardround.privacy.two_servers import protocol
from wardround.privacy.two_servers.gram import Gram
from wardround.privacy.two_servers.protocol import Deal, ForA, ForB, Meeting, Roll

Matrix = np.ndarray[Any, Any]


def seeded_draw(seed: int) -> protocol.Draw:
    """Random bytes that are the same in every run: for tests, never for patients."""
    count = iter(range(10**9))
    return lambda size: hashlib.shake_256(f"{seed}/{next(count)}".encode()).digest(size)


class Setup(NamedTuple):
    """What the parties hold once every site has shared and every dealer dealt."""

    roll: Roll
    masked: dict[str, Matrix]
    seeds: dict[str, tuple[bytes, ...]]
    rows: tuple[bytes, ...]
    deals: list[Deal]


class RobustSumOutcome(NamedTuple):
    """What came of it; `between` are the bytes between the two servers."""

    gram: Gram
    weights: dict[str, int]
    mean: Matrix
    between: int


def prepare(meeting: Meeting, halves: list[tuple[ForA, ForB]], draw: protocol.Draw) -> Setup:
    """The servers agree on who counts, and the dealers deal."""
    for_a, for_b = [a for a, _ in halves], [b for _, b in halves]
    roll = protocol.admit_sites(meeting, for_a, for_b)
    masked = {one.site: one.masked for one in for_a if one.site in roll.sites}
    seeds = {one.site: one.seeds for one in for_b if one.site in roll.sites}
    commitments = {one.site: one.commitments for one in for_a}
    rows = protocol.row_seeds(meeting, draw)
    deals = [
        protocol.deal_products(
            meeting, column, row, {site: seeds[site][column] for site in roll.sites}, commitments, draw
        )
        for row in rows
        for column in range(meeting.side)
    ]
    return Setup(roll, masked, seeds, rows, deals)


def run_protocol(
    meeting: Meeting,
    updates: Mapping[str, Matrix],
    choose: Callable[[Gram], dict[str, int]],
    draw: protocol.Draw,
) -> RobustSumOutcome:
    """Share, deal, open the Gram matrix, choose, open the mean; counts every byte between A and B."""
    halves = [protocol.share_update(meeting, site, update, draw) for site, update in updates.items()]
    setup = prepare(meeting, halves, draw)
    sent = [0]

    def counted(pieces: Iterator[tuple[int, Matrix]]) -> Iterator[tuple[int, Matrix]]:
        for begin, piece in pieces:
            sent[0] += piece.nbytes
            yield begin, piece

    of_a = protocol.share_of_a(meeting, setup.masked, [deal.for_a for deal in setup.deals], setup.roll)
    pieces = counted(protocol.blind_updates(meeting, setup.masked, setup.rows, setup.roll))
    of_b = protocol.share_of_b(meeting, setup.seeds, pieces, [deal.for_b for deal in setup.deals], setup.roll)
    gram = protocol.open_gram(meeting, of_a, of_b, setup.roll)
    weights = choose(gram)
    half_of_a = protocol.half_of_a(setup.masked, weights)
    half_of_b = protocol.half_of_b(meeting, setup.seeds, weights)
    mean = protocol.open_mean(meeting, gram, weights, half_of_a, half_of_b)
    return RobustSumOutcome(gram, weights, mean, sent[0] + of_a.nbytes + of_b.nbytes + half_of_b.nbytes)
