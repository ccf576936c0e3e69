"""The trees as a model file has them give what the trees of training give, on real rows and on any."""

import numpy as np
import pandas as pd
import pytest

from tests.support.analyses.tree_sites import COLUMNS, WARDS, agreed, dealt, grown, patients
from wardround.analyses.boosted_trees import boosted_trees
from wardround.analyses.forests.plan import TreePlan, outcome_of
from wardround.analyses.forests.rows import binned, read_rows
from wardround.core.contracts import Site
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.statistics.trees.forest import scores_of
from wardround.statistics.trees.prediction import predict_forest

PREPARATION = Preparation(
    (
        NumberColumn("age", indicator=True),
        NumberColumn("lactate", indicator=True),
        TextColumn("ward", WARDS, indicator=True),
    )
)


@pytest.mark.parametrize(("target", "positive"), [("dies", "yes"), ("dies", "no"), ("course", ""), ("stay", "")])
def test_prepared_rows_get_what_binned_rows_get(target, positive):
    settings = {"target": target, "positive": positive, "columns": COLUMNS}
    analysis = boosted_trees(**settings, trees=6, depth=3, effects=0)
    state = grown(analysis, dealt(patients(900, 1), 3))
    table = patients(300, 8)
    table.loc[:5, "age"] = np.nan
    table.loc[6:9, "ward"] = None
    table.loc[10:12, "ward"] = "never seen"
    found = np.asarray(predict_forest(analysis.model(state).params, PREPARATION.apply(table)))
    plan = TreePlan(**settings, validation=0.0, test=0.0)
    outcome = outcome_of(plan, agreed("new"))
    rows = read_rows(plan, agreed("new"), outcome, Site("new", table))
    # The rows of a site are shuffled: shuffle the predictions along, by a column that tells rows apart.
    width = state.shape.layout.width
    scores = scores_of(state.forest, state.common.base, binned(rows, state.common.features, width).codes, width)
    expected = outcome.objective.outcome(scores)
    if outcome.objective.groups == 1 and outcome.classes and outcome.positive == 0:
        expected = expected[:, ::-1]  # a file's probabilities have the order of the classes
    flat = lambda values: np.sort(values.reshape(len(table), -1)[:, -1])  # noqa: E731
    np.testing.assert_allclose(flat(found), flat(expected), atol=1e-5)
    assert pd.notna(found).all()


def test_the_file_holds_nothing_of_the_patients_but_splits_and_values():
    analysis = boosted_trees(target="dies", columns=COLUMNS, trees=2, effects=0)
    params = analysis.model(grown(analysis, dealt(patients(900, 1), 3))).params
    assert set(params) == {"edges", "levels", "width", "base", "classes", "column", "left", "value"}
