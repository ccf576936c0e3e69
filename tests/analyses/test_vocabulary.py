"""Document frequencies over sites against scikit-learn's TF-IDF on all texts in one place."""

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from wardround.analyses.vocabulary import vocabulary
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.weak_supervision.text_features import LENGTH, text_features

TEXTS = {
    "A": ["pain in the chest", "no pain", "the cough", "zebra pain"],
    "B": ["the pain", "cough and pain", "chest"],
    "C": ["the cough", "the chest pain pain", "", "wheeze"],
}
SITES = [Site(name, pd.DataFrame({"note": texts})) for name, texts in TEXTS.items()]
AGREED = Agreed(tuple(TEXTS), {"note": AgreedColumn("text")})


def told(sites=SITES, **settings):
    analysis = vocabulary(**{"column": "note", "frequency": (0.0, 1.0), **settings})
    return analyse(analysis, AGREED, exchange_in_process(analysis, AGREED, sites))["numbers"]


def test_weights_are_those_of_all_texts_in_one_place():
    found = told()
    words = found["texts"]["note"]["words"]
    assert words == ["chest", "cough", "pain", "the"], "what fewer than three sites have is not told"
    every = [text for texts in TEXTS.values() for text in texts]
    peer = TfidfVectorizer(vocabulary=words, sublinear_tf=True).fit(every)
    np.testing.assert_allclose(found["texts"]["note"]["weights"], peer.idf_, rtol=1e-5)
    ours = text_features(pd.Series(every), **found["texts"]["note"])
    np.testing.assert_allclose(ours, LENGTH * peer.transform(every).toarray(), atol=1e-5)


def test_counts_leave_in_cells_and_with_noise():
    # pain is in 3, 2 and 1 documents: in cells of 2 that is 2 + 2 + 0. chest, cough and the are in too few at A or B.
    cells = told(smallest_cell=2, fewest_sites=2)
    assert dict(zip(cells["texts"]["note"]["words"], cells["documents"], strict=True))["pain"] == 4
    assert cells["rows"] == 10, "4, 3 and 4 documents are told as 4, 2 and 4"
    noised = told(noise=2.0, noise_seed=1)
    assert noised["documents"] != told()["documents"]
    assert np.isfinite(noised["texts"]["note"]["weights"]).all()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"fewest_sites": 4}, "4 sites have it, and 3 take part"),
        ({"frequency": (0.9, 0.1)}, "two shares in order"),
        ({"letters": "abc1"}, "words with digits"),
        ({"frequency": (0.99, 1.0)}, "common to 3 sites"),
    ],
)
def test_mistakes(settings, why):
    with pytest.raises(Refusal, match=f"(?i){why}"):
        told(**settings)
