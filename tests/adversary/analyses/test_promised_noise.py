"""A coordinator that asks a site which promised noise for what no noise was added to, or too little.

The site has a real home and a real handler, and its administrator approved a study with an epsilon of 1.
"""

import numpy as np
import pandas as pd
import pytest

from tests.support.adversary.analyses import ApprovedAnalysis
from tests.support.analyses.tree_sites import COLUMNS, agreed, dealt, names_of, patients
from wardround.analyses.boosted_trees import boosted_trees
from wardround.core.codes.json_arrays import pack
from wardround.core.components.recipes import Recipe, to_json
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.protocol.requests import AskQuery

ROWS = 60
RANDOM = np.random.default_rng(8)
TABLE = pd.DataFrame(
    {
        "stay": np.round(RANDOM.uniform(1, 100, ROWS), 2),
        "dies": np.arange(ROWS) % 2,
        "age": np.round(RANDOM.uniform(30, 80, ROWS), 1),
        "cost": np.round(RANDOM.uniform(0, 1e6, ROWS)),
        "sex": ["f", "m"] * (ROWS // 2),
    }
)
TREES = {"name": "boosted_trees", "columns": ["age"], "trees": 2, "depth": 2, "epsilon": 1.0}


def edges(*own: list[float]) -> Message:
    return Message({"edges": np.array(own)}, (("phase", "edges"),))


# ---- sums that noise does not cover ----


@pytest.mark.parametrize("words", [{}, {"objective": "cox"}], ids=["by a time alone", "by its name"])
def test_noised_trees_of_a_hazard_are_not_approved(tmp_path, words):
    """Who is at risk in each interval left exactly, and the interval of the median time, under an epsilon of 1."""
    with pytest.raises(Refusal, match="oise is calibrated for classes"):
        ApprovedAnalysis(tmp_path, TABLE, **TREES, target="dies", time="stay", **words)


def test_noised_trees_of_a_number_get_no_answer(tmp_path):
    """Its sum, of which one patient may be a million, left under noise for a patient who counts 1."""
    with pytest.raises(Refusal, match="oise is calibrated for classes"):
        ApprovedAnalysis(tmp_path / "said", TABLE, **TREES, target="cost", objective="squared")
    site = ApprovedAnalysis(tmp_path / "guessed", TABLE, **TREES, target="cost")
    site.agree(age="number", cost="number")
    told = site.exchange(1, edges([40.0, 50.0]))
    assert (told.status, told.message.arrays) == ("refused", {})
    assert "oise is calibrated for classes" in told.why


# ---- what is told beside the sums ----

PROMISE = {"epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "cross_table", "rows": "sex", "columns": "ill", "privacy": PROMISE},
        {**TREES, "columns": ["sex"], "target": "ill"},
    ],
    ids=["under [privacy]", "with an epsilon of its own"],
)
def test_which_words_a_cell_of_patients_has_is_not_told_under_noise(tmp_path, settings):
    """Of a word that nine patients have nothing was told, of one that ten have its name: without noise, for free."""
    table = TABLE.assign(ill=["yes"] * 10 + ["no"] * (ROWS - 10))
    site = ApprovedAnalysis(tmp_path, table, categories={"sex": ["f", "m"], "ill": ["no", "yes"]}, **settings)
    words = (("epsilon", 0.0), ("seed", None), ("smallest_cell", 10))
    question = AskQuery(to_json(Recipe("query", "names_of", words)), "raw")
    told = site.ask(question, Message({"columns": pack(["ill"])}))
    assert (told.status, told.message.arrays) == ("refused", {})
    assert site.ask(AskQuery(to_json(Recipe("query", "kinds_of")), "raw")).status == "ok"


@pytest.mark.parametrize(("column", "value"), [("stay", -1.0), ("stay", np.inf), ("dies", 2.0)])
def test_a_value_that_cannot_be_is_unknown_under_noise(tmp_path, column, value):
    """A refusal told for certain, and free of charge, that some patient has one."""
    table = TABLE.astype({column: float})
    table.loc[3, column] = value
    curve = {"name": "kaplan_meier", "time": "stay", "event": "dies", "times": [20.0, 50.0, 80.0]}
    site = ApprovedAnalysis(tmp_path, table, privacy=PROMISE, **curve)
    site.agree(stay="number", dies="number")
    assert site.exchange(1, Message({}, (("asked", "counts"),))).status == "ok"


def test_nor_is_a_label_of_noised_trees_refused(tmp_path):
    table = TABLE.assign(ill=[2, *[0, 1] * (ROWS // 2 - 1), 0])
    site = ApprovedAnalysis(tmp_path, table, **TREES, target="ill", objective="logistic")
    site.agree(age="number", ill="number")
    assert site.exchange(1, edges([40.0, 50.0])).status == "ok"


# ---- a patient who moves others ----


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_patient_without_outcome_moves_nobody_else_from_part_to_part(share):
    """Noise of a known seed, twice the same, so that differences are exact: one patient is one cell and one class.

    Before, who learns was drawn anew for every number of known outcomes: one more or less moved counts by 5,
    and noise is for the root of 3.
    """
    sites = dealt(patients(300, 3), 3)
    public, own = agreed(*names_of(sites)), sites[0]
    settings = {"target": "dies", "columns": COLUMNS, "trees": 2, "depth": 2, "bins": 8, "smallest_leaf": 1}
    analysis = boosted_trees(**settings, epsilon=2.0, noise_seed=1, rows_per_tree=share)
    blank = Site(own.name, own.table.assign(dies=own.table.dies.mask(np.arange(len(own.table)) == 3)))
    state, farthest = analysis.begin(public), 0.0
    while (asked := analysis.message(state)) is not None:
        whole, less = (analysis.ask(public, asked, one).arrays for one in (own, blank))
        if "sums" in whole:
            apart = (whole["sums"] - less["sums"]) / np.array([1.0, 0.25]).reshape(2, 1, 1, 1)
            assert np.sqrt((apart**2).sum()) <= np.sqrt(2 * len(COLUMNS)) + 1e-3
        elif "first" in whole:
            apart = np.concatenate([(whole[name] - less[name]).ravel() for name in ("cells", "first")])
            farthest = max(farthest, float(np.sqrt((apart**2).sum())))
        else:
            assert np.abs(whole["cells"] - less["cells"]).sum() <= 1 + 1e-3
        state = analysis.step(state, analysis.ask(public, asked, own))
    assert farthest <= np.sqrt(3) + 1e-3
