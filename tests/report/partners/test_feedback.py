"""What a site is told about itself, in sentences that are true."""

import pytest

from wardround.partners.similarity.site_feedback import DifferingWeights, FurtherFeatures, SiteFeedback
from wardround.report.partners.feedback import phrase_of, rank_words, weight_comparison, weight_words


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ((2, 0.1), (1, 0.1), "Contact speaks for X everywhere, but counts about twice as much here as elsewhere."),
        ((-1, 0.1), (-2, 0.1), "Contact speaks against X everywhere, but counts about half as much here as elsewhere."),
        (
            (0.05, 0.01),
            (1, 0.1),
            "Contact speaks for X everywhere, but counts less than a tenth as much here as elsewhere.",
        ),
        ((-1, 0.1), (1, 0.1), "Here contact speaks against X, elsewhere for it."),
        ((0.1, 0.1), (1, 0.1), "Here contact says little about X, elsewhere it speaks for it."),
        ((-1, 0.1), (0.1, 0.1), "Here contact speaks against X, elsewhere it says little about it."),
        (
            (-0.15, 0.1),
            (0.15, 0.1),
            "Here contact rather speaks against X, elsewhere rather for it. "
            "Neither is clear by itself, but they differ.",
        ),
    ],
)
def test_weights_in_words(here, there, said):
    assert weight_comparison("contact", "X", False, here, there) == said


def told(site, rank=None, *, chosen=False, near=()):
    return SiteFeedback(site, "Bo", rank, chosen, near, DifferingWeights(), FurtherFeatures(()))


@pytest.mark.parametrize(
    ("feedback", "words"),
    [
        (told("Bo"), ("Bo asked for partners: the ranking is of the others.",)),
        (
            told("Kabala"),
            ("Kabala was not judged as a partner of Bo: it gave no answer, or was no candidate.",),
        ),
        (
            told("Kenema", {"place": 3, "of": 3}, near=("Makeni",)),
            (
                "Kenema is number 3 of 3 possible partners for Bo, and was not chosen.",
                "Chance alone could change its place with Makeni.",
            ),
        ),
        (
            told("Kenema", {"place": 1, "of": 1}, chosen=True),
            ("Kenema is the only possible partner for Bo, and was chosen.",),
        ),
    ],
)
def test_rank_in_words(feedback, words):
    assert rank_words(feedback) == words


def test_what_an_input_says_of_a_patient():
    assert phrase_of("blood_count", "blood_count") == "a higher blood count"
    assert phrase_of("blood_count missing", "blood_count") == "a missing blood count"
    assert phrase_of("ward=a=b", "ward") == "ward = a=b"


def test_why_weights_are_not_compared():
    assert "no plain meaning" in weight_words(DifferingWeights(plain=False))[0]
    assert "1 patient: too few" in weight_words(DifferingWeights(patients=1, needed=50))[0]
    assert "No other site" in weight_words(DifferingWeights(patients=50, needed=50))[0]
    assert "None of the model's 7 weights" in weight_words(DifferingWeights(compared=7))[0]
