"""Labels of survival: which interval an event is in, and what a censored time leaves open."""

import numpy as np
import pytest

from wardround.data.survival.intervals import interval_names, label_names, label_numbers, number_text


def test_by_hand():
    # Horizons 2 and 5, classes 0 (by 2), 1 (2 to 5), 2 (after 5). Events at 0, 2, 2.5, 5 and 7: classes 0, 0, 1, 1, 2.
    # Censored at 0 and 1: anything is possible, 3 + 0. At 2 and 3: free at 2, so class 1 or later, 3 + 1. At 5 and 9:
    # free at the last horizon, which is class 2.
    time = np.array([0, 2, 2.5, 5, 7, 0, 1, 2, 3, 5, 9.0])
    event = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0.0])
    assert label_numbers(time, event, (2.0, 5.0)).tolist() == [0, 0, 1, 1, 2, 3, 3, 4, 4, 2, 2]


def test_what_is_unknown_has_no_label():
    time, event = np.array([np.nan, 1.0, -1.0, np.inf]), np.array([1.0, np.nan, 1.0, 1.0])
    assert label_numbers(time, event, (2.0,)).tolist() == [-1] * 4


@pytest.mark.parametrize("horizons", [(1.0,), (0.5, 1.0), (1.0, 2.0, 3.0, 1e6)])
def test_every_label_has_a_name_of_its_own(horizons):
    assert len(interval_names(horizons)) == len(horizons) + 1
    names = label_names(horizons)
    assert len(set(names)) == len(names) == 2 * len(horizons) + 1


def test_a_time_is_written_as_people_write_it():
    assert [number_text(one) for one in (365.0, 0.5, 1234567.0)] == ["365", "0.5", "1234567"]
