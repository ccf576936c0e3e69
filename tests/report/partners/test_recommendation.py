"""The recommendation in sentences: each follows from its figures."""

import math

import pytest

from wardround.engine import registry
from wardround.report.partners.recommendation import MEASURES, RECOMMENDED, gain_words, headline, method_advice, reason


def test_headlines() -> None:
    assert headline("A", ["B", "C"], ["D"], "yes", "", own=160) == "Train with B and C, not with D."
    assert headline("A", ["B"], [], "unclear", "", own=160, needed=340).endswith(
        "Whether that helps A is not clear: its 160 patients are too few, and it would take about 340 to tell."
    )
    assert headline("A", ["B"], [], "unclear", "", own=9).endswith("its 9 patients are too few to tell.")
    assert headline("A", ["B"], [], "no", "", own=160).startswith("Joining does not help A")
    assert headline("A", [], ["B"], "no", "train alone", own=160).endswith("no site is likely to help it. Train alone.")
    assert "does not help" not in headline("A", [], ["B"], "unclear", "train alone", own=160)
    assert (
        headline("A", [], [], "unclear", "train alone", own=160) == "There is nobody for A to train with. Train alone."
    )


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


def told(helps: str, **changes: object) -> str:
    figures = {"alone": 0.71249, "together": None, "everyone": 0.8}
    usual: dict[str, object] = {
        "splits": 3, "patients": 40, "own": 160, "tried": ["B"], "taken": True, "span": (-0.02, -0.05, 0.01),
        "needed": 360, "expected": True,
    }  # fmt: skip
    return gain_words("A", helps, "roc_auc", figures, **{**usual, **changes})  # type: ignore[arg-type]


def test_a_figure_that_is_not_known_is_called_so() -> None:
    words = told("unclear")
    assert words.startswith("On 40 held-out patients of A in each of 3 splits, ROC-AUC was 0.712 with")
    assert "unknown with the chosen partners and 0.800 with everybody" in words


def test_the_gain_is_told_with_its_interval_and_what_it_would_take() -> None:
    words = told("unclear")
    assert "the loss per patient falls by 0.020 with them (95 % interval of the fall: -0.010 to 0.050)" in words
    assert "about 360 patients of A would show it" in words
    assert "about 360" not in told("yes", needed=None)


def test_a_dozen_patients_are_told_what_cannot_be_told() -> None:
    assert "but not whether it differs from them" in told("unclear", own=10)
    assert "but not whether it differs from them" not in told("unclear", own=30)


def test_where_nobody_is_left_nothing_is_claimed() -> None:
    words = told("unclear", tried=[], taken=False, span=(None, None, None))
    assert words.endswith("Nobody was there to be trained with, so whether joining helps is not known.")


def test_the_recommended_method_exists_and_a_private_study_is_told_another() -> None:
    assert RECOMMENDED in registry.components("algorithm")
    assert RECOMMENDED in method_advice(private=False)
    assert 'name = "model_interpolation"' in method_advice(private=True)


def test_every_choice_of_partners_is_explained() -> None:
    assert set(MEASURES) == set(registry.components("choice"))
