"""Two servers choose as if they saw the updates, and see nothing but noise and the Gram matrix."""

import jax
import numpy as np
import pytest
from scipy.stats import chi2

from wardround.aggregators.krum import krum
from wardround.aggregators.multi_krum import multi_krum
from wardround.algorithms.weight_erosion import weight_erosion
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine.simulate import Simulation
from wardround.privacy.secure_sum.masks import CHUNK
from wardround.privacy.two_servers import protocol
from wardround.privacy.two_servers.gram import (
    Gram,
    drop_implausible,
    erosion_distances,
    krum_order,
    krum_weights,
    multi_krum_weights,
    squared_distances,
    whole_weights,
)
from wardround.privacy.two_servers.in_process import prepare, run_protocol, seeded_draw
from wardround.privacy.two_servers.protocol import ForA, ForB, Meeting, admit_sites, share_update


def meeting_of(sites: int, entries: int, *, bound: float = 1.0, side: int = 1, nonce: str = "1") -> Meeting:
    return Meeting("study", 1, nonce, tuple(f"site-{i}" for i in range(sites)), entries, bound, side)


def updates_of(sites: int, entries: int, seed: int = 0, *, spread: float = 1.0) -> np.ndarray:
    """Updates of length about 0.5 around a common one."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=entries) + spread * generator.normal(size=(sites, entries))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * generator.uniform(0.3, 0.7, (sites, 1))


def named(meeting: Meeting, rows: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(meeting.sites, rows, strict=True))


def everybody(gram: Gram) -> dict[str, int]:
    return dict.fromkeys(gram.sites, 1)


def test_the_gram_matrix_by_hand():
    # Halves and quarters are exact as whole numbers: (1/2, 1/4), (-1/4, 0), (0, 1/2) have the products
    # 5/16, 1/16, 1/4 on the diagonal, -1/8 and 1/8 beside the first, 0 between the others.
    meeting = meeting_of(3, 2)
    rows = np.array([[0.5, 0.25], [-0.25, 0.0], [0.0, 0.5]])
    done = run_protocol(meeting, named(meeting, rows), everybody, seeded_draw(0))
    assert meeting.fraction_bits == 30
    expected = np.array([[5, -2, 2], [-2, 1, 0], [2, 0, 4]]) * 2**56
    np.testing.assert_array_equal(done.gram.products, expected)
    # |a - b|² = (3/4)² + (1/4)² = 10/16; |a - c|² = 1/4 + 1/16; |b - c|² = 1/16 + 1/4.
    np.testing.assert_array_equal(squared_distances(done.gram), np.array([[0, 10, 5], [10, 0, 5], [5, 5, 0]]) / 16)
    np.testing.assert_array_equal(done.mean, rows.mean(axis=0))


@pytest.mark.parametrize(("side", "entries"), [(1, 1), (1, CHUNK), (2, CHUNK + 3), (3, 200)])
def test_distances_to_a_hundred_thousandth_with_any_number_of_dealers(side, entries):
    meeting = meeting_of(4, entries, bound=0.8, side=side)
    rows = updates_of(4, entries, spread=0.01)  # close together: where digits get lost
    done = run_protocol(meeting, named(meeting, rows), everybody, seeded_draw(side))
    # The products are exact in the ring: only the rounding of the entries is between us and the truth.
    whole = np.rint(np.ldexp(rows, meeting.fraction_bits)).astype(np.int64).astype(object)
    np.testing.assert_array_equal(done.gram.products, (whole @ whole.T).astype(np.int64))
    plain = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(done.gram), plain, rtol=1e-5, atol=1e-18)
    np.testing.assert_allclose(done.mean, rows.mean(axis=0), atol=2.0**-30)


def test_bytes_between_the_servers_are_n_vectors_and_not_n_squared():
    meeting = meeting_of(6, 5000)
    done = run_protocol(meeting, named(meeting, updates_of(6, 5000)), everybody, seeded_draw(0))
    # n blinded vectors there, one half of the sum back, and a summand of n x n each way; 8 bytes a number.
    assert done.between == 8 * (6 * 5000 + 5000 + 2 * 36)
    # So 20 sites with a million parameters: 168 MB of the 0.35 GB allowed.
    assert 8 * (20 * 10**6 + 10**6 + 2 * 400) == 168_006_400


@pytest.mark.parametrize("bad", [0, 2])
def test_chooses_as_plain_krum_and_multi_krum(bad):
    rows = updates_of(7, 40, seed=bad)
    rows[:bad] *= -1
    meeting = meeting_of(7, 40)
    message = Message({"update": rows.astype(np.float32), "weight": np.ones(7, np.float32)})
    for plain, choose in (
        (krum(bad=bad), lambda gram: krum_weights(gram, bad)),
        (multi_krum(bad=bad), lambda gram: multi_krum_weights(gram, bad)),
        (multi_krum(bad=bad, keep=3), lambda gram: multi_krum_weights(gram, bad, 3)),
    ):
        expected = jax.jit(plain.reduce)((), message)[0].arrays["update"]
        done = run_protocol(meeting, named(meeting, rows), choose, seeded_draw(bad))
        np.testing.assert_allclose(done.mean, expected, atol=1e-7)


def test_weight_erosion_distances_as_the_algorithm_tells_them(even, model):
    algorithm = weight_erosion(model, user=2, batch_size=0, learning_rate=0.3)
    with Simulation(even, seed=5) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(1, np.arange(7))])
    told = np.asarray(algorithm.tells(progress.server)["distance"])
    # In the first round every site's gradient is at zeros: computed here from the rows, without our descent.
    first, count = even.part("train")
    steps = []
    for begin, rows in zip(first, count, strict=True):
        x, y = even.x[begin : begin + rows].astype(np.float64), even.y[begin : begin + rows]
        residual = np.full((rows, 2), 0.5) - np.eye(2)[y]
        steps.append(-0.3 * np.concatenate([residual.mean(axis=0), (x.T @ residual / rows).ravel()]))
    meeting = Meeting("erosion", 1, "", tuple(even.sites), 8, bound=2.0)
    alpha = np.array([1.0, 0.2, 1.0, 0.0, 0.7, 0.05, 0.4])

    def choose(gram: Gram) -> dict[str, int]:
        distances = erosion_distances(gram, even.sites[2])
        np.testing.assert_allclose(list(distances.values()), told, rtol=1e-5, atol=1e-7)
        return whole_weights(dict(zip(gram.sites, alpha, strict=True)))

    done = run_protocol(meeting, dict(zip(even.sites, steps, strict=True)), choose, seeded_draw(0))
    np.testing.assert_allclose(done.mean, alpha @ np.array(steps) / alpha.sum(), rtol=1e-5, atol=1e-6)


# ---- what the servers see ----


def uniform(values: np.ndarray) -> bool:
    """Whether bytes look evenly spread: chi-square with 255 degrees of freedom, at one in a million."""
    counts = np.bincount(np.frombuffer(values.tobytes(), np.uint8), minlength=256)
    statistic = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    return chi2.sf(statistic, 255) > 1e-6


def test_neither_view_has_any_pattern_though_the_updates_do():
    entries = 40_000
    meeting = meeting_of(3, entries)
    rows = np.zeros((3, entries))
    rows[:, :100] = 0.05  # nearly all zeros
    draw = seeded_draw(1)
    halves = [share_update(meeting, site, row, draw) for site, row in named(meeting, rows).items()]
    setup = prepare(meeting, halves, draw)
    plain = np.rint(np.ldexp(rows, 30)).astype(np.int64)
    assert not uniform(plain)  # the test can see a pattern
    assert all(uniform(masked) for masked in setup.masked.values())
    pieces = [piece for _, piece in protocol.blind_updates(meeting, setup.masked, setup.rows, setup.roll)]
    assert uniform(np.concatenate(pieces, axis=1))
    # Equal updates look different, and differences of what A sees are noise too.
    assert uniform(setup.masked["site-0"] - setup.masked["site-1"])
    assert uniform(pieces[0][0] - pieces[0][1])


def test_a_view_fits_other_updates_just_as_well(monkeypatch):
    """Any updates with the same Gram matrix could have led to the very same view of either server.

    The masks are set by hand here, as seeds cannot be: for A's view the masks take up the difference, for B's view A's
    blinds do.
    """
    meeting = meeting_of(3, 50)
    rows = np.ldexp(np.rint(np.ldexp(updates_of(3, 50), 30)), -30)
    other = rows[:, ::-1]  # the same numbers at other places: other updates, same products
    generator = np.random.default_rng(0)
    masks, blinds = (generator.integers(0, 2**64, (3, 50), np.uint64) for _ in range(2))
    ring = [np.ldexp(one, 30).astype(np.int64).view(np.uint64) for one in (rows, other)]

    def views(updates: np.ndarray, mask: np.ndarray, blind: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """All that A and that B see in the protocol, before the sum is opened."""
        tables = {b"mask": mask, b"blind": blind}
        monkeypatch.setattr(protocol, "stretch_seeds", lambda meeting, purpose, seeds: iter([(0, tables[purpose])]))
        roll = protocol.Roll(meeting.sites, {})
        masked = dict(zip(meeting.sites, updates - mask, strict=True))
        seeds = dict.fromkeys(meeting.sites, (b"",))
        pinned = {site: (protocol.commitment(meeting, site, b""),) for site in meeting.sites}
        deal = protocol.deal_products(meeting, 0, b"", dict.fromkeys(meeting.sites, b""), pinned, seeded_draw(3))
        sent = list(protocol.blind_updates(meeting, masked, [b""], roll))
        of_a = protocol.share_of_a(meeting, masked, [deal.for_a], roll)
        of_b = protocol.share_of_b(meeting, seeds, iter(sent), [deal.for_b], roll)
        return [updates - mask, blind, protocol.summand(meeting, deal.for_a, 3), of_b], [
            mask,
            sent[0][1],
            of_a,
            of_a + of_b,
        ]

    seen = views(ring[0], masks, blinds)
    moved = ring[1] - ring[0]
    as_a = views(ring[1], masks + moved, blinds)[0]
    assert all(np.array_equal(one, two) for one, two in zip(seen[0], as_a, strict=True))
    # B's summand of Z hides A's: it may be any symmetric matrix, so only what is not dealt is compared.
    as_b = views(ring[1], masks, blinds + moved)[1]
    assert all(np.array_equal(seen[1][place], as_b[place]) for place in (0, 1, 3))


# ---- sites that lie ----


def test_who_sends_only_half_twice_or_what_belongs_elsewhere_is_left_out():
    meeting = meeting_of(8, 5)
    halves = [share_update(meeting, site, np.full(5, 0.1)) for site in meeting.sites]
    for_a, for_b = ([pair[place] for pair in halves] for place in (0, 1))
    stale = share_update(meeting_of(8, 5, nonce="0"), "site-0", np.full(5, 0.1))
    for_a[0], for_b[0] = stale
    del for_b[1]  # site-1 sent one half only
    for_a.append(for_a[2])
    for_b[2] = for_b[2]._replace(seeds=(bytes(32),))  # site-3: another seed than pinned down
    for_a[4] = for_a[4]._replace(masked=for_a[4].masked[:4])
    for_b.append(ForB(meeting.digest, "stranger", (bytes(32),)))
    roll = admit_sites(meeting, for_a, for_b)
    assert roll.sites == ("site-5", "site-6", "site-7")
    assert roll.left_out == {
        "site-0": "what it sent belongs to another round or attempt",
        "site-1": "one of its halves did not come",
        "site-2": "it sent a half twice",
        "site-3": "its halves do not belong together",
        "site-4": "its masked update has the wrong size",
        "stranger": "it was not invited",
    }


def test_a_dealer_refuses_a_seed_that_was_not_pinned_down():
    meeting = meeting_of(3, 5)
    halves = [share_update(meeting, site, np.zeros(5)) for site in meeting.sites]
    pinned = {a.site: a.commitments for a, _ in halves}
    seeds = {b.site: b.seeds[0] for _, b in halves} | {"site-1": bytes(32)}
    with pytest.raises(Refusal, match="Site-1 gave this dealer another seed"):
        protocol.deal_products(meeting, 0, bytes(32), seeds, pinned)


def smuggled(meeting: Meeting, ring: list[int]) -> tuple[ForA, ForB]:
    """A site that writes what it likes into the ring, with masks of its own."""
    for_a, for_b = share_update(meeting, "site-0", np.zeros(meeting.entries))
    return for_a._replace(masked=for_a.masked + np.array(ring, np.uint64)), for_b


@pytest.mark.parametrize(
    "ring",
    [
        [2**31, 0, 0],  # its square, 2^62, is past the bound of 2^60
        [2**32, 2**32, 0],  # its square wraps to 0, but its products with the others do not
    ],
)
def test_an_update_that_wraps_around_is_found_by_its_products(ring):
    meeting = meeting_of(5, 3)
    rows = updates_of(5, 3, seed=1)
    halves = [smuggled(meeting, ring)]
    halves += [share_update(meeting, site, row) for site, row in list(named(meeting, rows).items())[1:]]
    setup = prepare(meeting, halves, seeded_draw(0))
    of_a = protocol.share_of_a(meeting, setup.masked, [deal.for_a for deal in setup.deals], setup.roll)
    pieces = protocol.blind_updates(meeting, setup.masked, setup.rows, setup.roll)
    of_b = protocol.share_of_b(meeting, setup.seeds, pieces, [deal.for_b for deal in setup.deals], setup.roll)
    gram, left_out = drop_implausible(protocol.open_gram(meeting, of_a, of_b, setup.roll))
    assert left_out == ("site-0",)
    assert gram.sites == meeting.sites[1:]


def test_numbers_hidden_where_nobody_else_has_any_are_found_by_the_length_of_the_sum(monkeypatch):
    # 2^32 at a place where all others have 0: its square is 2^64 = 0 in the ring, its products are 0 as well, so that
    # the site seems to have sent nothing, while the mean would get 2^32 / 2^30 / 5 = 0.8 there.
    meeting = meeting_of(5, 3)
    rows = updates_of(5, 3, seed=1)
    rows[:, 2] = 0
    real = protocol.share_update

    def lying(meeting, site, update, draw):
        return smuggled(meeting, [0, 0, 2**32]) if site == "site-0" else real(meeting, site, update, draw)

    seen = []

    def choose(gram: Gram) -> dict[str, int]:
        seen.append(drop_implausible(gram)[1])
        return everybody(gram)

    monkeypatch.setattr(protocol, "share_update", lying)
    with pytest.raises(Refusal, match="sent numbers past the bound"):
        run_protocol(meeting, named(meeting, rows), choose, seeded_draw(0))
    assert seen == [()]


def test_refusals():
    with pytest.raises(Refusal, match="at least 3 sites"):
        meeting_of(2, 5)
    with pytest.raises(Refusal, match="cannot make a sum"):
        meeting_of(3, 5, bound=float("nan"))
    for update in (np.full(5, 0.5), np.zeros(4), np.full(5, np.nan)):
        with pytest.raises(Refusal, match=r"site-1, round 1.*transform clip"):
            share_update(meeting_of(3, 5), "site-1", update)
    gram = Gram(("a", "b", "c", "d"), np.eye(4, dtype=np.int64) * 4, 1)
    with pytest.raises(Refusal, match="at least 5 sites"):
        krum_order(gram, 1)
    with pytest.raises(Refusal, match="at most 4"):
        multi_krum_weights(gram, 0, 5)
    with pytest.raises(Refusal, match="has not answered"):
        erosion_distances(gram, "e")
    with pytest.raises(Refusal, match="is 0"):
        erosion_distances(gram._replace(products=gram.products * 0), "a")
    with pytest.raises(Refusal, match="No site has a weight"):
        whole_weights({"a": 0.0})
