import numpy as np

from wardround.weak_supervision.search.usefulness import seen_votes, usefulness


def test_candidates_like_accepted_ones_seem_useful():
    """Records 0 to 49 are of class 0, others of class 1; rules that vote for their class were accepted, others not."""
    generator = np.random.default_rng(0)
    truth = np.repeat([0, 1], 50)
    about = generator.integers(0, 2, 80)
    fired = generator.random((100, 80)) < np.where(truth[:, None] == about, 0.3, 0.03)
    labels = generator.integers(0, 2, 80)
    seen = seen_votes(fired, labels, 2)
    good = (labels == about).astype(float)
    found = usefulness(seen[:40], good[:40], seen[40:], 0)
    assert found[good[40:] == 1].mean() > found[good[40:] == 0].mean() + 0.4
    assert np.array_equal(found, usefulness(seen[:40], good[:40], seen[40:], 0)), "the same seed, the same estimate"


def test_before_anything_is_judged_nothing_is_known():
    assert usefulness(np.zeros((0, 6)), np.zeros(0), np.zeros((3, 6)), 0).tolist() == [0.5] * 3
    assert seen_votes(np.zeros((3, 0), bool), np.zeros(0, int), 2).shape == (0, 6)
