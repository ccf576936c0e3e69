"""A refusal is one paragraph: what, where, what to do."""

import pytest

from wardround.core.errors import Refusal


@pytest.mark.parametrize(
    ("where", "remedy", "paragraph"),
    [
        ("", "", "No column is called 'age'."),
        ("site va", "", "No column is called 'age' (site va)."),
        ("", "name one of sex, bmi", "No column is called 'age'. Fix: name one of sex, bmi."),
        ("site va", "drop the site", "No column is called 'age' (site va). Fix: drop the site."),
    ],
)
def test_the_paragraph(where: str, remedy: str, paragraph: str) -> None:
    refusal = Refusal("no column is called 'age'", where=where, remedy=remedy)
    assert str(refusal) == paragraph
    assert "\n" not in str(refusal)
    assert (refusal.what, refusal.where, refusal.remedy) == ("no column is called 'age'", where, remedy)


def test_only_the_first_letter_is_raised() -> None:
    assert str(Refusal("HbA1c has no unit")) == "HbA1c has no unit."
    assert str(Refusal("eGFR of NaN")) == "EGFR of NaN."


def test_is_caught_as_itself() -> None:
    with pytest.raises(Refusal, match=r"^Too few sites\.$"):
        raise Refusal("too few sites")
