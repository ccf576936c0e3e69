"""A simulated study under the secure sum: the same model up to the rounding, and what cannot be is refused."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import chain
from wardround.core.contracts import Message
from wardround.core.errors import Diverged, Refusal
from wardround.engine import registry
from wardround.engine.simulate import Simulation
from wardround.privacy.secure_sum.fixed_point import from_ring, ring_vector
from wardround.transforms.clip import clip
from wardround.transforms.compression import compression
from wardround.transforms.secure_sum import secure_sum

KEY = jax.random.key(0)
NOTHING = Message({})


@cache
def algorithm_of(model):
    """The same object every time, so that tests share compiled programs."""
    return fed_avg(model, weighted_mean())


def trained(federation, model, transform, *, rounds=1, devices=1):
    algorithm, everyone = algorithm_of(model), np.arange(len(federation.sites))
    with Simulation(federation, seed=3, transform=transform, device_count=devices) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(number, everyone) for number in range(1, rounds + 1)])
        return jax.device_get(algorithm.params(progress.server))


def farthest(a, b) -> float:
    return max(float(np.abs(p - q).max()) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def sent(update, weight: float) -> Message:
    return Message({"update": weight * jnp.asarray(update, jnp.float32), "weight": jnp.float32(weight)})


def test_the_sum_is_that_of_the_rounded_answers():
    link = secure_sum(fraction_bits=2, bound=1000.0)
    # In quarters: 3 * 0.3 = 0.9 -> 1.0 (3.6 quarters -> 4); 5 * -0.3 = -1.5 (6 quarters); weights exactly.
    up = jax.jit(link.up)
    answers = [up(NOTHING, sent([0.3, 100.0], 3.0), KEY), up(NOTHING, sent([-0.3, 100.0], 5.0), KEY)]
    total = jax.tree.map(lambda a, b: a + b, *answers)
    opened = jax.jit(link.release)((), total)
    assert opened.arrays["update"].tolist() == [-0.5, 800.0]
    assert float(opened.arrays["weight"]) == 8.0
    assert link.sum_only


def test_a_study_learns_the_same_up_to_the_rounding(even, model):
    plain, secure = (trained(even, model, transform) for transform in (None, secure_sum(fraction_bits=8)))
    # Each of 7 answers is off by 2^-9 at most, and their sum is divided by 7 * 48 patients: 2^-9 / 48 = 4.1e-5.
    # With rounding to nearest the errors of 7 sites do not all vanish: the tenth part of it must show.
    assert 4e-6 < farthest(plain, secure) < 4.2e-5


def test_masks_would_change_no_bit():
    """The simulated way (digits added up) and the real one (ring elements added up) give the same bits."""
    link = secure_sum()
    up, release = jax.jit(link.up), jax.jit(link.release)
    generator = np.random.default_rng(1)
    answers = [jax.device_get(up(NOTHING, sent(generator.normal(size=50), 100.0 * (i + 1)), KEY)) for i in range(9)]
    simulated = release((), jax.tree.map(lambda *parts: sum(parts), *answers))
    ring = np.sum([ring_vector(one) for one in answers], axis=0, dtype=np.uint64)
    real = release((), from_ring(ring, answers[0]))
    np.testing.assert_array_equal(simulated.arrays["update"], real.arrays["update"])
    assert float(real.arrays["weight"]) == 4500.0


def test_too_large_an_answer_and_a_nan_stop_the_study_and_name_the_sites(make_federation, model):
    # The weight is the number of patients: 40 at the second site, more than the bound. The third has a NaN.
    federation = make_federation([20, 40, 20])
    federation.x[federation.first[2]] = np.nan
    with pytest.raises(Diverged) as told:
        trained(federation, model, secure_sum(bound=30.0))
    assert told.value.sites == ("site-1", "site-2")
    said = str(told.value)
    assert "the answer of site-1, site-2 is not finite or goes past 30, the largest number that the secure sum" in said
    assert "training diverged there or the bound is too small" in said
    assert "raise the bound in [[transforms]], lower the learning rate" in said


@pytest.mark.parametrize("sizes", [[20], [20, 20], [20, 20, 0]])
def test_fewer_than_three_sites_with_patients_are_refused_before_the_first_round(make_federation, model, sizes):
    with pytest.raises(Refusal, match=r"with fewer than 3 the answers of single sites would be revealed.*at least 3"):
        Simulation(make_federation(sizes), transform=secure_sum()).begin(algorithm_of(model), model.init(KEY))


def test_a_round_of_two_is_refused_though_the_study_has_more(even, model):
    algorithm = algorithm_of(model)
    with Simulation(even, transform=secure_sum()) as engine:
        progress = engine.begin(algorithm, model.init(KEY))
        with pytest.raises(Refusal, match=r"2 sites with patients take part.*round 1"):
            engine.train(algorithm, progress, [(1, np.array([0, 3]))])


def test_bytes_are_those_of_the_ring_elements(even, model):
    """Three features and two classes: 6 weights, 2 biases and the count of patients, 8 bytes each; down in float32."""
    algorithm = algorithm_of(model)
    for links in ([secure_sum()], [clip(), secure_sum()]):
        engine = Simulation(even, transform=chain(links))
        progress = engine.begin(algorithm, model.init(KEY))
        entries = 9 if "bias" in str(model.init(KEY)) else 7
        assert engine.message_bytes(algorithm, progress) == (4 * (entries - 1), 8 * entries)
        left = engine.transform.up(NOTHING, sent(np.zeros(entries - 1), 1.0), KEY)
        assert ring_vector(jax.device_get(left)).nbytes == 8 * entries


def test_an_aggregator_that_must_see_each_answer_is_refused(even, model):
    for transform in (secure_sum(), chain([compression(direction="down"), secure_sum()])):
        with pytest.raises(Refusal, match="reveals only the sum"):
            Simulation(even, transform=transform).begin(fed_avg(model, median()), model.init(KEY))


def test_a_study_file_names_it_and_wrong_settings_are_refused():
    component = registry.find("transform", "secure_sum")
    assert component.build(fraction_bits=16, bound=1000.0).sum_only
    with pytest.raises(Refusal, match="'bound' must be greater than 0"):
        component.build(bound=0.0)
    with pytest.raises(Refusal, match="'fraction_bits' must be a whole number"):
        component.build(fraction_bits=2.5)
    with pytest.raises(Refusal, match="take more than 42 bits"):
        component.build(fraction_bits=30, bound=1e6)


def test_few_bits_need_few_bytes_and_no_sum_wraps(even, model):
    """Seven sites of 48 patients: 7 x 48 x 2^3 = 2,688 fits into 13 bits with a sign, and not into 12."""
    algorithm = algorithm_of(model)
    narrow = secure_sum(fraction_bits=3, bound=48.0, bits=13)
    engine = Simulation(even, transform=narrow)
    progress = engine.begin(algorithm, model.init(KEY))
    # 9 numbers are two groups of eight, 13 bytes each.
    assert engine.message_bytes(algorithm, progress)[1] == 26
    with pytest.raises(Refusal, match="7 sites take part, and the sum of more than 5 answers would not fit"):
        Simulation(even, transform=secure_sum(fraction_bits=3, bound=48.0, bits=12)).begin(algorithm, model.init(KEY))
    with pytest.raises(Refusal, match="8 bits have no room for 3 answers of up to 48 with 3 binary places"):
        secure_sum(fraction_bits=3, bound=48.0, bits=8)


def test_on_a_coarse_grid_the_mean_is_right_and_counts_are_exact():
    link = secure_sum(fraction_bits=0, bound=100.0, bits=16)

    @jax.jit
    @jax.vmap
    def opened(key):
        return link.release((), link.up(NOTHING, sent(jnp.full(50, 0.1), 3.0), key)).arrays

    found = opened(jax.random.split(KEY, 400))
    # 3 x 0.1 = 0.3 becomes 1 with chance 0.3: over 20,000 draws within 5 x sqrt(0.21 / 20,000) = 0.016.
    assert set(np.unique(found["update"])) == {0.0, 1.0}
    assert abs(float(found["update"].mean()) - 0.3) < 0.016
    assert set(np.unique(found["weight"])) == {3.0}
