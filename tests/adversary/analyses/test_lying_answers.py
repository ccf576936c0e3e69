"""Sites that answer an analysis with nonsense: it is refused in a sentence, by name where that is seen."""

from contextlib import suppress

import jax
import numpy as np
import pandas as pd
import pytest

from tests.support.findings import agreed_on
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.analyses.conduct import sums_problem
from wardround.deploy.protocol.replies import Reply
from wardround.deploy.protocol.status import Status
from wardround.engine import registry
from wardround.engine.analyse import analyse, combine_answers

RANDOM = np.random.default_rng(0)


def table(rows):
    return pd.DataFrame(
        {
            "age": RANDOM.normal(60, 10, rows).round(1),
            "sex": RANDOM.choice(["f", "m"], rows),
            "arm": RANDOM.choice(["a", "b", "c"], rows),
        }
    )


SITES = [Site(name, table(80)) for name in "ABC"]
AGREED = agreed_on(SITES)
WAYS = {
    "huge": lambda x: np.full(np.shape(x), 1.7e308),
    "below 0": lambda x: -2.0 * np.asarray(x, float),
    "noise": lambda x: np.random.default_rng(1).normal(0, 1e6, np.shape(x)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cross_table", {"rows": "sex", "columns": "arm"}),
        ("group_means", {"column": "age", "group": "arm"}),
        ("distribution", {"columns": ("age",)}),
        ("rank_test", {"column": "age", "group": "sex"}),
        ("meta_analysis", {"measure": "mean_difference", "outcome": "age", "exposure": "sex"}),
    ],
)
def test_no_answer_ends_the_process(name, settings, way):
    analysis = registry.find("analysis", name).build(**settings)

    def exchange(number, asked):
        answers = {site.name: analysis.ask(AGREED, asked, site) for site in SITES}
        answers["B"] = Message(jax.tree.map(WAYS[way], answers["B"].arrays))
        return combine_answers(analysis, answers)

    with suppress(Refusal):  # in a sentence; any other error would be a traceback
        assert analyse(analysis, AGREED, exchange)["words"]


def test_who_answers_what_no_patients_could_give_is_named():
    def told(number):
        return Reply(Status.OK, {}, Message({"sum": np.array([number])}), 0, "")

    pattern = Message({"sum": np.zeros(1)})
    assert sums_problem(told(1e6), pattern) is None
    assert sums_problem(told(1e300), pattern) == "its answer has numbers beyond 1e+100"
    assert sums_problem(told(np.inf), pattern) == "its answer is not finite"
