"""Short texts with the votes of hand-written labeling functions: four sets of the WRENCH benchmark.

Zhang et al., NeurIPS 2021: youtube and sms (spam), trec (kinds of questions), semeval (relations). Needs the folder
wrench_small. One pool; the columns vote_0, vote_1, ... hold the class that a function votes for, or nothing;
no model sees them but as rules (`vote_rules`). Only the
benchmark's test texts keep their label, so that all others are for training (with [data] shares = [0, 0, 1] these are
just its test rows); `labels` "all" keeps every label. The copies of training rows that the set calls dev are left out.
"""

from typing import Literal

import numpy as np
import pandas as pd

from wardround.data.assembly import POOL
from wardround.data.folder import data_file
from wardround.data.table import Table

SetName = Literal["youtube", "sms", "trec", "semeval"]
CLASSES = {
    "youtube": ("ham", "spam"),
    "sms": ("ham", "spam"),
    "trec": ("description", "entity", "human", "abbreviation", "location", "number"),
    "semeval": (
        *("cause-effect", "component-whole", "content-container", "entity-destination", "entity-origin"),
        *("instrument-agency", "member-collection", "message-topic", "product-producer"),
    ),
}


def wrench(*, name: SetName = "youtube", labels: Literal["test", "all"] = "test") -> Table:
    """Short texts with the votes of labeling functions (WRENCH): youtube, sms, trec or semeval."""
    path = data_file("wrench_small", f"{name}.parquet")
    read = pd.read_parquet(path)
    read = read[~read["dev_row"].fillna(False).astype(bool)]
    words = np.array([*CLASSES[name], None], dtype=object)
    votes = words[np.stack(read["votes"].to_list()).astype(np.int64)]
    names = tuple(f"vote_{place}" for place in range(votes.shape[1]))
    frame = pd.DataFrame(votes, columns=list(names))
    frame.insert(0, "text", read["text"].to_numpy(object))
    told = (read["split"] == "test").to_numpy() | (labels == "all")
    label = words[read["label"].to_numpy(np.int64)]
    label[~told] = None
    frame["label"] = label
    positive = "spam" if len(CLASSES[name]) == 2 else None
    return Table({POOL: frame}, "label", path.name, task="classification", positive=positive, aside=names)


def vote_rules(name: SetName) -> list[dict[str, str]]:
    """The benchmark's functions as rules on the columns of votes, for [[data.cleaning.rules]]."""
    functions = pd.read_csv(data_file("wrench_small", "labeling_functions.csv"))
    own = functions[functions["set"] == name].sort_values("lf")
    classes = [CLASSES[name][place] for place in own["votes_for"]]
    return [
        {"name": "threshold", "condition": f"vote_{place} = {label}", "label": label}
        for place, label in zip(own["lf"], classes, strict=True)
    ]
