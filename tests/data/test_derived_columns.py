"""Votes and features of texts as columns, at every site the same; rows without a label are for training."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.cleanup import Cleanup, clean_table, restrict
from wardround.data.load import load
from wardround.data.table import Table

RULES = (
    {"name": "unigram", "column": "note", "word": "pain", "label": "ill"},
    {"name": "threshold", "condition": "age > 60", "label": "ill"},
    {"name": "threshold", "condition": "age <= 40", "label": "well"},
)


def rows(n=40, seed=0, labelled=0.5):
    generator = np.random.default_rng(seed)
    known = generator.random(n) < labelled
    age = generator.integers(20, 90, n).astype(float)
    return pd.DataFrame(
        {
            "note": np.where(age > 50, "some Pain", "fine"),
            "age": age,
            "state": np.where(known, np.where(age > 50, "ill", "well"), None),
        }
    )


def table(**sites):
    made = sites or {"a": rows(), "b": rows(seed=1, labelled=0.0)}
    return Table(made, "state", "test", task="classification", positive="ill")


CLEANUP = Cleanup(rules=RULES, texts={"note": {"features": 3}})


def test_votes_come_first_then_texts_then_the_rest():
    made = clean_table(table(), CLEANUP)
    frame = made.sites["a"]
    assert list(frame.columns) == ["rule 1", "rule 2", "rule 3", "note 1", "note 2", "note 3", "age", "state"]
    raw = rows()
    assert frame["rule 1"].tolist() == (raw["age"] > 50).astype(float).tolist()
    assert frame["rule 3"].tolist() == (raw["age"] <= 40).astype(float).tolist()
    assert made.labels == ("ill", "well")
    assert made.is_unlabelled


def test_rows_without_a_label_train_and_only_labelled_ones_are_tested():
    loaded = load(clean_table(table(), CLEANUP), seed=3)
    federation = loaded.federation
    known = int(rows()["state"].notna().sum())
    train, validation, test = federation.counts[0]
    assert train + validation + test == 40
    assert validation + test == pytest.approx(0.4 * known, abs=1)
    assert federation.counts[1].tolist() == [40, 0, 0], "nobody has labelled anything at b"
    assert (federation.y[federation.rows_of("test")] >= 0).all()
    assert (federation.y[federation.rows_of("train")] == -1).sum() == 80 - known
    assert federation.task.classes == ("ill", "well")
    assert federation.features[:3] == ("rule 1", "rule 2", "rule 3")
    assert any("are for training alone" in note for note in loaded.notes)


def test_a_federation_without_any_label():
    made = table(a=rows(labelled=0.0), b=rows(seed=1, labelled=0.0).drop(columns="state"))
    federation = load(clean_table(made, CLEANUP), seed=3).federation
    assert federation.counts.tolist() == [[40, 0, 0], [40, 0, 0]]
    assert federation.task.classes == ("ill", "well")


def test_all_labelled_rows_may_be_held_out():
    federation = load(clean_table(table(), CLEANUP), seed=3, shares=(0.0, 0.0, 1.0)).federation
    known = int(rows()["state"].notna().sum())
    assert federation.counts[0].tolist() == [40 - known, 0, known]


def test_unlabelled_rows_of_a_patient_who_is_held_out_are_left_out():
    frame = rows().assign(patient=np.repeat(np.arange(10), 4))
    loaded = load(clean_table(table(a=frame, b=rows(seed=1).assign(patient=range(40))), CLEANUP), seed=3, by="patient")
    order, counts = loaded.order[0], loaded.federation.counts[0]
    patients = frame["patient"].to_numpy()[order]
    assert not set(patients[: counts[0]]) & set(patients[counts[0] :])
    assert counts.sum() < 40


def test_a_withheld_column_makes_its_functions_abstain():
    frame = rows().drop(columns="note")
    cleanup = restrict(CLEANUP, list(frame.columns))
    made = clean_table(table(a=frame), cleanup).sites["a"]
    assert not made[["rule 1", "note 1", "note 2", "note 3"]].to_numpy().any()
    assert made["rule 2"].any()


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (RULES[:2], "ll labeling functions vote for one class"),
        ((*RULES[:2], {**RULES[2], "label": "wel"}), "the label 'well', for which no labeling function votes; did you"),
        (({**RULES[0], "column": "notes"}, *RULES[1:]), "olumn 'notes' is missing; did you mean 'note'"),
        (({**RULES[0], "name": "bigram"}, *RULES[1:]), r"no labeling_function called 'bigram' \(\[\[data.cleaning.ru"),
    ],
)
def test_mistakes(rules, told):
    with pytest.raises(Refusal, match=told):
        load(clean_table(table(), Cleanup(rules=rules)), seed=0)


def test_functions_that_always_or_never_vote_do_no_harm():
    rules = (*RULES, {**RULES[1], "condition": "age > 900"}, {**RULES[2], "condition": "age > 0"})
    federation = load(clean_table(table(), Cleanup(rules=rules)), seed=0).federation
    # Scaled, both columns are 0 throughout, which counts as no vote: a function that says the same of all says nothing.
    assert not federation.x[:, 3:5].any()
