import re

import pandas as pd

from wardround.data.folder import data_file
from wardround.weak_supervision.function import votes_of
from wardround.weak_supervision.functions.unigram import unigram


def test_real_reviews_as_a_pattern_finds_them():
    """Another way to the same: a pattern with borders of words, of letters and digits, on 300 reviews."""
    texts = pd.read_parquet(data_file("imdb_reviews", "imdb_18k.parquet"))["text"][:300].reset_index(drop=True)
    words = ["worst", "excellent", "the", "it's", "zzz"]
    functions = [unigram(column="text", word=word, label=label) for word in words for label in ("bad", "good")]
    found = votes_of(functions, texts.to_frame())
    for place, word in enumerate(words):
        pattern = re.compile(rf"(?<![^\W_]){re.escape(word)}(?![^\W_]|'[^\W_])(?<!')", re.IGNORECASE)
        other = [bool(pattern.search(text.replace("’", "'"))) for text in texts]
        assert found[:, 2 * place].tolist() == other, word
        assert found[:, 2 * place + 1].tolist() == other, "the label does not matter for where it fires"
