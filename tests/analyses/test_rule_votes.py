"""Counts of four records by hand, what the report says of bad rules, and real reviews."""

import pandas as pd
import pytest

from wardround.analyses.rule_votes import rule_votes
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.engine.analyse import analyse, exchange_in_process

RULES = ("awful -> bad", "dull -> bad", "lovely -> good", "never -> good")
A = Site("A", pd.DataFrame({"text": ["awful dull", "awful lovely", "lovely"], "kind": ["bad", "good", "good"]}))
B = Site("B", pd.DataFrame({"text": ["awful dull lovely", None], "kind": ["bad", None]}))
AGREED = Agreed(("A", "B"), {"text": AgreedColumn("text"), "kind": AgreedColumn("category", ("bad", "good"))})


def told(sites=(A, B), **settings):
    analysis = rule_votes(**{"rules": RULES, "labels": ("bad", "good"), "column": "text", **settings})
    return analyse(analysis, AGREED, exchange_in_process(analysis, AGREED, sites))


def test_by_hand():
    # Records: 1 awful dull; 2 awful lovely; 3 lovely; 4 awful dull lovely; 5 empty.
    # awful fires on 1, 2, 4, with a vote for good beside it on 2 and 4. Without awful, dull leads for bad on 1, lovely
    # for good on 2, and 4 is a tie: agreement 1 of 2. dull: awful agrees on 1; on 4 awful and lovely tie: 1 of 1.
    # lovely: awful leads on 2, awful and dull on 4, nobody else votes on 3: 0 of 2.
    # Majorities: 1 bad, 2 a tie, 3 good, 4 bad, so bad 2.5 of 4.
    found = told(outcome="kind")
    numbers = found["numbers"]
    assert numbers["coverage"] == [0.6, 0.4, 0.6, 0.0]
    assert numbers["covered"] == 4
    assert numbers["conflicts"] == pytest.approx([2 / 3, 1 / 2, 2 / 3, None])
    assert numbers["estimated_accuracy"] == [0.5, 1.0, 0.0, None]
    assert numbers["balance"] == [0.625, 0.375]
    # Where labels are known: awful is right on 1 and 4 of three, lovely on 2 and 3 of three; bad is 2 of 4.
    assert numbers["accuracy"] == pytest.approx([2 / 3, 1.0, 2 / 3, None])
    assert numbers["known_balance"] == [0.5, 0.5]
    assert "vote on 80 % of 5 records at 2 sites" in found["words"][0]
    assert any('"never" never fires: drop it' in line for line in found["words"])


def test_counts_leave_in_cells():
    """In cells of 2, A tells of 2 records each of awful and lovely; B's one record is nothing."""
    found = told(smallest_cell=2)["numbers"]
    assert found["rows"] == 4, "3 at A are told as 2, 2 at B as 2"
    assert found["coverage"] == [0.5, 0.0, 0.5, 0.0]
    noised = told(noise=3.0, noise_seed=1)["numbers"]
    assert noised["coverage"] != told()["numbers"]["coverage"]
    assert all(one is None or 0 <= one <= 1 for one in noised["estimated_accuracy"])


def test_rules_that_always_or_never_vote_and_a_class_without_a_rule_are_named():
    always = Site("A", pd.DataFrame({"text": ["film"] * 20}))
    empty = Site("B", pd.DataFrame({"text": [""] * 0}))
    found = told((always, empty), rules=("film -> bad", '{"name":"unigram","column":"text","word":"x","label":"bad"}'))
    assert any("fires on 100 % of all records" in line for line in found["words"])
    assert any("never fires" in line for line in found["words"])
    assert any("No rule votes for good" in line for line in found["words"])
    nothing = told((empty,), rules=("film -> bad",))
    assert nothing["numbers"]["balance"] is None
    assert "nothing is known of the balance" in nothing["words"][1]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"rules": ()}, "There is no rule"),
        ({"labels": ("bad",)}, "two different labels or more"),
        ({"rules": ("awful",)}, "no rule with a label of the study"),
        ({"rules": ("{nonsense",)}, "is no JSON"),
        ({"rules": ('{"name": "unigramm", "column": "text", "word": "x", "label": "bad"}',)}, "unigramm"),
        ({"rules": ('{"name": "unigram", "column": "text", "word": "x", "label": "odd"}',)}, "with a label of the"),
    ],
)
def test_mistakes(settings, why):
    with pytest.raises(Refusal, match=why) as told_of:
        told(**settings)
    assert "\n\n" not in str(told_of.value)
