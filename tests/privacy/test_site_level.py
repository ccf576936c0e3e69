"""Privacy of whole sites: bounded answers, shared noise, and a length that finds its quantile."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from wardround.aggregators.krum import krum
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.contracts import Algorithm, Message, Shard
from wardround.core.errors import Refusal
from wardround.engine.simulate import Simulation
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.site_level import BELOW, CLIP, AdaptiveClip, site_level

KEY = jax.random.key(0)
SHARD = Shard(np.zeros((70, 3), np.float32), np.zeros(70, np.int32), *(np.int32(n) for n in (0, 5, 5, 0)))


def says(update: jax.Array) -> Algorithm:
    """An algorithm whose site always answers this, so that only the protection changes it."""
    return Algorithm(
        init=lambda params, sites: params,
        init_client=lambda params: (),
        broadcast=lambda params: Message({"params": params}),
        client=lambda message, kept, shard, key: (Message({"update": update, "weight": jnp.ones(())}), kept),
        aggregator=weighted_mean(),
        server=lambda params, combined: trees.add(params, combined.arrays["update"]),
        params=lambda params: params,
        predict=lambda params, x: x,
    )


def answers(algorithm: Algorithm, message: Message, times: int) -> dict[str, np.ndarray]:
    draw = jax.jit(jax.vmap(lambda key: algorithm.client(message, (), SHARD, key)[0].arrays))
    return {name: np.asarray(a, np.float64) for name, a in draw(jax.random.split(KEY, times)).items()}


@pytest.mark.parametrize(("long", "expected"), [(10.0, 2.0), (1.0, 1.0)])
def test_an_answer_is_cut_to_the_bound(long: float, expected: float) -> None:
    update = jnp.asarray([0.6, 0.8]) * long
    algorithm = site_level(says(update), noise_multiplier=0.0, clip=2.0, sites=4, seeded=True)
    got = answers(algorithm, Message({"params": jnp.zeros(2)}), 1)
    np.testing.assert_allclose(got["update"][0], [0.6 * expected, 0.8 * expected], rtol=1e-6)
    assert got["weight"][0] == 1.0


def test_the_noises_of_all_sites_add_up_to_the_promised_one() -> None:
    # Each of 9 sites adds noise of 1.5 * 2 / sqrt(9) = 1; the sum of 9 has 1.5 * 2 = 3.
    algorithm = site_level(says(jnp.zeros(50)), noise_multiplier=1.5, clip=2.0, sites=9, seeded=True)
    got = answers(algorithm, Message({"params": jnp.zeros(50)}), 1800)["update"]
    for numbers, spread in ((got, 1.0), (got.reshape(200, 9, 50).sum(axis=1), 3.0)):
        low, high = stats.chi2.ppf([0.001, 0.999], numbers.size)
        assert low < np.sum(numbers**2) / spread**2 < high


def test_update_and_count_together_cost_one_noise() -> None:
    adapting = AdaptiveClip(count_share=0.2)
    update, count = adapting.noise_multipliers(3.0)
    assert 1 / update**2 + 1 / count**2 == pytest.approx(1 / 3.0**2)
    both = [Step(1.0, update, 20), Step(1.0, count, 20)]
    assert epsilon(both, 1e-5) == pytest.approx(epsilon([Step(1.0, 3.0, 20)], 1e-5), abs=2e-3)


def test_the_count_says_below_and_its_noise_is_accounted_for() -> None:
    adapting = AdaptiveClip(count_share=0.2)
    for bound, said in ((5.0, 0.5), (0.5, -0.5)):
        algorithm = site_level(
            says(jnp.asarray([0.6, 0.8])), noise_multiplier=2.0, clip=1.0, sites=4, seeded=True, adapting=adapting
        )
        message = Message({"params": jnp.zeros(2), CLIP: jnp.float32(bound)})
        got = answers(algorithm, message, 4000)
        # One site changes the count, told around 0, by 1/2 at most: its noise is half the multiplier, shared by 4.
        spread = adapting.noise_multipliers(2.0)[1] * 0.5 / 2
        assert got[BELOW].mean() == pytest.approx(said, abs=4.5 * spread / np.sqrt(4000))
        low, high = stats.chi2.ppf([0.001, 0.999], 3999)
        assert low < np.sum((got[BELOW] - got[BELOW].mean()) ** 2) / spread**2 < high
        np.testing.assert_allclose(
            got["update"].mean(axis=0), np.array([0.6, 0.8]) * min(1, bound), atol=5 * 2.3 * bound / 2 / np.sqrt(4000)
        )


def course(start: float, adapting: AdaptiveClip, rounds: int, *, sites: int = 100, noise: float = 0.0) -> np.ndarray:
    """Clip after each round, for sites whose answers have log-normal lengths with median 1."""
    generator, clip, path = np.random.default_rng(0), jnp.float32(start), []
    for number in range(rounds):
        lengths = np.exp(generator.normal(size=sites))
        below = np.mean(lengths <= float(clip)) + generator.normal() * noise * 0.5 / sites
        clip = adapting.next_clip(clip, jnp.float32(below), jnp.float32(number))
        path.append(float(clip))
    return np.array(path)


@pytest.mark.parametrize("start", [10.0, 0.1])
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_from_ten_times_off_the_paper_s_rate_finds_the_median_in_50_rounds(start: float, noise: float) -> None:
    path = course(start, AdaptiveClip(quantile=0.5, rate=0.2), 60, noise=noise)
    # The true median of the lengths is 1.
    assert (np.abs(path[49:] - 1) < 0.1).all()


@pytest.mark.parametrize("start", [100.0, 0.01])
def test_from_a_hundred_times_off_a_falling_rate_does(start: float) -> None:
    path = course(start, AdaptiveClip(quantile=0.5, rate=0.2, first_rate=1.0), 60)
    assert (np.abs(path[49:] - 1) < 0.1).all()
    assert abs(course(start, AdaptiveClip(quantile=0.5, rate=0.2), 50)[-1] - 1) > 0.1, (
        "the paper's rate is too slow here"
    )


def test_another_quantile_is_found_too() -> None:
    path = course(3.0, AdaptiveClip(quantile=0.8, rate=0.2), 200)
    truth = np.exp(stats.norm.ppf(0.8))  # 2.32
    assert abs(path[100:].mean() - truth) < 0.1 * truth


def test_the_length_moves_away_from_where_all_or_none_are_below() -> None:
    # exp(-0.2 (1 - 0.5)) = exp(-0.1) when all are below, exp(0.1) when none is; noise cannot push further.
    adapting = AdaptiveClip()
    for below, factor in ((1.0, -0.1), (0.0, 0.1), (7.0, -0.1), (-7.0, 0.1)):
        moved = float(adapting.next_clip(jnp.float32(2.0), jnp.float32(below), jnp.float32(0)))
        assert moved == pytest.approx(2.0 * np.exp(factor), rel=1e-6)


def test_in_a_study_the_length_adapts_and_is_told(even, model) -> None:
    plain = fed_avg(model, weighted_mean(), weights="uniform")
    algorithm = site_level(
        plain, noise_multiplier=1e-3, clip=50.0, sites=7, seeded=True, adapting=AdaptiveClip(first_rate=1.0)
    )
    with Simulation(even, seed=1, device_count=1) as engine:
        progress = engine.begin(algorithm, model.init(KEY))
        progress, _ = engine.train(algorithm, progress, [(n, np.arange(7)) for n in (1, 2, 3)])
        told = algorithm.tells(progress.server)
        engine.predict(algorithm, progress, "test")
    # All seven are far below 50 in each round: rates 1, 0.9, 0.81, each times 1/2.
    assert float(told["clip"]) == pytest.approx(50 * np.exp(-0.5 * (1 + 0.9 + 0.81)), rel=1e-3)
    assert float(told["below_clip"]) == pytest.approx(1.0, abs=0.01)


def test_without_noise_and_with_a_wide_bound_it_is_the_algorithm_itself(even, model) -> None:
    plain = fed_avg(model, weighted_mean(), weights="uniform")
    ends = []
    for algorithm in (plain, site_level(plain, noise_multiplier=0.0, clip=1e6, sites=7, seeded=True)):
        with Simulation(even, seed=1, device_count=1) as engine:
            progress = engine.begin(algorithm, model.init(KEY))
            ends.append(jax.device_get(engine.train(algorithm, progress, [(1, np.arange(7))])[0].server))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *ends)


def test_an_aggregator_that_sees_single_answers_is_refused(model) -> None:
    with pytest.raises(Refusal, match="must see single answers"):
        site_level(fed_avg(model, krum()), noise_multiplier=1.0, clip=1.0, sites=7, seeded=True)
