"""Who is best where: ties, the direction of a measure, and sureness from the paired comparison alone."""

import pytest

from tests.support.results import parsed
from wardround.report.run.ranking import best_at, best_overall, lead_of
from wardround.runs.run import Run, run_of


def run(values: dict[str, float | None], verdicts: dict[tuple[str, str], str], metric: str = "roc_auc") -> Run:
    methods = [{"name": name, "scores": {"sites": {"x": {metric: {"value": x}}}}} for name, x in values.items()]
    compared = [
        {"metric": metric, "site": "x", "method": a, "against": b, "difference": 0.1, "verdict": verdict}
        for (a, b), verdict in verdicts.items()
    ]
    return run_of(parsed({"study": "r", "metric": metric, "methods": methods, "comparison": compared}))


def test_the_best_depends_on_the_direction() -> None:
    values = {"a": 0.8, "b": 0.9, "c": None}
    assert [m.name for m in best_at(run(values, {}), "x", "roc_auc")] == ["b"]
    assert [m.name for m in best_at(run(values, {}, "brier"), "x", "brier")] == ["a"]
    assert best_at(run(values, {}, "home_made"), "x", "home_made") == ()


def test_equal_scores_share_the_lead_and_nothing_leads_where_nothing_is_defined() -> None:
    assert len(best_at(run({"a": 0.8, "b": 0.8}, {}), "x", "roc_auc")) == 2
    assert best_at(run({"a": None}, {}), "x", "roc_auc") == ()
    assert best_at(run({"a": 0.8}, {}), "elsewhere", "roc_auc") == ()
    assert best_overall(run({"a": 0.8}, {}), "roc_auc") == ()


@pytest.mark.parametrize(
    ("verdicts", "shown", "open_", "untested"),
    [
        ({("b", "a"): "better", ("b", "c"): "better"}, ("a", "c"), (), ()),
        ({("a", "b"): "worse", ("b", "c"): "better"}, ("a", "c"), (), ()),
        ({("b", "a"): "better", ("b", "c"): "no difference shown"}, ("a",), ("c",), ()),
        ({("b", "a"): "better", ("c", "b"): "better"}, ("a",), ("c",), ()),
        ({("b", "a"): "worse"}, (), ("a",), ("c",)),
        ({("a", "c"): "better"}, (), (), ("a", "c")),
        ({}, (), (), ("a", "c")),
    ],
)
def test_a_lead_is_judged_against_every_rival(
    verdicts: dict[tuple[str, str], str], shown: tuple[str, ...], open_: tuple[str, ...], untested: tuple[str, ...]
) -> None:
    one = run({"a": 0.7, "b": 0.9, "c": 0.8}, verdicts)
    assert lead_of(one, "x", "roc_auc", one.method("b")) == (shown, open_, untested)


def test_a_rival_without_a_score_is_no_rival() -> None:
    one = run({"a": 0.7, "b": 0.9, "c": None}, {("b", "a"): "better"})
    assert lead_of(one, "x", "roc_auc", one.method("b")) == (("a",), (), ())
