"""Trees over sites' real homes: what a simulation gives, with and without the secure sum, and a model at the end."""

import numpy as np
import pandas as pd
import pytest

from tests.support.in_process import NAMES, Consortium
from wardround.analyses.boosted_trees import boosted_trees
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.policy_file import set_policy
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.predict.predictor import load_predictor
from wardround.study.file import parse_study

COLUMNS = ("age", "temperature", "contact")
SETTINGS = {"target": "ebola", "positive": "confirmed", "trees": 2, "depth": 2, "smallest_leaf": 10, "effects": 1}


def conducted(folder, *transforms):
    """What real sites find, their tables, and the folder of the run."""
    consortium = Consortium(folder)
    for home in consortium.homes.values():
        set_policy(home.policy_path, "components", "*")
    study = parse_study(
        {
            "study": {"name": "trees", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": 10}},
            "analysis": {"name": "boosted_trees", "columns": list(COLUMNS), **SETTINGS},
            **({"transforms": [{"name": one} for one in transforms]} if transforms else {}),
        },
        where="test",
    )
    found = consortium.conduct(study)
    return found, {name: pd.read_csv(path) for name, path in consortium.tables.items()}, consortium.run(study)


@pytest.mark.parametrize("transforms", [(), ("secure_sum",)], ids=["plain", "secure_sum"])
def test_real_sites_grow_the_trees_of_a_simulation_and_leave_a_model(tmp_path, transforms):
    found, tables, run = conducted(tmp_path, *transforms)
    assert found["sums_only"] == bool(transforms)
    # A site's smallest cell of 10 is the study's, too.
    analysis = boosted_trees(columns=COLUMNS, smallest_cell=10, **SETTINGS)
    levels = {name: tuple(sorted(pd.concat(tables.values())[name].dropna().unique())) for name in ("contact", "ebola")}
    kinds = {name: AgreedColumn("category", own) for name, own in levels.items()}
    agreed = Agreed(NAMES, {name: kinds.get(name, AgreedColumn("number")) for name in (*COLUMNS, "ebola")})
    sites = [Site(name, tables[name]) for name in NAMES]
    kept = []
    simulated = analyse(analysis, agreed, exchange_in_process(analysis, agreed, sites), kept.append)["numbers"]
    assert found["numbers"]["auc"] == pytest.approx(simulated["auc"], abs=1e-6)
    assert found["numbers"]["gain"] == pytest.approx(simulated["gain"], rel=1e-4)
    predictor = load_predictor(run)
    np.testing.assert_array_equal(predictor.params["column"], kept[0].params["column"])
    np.testing.assert_allclose(predictor.params["value"], kept[0].params["value"], rtol=1 / 100)
    rows = tables["bo"].head(30)
    assert predictor.predict(rows).shape == (30, 2)
