"""Columns of a design by hand, and splines against another library's."""

import numpy as np
import pandas as pd
from patsy import dmatrix

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.statistics.regression.design import design_of, knots_for, natural_spline, packed, rows_of, unpacked
from wardround.statistics.regression.formula import parse_formula

AGREED = Agreed(
    ("A",),
    {
        "y": AgreedColumn("number"),
        "x": AgreedColumn("number"),
        "sex": AgreedColumn("category", ("f", "m")),
        "ward": AgreedColumn("category", ("a", "b", "c")),
    },
)


def rows(formula, table):
    design = design_of(parse_formula(formula), AGREED)
    return design.labels, rows_of(design, AGREED, pd.DataFrame(table), {})


def test_columns_by_hand():
    table = {"y": [1.0, 2.0, 3.0], "x": [2.0, 3.0, 5.0], "sex": ["m", "f", "m"], "ward": ["b", "c", None]}
    labels, found = rows("y ~ x * sex + square(x)", table)
    assert labels == ("(intercept)", "x", "sex=m", "square(x)", "x:sex=m")
    assert found.x.tolist() == [[1, 2, 1, 4, 2], [1, 3, 0, 9, 0], [1, 5, 1, 25, 5]]
    labels, found = rows("y ~ ward:sex", table)  # the third row has no ward
    assert labels == ("(intercept)", "ward=b:sex=m", "ward=c:sex=m")
    assert (found.x.tolist(), found.dropped) == ([[1, 1, 0], [1, 0, 0]], 1)


def test_without_an_intercept_every_level_has_a_column():
    labels, found = rows("y ~ 0 + ward", {"y": [1.0, 2.0], "ward": ["b", "a"]})
    assert labels == ("ward=a", "ward=b", "ward=c")
    assert found.x.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_natural_spline_spans_what_patsy_spans():
    knots = knots_for(50.0, 10.0, 5)
    x = np.linspace(knots[0], knots[-1], 200)
    ours = np.column_stack([np.ones(200), natural_spline(x, knots)])
    ends = {"lower_bound": float(knots[0]), "upper_bound": float(knots[-1])}
    theirs = np.asarray(
        dmatrix(
            "cr(x, knots=k, lower_bound=a, upper_bound=b) - 1",
            {"x": x, "k": knots[1:-1], "a": ends["lower_bound"], "b": ends["upper_bound"]},
        )
    )
    assert ours.shape == theirs.shape
    left = theirs - ours @ np.linalg.lstsq(ours, theirs, rcond=None)[0]
    assert np.abs(left).max() < 1e-9


def test_beyond_its_knots_a_spline_is_a_line():
    x = np.array([200.0, 300.0, 400.0])
    found = natural_spline(x, knots_for(50.0, 10.0, 4))
    np.testing.assert_allclose(np.diff(found, 2, axis=0), 0, atol=1e-6 * np.abs(found).max())


def test_a_triangle_comes_back():
    matrix = np.array([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    assert unpacked(packed(matrix), 3).tolist() == matrix.tolist()
