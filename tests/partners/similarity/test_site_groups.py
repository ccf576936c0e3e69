"""Who means the same: the closed form against brute force, and limiting cases."""

import math

import numpy as np
import pytest

from wardround.partners.similarity import site_groups
from wardround.partners.similarity.site_groups import (
    SLABS,
    SPIKES,
    all_partitions,
    directions_of,
    group_sites,
    partition_prior,
    restaurant_prior,
    weigh,
)


def sites_of(effects: np.ndarray, rows: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Least squares with unit noise: score and information, at 0, of sites with these coefficients (sites, columns)."""
    generator = np.random.default_rng(seed)
    scores, information = [], []
    for own in effects:
        x = generator.normal(size=(rows, len(own)))
        y = x @ own + generator.normal(size=rows)
        scores.append(x.T @ y)
        information.append(x.T @ x)
    return np.array(scores), np.array(information)


def test_there_are_as_many_partitions_as_bell_says() -> None:
    assert [len(all_partitions(count)) for count in (1, 2, 3, 4, 7)] == [1, 2, 5, 15, 877]
    assert len({tuple(one) for one in all_partitions(6)}) == 203


def test_the_prior_of_partitions_is_one_over_their_number_of_orders() -> None:
    """Concentration 1: a partition has the product of (size - 1)! over n!; those of three sites add up to 1."""
    labels = all_partitions(3)
    chance = np.exp(restaurant_prior(labels)) / math.factorial(3)
    assert chance.sum() == pytest.approx(1)
    assert chance[labels.tolist().index([0, 0, 0])] == pytest.approx(2 / 6)


def test_the_weight_of_a_partition_is_that_of_the_normal_distribution() -> None:
    """One direction, three sites: the likelihood of what they tell, with the centre's flat prior integrated out."""
    amount = np.array([0.2, 0.5, 0.3])
    place = np.array([1.5, -2.0, 0.5])
    score = amount * place
    rest = score - amount * score.sum()
    labels = np.array([[0, 0, 0], [0, 1, 0], [0, 1, 2]])
    found = weigh(labels, amount[:, None], rest[:, None], SLABS * 3)

    def log_density(variance: float, groups: np.ndarray) -> float:
        # Contrasts of the sites' estimates do not depend on the centre.
        contrast = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
        member = (groups[:, None] == groups[None]).astype(float)
        total = contrast @ (np.diag(1 / amount) + variance * member) @ contrast.T
        apart = contrast @ place
        return float(-0.5 * (np.linalg.slogdet(total)[1] + apart @ np.linalg.solve(total, apart)))

    for row, groups in zip(found, labels, strict=True):
        same = log_density(0.0, groups)
        ratios = [math.exp(log_density(slab * 3, groups) - same) for slab in SLABS]
        # Half of the prior is for variances of each direction's own, half for one of all, which here is the same.
        for column, spike in zip(row[: len(SPIKES)], SPIKES, strict=True):
            expected = (spike + (1 - spike) * np.mean(ratios)) / (2 * len(SPIKES))
            assert column == pytest.approx(math.log(expected), rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(row[len(SPIKES) :], np.log(np.array(ratios) / (2 * len(SLABS))), atol=1e-9)


def test_two_groups_that_differ_in_one_coefficient_are_found() -> None:
    effects = np.tile([0.5, -0.3, 0.2, 0.0], (6, 1))
    effects[3:, 0] = -0.5
    told = directions_of(*sites_of(effects))
    found = group_sites(told)
    assert found.together[0, :3].min() > 0.8
    assert found.together[0, 3:].max() < 0.01
    # The posterior mean comes nearer the truth than each site's own estimate does.
    truth = effects @ told.dual.T
    own = np.array([np.linalg.solve(a, s) for a, s in zip(told.information, told.score, strict=True)])
    assert np.sum((found.mean - truth) ** 2) < 0.5 * np.sum((own - truth) ** 2)


def test_sites_alike_get_the_common_coefficients() -> None:
    score, information = sites_of(np.tile([0.5, -0.3, 0.2], (5, 1)), seed=4)
    told = directions_of(score, information)
    found = group_sites(told)
    common = np.linalg.solve(information.sum(axis=0), score.sum(axis=0))
    shrunk = found.mean @ told.basis.T
    own = np.array([np.linalg.solve(a, s) for a, s in zip(information, score, strict=True)])
    assert np.abs(shrunk - common).max() < 0.35 * np.abs(own - common).max()
    # As sure as all patients together: a variance of 1 in each direction, and little more.
    assert (np.diagonal(found.covariance, axis1=1, axis2=2) >= 1 - 1e-9).all()
    assert np.median(np.diagonal(found.covariance, axis1=1, axis2=2)) < 2


def test_columns_that_say_the_same_count_once() -> None:
    score, information = sites_of(np.tile([0.5, -0.3], (3, 1)))
    twice = np.concatenate([np.eye(2), -np.eye(2)])  # softmax of two classes: the second column is minus the first
    told = directions_of(score @ twice.T, twice @ information @ twice.T)
    assert told.basis.shape == (4, 2)
    np.testing.assert_allclose(told.information.sum(axis=0), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(told.dual @ told.basis, np.eye(2), atol=1e-9)


def test_greedy_merging_finds_what_looking_at_all_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = np.tile([0.5, -0.3, 0.2], (7, 1))
    effects[4:, 1] = 0.4
    told = directions_of(*sites_of(effects, seed=2))
    whole = group_sites(told)
    monkeypatch.setattr(site_groups, "ALL_PARTITIONS", 3)
    greedy = group_sites(told)
    np.testing.assert_allclose(greedy.together, whole.together, atol=0.2)
    np.testing.assert_allclose(greedy.mean, whole.mean, atol=0.6)  # half a posterior standard deviation


def test_many_sites_are_grouped_in_time() -> None:
    effects = np.tile([0.6, -0.3, 0.2], (40, 1))
    effects[20:, 0] = -0.6
    told = directions_of(*sites_of(effects, rows=100))
    found = group_sites(told)
    assert found.together[0, :20].min() > 0.5
    assert found.together[0, 20:].max() < 0.05


def test_like_patients_count_where_unlike_coefficients_go_with_them() -> None:
    """Weak differences between the first and the last three, whose patients differ too; then none."""
    effects = np.tile([0.15, -0.3, 0.2], (6, 1))
    effects[3:, 0] = -0.15
    told = directions_of(*sites_of(effects, seed=5))
    group = np.array([0, 0, 0, 1, 1, 1])
    apart = np.where(group[:, None] != group, 10 / 3, 0.0)  # 2 in the mean over pairs
    plain, helped = group_sites(told), group_sites(told, apart)
    assert helped.together[0, 3:].max() < plain.together[0, 3:].max()
    assert helped.together[0, 1:3].min() > plain.together[0, 1:3].min()
    alike = directions_of(*sites_of(np.tile([0.15, -0.3, 0.2], (6, 1)), seed=6))
    np.testing.assert_allclose(group_sites(alike, apart).mean, group_sites(alike).mean, atol=0.5)


def test_the_prior_of_like_patients_by_hand() -> None:
    """Two sites 2 apart: 1/2 for one group by the plain prior, e^-1 / (e^-1 + 1) by the other, half of each."""
    prior = np.exp(partition_prior(np.array([[0, 0], [0, 1]]), apart=np.array([[0.0, 2.0], [2.0, 0.0]])))
    assert prior.sum() == pytest.approx(1)
    assert prior[0] == pytest.approx((0.5 + math.exp(-1) / (math.exp(-1) + 1)) / 2)


def test_nothing_told_is_nothing_known() -> None:
    told = directions_of(np.zeros((3, 2)), np.zeros((3, 2, 2)))
    assert told.basis.shape == (2, 0)
    assert group_sites(told).together.tolist() == np.ones((3, 3)).tolist()
