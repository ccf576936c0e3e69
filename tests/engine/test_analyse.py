import numpy as np
import pandas as pd
import pytest

from wardround.core.analysis import Agreed, AgreedColumn, Analysis, Findings, FoundModel
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.engine.analyse import analyse, as_algorithm, exchange_in_process

A, B = (Site(name, pd.DataFrame({"age": ages})) for name, ages in (("A", [30.0, 50.0]), ("B", [70.0])))
AGREED = Agreed(("A", "B"), {"age": AgreedColumn("number")})


def spread(*, sums=True, most=2):
    """The mean in one exchange, the squared deviations from it in a second."""

    def message(state):
        if "deviations" in state:
            return None
        return Message({"around": np.array(state.get("mean", 0.0)), "power": np.array(1.0 + ("mean" in state))})

    def ask(agreed, asked, site):
        away = site.table["age"].to_numpy() - asked.arrays["around"]
        return Message({"count": np.array(len(away)), "total": np.sum(away ** int(asked.arrays["power"]))})

    def step(state, told):
        if not sums:
            return {"mean": 0.0, "deviations": [float(told.arrays[site]["total"]) for site in AGREED.sites]}
        if "mean" in state:
            return {**state, "deviations": float(told.arrays["total"])}
        return {"mean": float(told.arrays["total"] / told.arrays["count"])}

    report = lambda state: Findings(["Done."], numbers=state).report()  # noqa: E731
    return Analysis(("age",), lambda agreed: {}, message, ask, step, report, most=most, sums=sums)


def found(analysis):
    return analyse(analysis, AGREED, exchange_in_process(analysis, AGREED, [A, B]))["numbers"]


def test_the_second_question_follows_from_the_first_answer():
    # Mean (30 + 50 + 70) / 3 = 50; squared deviations 400 + 0 + 400.
    assert found(spread()) == {"mean": 50.0, "deviations": 800.0}


def test_where_a_sum_is_not_enough_each_answer_is_given_by_its_site():
    assert found(spread(sums=False)) == {"mean": 0.0, "deviations": [80.0, 70.0]}


def test_an_analysis_that_does_not_end_is_refused():
    with pytest.raises(Refusal, match="No answer was found in 1 exchanges"):
        found(spread(most=1))


def test_a_model_is_given_to_whoever_keeps_it_and_predicts_like_an_algorithms():
    model = FoundModel({"mean": np.array(2.0)}, "age", {})
    made = spread()._replace(model=lambda state: model, predict=lambda params, x: params["mean"] * x[:, 0])
    kept = []
    analyse(made, AGREED, exchange_in_process(made, AGREED, [A, B]), kept.append)
    assert kept == [model]
    assert as_algorithm(made).predict(model.params, np.array([[3.0]])).tolist() == [6.0]
    with pytest.raises(Refusal, match="not trained in rounds"):
        as_algorithm(made).params({})
    with pytest.raises(Refusal, match="finds no model"):
        as_algorithm(spread())
