"""Noise in whole numbers: every single answer holds its share before it is masked, and sums hold what was planned."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, norm

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import chain, identity
from wardround.core.contracts import OWED, Message, Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import OwnRows, site_round
from wardround.models.logistic import logistic
from wardround.privacy.distributed_noise import NoisePlan
from wardround.privacy.integer_noise import LEAST, TOGETHER, draw_simulated, noise_promise, site_noise
from wardround.privacy.secure_sum.fixed_point import encode_answer, from_ring, ring_vector
from wardround.privacy.site_level import BELOW, CLIP, AdaptiveClip, site_level
from wardround.transforms.secure_sum import secure_sum

KEY = jax.random.key(0)
SUM = secure_sum()
NOTHING = Message({})
ENTRIES = 30_000
SECRET = np.arange(1, 9, dtype=np.uint32)


def answer(values, *, length: float = 1.0, share: float = 1.0, words=SECRET, **more) -> Message:
    promise = {"words": jnp.asarray(words), TOGETHER: noise_promise(length, share)}
    arrays = {"update": jnp.asarray(values, jnp.float32), "weight": jnp.float32(1)}
    return Message({**arrays, **more, OWED: promise})


def whole(message: Message) -> np.ndarray:
    """The whole numbers that a fixed answer means, without its weight, which comes last by its name."""
    return ring_vector(jax.device_get(message)).view(np.int64)[:-1]


def plan(**settings) -> NoisePlan:
    words = {"noise_multiplier": 2.0, "clip": 1.0, "entries": ENTRIES, "fraction_bits": 20, "sites": 4}
    return NoisePlan(**{**words, **settings})


def normal(values: np.ndarray, deviation: float) -> bool:
    """Chi-square at one in a million against a normal distribution, in 42 cells."""
    edges = np.array([-math.inf, *np.linspace(-2.5, 2.5, 41) * deviation, math.inf])
    expected = np.diff(norm.cdf(edges / deviation)) * len(values)
    counts = np.histogram(values, np.nan_to_num(edges, posinf=2.0**60, neginf=-(2.0**60)))[0]
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(expected) - 1) > 1e-6


@pytest.mark.parametrize("way", ["up", "at_site"])
def test_every_single_answer_holds_its_share(way):
    one = plan(lost=1)
    share = one.noise_multiplier / math.sqrt(one.hiding_sites)
    link = secure_sum()
    values = np.random.default_rng(0).normal(size=ENTRIES) / math.sqrt(ENTRIES) / 2
    left = jax.jit(getattr(link, way))(NOTHING, answer(values, share=share), KEY)
    bare = jax.jit(lambda message: encode_answer(message, 20, 2.0**22))(
        Message({"update": jnp.asarray(values, jnp.float32), "weight": jnp.float32(1)})
    )
    noise = whole(left) - whole(bare)
    # sqrt(3) units of 2^20 and what rounding adds: 2 (2^20 + sqrt(30000) / 2) / sqrt(3).
    assert one.site_deviation == pytest.approx(2 * (2**20 + math.sqrt(ENTRIES) / 2) / math.sqrt(3))
    assert normal(noise, one.site_deviation)
    assert not normal(noise, 1.05 * one.site_deviation), "the test can tell 5 % more"
    # The weight is whole and exact, and nothing is left that says which noise there was.
    assert ring_vector(jax.device_get(left))[-1] == 2**20
    assert set(left.arrays) == {"fixed", "outside"}


def test_a_real_site_draws_exactly_and_never_less_than_planned():
    link, small = secure_sum(), answer(np.zeros(1000), share=3.0)
    left = jax.jit(link.at_site)(NOTHING, small, KEY)
    needed = 3 * (2**20 + math.sqrt(1000) / 2)
    used = np.array([float(np.float32(np.float32(needed) * np.float32(1 + 1e-6)))])
    assert needed <= used[0] <= needed * (1 + 2e-6)
    # A change in the last digit of the deviation moves hardly a number: all but a few are the exact sampler's.
    drawn = site_noise(SECRET.tobytes(), used, (1000,))
    assert np.mean(whole(left) == drawn) > 0.9
    np.testing.assert_allclose(whole(left), drawn, atol=2)


def discrete(deviation: float, largest: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-largest, largest + 1) ** 2) / (2 * deviation**2))
    return weights / weights.sum()


def test_simulated_noise_by_the_definition_of_the_discrete_gaussian():
    # 0 binary places: the units are the numbers themselves. (5 + sqrt(40000) / 2) / 15 = 7.
    left = jax.jit(secure_sum(fraction_bits=0).up)(NOTHING, answer(np.zeros(40_000), length=5.0, share=1 / 15), KEY)
    counts = np.bincount(np.clip(whole(left), -25, 25) + 25, minlength=51)
    expected = discrete(7.0, 25) * 40_000
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 50) > 1e-6
    wrong = discrete(7.3, 25) * 40_000
    assert chi2.sf(((counts - wrong) ** 2 / wrong).sum(), 50) < 1e-6


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_opened_sum_has_the_planned_noise_with_any_allowed_loss(lost):
    one = plan(sites=5, lost=2)
    link, share = secure_sum(), 2 / math.sqrt(one.hiding_sites)
    up = jax.jit(link.at_site)
    left = [
        jax.device_get(up(NOTHING, answer(np.zeros(ENTRIES), share=share, words=SECRET + 10 * site), KEY))
        for site in range(5 - lost)
    ]
    ring = np.sum([ring_vector(one_left) for one_left in left], axis=0, dtype=np.uint64)
    opened = jax.jit(link.release)((), from_ring(ring, left[0]))
    total = np.asarray(opened.arrays["update"], np.float64)
    # Each of the 5 - 2 = 3 that are sure to come gives a third of the variance z² (clip and rounding)².
    planned = 2 * one.sensitivity * 2.0**-20
    assert float(opened.arrays["weight"]) == 5 - lost
    assert np.var(total) == pytest.approx((5 - lost) / 3 * planned**2, rel=5 * math.sqrt(2 / ENTRIES))
    assert normal(total, planned * math.sqrt((5 - lost) / 3))
    assert (5 - lost) / 3 >= 1, "never below the plan"


def test_links_before_it_cannot_make_an_answer_longer_or_the_noise_smaller():
    doubled = identity()._replace(
        up=lambda received, given, key: Message({**given.arrays, "update": 1000 * given.arrays["update"]})
    )
    values = np.zeros(ENTRIES)
    values[0] = 0.9
    link = chain([doubled, secure_sum()])
    for up in (link.up, link.at_site):
        with_it, without_it = (
            whole(jax.jit(up)(NOTHING, answer(given, share=0.1), KEY)).astype(float)
            for given in (values, np.zeros(ENTRIES))
        )
        # Cut to 1 - 2^-16 of the promised length 1; the noise is the same, as the words are.
        moved = (with_it - without_it)[0] / 2**20
        assert 0.9999 < moved <= 1.0
        assert normal(without_it, 0.1 * (2**20 + math.sqrt(ENTRIES) / 2))


@pytest.mark.parametrize("entry", [0.501, 0.499, 0.001])
def test_no_grid_is_so_coarse_that_rounding_moves_a_sum_further_than_the_noise_knows(entry):
    """The worst that a coordinator can choose: steps of 1 where every entry lies just above a half, and becomes 1.

    An answer of length 0.501 sqrt(d) then moves the sum by sqrt(d); the noise is reckoned from length + sqrt(d) / 2.
    Where all entries are rounded away the noise is no smaller for it. In a ring of 20 bits as in one of 64.
    """
    length, share = entry * math.sqrt(ENTRIES), 0.5
    for link in (secure_sum(fraction_bits=0, bits=20, bound=2.0**12), secure_sum(fraction_bits=0)):
        with_it, without_it = (
            whole(jax.jit(link.at_site)(NOTHING, answer(given, length=length, share=share), KEY)).astype(float)
            for given in (np.full(ENTRIES, entry), np.zeros(ENTRIES))
        )
        moved = with_it - without_it
        assert set(moved) == ({1.0} if entry > 0.5 else {0.0})
        deviation = share * (length + math.sqrt(ENTRIES) / 2)
        assert np.std(without_it) == pytest.approx(deviation, rel=0.02)
        assert np.linalg.norm(moved) * share <= deviation


@pytest.mark.parametrize("length", [-1.0, np.nan, np.inf])
def test_a_length_that_makes_no_sense_lets_nothing_out_without_noise(length):
    """A coordinator chooses the length where it adapts: whatever it sends, the noise must fit what leaves."""
    left = jax.jit(secure_sum().up)(NOTHING, answer(np.full(ENTRIES, 0.5), length=length), KEY)
    # No length, or an endless one, is the longest that can be encoded: 2^22 by default.
    longest = 1.0 if length < 0 else 2.0**22
    assert left.arrays["outside"] == 0.0
    assert abs(np.median(whole(left))) < 0.1 * longest * 2**20
    assert np.std(whole(left)) == pytest.approx(longest * 2**20, rel=0.1)


def test_the_least_noise_is_that_from_which_sums_are_like_one():
    left = jax.jit(secure_sum(fraction_bits=0).at_site)(NOTHING, answer(np.zeros(ENTRIES), share=1e-9), KEY)
    assert np.std(whole(left)) == pytest.approx(LEAST, rel=0.03)
    # (tau of the theorem for 100 sites at this deviation is 10 * 99 * exp(-2 pi² 16 / 2) at most: 1e-65)
    assert 990 * math.exp(-(math.pi**2) * LEAST**2) < 1e-60


# ---- whole rounds ----


WIDE = Task((500,), ("no", "yes"), "outcome")


@cache
def wide_study(adapting: AdaptiveClip | None = None):
    """Five sites, a model of 1002 numbers, and steps so small that what moves the model is the noise."""
    generator = np.random.default_rng(1)
    rows = [
        (f"site-{i}", [(generator.normal(size=(8, 500)).astype(np.float32), np.zeros(8, np.int32))] * 3)
        for i in range(5)
    ]
    federation = assemble(rows, WIDE, tuple(f"x{i}" for i in range(500)))
    model = logistic(WIDE)
    plain = fed_avg(model, weighted_mean(), weights="uniform", learning_rate=1e-9)
    private = site_level(plain, noise_multiplier=3.0, clip=0.5, sites=4, seeded=True, adapting=adapting, whole=True)
    return federation, model, private


def parameters(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.device_get(tree))]).astype(float)


def test_a_simulated_study_moves_by_the_planned_noise_and_the_losses_allowed_are_made_up_for():
    federation, model, private = wide_study()
    first = jax.tree.map(jnp.zeros_like, model.init(KEY))
    moved = {}
    for cohort in ([0, 1, 2, 3, 4], [0, 2, 3, 4]):
        with Simulation(federation, seed=1, transform=SUM) as engine:
            after = first
            progress = engine.begin(private, first)
            steps = []
            for number in range(1, 31):
                progress, _ = engine.train(private, progress, [(number, np.array(cohort))])
                before, after = after, jax.device_get(private.params(progress.server))
                steps.append(parameters(after) - parameters(before))
        moved[len(cohort)] = np.concatenate(steps) * len(cohort)  # the sum again
    entries = len(steps[0])
    one = NoisePlan(3.0, 0.5, entries, 20, sites=4)
    planned = one.noise_multiplier * one.sensitivity * 2.0**-20
    assert normal(moved[4], planned)
    assert normal(moved[5], planned * math.sqrt(5 / 4))
    assert not normal(moved[5], planned)


def test_a_real_sites_answer_holds_its_share_when_it_leaves_the_compiled_round():
    federation, model, private = wide_study()
    first, count = federation.part("train")
    own = OwnRows(federation.x[first[1] : first[1] + count[1]], federation.y[first[1] : first[1] + count[1]], 1)
    params = jax.tree.map(jnp.zeros_like, model.init(KEY))
    sent = private.broadcast(private.init(params, 5))
    drawn = []
    for number in range(1, 31):
        left, _, finite = site_round(private, SUM, sent, (), own, seed=1, number=number)
        assert finite
        drawn.append(whole(left))
    one = NoisePlan(3.0, 0.5, len(drawn[0]), 20, sites=4)
    assert normal(np.concatenate(drawn), one.site_deviation)


def test_an_adapting_length_has_its_own_noise_for_the_count():
    federation, model, private = wide_study(AdaptiveClip(quantile=0.5, count_share=0.2))
    params = jax.tree.map(jnp.zeros_like, model.init(KEY))
    state = private.init(params, 5)
    first, count = federation.part("train")
    own = OwnRows(federation.x[first[0] : first[0] + count[0]], federation.y[first[0] : first[0] + count[0]], 0)
    counts, rest = [], []
    for number in range(1, 101):
        sent = private.broadcast(state)
        left, _, _ = site_round(private, SUM, sent, (), own, seed=1, number=number)
        digits = jax.device_get(left).arrays["fixed"]
        numbers = {name: ring_vector(Message({"fixed": tree})).view(np.int64) for name, tree in digits.items()}
        counts.append(int(numbers[BELOW][0]))
        rest.append(numbers["update"])
    assert CLIP in sent.arrays
    # Multipliers 3 / sqrt(0.8) and 3 / sqrt(0.2), shared by 4; the count is +-1/2, and this site's answer is short.
    values = np.concatenate(rest)
    assert normal(values, 3 / math.sqrt(0.8) / 2 * (0.5 * 2**20 + math.sqrt(values.size / 100) / 2))
    spread = 3 / math.sqrt(0.2) / 2 * (0.5 * 2**20 + 0.5)
    assert np.std(counts) == pytest.approx(spread, rel=5 / math.sqrt(2 * 100))
    assert np.mean(counts) == pytest.approx(2**19, abs=5 * spread / math.sqrt(100))


def test_an_answer_that_owes_noise_never_leaves_without_it():
    federation, model, private = wide_study()
    for transform in (None, identity()._replace(fewest=1), chain([])):
        with Simulation(federation, transform=transform) as engine:
            progress = engine.begin(private, model.init(KEY))
            with pytest.raises(Refusal, match=r"asks for noise in whole numbers, and no transform adds it"):
                engine.train(private, progress, [(1, np.arange(5))])
    own = OwnRows(federation.x[:8], federation.y[:8], 0)
    with pytest.raises(Refusal, match="no transform adds it"):
        site_round(private, identity(), private.broadcast(private.init(model.init(KEY), 5)), (), own, seed=1, number=1)


def test_an_answer_that_is_not_finite_counts_as_zero_and_nobody_is_told():
    """That it is not would be a bit about the site without any noise."""
    federation, model, private = wide_study()
    spoilt = federation.x.copy()
    spoilt[federation.first[2]] = np.nan
    bad = assemble(
        [
            (name, [(spoilt[at : at + 8], federation.y[at : at + 8])] * 3)
            for name, at in zip(federation.sites, federation.first, strict=True)
        ],
        WIDE,
        tuple(f"x{i}" for i in range(500)),
    )
    with Simulation(bad, transform=SUM) as engine:
        progress = engine.begin(private, model.init(KEY))
        after, _ = engine.train(private, progress, [(1, np.arange(5))])
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(private.params(after.server)))


def test_fresh_words_give_fresh_noise_and_the_same_words_the_same():
    draw = jax.jit(lambda words: draw_simulated(words, jnp.float32([100.0]), (3000,)))
    a, again, b = (np.asarray(draw(jnp.asarray(SECRET + shift)))[0] for shift in (0, 0, 1))
    np.testing.assert_array_equal(a, again)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(3000)
