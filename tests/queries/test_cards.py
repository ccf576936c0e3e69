"""A card names columns, kinds and labels, and neither single values nor rare labels."""

import numpy as np
import pandas as pd

from wardround.core.contracts import Message, Site
from wardround.queries.cards import cards, cards_of, describe, frequent_labels

CELL = 10


def test_a_card_does_not_tell_the_values_of_a_quantity() -> None:
    rows = pd.DataFrame({"x": [1.25, 3.5], "y": [17.125, 4.75]})
    assert describe("A", rows, "y").labels == ()
    whole = pd.DataFrame({"y": range(21)})
    assert describe("A", whole, "y").labels == ()
    assert describe("A", pd.DataFrame({"y": [4, 5]}), "y", "regression").labels == ()


def test_a_card_names_no_rare_label_and_no_single_value():
    frame = pd.DataFrame({"ward": ["a"] * 60 + ["b"] * 36 + ["d"] * 4, "stay": np.linspace(1, 9.5, 100)}).assign(
        rare=np.nan
    )
    frame.loc[:3, "rare"] = 1.0
    card = describe("A", frame, "ward", smallest_cell=CELL)
    assert card.kinds["rare"] == "empty"
    assert describe("A", frame, "ward").kinds["rare"] == "number"
    times = frame["ward"].value_counts()
    assert 0 < times["d"] < CELL
    assert card.labels == tuple(sorted(times.index[times >= CELL]))
    assert (card.rows, card.distinct) == (100, len(card.labels))
    # A quantity stays one though no value is shared by a cell of patients.
    assert not describe("A", frame, "stay", smallest_cell=CELL).whole
    assert describe("A", frame, "stay", smallest_cell=CELL).distinct > 100


def test_cards_travel_and_come_back() -> None:
    frame = pd.DataFrame({"age": [30, 41], "ill": ["no", "yes"]})
    query = cards(target="ill")
    (card,) = cards_of(query.combine([query.ask(Message({}), Site("A", frame))]))
    assert card == describe("A", frame, "ill")
    assert (card.rows, card.kinds, card.labels) == (2, {"age": "number", "ill": "text"}, ("no", "yes"))


def test_a_label_is_told_where_enough_patients_have_it_not_rows():
    # Ada has six rows of the label "rare", more than a cell of three; "often" is that of three people.
    outcome = pd.Series(["rare"] * 6 + ["often"] * 3 + ["often"])
    patients = ["ada"] * 6 + ["bo", "cy", "ada", "bo"]
    assert frequent_labels(outcome, 3) == ["often", "rare"]
    assert frequent_labels(outcome, 3, patients) == ["often"]
    assert frequent_labels(outcome, 4, patients) == []
    card = describe("A", pd.DataFrame({"y": outcome}), "y", smallest_cell=3, patients=patients)
    assert card.labels == ("often",)
