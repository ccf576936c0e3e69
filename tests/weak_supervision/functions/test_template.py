import math

import numpy as np
import pandas as pd
import pytest

from wardround.weak_supervision.function import votes_of
from wardround.weak_supervision.functions.template import reach_of, template
from wardround.weak_supervision.series import sample_columns


def test_the_border_by_hand():
    # z-normalised, (0, 0, 1, 1) is (-1, -1, 1, 1) and (0, 1, 0, 1) is (-1, 1, -1, 1): they differ by 2 at two places,
    # so the distance is sqrt(8) = 2.828. With likelihood 0.2 a template reaches ln 4 = 1.386 further than its distance.
    frame = pd.DataFrame([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 100.0, 100.0]], columns=sample_columns("b", 4))
    for distance, there in ((math.sqrt(8) - math.log(4) + 1e-3, True), (math.sqrt(8) - math.log(4) - 1e-3, False)):
        made = template(series="b", samples=(0.0, 0.0, 1.0, 1.0), distance=distance, label="x")
        assert votes_of([made], frame)[:, 0].tolist() == [there, True]


@pytest.mark.parametrize("likelihood", [0.1, 0.5, 0.9])
def test_reach_is_where_the_logistic_curve_crosses(likelihood):
    distance = 3.0
    at = reach_of(distance, likelihood)
    assert 1 / (1 + math.exp(-(distance - at))) == pytest.approx(likelihood)


def test_templates_that_reach_nothing():
    # With a likelihood near 1 the reach is below 0, so that not even the template itself is near enough.
    frame = pd.DataFrame([[0.0, 1.0]], columns=sample_columns("b", 2))
    made = template(series="b", samples=(0.0, 1.0), distance=0.0, label="x", likelihood=0.99)
    assert not votes_of([made], frame).any()


def test_real_beats_against_a_loop():
    import lzma

    from wardround.data.folder import data_file

    with lzma.open(data_file("mitbih_beats", "beats.npy.xz")) as file:
        beats = np.lib.format.read_array(file, allow_pickle=False)[:200].astype(np.float64)
    frame = pd.DataFrame(beats, columns=sample_columns("b", 144))
    made = template(series="b", samples=tuple(beats[5]), distance=4.0, label="x")
    normal = (beats - beats.mean(axis=1)[:, None]) / beats.std(axis=1)[:, None]
    near = [1 / (1 + math.exp(-(4.0 - math.dist(one, normal[5])))) >= 0.2 for one in normal]
    assert votes_of([made], frame)[:, 0].tolist() == near
    assert 1 < sum(near) < 200
