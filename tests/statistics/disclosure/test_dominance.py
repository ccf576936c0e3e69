import numpy as np
import pytest

from wardround.statistics.disclosure.dominance import is_dominated, is_tellable

EVEN = np.arange(40.0)


def test_values_spread_evenly_are_told():
    assert not is_dominated(EVEN, 10)
    assert not is_dominated(np.full(40, 3.0), 10)  # all alike: a sum tells the value of nobody in particular


def test_one_value_far_out_is_not():
    # Distances from the median 19.5 add up to 400; one of 20000 and the next, 20, are 98 % of all.
    assert is_dominated(np.append(EVEN, 20_000.0), 10)
    assert not is_dominated(np.append(EVEN, 60.0), 10)


def test_the_p_percent_rule():
    # Largest 1000, second 999, the other 38 patients at most 1 from the median: together 38 < 10 % of 1000.
    values = np.concatenate([np.tile([0.0, 1.0, 2.0], 13)[:38], [1000.0, -999.0]])
    assert is_dominated(values, 10)


def test_a_flag_that_few_have_is_not_told_and_nor_is_one_that_few_lack():
    for few in (1, 4, 9):
        flag = np.arange(60) < few
        assert is_dominated(flag.astype(float), 10)
        assert is_dominated(1.0 - flag, 10)
    assert not is_dominated((np.arange(60) < 12).astype(float), 10)


@pytest.mark.parametrize(("rows", "parameters", "told"), [(9, 1, False), (10, 1, True), (20, 7, False), (21, 7, True)])
def test_there_are_rows_enough(rows, parameters, told):
    assert is_tellable(np.arange(float(rows))[:, None], 10, parameters) == told


def test_without_cells_there_is_no_rule():
    assert is_tellable(np.array([[5.0]]), 1)
    assert not is_tellable(np.empty((0, 1)), 1)
