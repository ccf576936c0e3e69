"""Boosted trees as an ONNX graph: each column of numbers as it is, each group of levels as a 0 or 1, one tree ensemble.

The runtime compares a number with an edge in single precision, as the bins of training were cut, so that a patient
takes the same way. A node that asks for a group of levels becomes one that asks whether a 0 or 1 is below a half.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.data.preparation import NumberColumn, TextColumn
from wardround.export.onnx_graph import MISSING, ML, GraphParts
from wardround.predict.predictor import Predictor, Rows

KIND, NAME = "analysis", "boosted_trees"
ALWAYS = float(np.finfo(np.float32).max)
"""An edge above all numbers: whatever is known goes left."""


class TreeModel(NamedTuple):
    """The arrays of the model file."""

    params: dict[str, Rows]
    columns: tuple[NumberColumn | TextColumn, ...]

    @property
    def regression(self) -> bool:
        return not len(self.params["classes"])


def is_trees(predictor: Predictor) -> bool:
    recipe = predictor.facts.recipe or {}
    return (recipe.get("kind"), recipe.get("name")) == (KIND, NAME)


def tree_model(predictor: Predictor) -> TreeModel:
    return TreeModel({key: np.asarray(part) for key, part in predictor.params.items()}, predictor.preparation.columns)


def add_trees(graph: GraphParts, model: TreeModel, result: str) -> None:
    """From raw columns to probabilities, or to values of shape (rows,)."""
    params = model.params
    groups, sides = level_groups(model)
    inputs, first, at = [], {}, 0
    for place, column in enumerate(model.columns):
        if isinstance(column, NumberColumn):
            inputs.append(graph.add("Cast", column.name, to=1))
            first[place], at = at, at + 1
        elif groups[place]:
            inputs.append(group_marks(graph, column, np.array(groups[place], np.float32)))
            first[place], at = at, at + len(groups[place])
    rows = graph.add("Concat", *inputs, axis=1)
    scores = graph.add("TreeEnsembleRegressor", rows, domain=ML, **ensemble(model, first, sides))
    if model.regression:
        graph.add("Reshape", scores, graph.constant(np.array([-1], np.int64)), name=result)
    elif len(params["base"]) == 1:
        risk = graph.add("Sigmoid", scores)
        other = graph.add("Sub", graph.constant(np.float32(1)), risk)
        graph.add("Concat", other, risk, name=result, axis=1)
    else:
        graph.add("Softmax", scores, name=result, axis=1)


def level_groups(model: TreeModel) -> tuple[list[list[tuple[int, ...]]], dict[tuple[int, bytes], int]]:
    """For every category the different groups of levels that go right (1), and where each stands."""
    params = model.params
    bits = np.unpackbits(params["left"], axis=-1)
    groups: list[list[tuple[int, ...]]] = [[] for _ in model.columns]
    found: dict[tuple[int, bytes], int] = {}
    for index in np.ndindex(*params["column"].shape):
        column = int(params["column"][index])
        if column < 0 or not params["levels"][column]:
            continue
        key = (column, params["left"][index].tobytes())
        if key not in found:
            known = bits[index][: params["levels"][column]]
            # Behind the levels what is missing or unknown, whose bit is the last of the layout.
            right = 1 - np.append(known, bits[index][int(params["width"][0]) - 1])
            found[key] = len(groups[column])
            groups[column].append(tuple(int(one) for one in right))
    return groups, found


def group_marks(graph: GraphParts, column: TextColumn, groups: Rows) -> str:
    """(rows, groups): 1 where the row's level goes right."""
    many = len(column.categories)
    code = graph.add(
        "LabelEncoder", column.name, domain=ML, keys_strings=[*column.categories, MISSING],
        values_int64s=[*range(many), many], default_int64=many,
    )  # fmt: skip
    flat = graph.add("Reshape", code, graph.constant(np.array([-1], np.int64)))
    return graph.add("Gather", graph.constant(np.ascontiguousarray(groups.T)), flat, axis=0)


def ensemble(model: TreeModel, first: dict[int, int], sides: dict[tuple[int, bytes], int]) -> dict[str, Any]:
    """The attributes of ONNX's tree ensemble; branches that ended early are cut off."""
    params, nodes = model.params, _Nodes()
    inner = params["column"].shape[-1]
    for tree, group in np.ndindex(*params["column"].shape[:2]):
        column, left, value = (params[key][tree, group] for key in ("column", "left", "value"))
        number, waiting = tree * params["column"].shape[1] + group, [0]
        while waiting:
            node = waiting.pop()
            if node < inner and column[node] >= 0:
                place = int(column[node])
                if params["levels"][place]:
                    feature, edge = first[place] + sides[place, left[node].tobytes()], 0.5
                    missing = False
                else:
                    feature, (edge, missing) = first[place], edge_of(params, place, left[node])
                nodes.branch(number, node, feature, edge, missing)
                waiting += [2 * node + 1, 2 * node + 2]
            else:
                below = node
                while below < inner:
                    below = 2 * below + 1
                nodes.leaf(number, node, group, float(value[below - inner]))
    return {**nodes.attributes, "n_targets": len(params["base"]), "base_values": params["base"].tolist()}


def edge_of(params: dict[str, Rows], column: int, left: Rows) -> tuple[float, bool]:
    """Below which numbers go left, and whether missing values do."""
    bits = np.unpackbits(left)
    edges = params["edges"][column]
    edges = edges[np.isfinite(edges)]
    cut = int(bits[: len(edges) + 1].sum())
    return (float(edges[cut - 1]) if cut <= len(edges) else ALWAYS), bool(bits[int(params["width"][0]) - 1])


class _Nodes:
    """Lists that grow node by node, in the words of the operator."""

    def __init__(self) -> None:
        self.attributes: dict[str, list[Any]] = {
            name: []
            for name in (
                *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes"),
                *("nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true"),
                *("target_treeids", "target_nodeids", "target_ids", "target_weights"),
            )
        }

    def _add(self, **values: Any) -> None:
        for name, value in values.items():
            self.attributes[name].append(value)

    def branch(self, tree: int, node: int, feature: int, edge: float, missing: bool) -> None:
        self._add(
            nodes_treeids=tree, nodes_nodeids=node, nodes_featureids=feature, nodes_values=edge,
            nodes_modes="BRANCH_LT", nodes_truenodeids=2 * node + 1, nodes_falsenodeids=2 * node + 2,
            nodes_missing_value_tracks_true=int(missing),
        )  # fmt: skip

    def leaf(self, tree: int, node: int, group: int, value: float) -> None:
        self._add(
            nodes_treeids=tree, nodes_nodeids=node, nodes_featureids=0, nodes_values=0.0, nodes_modes="LEAF",
            nodes_truenodeids=0, nodes_falsenodeids=0, nodes_missing_value_tracks_true=0,
            target_treeids=tree, target_nodeids=node, target_ids=group, target_weights=value,
        )  # fmt: skip
