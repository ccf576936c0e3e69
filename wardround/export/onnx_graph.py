"""The parts of an ONNX graph: the preparation of each column, the layers of a model, the label.

A column of numbers is a tensor (rows, 1) whose missing values are NaN, one of categories a tensor of texts (rows, 1)
whose missing values are empty. Numbers are scaled in double precision, as in training; the model computes in single.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, TextColumn
from wardround.evaluate.clinical.calibration_fit import SURE
from wardround.export.network import Network, PlainModel
from wardround.predict.predictor import Rows
from wardround.predict.table import range_of

if TYPE_CHECKING:
    from wardround.predict.recalibration import RiskMap

ML = "ai.onnx.ml"
MISSING = ""
COARSE = 1e-6
"""Rounding of a scaled value from which a column is taken in double precision."""


class GraphParts:
    """Nodes and constants, under names that no column has."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def name(self, wish: str) -> str:
        """The wish, longer by a mark where a column or another value has this name."""
        while wish in self.taken:
            wish += "_"
        self.taken.add(wish)
        return wish

    def constant(self, value: Any) -> str:
        name = self.name(f"constant_{len(self.constants)}")
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, *inputs: str, name: str = "", domain: str = "", **attributes: Any) -> str:
        """A node with one result; gives its name."""
        result = name or self.name(f"{operator}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(operator, list(inputs), [result], domain=domain, **attributes))
        return result


def column_input(column: NumberColumn | TextColumn) -> ValueInfoProto:
    kind = TensorProto.STRING if isinstance(column, TextColumn) else number_type(column)
    return helper.make_tensor_value_info(column.name, kind, ["rows", 1])


def number_type(column: NumberColumn) -> int:
    """Single precision, unless its rounding would show: large numbers that differ little, such as dates in seconds."""
    largest = max(map(abs, (column.center, *(range_of(column) or ()))))
    rounding = float(np.finfo(np.float32).eps) / 2 * largest
    return TensorProto.DOUBLE if column.scale and rounding > COARSE * column.scale else TensorProto.FLOAT


def prepare_column(graph: GraphParts, column: NumberColumn | TextColumn) -> str:
    """The features of one column, as `Preparation.apply` makes them."""
    return prepare_text(graph, column) if isinstance(column, TextColumn) else prepare_number(graph, column)


def prepare_number(graph: GraphParts, column: NumberColumn) -> str:
    value = graph.add("Cast", column.name, to=TensorProto.DOUBLE)
    gap = graph.add("IsNaN", value)
    absent = gap
    if column.low is not None and column.high is not None:
        absent = graph.add("Or", gap, graph.add("IsInf", value))
        value = graph.add("Clip", value, *(graph.constant(np.float64(end)) for end in (column.low, column.high)))
    value = graph.add("Where", absent, graph.constant(np.float64(column.fill)), value)
    value = graph.add("Sub", value, graph.constant(np.float64(column.center)))
    # A scale of 0 means that nothing was ever known: always 0.
    value = graph.add("Div" if column.scale else "Mul", value, graph.constant(np.float64(column.scale)))
    feature = graph.add("Cast", value, to=TensorProto.FLOAT)
    if not column.indicator:
        return feature
    return graph.add("Concat", feature, graph.add("Cast", gap, to=TensorProto.FLOAT), axis=1)


def prepare_text(graph: GraphParts, column: TextColumn) -> str:
    """The row of a table: one for each category, one for a missing value, one for an unknown category."""
    if MISSING in column.categories:
        raise Refusal(
            f"column {column.name!r} has an empty text among its categories, which ONNX takes for a missing value",
            where="export to ONNX",
            remedy="train with empty texts as missing values",
        )
    many, width = len(column.categories), len(column.features)
    rows = np.zeros((many + 2, width), np.float32)
    rows[np.arange(many), np.arange(many)] = 1
    if column.fill in column.categories:
        rows[many, column.categories.index(column.fill)] = 1
    if column.indicator:
        rows[many, -1] = 1
    code = graph.add(
        "LabelEncoder",
        column.name,
        domain=ML,
        keys_strings=[*column.categories, MISSING],
        values_int64s=list(range(many + 1)),
        default_int64=many + 1,
    )
    flat = graph.add("Reshape", code, graph.constant(np.array([-1], np.int64)))
    return graph.add("Gather", graph.constant(rows), flat, axis=0)


def add_model(graph: GraphParts, model: PlainModel, prepared: str, result: str) -> None:
    """From prepared rows to probabilities, or to values of shape (rows,)."""
    mixed = ""
    for share, network in model.parts:
        found = add_network(graph, network, prepared, model.regression)
        if len(model.parts) > 1:
            found = graph.add("Mul", found, graph.constant(share))
        mixed = graph.add("Add", mixed, found) if mixed else found
    graph.add("Identity", mixed, name=result)


def add_network(graph: GraphParts, network: Network, value: str, regression: bool) -> str:
    if network.shift is not None:
        value = graph.add("Add", value, graph.constant(network.shift[None]))
    for layer in network.convolutions:
        tall, wide = layer.kernel.shape[:2]
        pads = [(tall - 1) // 2, (wide - 1) // 2, tall // 2, wide // 2]
        kernel = graph.constant(np.ascontiguousarray(layer.kernel.transpose(3, 2, 0, 1)))
        value = graph.add("Relu", graph.add("Conv", value, kernel, graph.constant(layer.bias), pads=pads))
        value = graph.add("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    if network.convolutions:
        # Flattened with the channels last, as the dense layer learned it.
        value = graph.add("Flatten", graph.add("Transpose", value, perm=[0, 2, 3, 1]), axis=1)
    for place, layer in enumerate(network.dense):
        value = graph.add("Relu", value) if place else value
        value = graph.add("MatMul", value, graph.constant(layer.kernel))
        value = graph.add("Add", value, graph.constant(layer.bias))
    if regression:
        return graph.add("Reshape", value, graph.constant(np.array([-1], np.int64)))
    return graph.add("Softmax", value, axis=1)


def add_map(graph: GraphParts, predicted: str, found: "RiskMap", positive: int | None, result: str) -> str:
    """What the site's map makes of predictions, in double precision; gives the name of the mapped risk or value."""
    if positive is None:
        value = add_line(graph, graph.add("Cast", predicted, to=TensorProto.DOUBLE), found)
        graph.add("Cast", value, name=result, to=TensorProto.FLOAT)
        return value
    ends = [graph.constant(np.float64(end)) for end in (SURE, 1 - SURE)]
    one = graph.constant(np.float64(1))
    risk = graph.add("Gather", predicted, graph.constant(np.array([positive], np.int64)), axis=1)
    risk = graph.add("Clip", graph.add("Cast", risk, to=TensorProto.DOUBLE), *ends)
    odds = graph.add("Sub", graph.add("Log", risk), graph.add("Log", graph.add("Sub", one, risk)))
    mapped = graph.add("Clip", graph.add("Sigmoid", add_line(graph, odds, found)), *ends)
    pair = [graph.add("Sub", one, mapped), mapped]
    both = graph.add("Concat", *(pair if positive == 1 else reversed(pair)), axis=1)
    graph.add("Cast", both, name=result, to=TensorProto.FLOAT)
    return graph.add("Reshape", mapped, graph.constant(np.array([-1], np.int64)))


def add_line(graph: GraphParts, value: str, found: "RiskMap") -> str:
    value = graph.add("Mul", value, graph.constant(np.float64(found.slope)))
    return graph.add("Add", value, graph.constant(np.float64(found.intercept)))


def add_label(
    graph: GraphParts, chances: str, result: str, classes: Sequence[str], positive: int | None, threshold: Any
) -> None:
    """The likeliest class; of two the positive one from the operating point on, of which `chances` are the risks."""
    names: Rows = np.array(classes, dtype=object)
    if positive is None:
        code = graph.add("ArgMax", chances, axis=1, keepdims=0)
    else:
        flagged = graph.add("GreaterOrEqual", chances, graph.constant(threshold))
        code = graph.add("Where", flagged, *(graph.constant(np.int64(place)) for place in (positive, 1 - positive)))
    graph.add("Gather", graph.constant(names), code, name=result, axis=0)
