"""A coordinator that asks a site for the same noised sums of a tree several times in one question.

Noise is reckoned for a patient who is in one node, in one bin of every column. Eight copies of the root's sums, each
with noise of its own, are as good as one with a third of the noise: at 100 trees of depth 4 a promised epsilon of 2 was
6.6, at 10 trees of depth 10 (512 copies) it was 109.
"""

import numpy as np
import pytest

from tests.support.analyses.tree_sites import COLUMNS, agreed, dealt, names_of, patients
from wardround.analyses.boosted_trees import boosted_trees
from wardround.core.contracts import Message
from wardround.core.errors import Refusal

SETTINGS = {"target": "dies", "columns": COLUMNS, "trees": 2, "depth": 4, "bins": 8, "epsilon": 2.0}


@pytest.fixture(scope="module")
def first_level():
    """The analysis as a site has it, what it has agreed on, its rows, and the honest question for the first level."""
    sites = dealt(patients(300, 3), 3)
    public, analysis = agreed(*names_of(sites)), boosted_trees(**SETTINGS)
    state = analysis.begin(public)
    for _ in range(3):
        state = analysis.step(state, analysis.ask(public, analysis.message(state), sites[0]))
    return analysis, public, sites[0], analysis.message(state)


def changed(question, **arrays):
    return Message({**question.arrays, **arrays}, question.meta)


def test_an_honest_level_is_answered(first_level):
    analysis, public, site, asked = first_level
    sums = analysis.ask(public, asked, site).arrays["sums"]
    assert sums.shape[:3] == (2, 1, 1)
    nothing = changed(asked, asked=np.array([[0, -1, -1]], np.int16))  # what fills up is no node
    assert analysis.ask(public, nothing, site).arrays["sums"].shape[:3] == (2, 1, 3)


@pytest.mark.parametrize(
    "arrays",
    [
        {"asked": np.zeros((1, 8), np.int16)},
        {"columns": np.zeros(3, np.int16)},
        {"columns": np.arange(3, dtype=np.int16)[None]},  # a list of one list: noise for one column, sums of three
        {"columns": np.arange(1, dtype=np.int16)},
        {"number": np.array(1, np.int32)},
        {"asked": np.zeros((2, 1), np.int16)},
    ],
    ids=["a node eight times", "a column thrice", "columns in one", "another column", "another tree", "another group"],
)
def test_no_sum_is_told_twice_under_noise(first_level, arrays):
    analysis, public, site, asked = first_level
    analysis.ask(public, asked, site)  # as in an honest run: the slopes of all columns are at hand
    with pytest.raises(Refusal, match="every column of the tree and every node once"):
        analysis.ask(public, changed(asked, **arrays), site)


def test_that_it_is_an_attack(first_level):
    """Honest answers to the same question, side by side, have a mean with the noise of one divided by sqrt(28)."""
    analysis, public, site, asked = first_level
    told = np.stack([analysis.ask(public, asked, site).arrays["sums"][0] for _ in range(28)])
    plain = boosted_trees(**{**SETTINGS, "epsilon": 0.0}, validation=0.0)
    exact = plain.ask(public, asked, site).arrays["sums"][0]
    one, mean = (np.sqrt(np.mean(np.square(found - exact))) for found in (told, told.mean(axis=0)))
    assert mean < one / 2
