"""Movie reviews, positive or negative: 18,000 of the IMDb set, half of each.

Maas et al., ACL 2011 (for research). Needs the folder imdb_reviews. One pool, to be dealt out by a partition; the
number of the film is kept and can name the site instead (by_column).
"""

import pandas as pd

from wardround.core.bounds import CountOrAll
from wardround.data.assembly import POOL
from wardround.data.folder import data_file
from wardround.data.table import Table

LABELS = ("negative", "positive")


def imdb_reviews(*, rows: CountOrAll = 0) -> Table:
    """Movie reviews as free text, 18,000 of them, half positive (rows: so many of these; 0 for all)."""
    path = data_file("imdb_reviews", "imdb_18k.parquet")
    read = pd.read_parquet(path, columns=["text", "label"])
    if rows:
        read = read.sample(min(rows, len(read)), random_state=0)
    frame = pd.DataFrame(
        {
            "review": read["text"].str.replace("<br />", "\n", regex=False).to_numpy(object),
            "sentiment": [LABELS[label] for label in read["label"]],
        }
    )
    return Table({POOL: frame}, "sentiment", path.name, task="classification", positive="positive")
