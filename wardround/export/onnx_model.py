"""A model as an ONNX file with its preparation inside: raw columns in, probabilities and label out.

Opset 17 (ai.onnx.ml 3), which every ONNX runtime since 2022 reads. A model of tables has one input a column; a model of
images takes them as they are, intensities from 0 to 1. An infinite number where no range was fixed gives NaN. The file
is compared with the model on made-up rows before it is handed out.
"""

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation
from wardround.export.network import PlainModel, plain_model, smooth_map
from wardround.export.trial_rows import ROWS, refuse_difference, trial_table
from wardround.predict.predictor import Predictor, Rows
from wardround.predict.table import range_of

if TYPE_CHECKING:
    from wardround.export.tree_graph import TreeModel

OPSET = 17
ML_OPSET = 3
IR_VERSION = 8
IMAGES = "images"
IMAGES_TRIED = 16


def onnx_bytes(predictor: Predictor) -> bytes:
    """The content of the file."""
    refuse_without("onnx", "onnxruntime")
    from wardround.export.tree_graph import is_trees, tree_model

    model = build_model(predictor, tree_model(predictor) if is_trees(predictor) else plain_model(predictor))
    content: bytes = model.SerializeToString()
    compare_with_model(content, predictor)
    return content


def refuse_without(*packages: str) -> None:
    absent = [name for name in packages if find_spec(name) is None]
    if absent:
        raise Refusal(
            f"an ONNX file needs the package {' and '.join(absent)}, which is not installed",
            where="export to ONNX",
            remedy='install the extra: pip install "wardround[export]"',
        )


def build_model(predictor: Predictor, model: "PlainModel | TreeModel") -> Any:
    from onnx import TensorProto, checker, helper

    from wardround.export.onnx_graph import GraphParts, add_label, add_map, add_model, column_input, prepare_column
    from wardround.export.tree_graph import TreeModel, add_trees

    facts = predictor.facts
    task, rows, found = facts.task, ["rows"], smooth_map(predictor)
    prepared = ""
    if isinstance(model, TreeModel):
        graph = GraphParts(column.name for column in model.columns)
        inputs = [column_input(column) for column in model.columns]
    elif facts.preparation is None:
        graph = GraphParts([IMAGES])
        inputs = [helper.make_tensor_value_info(IMAGES, TensorProto.FLOAT, [*rows, *facts.shape])]
        prepared = channels_first(graph, facts.shape) if model.parts[0][1].convolutions else flat_rows(graph)
    else:
        columns = predictor.preparation.columns
        graph = GraphParts(column.name for column in columns)
        inputs = [column_input(column) for column in columns]
        prepared = graph.add("Concat", *(prepare_column(graph, column) for column in columns), axis=1)
    survival = task.kind == "survival"
    result = graph.name("value" if model.regression else "risks" if survival else "probabilities")
    raw = result if found is None and not survival else graph.name("unadapted")
    if isinstance(model, TreeModel):
        add_trees(graph, model, raw)
    else:
        add_model(graph, model, prepared, raw)
    if survival:  # by a horizon: the chances of all intervals up to it, added up
        upto = np.triu(np.ones((len(task.classes), len(task.classes) - 1), np.float32))
        graph.add("MatMul", raw, graph.constant(upto), name=result)
    risk = raw if found is None else add_map(graph, raw, found, predictor.positive, result)
    shape = rows if model.regression else [*rows, len(task.classes) - survival]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)]
    if not model.regression and not survival:
        label = graph.name("label")
        outputs.append(helper.make_tensor_value_info(label, TensorProto.STRING, rows))
        if found is None and predictor.positive is not None:
            risk = graph.add("Gather", result, graph.constant(np.int64(predictor.positive)), axis=1)
        threshold = np.asarray(predictor.threshold, np.float32 if found is None else np.float64)
        add_label(graph, risk, label, task.classes, predictor.positive, threshold)
    built = helper.make_model(
        helper.make_graph(graph.nodes, "model", inputs, outputs, initializer=graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="wardround",
        producer_version=facts.wardround,
    )
    helper.set_model_props(built, metadata(predictor))
    checker.check_model(built, full_check=True)
    return built


def flat_rows(graph: Any) -> str:
    return str(graph.add("Flatten", IMAGES, axis=1))


def channels_first(graph: Any, shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return str(graph.add("Unsqueeze", IMAGES, graph.constant(np.array([1], np.int64))))
    return str(graph.add("Transpose", IMAGES, perm=[0, 3, 1, 2]))


def metadata(predictor: Predictor) -> dict[str, str]:
    """What a reader must know beside the graph; lists and tables as JSON."""
    facts = predictor.facts
    told: dict[str, Any] = {
        "wardround": facts.wardround,
        "study": facts.study,
        "method": facts.method,
        "site": predictor.site or "",
        "target": facts.task.target,
        "classes": list(facts.task.classes),
        **({"horizons": list(facts.task.horizons)} if facts.task.horizons else {}),
        "positive": facts.task.positive or "",
        "threshold": None if predictor.positive is None else predictor.threshold,
        "columns": [] if facts.preparation is None else describe_columns(predictor.preparation, facts.units),
        "digest": facts.digest,
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in told.items()}


def describe_columns(preparation: Preparation, units: dict[str, str]) -> list[dict[str, Any]]:
    """Every input: a number with its unit and the range of training, or a category with those that training knew."""
    return [
        {"name": column.name, "kind": "number", "unit": units.get(column.name, ""), "range": range_of(column)}
        if isinstance(column, NumberColumn)
        else {"name": column.name, "kind": "category", "categories": list(column.categories)}
        for column in preparation.columns
    ]


def compare_with_model(content: bytes, predictor: Predictor) -> None:
    if predictor.facts.preparation is None:
        x = np.random.default_rng(0).random((IMAGES_TRIED, *predictor.facts.shape), np.float32)
        refuse_difference(
            run_onnx(content, {IMAGES: x})[0], as_given(predictor, predictor.predict_prepared(x)), "ONNX file"
        )
        return
    table = trial_table(predictor.preparation, ROWS)
    found = run_onnx(content, onnx_inputs(predictor.preparation, table))[0]
    refuse_difference(found, as_given(predictor, predictor.predict(table)), "ONNX file")


def as_given(predictor: Predictor, predicted: Rows) -> Rows:
    """Predictions as the file gives them: of survival the risk by each horizon."""
    return np.cumsum(predicted[:, :-1], axis=1) if predictor.facts.task.kind == "survival" else predicted


def onnx_inputs(preparation: Preparation, frame: pd.DataFrame) -> dict[str, Rows]:
    """The columns of a table as the file takes them: NaN and the empty text are missing values."""
    from onnx import TensorProto

    from wardround.export.onnx_graph import MISSING, number_type
    from wardround.queries.columns import as_numbers, as_text

    found: dict[str, Rows] = {}
    for column in preparation.columns:
        series = frame[column.name]
        if isinstance(column, NumberColumn):
            kind = np.float64 if number_type(column) == TensorProto.DOUBLE else np.float32
            found[column.name] = as_numbers(series).astype(kind)[:, None]
        else:
            values = as_text(series)
            values[pd.isna(values)] = MISSING
            found[column.name] = values[:, None]
    return found


def run_onnx(content: bytes, inputs: dict[str, Rows]) -> list[Rows]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    results: list[Rows] = session.run(None, inputs)
    return results
