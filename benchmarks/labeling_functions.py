"""Votes of many labeling functions: `python -m benchmarks.labeling_functions` prints one JSON object of CPU seconds.

1,000 unigrams on 18,000 reviews, tokens read from the texts included, beside scikit-learn's CountVectorizer with the
same vocabulary; 500 templates on 100,000 heart beats of 144 samples, normalisation included, beside SciPy's cdist.
"""

import json
import lzma
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.feature_extraction.text import CountVectorizer

from wardround.data.folder import data_file
from wardround.weak_supervision.function import votes_of
from wardround.weak_supervision.functions.template import template
from wardround.weak_supervision.functions.unigram import unigram
from wardround.weak_supervision.series import sample_columns, z_normalised
from wardround.weak_supervision.tokens import tokens_of

WORDS, TEMPLATES, BEATS, REPEATS = 1_000, 500, 100_000, 3


def cpu_seconds(done: Callable[[], Any]) -> float:
    taken = []
    for _ in range(REPEATS):
        started = time.process_time()
        done()
        taken.append(time.process_time() - started)
    return min(taken)


def measure_words() -> dict[str, float]:
    reviews = pd.read_parquet(data_file("imdb_reviews", "imdb_18k.parquet"))[["text"]]
    counts = Counter(word for text in reviews["text"][:3000] for word in set(tokens_of(text)))
    words = [word for word, _ in counts.most_common(2 * WORDS)[WORDS:]]
    functions = [unigram(column="text", word=word, label="positive") for word in words]
    peer = CountVectorizer(vocabulary=words, binary=True)
    return {
        "unigrams": len(words),
        "documents": len(reviews),
        "ours": cpu_seconds(lambda: votes_of(functions, reviews)),
        "CountVectorizer": cpu_seconds(lambda: peer.transform(reviews["text"])),
    }


def measure_templates() -> dict[str, float]:
    with lzma.open(data_file("mitbih_beats", "beats.npy.xz")) as file:
        beats = np.lib.format.read_array(file, allow_pickle=False)[:BEATS].astype(np.float32)
    frame = pd.DataFrame(beats, columns=sample_columns("beat", beats.shape[1]))
    chosen = beats[np.linspace(0, len(beats) - 1, TEMPLATES).astype(int)]
    functions = [
        template(series="beat", samples=tuple(map(float, one)), distance=4.0, label="arrhythmia") for one in chosen
    ]
    return {
        "templates": len(functions),
        "beats": len(beats),
        "ours": cpu_seconds(lambda: votes_of(functions, frame)),
        "cdist": cpu_seconds(lambda: cdist(z_normalised(beats), z_normalised(chosen)) <= 5.386),
    }


if __name__ == "__main__":
    print(json.dumps({"words": measure_words(), "series": measure_templates()}, indent=1))
