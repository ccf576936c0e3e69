"""What a site tells of predicted survival: losses clipped with censored patients, figures of few not told, noise."""

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.core.quality import row_losses
from wardround.data.survival.intervals import interval_names, label_numbers
from wardround.deploy.site.release.disclosure import (
    FEW_EVENTS,
    clipped_losses,
    coarse_figures,
    coarse_losses,
    fewest_followed,
)
from wardround.evaluate.block import result_block
from wardround.evaluate.metrics import measure_sites
from wardround.study.noised_figures import NOT_TOLD, loss_bound, noised_figures, noised_look

HORIZONS = (1.0, 2.0)
TASK = Task((1,), interval_names(HORIZONS), "died", HORIZONS)
KEY = b"0" * 32


def made(rows, seed=0):
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(0, 1, rows))
    died, lost = rng.exponential(1.5 / rate), rng.uniform(0, 4, rows)
    time, event = np.minimum(died, lost), (died <= lost).astype(float)
    left = np.exp(-np.outer(rate, HORIZONS) / 1.5)
    predicted = np.stack([1 - left[:, 0], left[:, 0] - left[:, 1], left[:, 1]], axis=1)
    return Scores(predicted, label_numbers(time, event, HORIZONS), np.array([0, rows]), time)


def test_clipped_predictions_have_the_clipped_losses():
    scores = made(60)
    assert (scores.actual > 2).any()  # some are censored before the last horizon
    near = clipped_losses(scores, 10)
    losses, clipped = (row_losses(one.predicted, one.actual) for one in (scores, near))
    inside = np.isclose(losses, clipped)
    assert inside.sum() >= 50  # fewer than a cell lie far out
    assert clipped.max() <= losses.max()


def test_nobody_is_counted_as_right():
    told = coarse_losses(made(60), TASK, 10)
    assert (told["rows"], told["right"]) == (60, 0)


def test_figures_of_few_events_stay():
    scores = made(200, seed=1)
    few = scores._replace(**{name: getattr(scores, name)[:20] for name in ("predicted", "actual", "times")})
    few = few._replace(first=np.array([0, 20]))
    assert fewest_followed(few, TASK) == min((few.actual < 2).sum(), (few.actual == 2).sum()) < 10
    for one, told in ((few, False), (scores, True)):
        exact = result_block(one, TASK, ["bo"], resamples=0)
        found = coarse_figures(exact, one, TASK, 10)["sites"]["bo"]
        assert set(found) == {"c_index", "integrated_brier", "horizon_gap", "log_loss"}
        for name in ("c_index", "integrated_brier", "horizon_gap"):
            assert (found[name]["value"] is not None) == told
            assert told or found[name]["undefined"] == FEW_EVENTS
            if told:
                assert (found[name]["value"] * 64).is_integer()
                assert abs(found[name]["value"] - exact["sites"]["bo"][name]["value"]) <= 1 / 16
    assert coarse_figures(exact, scores, TASK, 1) == exact  # with a smallest cell of 1 all is exact


def test_one_patient_moves_a_figure_by_a_step_at_most():
    # The grid of a weighted figure is made for the number of patients behind it: leaving anybody out stays within.
    scores = made(80, seed=2)
    whole = measure_sites(scores, TASK).values
    for name, most in (("integrated_brier", 1 / 16), ("horizon_gap", 1 / 16)):
        for away in range(80):
            rest = np.delete(np.arange(80), away)
            other = Scores(scores.predicted[rest], scores.actual[rest], np.array([0, 79]), scores.times[rest])
            assert abs(measure_sites(other, TASK, [name]).values[name][0] - whole[name][0]) < most


def test_without_noise_the_noised_c_index_is_that_of_bins_of_risk_and_time():
    # Pairs within one cell of time are not compared, and these are the hardest to order: it is slightly too high.
    scores = made(2000, seed=3)
    told = noised_figures(
        scores, TASK, "bo", metrics=["c_index", "integrated_brier"], positive=0, noise=1e-9, key=KEY, resamples=20
    )["sites"]["bo"]
    exact = float(measure_sites(scores, TASK).values["c_index"][0])
    assert 0 < told["c_index"]["value"] - exact < 0.02
    assert told["c_index"]["low"] < told["c_index"]["value"] < told["c_index"]["high"]
    assert told["integrated_brier"] == {"value": None, "undefined": NOT_TOLD}


def test_a_look_has_one_noised_number():
    # Nobody is right or wrong, so a patient moves one sum: the noise is not shared with a second one.
    scores = made(500, seed=4)
    bound = loss_bound(TASK, None)
    assert bound == 2 * np.log(3)
    exact = np.minimum(row_losses(scores.predicted, scores.actual), bound).sum()
    drawn = [
        noised_look(scores.predicted, scores.actual, bound, 2.0, bytes([n]) * 32, survival=True) for n in range(200)
    ]
    assert {one.right for one in drawn} == {0}
    np.testing.assert_allclose(np.std([one.loss for one in drawn]), 2.0 * bound, rtol=0.2)
    np.testing.assert_allclose(np.mean([one.loss for one in drawn]), exact, atol=4 * 2.0 * bound / np.sqrt(200))
