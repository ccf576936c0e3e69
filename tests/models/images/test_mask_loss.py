"""Losses of masks against numbers worked out by hand and against scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import log_loss

from wardround.models.images.mask_loss import LOSSES, both_losses, pixel_cross_entropy, soft_dice_loss


def logit(p):
    return np.log(p / (1 - p))


def test_by_hand():
    # Two images of 2 x 2. The first: probabilities .8 .6 / .4 .2, mask 1 1 / 0 0.
    # Dice: 2 (.8 + .6) + 1 = 3.8 over (.8 + .6 + .4 + .2) + 2 + 1 = 5, so 1 - .76 = .24.
    # Cross entropy: -(ln .8 + ln .6 + ln .6 + ln .8) / 4 = (.2231436 + .5108256) / 2 = .3669846.
    # The second has nothing in it: Dice 1 / (sum p + 1) = 1 / (4 * .25 + 1) = .5; cross entropy -ln .75 = .2876821.
    p = np.array([[[0.8, 0.6], [0.4, 0.2]], np.full((2, 2), 0.25)], np.float32)
    masks = np.array([[[1, 1], [0, 0]], np.zeros((2, 2))], np.uint8)
    outputs = jnp.asarray(logit(p))
    np.testing.assert_allclose(soft_dice_loss(outputs, masks), [0.24, 0.5], atol=1e-6)
    np.testing.assert_allclose(pixel_cross_entropy(outputs, masks), [0.3669846, 0.2876821], atol=1e-6)
    np.testing.assert_allclose(both_losses(outputs, masks), [0.6069846, 0.7876821], atol=1e-6)


def test_cross_entropy_is_scikit_learns_and_stays_finite():
    generator = np.random.default_rng(3)
    outputs, masks = generator.normal(0, 3, (2, 5, 7)), generator.integers(0, 2, (2, 5, 7))
    found = pixel_cross_entropy(jnp.asarray(outputs, jnp.float32), masks)
    for row in range(2):
        expected = log_loss(masks[row].ravel(), 1 / (1 + np.exp(-outputs[row].ravel())), labels=[0, 1])
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)
    sure = jnp.full((1, 4, 4), -200.0)
    assert np.isfinite(LOSSES["both"](sure, jnp.ones((1, 4, 4)))).all()
    slope = jax.grad(lambda one: jnp.sum(LOSSES["both"](one, jnp.ones((1, 4, 4)))))(sure)
    assert np.isfinite(slope).all()


def test_a_perfect_mask_costs_nothing_and_its_opposite_nearly_all():
    masks = np.zeros((1, 8, 8), np.uint8)
    masks[0, 2:6, 2:6] = 1
    sure = jnp.where(masks > 0, 40.0, -40.0)
    np.testing.assert_allclose(soft_dice_loss(sure, masks), [0.0], atol=1e-6)
    # Nothing shared: 1 - 1 / (48 + 16 + 1).
    np.testing.assert_allclose(soft_dice_loss(-sure, masks), [1 - 1 / 65], atol=1e-6)
