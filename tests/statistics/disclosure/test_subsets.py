import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.statistics.disclosure.subsets import check_condition, check_difference


@pytest.mark.parametrize(("kept", "words"), [(1, "covers"), (9, "covers"), (31, "leaves out"), (39, "leaves out")])
def test_a_condition_about_few_or_about_almost_all_is_refused(kept, words):
    with pytest.raises(Refusal, match=f"The condition {words} fewer than 10 patients"):
        check_condition(kept, 40, 10, site="A")


@pytest.mark.parametrize("kept", [0, 10, 30, 40])
def test_one_with_a_cell_on_both_sides_is_not(kept):
    check_condition(kept, 40, 10, site="A")
    check_condition(1, 40, 1, site="A")


def people(*numbers, of=300):
    mask = np.zeros(of, bool)
    mask[list(numbers)] = True
    return mask


def test_the_patients_of_an_earlier_question_but_for_a_few_are_refused():
    before = people(*range(100))
    for now in (range(100), range(200, 300), range(50, 150)):
        check_difference(people(*now), [before], 10, site="A")
    for now in (range(99), range(1, 101), range(103), range(5, 200)):
        with pytest.raises(Refusal, match="covers the patients of an earlier one but for fewer than 10"):
            check_difference(people(*now), [before], 10, site="A")
    check_difference(people(*range(99)), [before], 1, site="A")


def test_a_table_that_grew_by_few_is_a_difference_of_few():
    before = np.ones(100, bool)
    check_difference(np.ones(110, bool), [before], 10, site="A")
    with pytest.raises(Refusal, match="but for fewer than 10"):
        check_difference(np.ones(101, bool), [before], 10, site="A")
