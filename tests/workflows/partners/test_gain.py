"""The verdict follows from the interval, and how many patients it would take follows from both."""

import pytest

from wardround.workflows.partners.gain import patients_needed, verdict_of

NOTHING = (None, None, None)
UNSURE = (-0.01, -0.08, 0.06)


@pytest.mark.parametrize(
    ("span", "measured", "taken", "said"),
    [
        ((-0.03, -0.05, -0.01), UNSURE, True, "yes"),  # the loss falls by 0.01 at least
        ((-0.03, -0.07, 0.01), UNSURE, True, "unclear"),
        ((0.03, 0.01, 0.05), UNSURE, True, "no"),
        ((0.0, -0.0015, 0.0015), UNSURE, True, "no"),  # it falls by 0.0015 at most, which nobody would join for
        ((0.0, -0.0025, 0.0015), UNSURE, True, "unclear"),
        ((-0.03, -0.05, -0.01), (0.05, 0.01, 0.09), True, "unclear"),  # held-out patients object
        ((0.03, 0.01, 0.05), (-0.05, -0.09, -0.01), True, "unclear"),
        ((-0.03, -0.05, -0.01), UNSURE, False, "unclear"),  # of a set that is not advised no "yes" is said
        ((0.03, 0.01, 0.05), UNSURE, False, "no"),
        (NOTHING, NOTHING, False, "unclear"),  # nobody was there: that is no "no"
        ((-0.03, -0.05, -0.01), NOTHING, True, "yes"),
    ],
)
def test_the_verdict_follows_from_the_interval(span, measured, taken, said):
    assert verdict_of(span, measured, taken, 0.002) == said


def test_patients_needed_by_hand():
    # Half a width of 0.04 over a difference of 0.02 is 2: four times the patients narrow the interval to it.
    assert patients_needed((-0.02, -0.06, 0.02), 160) == 640
    # (0.03 / 0.02)^2 = 2.25 times 150 is 337.5, rounded up to two digits.
    assert patients_needed((-0.02, -0.05, 0.01), 150) == 340
    assert patients_needed((-0.0015, -0.05, 0.05), 150) is None  # too small a difference to be worth telling
    assert patients_needed((-0.0025, -0.05, 0.05), 150) is None  # 400 times as many
    assert patients_needed(NOTHING, 150) is None
