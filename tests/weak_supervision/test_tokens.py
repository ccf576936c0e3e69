import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from wardround.weak_supervision.tokens import TOKEN, has_words, is_token, texts_of, tokens_of


@given(st.text(alphabet="abAB'’_-.1 é", max_size=30))
def test_the_quick_way_gives_what_the_pattern_gives(text):
    assert tokens_of(text) == TOKEN.findall(text.lower().replace("’", "'"))


def test_whole_tokens_only():
    # "nice" is a token of the first and fourth text; inside "niceness" it is none, and an empty text has none.
    texts = ["A NICE day", "niceness", "", "not-nice"]
    assert has_words(texts, ["nice", "day"]).tolist() == [[True, True], [False, False], [False, False], [True, False]]


def test_missing_texts_are_empty_and_numbers_are_words():
    assert texts_of(pd.Series(["a", None, 12])) == ["a", "", "12"]
    assert has_words([], ["a"]).shape == (0, 1)
    assert np.array_equal(has_words(["a a a"], []), np.zeros((1, 0), bool))


def test_what_is_one_token():
    assert is_token("don't")
    assert not any(is_token(word) for word in ("Nice", "two words", "", "t-wave", "'tis"))
