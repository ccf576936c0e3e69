"""The sets with votes: published sizes, and the majority vote's accuracy that was computed from them elsewhere."""

import numpy as np
import pytest

from wardround.data.datasets.weak_supervision.wrench import CLASSES, vote_rules, wrench
from wardround.weak_supervision.function import function_from, votes_of


@pytest.mark.parametrize(
    ("name", "rows", "test", "functions"),
    [("youtube", 1956, 250, 10), ("sms", 5502, 500, 73), ("trec", 5965, 500, 68), ("semeval", 2527, 600, 164)],
)
def test_sizes_and_only_test_rows_are_labelled(name, rows, test, functions):
    table = wrench(name=name)
    frame = table.sites["all"]
    assert (len(frame), int(frame["label"].notna().sum()), len(vote_rules(name))) == (rows, test, functions)
    assert wrench(name=name, labels="all").sites["all"]["label"].notna().all()
    assert set(frame["label"].dropna()) <= set(CLASSES[name])


def test_majority_vote_on_youtube_is_the_published_one():
    # 81.8 % with ties at random: half of the rows that tie between two classes count.
    frame = wrench(name="youtube").sites["all"].dropna(subset="label")
    rules = [function_from(one) for one in vote_rules("youtube")]
    fired = votes_of(rules, frame)
    votes = np.stack([fired[:, [one.label == label for one in rules]].sum(axis=1) for label in ("ham", "spam")], axis=1)
    tie = votes[:, 0] == votes[:, 1]
    right = np.where(tie, 0.5, np.array(["ham", "spam"])[votes.argmax(axis=1)] == frame["label"])
    assert right.mean() == pytest.approx(0.818, abs=0.004)
