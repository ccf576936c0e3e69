"""Dice and IoU of images against scikit-learn and numbers by hand; means, intervals and comparisons over sites."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import f1_score, jaccard_score, log_loss, precision_score, recall_score

from wardround.core.contracts import Scores, Task
from wardround.core.overlap import dice_of, overlap_of, truth_of, union_share_of
from wardround.core.quality import row_losses
from wardround.evaluate.block import pooled_block, result_block
from wardround.evaluate.comparison import paired_difference
from wardround.evaluate.metrics import measure_sites

TASK = Task((6, 5, 1), (), "mask", segmentation=True)


def drawn(rows, seed=0, share=0.4):
    generator = np.random.default_rng(seed)
    p = generator.uniform(size=(rows, 6, 5)).astype(np.float32)
    return p, (generator.uniform(size=(rows, 6, 5)) < share).astype(np.uint8)


def scores_of(p, masks, first):
    return Scores(np.asarray(overlap_of(jnp.asarray(p), masks)), truth_of(masks), np.asarray(first))


def test_every_image_is_what_scikit_learn_says():
    p, masks = drawn(7)
    scores = scores_of(p, masks, [0, 7])
    for row in range(7):
        truth, found = masks[row].ravel(), p[row].ravel() >= 0.5
        np.testing.assert_allclose(dice_of(scores.predicted, scores.actual)[row], f1_score(truth, found), rtol=1e-6)
        union = union_share_of(scores.predicted, scores.actual)[row]
        np.testing.assert_allclose(union, jaccard_score(truth, found), rtol=1e-6)
        loss = row_losses(scores.predicted, scores.actual)[row]
        np.testing.assert_allclose(loss, log_loss(truth, p[row].ravel().astype(float), labels=[0, 1]), rtol=1e-5)
    block = result_block(scores, TASK, ["A"], resamples=0)["sites"]["A"]
    flat = [(masks[row].ravel(), p[row].ravel() >= 0.5) for row in range(7)]
    for name, of in (("pixel_recall", recall_score), ("pixel_precision", precision_score)):
        np.testing.assert_allclose(block[name]["value"], np.mean([of(*one) for one in flat]), rtol=1e-6)


def test_nothing_there_by_hand():
    # Nothing there and nothing found: 1. Nothing there and something found: 0. Something there and nothing found: 0.
    nothing, something = np.zeros((6, 5)), np.ones((6, 5))
    p, masks = np.stack([nothing, something, nothing]), np.stack([nothing, nothing, something]).astype(np.uint8)
    scores = scores_of(p.astype(np.float32), masks, [0, 2, 3])
    measured = measure_sites(scores, TASK)
    assert measured.values["dice"].tolist() == [0.5, 0.0]
    assert measured.values["iou"].tolist() == [0.5, 0.0]
    assert measured.measure("pixel_recall", 0) == (None, "nothing to be found among 2 test patients")
    assert measured.measure("pixel_recall", 1).value == 0.0
    assert measured.measure("pixel_precision", 1) == (None, "nothing found among 1 test patient")


def test_half_a_probability_counts_as_found():
    found = overlap_of(jnp.full((1, 2, 2), 0.5), np.ones((1, 2, 2), np.uint8))
    assert found[0, :2].tolist() == [4.0, 4.0]


def test_predictions_that_are_not_numbers_make_a_site_undefined():
    p, masks = drawn(4)
    p[1, 0, 0] = np.nan
    scores = scores_of(p, masks, [0, 2, 4])
    measured = measure_sites(scores, TASK)
    assert measured.measure("dice", 0).reason == "the predictions for 1 of 2 test patients are not numbers"
    assert measured.measure("dice", 1).value is not None
    assert np.isinf(row_losses(scores.predicted, scores.actual)[1])


def test_intervals_and_means_over_sites():
    p, masks = drawn(60)
    p[30:] = np.clip(0.8 * masks[30:] + 0.1 + 0.0 * p[30:], 0, 1)  # the second site is marked without a mistake
    scores = scores_of(p, masks, [0, 30, 60])
    block = result_block(scores, TASK, ["A", "B"], resamples=200)
    a, b = (block["sites"][name]["dice"] for name in "AB")
    assert a["low"] < a["value"] < a["high"]
    assert (b["value"], b["no_interval"]) == (1.0, "all resamples give the same value")
    assert block["weighted"]["dice"]["value"] == pytest.approx((a["value"] + 1) / 2)
    pooled = pooled_block(scores, TASK, resamples=0)
    assert set(pooled) == {"dice", "iou", "pixel_recall", "pixel_precision", "pixel_log_loss"}
    worse = scores._replace(predicted=scores.predicted * [0.9, 1, 1])
    gap = paired_difference([scores], [worse], TASK, "dice")
    # Nine tenths of the overlap is nine tenths of every Dice.
    assert gap.value == pytest.approx(0.1 * block["weighted"]["dice"]["value"], rel=1e-6)
    assert gap.verdict == "better"
