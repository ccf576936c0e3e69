"""Film reviews, each film a client: praise or blame from the words used (a stand-in for LEAF's Sent140).

Needs the folder imdb_reviews: 18,000 reviews of IMDb (Maas et al., ACL 2011), half of them good. Rows are sets of
words, each word at one of `words` places by a checksum, for logistic regression. Reviews of a film are split
60 / 20 / 20 at random; `fewest` leaves films with fewer reviews out (LEAF's k).
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, CountOrAll
from wardround.core.contracts import Task
from wardround.core.federation import Federation
from wardround.data.datasets.leaf.clients import ClientRows, federation_of
from wardround.data.datasets.leaf.leaf_files import SHARES, word_set
from wardround.data.folder import data_file


def imdb_films(*, words: Count = 512, fewest: CountOrAll = 3, seed: int = 0) -> Federation:
    """Film reviews with each film as a client, as sets of words (fewest: leave films with fewer reviews out)."""
    reviews = pd.read_parquet(data_file("imdb_reviews", "imdb_18k.parquet"), columns=["label", "movie", "text"])

    def rows() -> Iterator[ClientRows]:
        for film, own in reviews.groupby("movie", sort=True):
            if len(own) < fewest:
                continue
            x = np.array([word_set(str(text).replace("<br />", " "), words) for text in own["text"]], np.int8)
            yield ClientRows(f"film-{film}", x, own["label"].to_numpy(np.int32))

    task = Task((words,), ("negative", "positive"), "sentiment")
    return federation_of(rows(), task, shares=SHARES, fewest=fewest, seed=seed, where="data set imdb_films")
