"""A coordinator that asks a site which promised noise for what no noise was added to, or too little.

The site has a real home and a real handler, and its administrator approved a study with an epsilon of 1.
"""

import numpy as np
import pandas as pd
import pytest

from tests.support.adversary.analyses import ApprovedAnalysis
from wardround.core.contracts import Message
from wardround.core.errors import Refusal

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
