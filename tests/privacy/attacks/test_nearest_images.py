"""Attacks on made-up images: distances by hand, chance where nothing was learned, and a generator that memorised."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.privacy.attacks.nearest_images import attack_images, memorized, nearest_distances


def test_distances_by_hand():
    # Two pixels each: (0, 0) is sqrt((0.09 + 0.16) / 2) = 0.35355 from (0.3, 0.4) and 1 from (1, 1).
    images, among = np.zeros((1, 1, 2, 1)), np.array([[0.3, 0.4], [1.0, 1.0]]).reshape(2, 1, 2, 1)
    np.testing.assert_allclose(nearest_distances(images, among), [np.sqrt(0.125)])
    np.testing.assert_allclose(nearest_distances(among, images), [np.sqrt(0.125), 1.0])


def images_of(rows, seed):
    return np.random.default_rng(seed).uniform(size=(rows, 4, 4, 1))


def test_a_generator_that_memorised_is_found_and_one_that_saw_nothing_is_not():
    learned, others = images_of(80, 1), images_of(60, 2)
    blind = attack_images(images_of(400, 3), learned, others)
    assert abs(blind.nearest_learned - 0.5) < 0.1  # the real images drawn make it vary beside the 0.025 of chance
    assert abs(blind.membership.auc - 0.5) < 0.15
    told = attack_images(memorized(learned, 400), learned, others)
    assert told.nearest_learned > 0.7  # those of the 20 images that were not drawn have no nearest of their own
    assert told.membership.auc > 0.99
    assert told.membership.advantage > 0.9
    assert told.distances[0] < 0.1 < told.distances[2]


def test_no_image_is_nearer_to_either_of_two_equal_groups():
    same = images_of(10, 1)
    found = attack_images(images_of(5, 2), same, same)
    assert found.nearest_learned == 0.5
    assert found.membership.auc == 0.5


def test_needs_both_kinds_of_images():
    with pytest.raises(Refusal, match="set a test share"):
        attack_images(images_of(5, 1), images_of(5, 2), images_of(0, 3))
