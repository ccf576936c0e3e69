"""Sites in their real homes exchange classifiers, and each keeps its own rules; only counts in cells are told."""

import numpy as np
import pandas as pd
import pytest

from tests.support.in_process import Consortium
from wardround.cli.app import main
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.policy_file import set_policy
from wardround.predict.selection import SelectionPredictor
from wardround.runs.explain.selection_file import KEPT, read_selection
from wardround.study.file import parse_study

COLUMNS = ["age", "temperature", "days_since_symptoms", "contact", "fever", "malaria_test"]


@pytest.fixture(scope="module")
def conducted(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("selection"))
    for home in made.homes.values():
        set_policy(home.policy_path, "components", "*")
    study = parse_study(
        {
            "study": {"name": "whose", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": 10}},
            "analysis": {
                "name": "classifier_selection",
                "outcome": "ebola",
                "positive": "confirmed",
                "columns": COLUMNS,
                "points": ["youden"],
                "k": 10,
                "shuffles": 19,
                "room": 16_384,
            },
        },
        where="test",
    )
    return made, made.conduct(study)


def test_counts_in_cells_are_all_that_is_told(conducted):
    made, found = conducted
    assert (found["deployed"], found["exchanges"]) == (True, 2)
    assert set(found["numbers"]) == set(made.homes)
    for told in found["numbers"].values():
        counts = np.array(told)
        assert counts.shape == (1, 3, 7)
        assert (counts[..., :5] % 10 == 0).all()
        assert counts[0, 0, 1] >= 40  # 30 % of at least 170 rows, in cells
    assert all("no benefit" in word or "gains by" in word for word in found["words"])


def test_every_site_keeps_its_own_model_and_rules(conducted):
    made, _ = conducted
    for name, home in made.homes.items():
        (kept,) = {path.parent for path in home.path.rglob(f"{KEPT}/selection.json")}
        selection = read_selection(kept)
        assert (selection.site, selection.facts.task.positive) == (name, "confirmed")
        assert {one.name for one in kept.iterdir()} == {"selection.json", *selection.files.values()}
        # The site's administrator predicts with it, and asks nobody.
        table = pd.read_csv(made.tables[name]).head(20)
        found = SelectionPredictor(selection, kept).predict(table)
        assert set(found["decided by"]) <= {name, *(rule["source"] for rule in selection.rules)}
        assert ((found["probability of confirmed"] >= 0) & (found["probability of confirmed"] <= 1)).all()


def test_site_predict_follows_what_the_site_kept(conducted, tmp_path, capsys):
    made, _ = conducted
    name, home = next(iter(made.homes.items()))
    out = tmp_path / "predicted.csv"
    with pytest.raises(SystemExit) as ended:
        main(["site", "predict", "whose", str(made.tables[name]), "--home", str(home.path), "--out", str(out)])
    assert ended.value.code == 0, capsys.readouterr().err
    assert {"decided by", "rule", "ebola"} <= set(pd.read_csv(out).columns)
