"""The recommended way to train: named where it fits, with its reason, and not where it was trained already."""

import pytest

from wardround.engine import registry
from wardround.report.run.advised_method import FOR_OTHERS, RECOMMENDED, advice_of, advised_method
from wardround.runs.run import Run


@pytest.mark.parametrize(
    ("model", "private", "expected"),
    [
        ("logistic", False, RECOMMENDED),
        ("linear", False, RECOMMENDED),
        ("mlp", False, FOR_OTHERS),  # partial pooling solves for all coefficients at once
        ("logistic", True, FOR_OTHERS),  # and its sums get no noise
    ],
)
def test_what_is_recommended_exists_and_fits(model, private, expected):
    registry.find("algorithm", expected)
    words = advised_method(model, ["fed_avg"], hospitals=4, private=private)
    assert f'name = "{expected}"' in words
    assert "compared" not in words
    both = advised_method(model, ["fed_avg", "local"], hospitals=4, private=private)
    assert both.endswith("It was not among the ways compared here.")
    assert not advised_method(model, ["local", expected], hospitals=4, private=private)
    assert not advised_method(model, ["fed_avg"], hospitals=1, private=private)


def test_a_hospitals_own_report_and_files_without_a_study_recommend_nothing():
    assert not advice_of(Run("a", manifest={}))
    assert not advice_of(Run("a", kind="site", manifest={"study": {"model": {"name": "logistic"}}}))
