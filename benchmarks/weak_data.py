"""IMDb and MIT-BIH as clients without labels, with the thesis' parts: votes and features beside the true class.

Caldas 2022, appendix D.1 and D.3. Validation and test rows are held at the server, as there. IMDb: the thesis' words
as rules, reviews dealt to clients of 20, by class where a Dirichlet concentration is given. MIT-BIH: a record is a
client; templates by k-means over the training records, the accurate ones of which are the rules.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.contracts import Task
from wardround.core.federation import Federation, assemble
from wardround.data.datasets.weak_supervision.mitbih_beats import SERIES, mitbih_beats
from wardround.data.folder import data_file
from wardround.weak_supervision.function import LabelingFunction, votes_of
from wardround.weak_supervision.functions.template import template
from wardround.weak_supervision.functions.unigram import unigram
from wardround.weak_supervision.search.shapes import own_templates
from wardround.weak_supervision.series import squared_distances, z_normalised
from wardround.weak_supervision.text_features import text_features

Values = np.ndarray[Any, Any]
POSITIVE = (
    "amazing art beautiful beautifully breathtaking brilliant captures delight delightful enjoyed excellent masterpiece"
    " fantastic favorites finest flawless intelligent joy light perfect perfection refreshing superb superbly terrific"
    " underrated wonderful wonderfully"
)
NEGATIVE = (
    "atrocious awful bad boring crap decent dreck dull failed horrible lame laughable lousy mistake pointless poor"
    " reason redeeming ridiculous stinker stupid terrible unfunny unwatchable waste worst"
)
FEATURES, VALIDATION, OF_CLIENT = 512, 2000, 20
VALIDATES, TESTS = (102, 115, 123, 202), (101, 105, 114, 118, 124, 201, 210, 217)
BEATS, SHAPES, ACCURATE, EACH = 100, 100, 0.7, 15
"""Of each class and record; clusters; what the oracle asks of a rule; rules of each class."""


class Rows(NamedTuple):
    """Features and the true class of rows; votes are in front of the features once rules are known."""

    x: Values
    y: Values


class Clients(NamedTuple):
    """A federation of training rows, what the server judges by, and what each rule votes for."""

    federation: Federation
    validation: Rows
    test: Rows
    votes: tuple[str, ...]


@cache
def reviews() -> pd.DataFrame:
    read = pd.read_parquet(data_file("imdb_reviews", "imdb_18k.parquet"), columns=["split", "label", "text"])
    return read.assign(review=read["text"].str.replace("<br />", "\n", regex=False)).drop(columns="text")


@cache
def review_features() -> Values:
    return text_features(reviews()["review"], features=FEATURES)


@cache
def curated_words() -> tuple[LabelingFunction, ...]:
    """The words that the thesis takes from Boecking et al. 2020 (appendix D.3)."""
    said = (("positive", POSITIVE), ("negative", NEGATIVE))
    return tuple(unigram(column="review", word=word, label=label) for label, words in said for word in words.split())


def imdb_clients(seed: int, concentration: float = np.inf, rules: Sequence[LabelingFunction] = ()) -> Clients:
    """10,000 reviews at 500 clients, 2,000 for validation, 6,000 for the test; the seed decides the deal alone."""
    rules = tuple(rules) or curated_words()
    y, cast = reviews()["label"].to_numpy(np.int32), votes_of_reviews(rules)
    x = np.concatenate([cast, review_features()], axis=1).astype(np.float32)
    known = np.random.default_rng(0).permutation(np.flatnonzero((reviews()["split"] == "train").to_numpy()))
    test = np.flatnonzero((reviews()["split"] == "test").to_numpy())
    dealt = deal(known[VALIDATION:], y, concentration, np.random.default_rng((1, seed)))
    parts = {f"client-{place}": Rows(x[rows], y[rows]) for place, rows in enumerate(dealt)}
    held = [Rows(x[rows], y[rows]) for rows in (known[:VALIDATION], test)]
    return Clients(together(parts, ("negative", "positive")), held[0], held[1], tuple(one.label for one in rules))


@cache
def votes_of_reviews(rules: tuple[LabelingFunction, ...]) -> Values:
    return votes_of(rules, reviews()[["review"]])


def deal(rows: Values, y: Values, concentration: float, generator: np.random.Generator) -> list[Values]:
    """Clients of equal size; the classes' shares at a client are drawn from a Dirichlet (Hsu et al. 2019).

    The mean of the draws is equal shares. Infinity gives reviews uniformly at random, 0 clients of one class. When a
    class is used up, the other fills the last clients.
    """
    rows = generator.permutation(rows)
    if np.isinf(concentration):
        return np.split(rows, len(rows) // OF_CLIENT)
    left = [list(rows[y[rows] == label]) for label in (0, 1)]
    many = len(rows) // OF_CLIENT
    half = concentration / 2
    shares = generator.beta(half, half, many) if concentration else generator.permutation(np.arange(many) % 2)
    dealt = []
    for share in shares:
        wanted = int(generator.binomial(OF_CLIENT, share))
        wanted = int(np.clip(wanted, OF_CLIENT - len(left[0]), len(left[1])))
        own = [left[1].pop() for _ in range(wanted)] + [left[0].pop() for _ in range(OF_CLIENT - wanted)]
        dealt.append(np.array(own))
    return dealt


@cache
def records() -> dict[int, tuple[pd.DataFrame, Values]]:
    """The beats of every record, z-normalised, and which are none of a normal rhythm."""
    found = {}
    for name, frame in mitbih_beats(most=BEATS).sites.items():
        said = (frame["rhythm"] == "arrhythmia").to_numpy(np.int32)
        series = frame.drop(columns="rhythm")
        found[int(name.removeprefix("patient-"))] = (
            pd.DataFrame(z_normalised(series.to_numpy(np.float64)), columns=list(series)),
            said,
        )
    return found


def trains() -> list[int]:
    return [record for record in records() if record not in (*VALIDATES, *TESTS)]


@cache
def curated_shapes() -> tuple[LabelingFunction, ...]:
    """Templates in one place, as in appendix D.3: of those that an oracle accepts, the ones that tell most."""
    frame = pd.concat([records()[record][0] for record in trains()], ignore_index=True)
    y = np.concatenate([records()[record][1] for record in trains()])
    own = [own_templates(records()[one][0].to_numpy(np.float64), 1, one) for one in trains()]
    shapes, radii = (np.concatenate([pair[place] for pair in own]) for place in (0, 1))
    centers = shapes[np.random.default_rng(0).choice(len(shapes), SHAPES, replace=False)]
    for _ in range(10):
        nearest = squared_distances(shapes, centers).argmin(axis=1)
        sums, counts = np.zeros_like(centers), np.bincount(nearest, minlength=SHAPES)
        np.add.at(sums, nearest, shapes)
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    largest = np.zeros(SHAPES)
    np.maximum.at(largest, squared_distances(shapes, centers).argmin(axis=1), radii)
    chosen: list[LabelingFunction] = []
    for place, label in enumerate(("normal", "arrhythmia")):
        rules = [shape_rule(one, radius, label) for one, radius in zip(centers, largest, strict=True)]
        fired = votes_of(rules, frame)
        right = (fired & (y == place)[:, None]).sum(axis=0) / np.maximum(fired.sum(axis=0), 1)
        gain = np.where(right >= ACCURATE, fired.sum(axis=0) * (2 * right - 1), 0.0)
        chosen += [rules[one] for one in np.argsort(-gain, kind="stable")[:EACH] if gain[one] > 0]
    return tuple(chosen)


def shape_rule(samples: Values, radius: float, label: str) -> LabelingFunction:
    return template(series=SERIES, samples=tuple(map(float, samples)), distance=float(radius), label=label)


def mitbih_clients(rules: Sequence[LabelingFunction] = ()) -> Clients:
    """36 records as clients, 4 for validation, 8 for the test: the thesis' records."""
    rules = tuple(rules) or curated_shapes()
    rows = {
        record: Rows(np.concatenate([votes_of(rules, frame), frame.to_numpy()], axis=1).astype(np.float32), y)
        for record, (frame, y) in records().items()
    }
    held = [
        Rows(np.concatenate([rows[one].x for one in part]), np.concatenate([rows[one].y for one in part]))
        for part in (VALIDATES, TESTS)
    ]
    parts = {f"patient-{record}": rows[record] for record in trains()}
    return Clients(together(parts, ("normal", "arrhythmia")), held[0], held[1], tuple(one.label for one in rules))


def together(parts: dict[str, Rows], classes: tuple[str, ...]) -> Federation:
    """All rows of every client are for training."""
    width = next(iter(parts.values())).x.shape[1]
    none = (np.zeros((0, width), np.float32), np.zeros(0, np.int32))
    return assemble([(name, [rows, none, none]) for name, rows in parts.items()], Task((width,), classes))
