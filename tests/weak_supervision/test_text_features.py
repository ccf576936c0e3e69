import math
import zlib

import numpy as np
import pandas as pd
import pytest

from wardround.weak_supervision.text_features import LENGTH, text_features


def test_hashing_by_hand():
    # Two tokens; "pain" twice counts 1 + ln 2. Their places and signs are those of their checksums.
    found = text_features(pd.Series(["Pain pain fever", None]), features=64)
    expected = np.zeros(64)
    for token, value in (("pain", 1 + math.log(2)), ("fever", 1.0)):
        checksum = zlib.crc32(token.encode())
        expected[(checksum >> 1) % 64] += value if checksum & 1 else -value
    np.testing.assert_allclose(found[0], LENGTH * expected / np.linalg.norm(expected), rtol=1e-6)
    assert not found[1].any(), "an empty text"


def test_a_row_does_not_depend_on_the_others():
    texts = pd.Series(["one two", "three", "two two two"])
    whole = text_features(texts, features=16)
    np.testing.assert_array_equal(
        whole, np.vstack([text_features(texts[place : place + 1], features=16) for place in range(3)])
    )


def test_listed_words_are_tf_idf_as_scikit_learn_has_it():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["severe pain in the chest", "no pain", "chest chest severe", "the"]
    peer = TfidfVectorizer(sublinear_tf=True)
    other = peer.fit_transform(texts).toarray()
    words = list(peer.get_feature_names_out())
    found = text_features(pd.Series(texts), words=words, weights=list(peer.idf_))
    np.testing.assert_allclose(found, LENGTH * other, rtol=1e-5, atol=1e-7)


def test_no_rows():
    assert text_features(pd.Series([], dtype=object), features=4).shape == (0, 4)
    assert text_features(pd.Series(["a"]), words=["b"]).tolist() == [[0.0]]
    with pytest.raises(IndexError):
        text_features(pd.Series(["a b"]), words=["a", "b"], weights=[1.0])
