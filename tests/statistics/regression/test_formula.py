"""The grammar of formulas: what it means, and that nothing else is read."""

import pytest

from wardround.core.errors import Refusal
from wardround.statistics.regression.formula import Variable, label_of, parse_formula


def terms(text):
    return [label_of(term) for term in parse_formula(text).terms]


def test_stars_are_main_effects_and_products():
    assert terms("y ~ a * b + c") == ["a", "b", "c", "a:b"]
    assert terms("y ~ a:b + a") == ["a", "a:b"]
    assert terms("y ~ a * b * c") == ["a", "b", "c", "a:b", "a:c", "b:c", "a:b:c"]
    assert terms("y ~ a + a + b:a + a:b") == ["a", "b:a"]


def test_functions_and_names():
    found = parse_formula(
        'survtime ~ time.id + `BMI at birth` + spline(age, 3) + category(sex, "f") + offset(log_t) + 0'
    )
    assert found.columns == ("survtime", "time.id", "BMI at birth", "age", "sex", "log_t")
    assert (found.intercept, found.offsets) == (False, ("log_t",))
    assert Variable("age", "spline", "3") in found.variables


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("y", ">>>"),
        ("y ~", ">>>"),
        ("~ x", ">>>"),
        ("y ~ x +", ">>>"),
        ("y ~ x ^ 2", "from >>> on: y ~ x >>>\\^ 2"),
        ("y ~ x; import os", ">>>; import os"),
        ("y ~ exp(x)", "a function 'exp', and there are only spline, category, log, square, offset"),
        ("y ~ __import__('os')", "a function '__import__'"),
        ("y ~ spline(x)", "a spline needs its degrees of freedom"),
        ("y ~ spline(x, 99)", "from 2 to 10"),
        ("y ~ log(x, 2)", "log takes one column"),
        ("y ~ x + y", "stands on both sides"),
        ("y ~ 0", "by nothing"),
        ("y ~ a * b * c * d * e", "more than four columns"),
        ("y ~ offset(a):b", "an offset cannot be multiplied"),
        ("y ~ x - z", ">>>"),
    ],
)
def test_what_the_grammar_does_not_know_is_refused(text, match):
    with pytest.raises(Refusal, match=f"(?i){match}"):
        parse_formula(text)
