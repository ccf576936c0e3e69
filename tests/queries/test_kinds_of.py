"""The form of a table and no value of it."""

import pandas as pd

from wardround.core.codes.json_arrays import unpack
from wardround.core.contracts import Message, Site
from wardround.data.query import ask_all
from wardround.queries.kinds_of import kinds_of

A = Site("a", pd.DataFrame({"age": [1, 2], "town": ["Bo", None], "flag": [True, False], "lab": [None, None]}))
B = Site("b", pd.DataFrame({"age": ["old", "young"], "lab": [0.5, None]}))


def test_each_kind_by_hand() -> None:
    told = {"age": "number", "town": "text", "flag": "text", "lab": "empty"}
    assert unpack(kinds_of().ask(Message({}), A).arrays["kinds"]) == told


def test_words_anywhere_make_words_everywhere_and_empty_gives_way() -> None:
    told = ask_all(kinds_of(), Message({}), [A, B])["kinds"]
    assert told == {"age": "text", "town": "text", "flag": "text", "lab": "number"}
