"""A site's classifier as a file: its own preparation, then the fitted scikit-learn model, as one ONNX graph.

Inputs are the raw columns, one each; the output is the probability of each class. What a reader must know beside the
graph (target, classes, thresholds of operating points) is in the file's metadata. Compared with the model before it is
handed out.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation, TextColumn
from wardround.export.onnx_model import IR_VERSION, ML_OPSET, OPSET, onnx_inputs, refuse_without, run_onnx
from wardround.export.trial_rows import ROWS, trial_table

FORMAT = "wardround classifier 1"
CLOSE = 1e-4
"""How far the file's probabilities may be from the model's: single against double precision."""


def classifier_bytes(
    model: Any,
    preparation: Preparation,
    *,
    target: str,
    classes: Sequence[str],
    positive: str,
    kind: str,
    thresholds: Mapping[str, float],
) -> bytes:
    """The file of a fitted scikit-learn classifier of two classes, 1 being the positive one."""
    refuse_without("onnx", "onnxruntime", "skl2onnx")
    from onnx import TensorProto, checker, helper

    from wardround.export.onnx_graph import GraphParts, column_input, prepare_column

    columns = preparation.columns
    graph = GraphParts(column.name for column in columns)
    prepared = graph.add("Concat", *(prepare_column(graph, column) for column in columns), axis=1)
    result = graph.name("probabilities")
    inner = _converted(model, len(preparation.features))
    names = {inner.graph.input[0].name: prepared, inner.graph.output[1].name: result}

    def renamed(name: str) -> str:
        if name and name not in names:
            names[name] = graph.name(f"model_{name}")
        return names.get(name, name)

    constants = list(graph.constants)
    for tensor in inner.graph.initializer:
        tensor.name = renamed(tensor.name)
        constants.append(tensor)
    nodes = list(graph.nodes)
    for node in inner.graph.node:
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
        node.name = ""
        nodes.append(node)
    built = helper.make_model(
        helper.make_graph(
            nodes,
            "classifier",
            [column_input(column) for column in columns],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["rows", 2])],
            initializer=constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="wardround",
    )
    told = metadata_of(preparation, target=target, classes=classes, positive=positive, kind=kind, thresholds=thresholds)
    helper.set_model_props(built, told)
    checker.check_model(built)
    content: bytes = built.SerializeToString()
    _compare(content, result, model, preparation)
    return content


def _converted(model: Any, width: int) -> Any:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    try:
        return convert_sklearn(
            model,
            initial_types=[("x", FloatTensorType([None, width]))],
            target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
            options={"zipmap": False, "output_class_labels": False},
        )
    except Exception as error:
        raise Refusal(
            f"a classifier of the kind {type(model).__name__} cannot be written as ONNX",
            where=str(error).splitlines()[0][:120],
            remedy="choose another kind, such as gradient_boosting",
        ) from None


def metadata_of(
    preparation: Preparation,
    *,
    target: str,
    classes: Sequence[str],
    positive: str,
    kind: str,
    thresholds: Mapping[str, float],
) -> dict[str, str]:
    """What a reader must know beside the graph; lists and tables as JSON."""
    columns = [
        {"name": one.name, "kind": "category" if isinstance(one, TextColumn) else "number"}
        for one in preparation.columns
    ]
    told: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "target": target,
        "classes": list(classes),
        "positive": positive,
        "columns": columns,
        "thresholds": dict(thresholds),
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in told.items()}


def with_thresholds(content: bytes, thresholds: Mapping[str, float]) -> bytes:
    """The same file with the thresholds of its operating points, which are chosen after it was trained."""
    import onnx

    model = onnx.load_model_from_string(content)
    kept = {one.key: one.value for one in model.metadata_props} | {"thresholds": json.dumps(dict(thresholds))}
    onnx.helper.set_model_props(model, kept)
    told: bytes = model.SerializeToString()
    return told


def _compare(content: bytes, result: str, model: Any, preparation: Preparation) -> None:
    table: pd.DataFrame = trial_table(preparation, ROWS)
    found = run_onnx(content, onnx_inputs(preparation, table))[0]
    wanted = model.predict_proba(preparation.apply(table))
    if not np.allclose(found, wanted, atol=CLOSE):
        raise Refusal(
            f"the ONNX file and the model differ by up to {np.abs(found - wanted).max():.2g}",
            where=type(model).__name__,
            remedy="choose another kind of classifier",
        )
