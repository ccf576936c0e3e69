"""Five sites of the Adult census grow trees as good as those of all rows in one place."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from wardround.analyses.boosted_trees import boosted_trees
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.data.datasets.adult import adult
from wardround.data.folder import data_folder
from wardround.data.preparation import Preparation
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.statistics.trees.prediction import predict_forest
from wardround.study.analyses.analysis_model import unprepared


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "uci_adult").is_dir(), reason="adult needs WARDROUND_DATA")
def test_five_sites_are_within_2_thousandths_of_one_table():
    table = adult().sites["all"].sample(frac=1, random_state=0, ignore_index=True)
    test, learn = table.head(9768), table.tail(-9768).reset_index(drop=True)
    columns = tuple(name for name in table.columns if name != "income")
    kinds = {
        name: AgreedColumn("number")
        if table[name].dtype.kind in "if"
        else AgreedColumn("category", tuple(sorted(table[name].dropna().unique())))
        for name in table.columns
    }
    areas = []
    for many in (1, 5):
        sites = [
            Site(f"site {n}", learn[np.arange(len(learn)) % many == n].reset_index(drop=True)) for n in range(many)
        ]
        public = Agreed(tuple(site.name for site in sites), kinds)
        analysis = boosted_trees(
            target="income", columns=columns, trees=60, learning_rate=0.3, validation=0.0, test=0.0, effects=0,
            fewest_sites=1,
        )  # fmt: skip
        kept = []
        analyse(analysis, public, exchange_in_process(analysis, public, sites), kept.append)
        rows = Preparation(tuple(unprepared(name, kinds[name]) for name in columns)).apply(test)
        areas.append(roc_auc_score(test["income"] == ">50K", np.asarray(predict_forest(kept[0].params, rows))[:, 1]))
    assert abs(areas[0] - areas[1]) < 0.002
    # Pooled XGBoost reaches 0.927 to 0.931 on such draws, five sites alone 0.920.
    assert min(areas) > 0.922
