"""What every kind of labeling function must do."""

import json

import numpy as np
import pandas as pd
import pytest

from wardround.core.components.recipes import recipe_of
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.weak_supervision.function import KIND, function_from, to_words, votes_of
from wardround.weak_supervision.function_file import read_functions, write_functions

EXAMPLES = {
    "unigram": {"column": "note", "word": "severe", "label": "ill"},
    "template": {"series": "beat", "samples": [0.0, 1.0, 0.0], "distance": 0.5, "label": "ill"},
    "threshold": {"condition": "lactate > 2", "label": "ill"},
    "conjunction": {"condition": "lactate > 2 and ward = surgery", "label": "ill"},
}
ROWS = pd.DataFrame(
    {
        "note": ["Severe pain", "severely", None],
        "lactate": [2.5, 3.0, np.nan],
        "ward": ["surgery", "medicine", "surgery"],
        "beat0": [5.0, 1.0, 0.0],
        "beat1": [9.0, 0.0, np.nan],
        "beat2": [5.0, 1.0, 0.0],
    }
)
FIRES = {
    "unigram": [True, False, False],
    "template": [True, False, False],
    "threshold": [True, True, False],
    "conjunction": [True, False, False],
}


def test_every_kind_is_tried_here():
    assert set(EXAMPLES) == set(FIRES) == set(registry.names(KIND))


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_survives_json_and_votes_the_same(kind):
    made = function_from({"name": kind, **EXAMPLES[kind]})
    again = function_from(json.loads(json.dumps(to_words(made))))
    assert again == made
    assert recipe_of(made).name == kind
    assert made.sentence.startswith("ill where ")
    assert votes_of([made], ROWS)[:, 0].tolist() == FIRES[kind]
    assert votes_of([again], ROWS.iloc[:0]).shape == (0, 1), "a table without patients"


def test_kinds_are_mixed_in_any_order():
    kinds = ["threshold", "unigram", "conjunction", "template", "threshold"]
    functions = [function_from({"name": kind, **EXAMPLES[kind]}) for kind in kinds]
    assert votes_of(functions, ROWS).T.tolist() == [FIRES[kind] for kind in kinds]
    assert votes_of([], ROWS).shape == (3, 0)


def test_a_file_of_functions(tmp_path):
    functions = [function_from({"name": kind, **one}) for kind, one in EXAMPLES.items()]
    write_functions(tmp_path / "rules.json", functions)
    assert read_functions(tmp_path / "rules.json") == functions


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"name": "bigram", "word": "a", "label": "x"}, "here is no labeling_function called 'bigram'"),
        ({"word": "a"}, "does not say its kind"),
        ({"name": "unigram", "column": "note", "word": "two words", "label": "x"}, "is not one word in lower case"),
        ({"name": "unigram", "column": "note", "word": "a"}, "he key 'label' is missing"),
        ({"name": "template", "series": "b", "samples": [1.0, 1.0], "distance": 1.0, "label": "x"}, "two finite samp"),
        ({"name": "template", "series": "b", "samples": [1, 2], "distance": -1.0, "label": "x"}, "at least 0"),
        ({"name": "threshold", "condition": "lactate high", "label": "x"}, "cannot be read"),
        ({"name": "threshold", "condition": "lactate > high", "label": "x"}, "'high' is no number"),
        ({"name": "threshold", "condition": "a > 1 and b > 1", "label": "x"}, "should be one condition"),
        ({"name": "conjunction", "condition": "a > 1 and a < 3", "label": "x"}, "2 conditions on different columns"),
    ],
)
def test_mistakes_are_named(words, told, tmp_path):
    with pytest.raises(Refusal, match=told):
        function_from(words)
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"format": "wardround labeling functions 1", "functions": [words]}))
    with pytest.raises(Refusal, match=r"rules\.json, function 1|labeling_function"):
        read_functions(path)


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other", "functions": []}', '{"functions": 3}'])
def test_a_file_that_is_none(text, tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(text)
    with pytest.raises(Refusal, match=r"cannot be read|no file of labeling functions"):
        read_functions(path)
    with pytest.raises(Refusal, match="no such file"):
        read_functions(tmp_path / "other.json")


def test_a_missing_column_is_named():
    made = function_from({"name": "unigram", **EXAMPLES["unigram"], "column": "notes"})
    with pytest.raises(Refusal, match="column 'notes', which is missing; did you mean 'note'"):
        votes_of([made], ROWS)
