import pytest

from wardround.core.errors import Refusal
from wardround.statistics.disclosure.subsets import check_condition, check_difference, fingerprints


@pytest.mark.parametrize(("kept", "words"), [(1, "covers"), (9, "covers"), (31, "leaves out"), (39, "leaves out")])
def test_a_condition_about_few_or_about_almost_all_is_refused(kept, words):
    with pytest.raises(Refusal, match=f"The condition {words} fewer than 10 patients"):
        check_condition(kept, 40, 10, site="A")


@pytest.mark.parametrize("kept", [0, 10, 30, 40])
def test_one_with_a_cell_on_both_sides_is_not(kept):
    check_condition(kept, 40, 10, site="A")
    check_condition(1, 40, 1, site="A")


def test_the_patients_of_an_earlier_question_but_for_a_few_are_refused():
    salt = b"of this site alone"
    before = fingerprints(range(100), salt)
    check_difference(before, [before], 10, site="A")
    check_difference(fingerprints(range(200, 300), salt), [before], 10, site="A")
    check_difference(fingerprints(range(50, 150), salt), [before], 10, site="A")
    for now in (range(99), range(1, 101), range(103), range(5, 200)):
        with pytest.raises(Refusal, match="covers the patients of an earlier one but for fewer than 10"):
            check_difference(fingerprints(now, salt), [before], 10, site="A")
    check_difference(fingerprints(range(99), salt), [before], 1, site="A")


def test_a_fingerprint_is_under_the_site_s_secret():
    assert fingerprints([1], b"a") != fingerprints([1], b"b")
    assert fingerprints([1], b"a") == fingerprints([1], b"a")
