"""What the coordinator asks, as arrays: the edges to count between, or the forest so far and the nodes to sum over."""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.statistics.trees.bins import Feature, Numbers
from wardround.statistics.trees.forest import Forest
from wardround.statistics.trees.growth import Growth

PHASE = "phase"
EDGES, HAZARD, LEVEL, REVIEW = "edges", "hazard", "level", "review"


class Common(NamedTuple):
    """What everybody knows once bins are agreed."""

    features: tuple[Feature, ...]
    base: Numbers
    """The score that everybody begins with, one a group."""
    time: Feature | None = None
    """Intervals of time, where hazards are looked at."""


def phase_of(message: Message) -> str:
    return dict(message.meta)[PHASE]


def edges_question(edges: tuple[Numbers, ...]) -> Message:
    """Edges of each column of numbers, filled up with the last one again: between equal edges lies nothing."""
    longest = max((len(own) for own in edges), default=0)
    padded = np.zeros((len(edges), longest))
    for place, own in enumerate(edges):
        padded[place] = np.pad(own, (0, longest - len(own)), mode="edge")
    return Message({"edges": padded}, ((PHASE, EDGES),))


def known_arrays(common: Common, forest: Forest) -> dict[str, Any]:
    numbers = [feature.edges for feature in common.features if not feature.is_category]
    return {
        "edges": np.concatenate([np.empty(0), *numbers]).astype(np.float32),
        "lengths": np.array([len(own) for own in numbers], np.uint8),
        "base": np.asarray(common.base, np.float32),
        **({} if common.time is None else {"intervals": common.time.edges.astype(np.float32)}),
        **forest._asdict(),
    }


def hazard_question(common: Common, forest: Forest) -> Message:
    return Message(known_arrays(common, forest), ((PHASE, HAZARD),))


def risk_arrays(hazard: Numbers | None) -> dict[str, Any]:
    return {} if hazard is None else {"hazard": hazard}


def level_question(common: Common, forest: Forest, growth: Growth, number: int, hazard: Numbers | None) -> Message:
    arrays = {
        **known_arrays(common, forest),
        **risk_arrays(hazard),
        "tree_column": growth.tree.column[0, :, : 2**growth.level - 1],
        "tree_left": growth.tree.left[0, :, : 2**growth.level - 1],
        "columns": growth.columns.astype(np.int16),
        "asked": growth.asked.astype(np.int16),
        "number": np.array(number, np.int32),
    }
    return Message(arrays, ((PHASE, LEVEL),))


def review_question(common: Common, forest: Forest, hazard: Numbers | None, shown: Numbers, grid: Numbers) -> Message:
    known = {**known_arrays(common, forest), **risk_arrays(hazard)}
    arrays = {**known, "shown": shown.astype(np.int16), "grid": grid.astype(np.int16)}
    return Message(arrays, ((PHASE, REVIEW),))


def read_common(message: Message, agreed: Agreed, columns: tuple[str, ...]) -> Common:
    arrays, features, at, place = message.arrays, [], 0, 0
    for name in columns:
        column = agreed.columns[name]
        if column.kind == "category":
            features.append(Feature(name, np.empty(0), column.levels, True))
            continue
        many = int(arrays["lengths"][place])
        features.append(Feature(name, np.asarray(arrays["edges"][at : at + many], np.float64)))
        at, place = at + many, place + 1
    time = None
    if "intervals" in arrays:
        time = Feature("time", np.asarray(arrays["intervals"], np.float64))
    return Common(tuple(features), np.asarray(arrays["base"], np.float64), time)


def read_forest(message: Message) -> Forest:
    return Forest(*(np.asarray(message.arrays[name]) for name in Forest._fields))


def read_tree(message: Message, forest: Forest) -> tuple[Forest, int]:
    """The tree that is being grown and how many of its levels are known; nodes below ask nothing yet."""
    column, left = (np.asarray(message.arrays[name]) for name in ("tree_column", "tree_left"))
    groups, known = column.shape
    nodes = forest.value.shape[-1] - 1
    whole = Forest(
        np.full((1, groups, nodes), -1, np.int16),
        np.full((1, groups, nodes, left.shape[-1]), 255, np.uint8),
        np.zeros((1, groups, nodes + 1), np.float32),
    )
    whole.column[0, :, :known], whole.left[0, :, :known] = column, left
    return whole, (known + 1).bit_length() - 1


def read_asked(message: Message, forest: Forest, columns: Numbers, groups: int) -> Numbers:
    """(groups, nodes): the nodes whose sums are asked for; `columns` are those of the tree after the forest.

    Refused where a column or a node comes twice: noise is reckoned for a patient who is in each sum once, and that of
    several copies of one sum would average out.
    """
    asked = np.asarray(message.arrays["asked"]).astype(np.int64)
    once = asked.ndim == 2 and all(len(set(own)) == len(own) for own in (row[row >= 0].tolist() for row in asked))
    if (
        len(asked) != groups
        or not once
        or not np.array_equal(message.arrays["columns"], columns)
        or int(message.arrays["number"]) != forest.trees
    ):
        raise Refusal(
            "the sums of a level were asked for otherwise than a tree needs them: every column of the tree and every"
            " node once",
            remedy="ask for what was approved",
        )
    return asked
