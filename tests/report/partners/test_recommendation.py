"""The recommendation in sentences: each follows from its figures."""

import math

import pytest

from wardround.engine import registry
from wardround.report.partners.recommendation import MEASURES, gain_words, headline, reason


def test_headlines() -> None:
    assert headline("A", ["B", "C"], ["D"], "yes", "") == "Train with B and C, not with D."
    assert "cannot be seen" in headline("A", ["B"], [], "unclear", "")
    assert headline("A", ["B"], [], "no", "").startswith("Joining does not help A")
    assert headline("A", [], ["B"], "no", "train alone.").endswith("no site is likely to help it. Train alone.")


@pytest.mark.parametrize(
    ("gap", "error", "words"),
    [
        (0.21, 0.1, "does worse"),
        (0.2, 0.1, "about as well"),  # exactly two standard errors are not yet more than chance
        (-0.2, 0.1, "about as well"),
        (-0.21, 0.1, "does better"),
        (math.nan, 0.1, "could not be tested"),
        (0.5, math.inf, "could not be tested"),
    ],
)
def test_a_reason_says_what_lies_beyond_two_standard_errors(gap: float, error: float, words: str) -> None:
    assert words in reason(gap, error, [])


def test_a_reason_tells_the_two_largest_differences() -> None:
    assert reason(0.0, 1.0, ["One.", "Two.", "Three."]).endswith("asking site's own. One. Two.")


def test_a_figure_that_is_not_known_is_called_so() -> None:
    told = gain_words("A", "unclear", "roc_auc", {"alone": 0.71249, "together": None, "everyone": 0.8}, 3, 40)
    assert told.startswith("On 40 held-out patients of A in each of 3 splits, ROC-AUC was 0.712 with")
    assert "unknown with the chosen partners and 0.800 with everybody" in told


def test_every_choice_of_partners_is_explained() -> None:
    assert set(MEASURES) == set(registry.components("choice"))
