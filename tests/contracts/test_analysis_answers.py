"""What real sites demand of an answer: shapes that do not depend on patients, no more numbers than the terms say."""

import jax
import numpy as np
import pytest

from tests.support.findings import agreed_on, patients, sites_of
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Message, Site
from wardround.engine import registry
from wardround.engine.analyse import analyse, combine_answers

SITES = sites_of(patients())
AGREED = agreed_on(SITES)
ASKED = {
    "combat": [{"columns": ("a", "b"), "covariates": ("age", "ward")}],
    "correlations": [{"columns": ("a", "b", "age")}],
    "cross_table": [{"rows": "ward", "columns": "died", "only": "age >= 30"}],
    "distribution": [{"columns": ("a", "age")}],
    "group_means": [{"column": "a", "group": "ward"}],
    "meta_analysis": [
        {"measure": "mean_difference", "outcome": "a", "exposure": "sex"},
        {"measure": "adjusted_odds_ratio", "outcome": "died", "exposure": "sex", "covariates": ("age",)},
    ],
    "principal_components": [
        {"columns": ("a", "b"), "covariates": ("age", "ward"), "correction": "admm", "local_components": 1}
    ],
    "propensity": [{"treatment": "treated", "outcome": "a", "covariates": ("age", "ward")}],
    "rank_test": [{"column": "a", "group": "sex"}],
}


@pytest.mark.parametrize(("name", "settings"), [(name, one) for name, all_of in ASKED.items() for one in all_of])
@pytest.mark.parametrize("cell", [1, 5])
def test_an_answer_has_the_shapes_of_one_for_no_patients_and_is_as_large_as_its_terms_say(name, settings, cell):
    component = registry.find("analysis", name)
    analysis = component.build(**settings, smallest_cell=cell)
    given = {one.name: one.default for one in component.parameters if not one.required} | settings
    most = terms_of(component.factory).numbers(Extent(given, sites=4, columns=len(analysis.columns)))
    words = terms_of(component.factory).describe(given | {"smallest_cell": cell})
    assert not words.endswith(".")
    assert "{" not in words
    assert analysis.covers is not None or "only" not in settings
    assert "age" in analysis.columns or "only" not in settings, "the condition arrived"
    nobody = Site("nobody", SITES[0].table.iloc[:0])
    asked = []

    def exchange(number: int, message: Message) -> Message:
        answers = {site.name: analysis.ask(AGREED, message, site) for site in SITES}
        pattern = analysis.ask(AGREED, message, nobody)
        shapes = [np.shape(one) for one in jax.tree.leaves(pattern.arrays)]
        for answer in answers.values():
            leaves = [np.asarray(one, np.float64) for one in jax.tree.leaves(answer.arrays)]
            assert [one.shape for one in leaves] == shapes
            assert all(np.isfinite(one).all() for one in leaves)
            assert sum(one.size for one in leaves) <= most
        assert all(not np.asarray(one).any() for one in jax.tree.leaves(pattern.arrays)), "nobody tells nothing"
        asked.append(number)
        return combine_answers(analysis, answers)

    analyse(analysis, AGREED, exchange)
    assert 0 < len(asked) <= min(analysis.most, terms_of(component.factory).times)
