"""A classifier that came from a site, ready to score this site's patients: checked, matched with the study, loaded."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.classifiers.onnx_check import check_file, check_rows, needed_part
from wardround.core.errors import Refusal
from wardround.queries.columns import as_numbers, as_text, kind_of, suggest_name

Values = np.ndarray[Any, Any]
BLOCK = 20_000
AT_ONCE = 8_000_000
"""Numbers of the widest tensor that are computed at a time: 32 MB, whatever the file says."""
TRIED = 8
FLOAT, STRING, DOUBLE, INT64, BOOL = 1, 8, 11, 7, 9
"""Types of ONNX tensors."""
NUMBERS = {FLOAT: np.float32, DOUBLE: np.float64, INT64: np.int64, BOOL: np.bool_}


class AskedTask(NamedTuple):
    """What the study predicts, and from which columns ("number" or "category")."""

    target: str
    classes: tuple[str, ...]
    positive: str
    columns: Mapping[str, str]


class LoadedClassifier(NamedTuple):
    """One site's classifier; `thresholds` are those that its own site chose, by operating point."""

    source: str
    session: Any
    inputs: tuple[tuple[str, int], ...]
    matrix: tuple[str, ...]
    """Columns of its one input, where it takes all numbers as one matrix."""
    output: str
    positive: int
    thresholds: Mapping[str, float]
    kind: str
    width: int = 1
    """Numbers a row of its widest tensor."""

    def scores(self, frame: pd.DataFrame) -> Values:
        """The probability of the positive class for every row, in double precision."""
        block = max(1, min(BLOCK, AT_ONCE // self.width))
        found = [self._scores(frame.iloc[first : first + block]) for first in range(0, len(frame), block)]
        return np.concatenate(found) if found else np.zeros(0)

    def _scores(self, frame: pd.DataFrame) -> Values:
        if self.matrix:
            values = np.stack([as_numbers(frame[name]) for name in self.matrix], axis=1)
            given: dict[str, Values] = {self.inputs[0][0]: values.astype(NUMBERS[self.inputs[0][1]])}
        else:
            given = {name: _column(frame[name], kind) for name, kind in self.inputs}
        try:
            result = np.asarray(self.session.run([self.output], given)[0], np.float64)
        except Exception as error:
            raise Refusal(
                f"the classifier cannot be computed ({str(error).splitlines()[0][:120]})",
                where=f"classifier of {self.source}",
                remedy="ask the site for another one; the others go on without it",
            ) from None
        if result.ndim != 2 or len(result) != len(frame) or result.shape[1] <= self.positive:
            raise Refusal(
                f"the classifier gives an array of shape {result.shape} for {len(frame)} patients",
                where=f"classifier of {self.source}",
                remedy="ask the site for another one; the others go on without it",
            )
        return result[:, self.positive]


def _column(series: "pd.Series[Any]", kind: int) -> Values:
    if kind == STRING:
        words = as_text(series)
        words[pd.isna(words)] = ""
        return words[:, None]
    return as_numbers(series).astype(NUMBERS[kind])[:, None]


def load_classifier(content: bytes, asked: AskedTask, *, source: str) -> LoadedClassifier:
    """Check a file, compare it with what the study asks, and try it on a few made-up rows."""
    where = f"classifier of {source}"
    model = check_file(content, where=where)
    told = _metadata(model, where)
    if told.get("target", asked.target) != asked.target:
        raise Refusal(
            f"the classifier predicts {told['target']!r}, and the study asks for {asked.target!r}",
            where=where,
            remedy="send one that was trained for this study",
        )
    classes = tuple(str(one) for one in told.get("classes", asked.classes))
    if set(classes) != set(asked.classes):
        raise Refusal(
            f"the classifier knows the outcomes {', '.join(classes)}, and the study {', '.join(asked.classes)}",
            where=where,
            remedy="send one that was trained on the study's outcomes",
        )
    inputs = tuple((one.name, int(one.type.tensor_type.elem_type)) for one in _fed(model))
    matrix = _matrix(model, inputs, told, asked, where)
    if not matrix:
        _check_columns(inputs, asked, where)
    output = _output(model, len(classes), where)
    needed = needed_part(model, output)
    loaded = LoadedClassifier(
        source=source,
        session=_session(needed.SerializeToString(), where),
        inputs=inputs,
        matrix=matrix,
        output=output,
        positive=classes.index(asked.positive),
        thresholds=_thresholds(told, where),
        kind=str(told.get("kind", "own file")),
        width=check_rows(needed, where),
    )
    _try(loaded, asked, where)
    return loaded


def _fed(model: Any) -> list[Any]:
    constants = {one.name for one in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in constants]


def _metadata(model: Any, where: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for one in model.metadata_props:
        if one.key in ("classes", "columns", "thresholds"):
            try:
                told[one.key] = json.loads(one.value)
            except (ValueError, RecursionError):
                raise Refusal(
                    f"the classifier's metadata '{one.key}' cannot be read", where=where, remedy="write the file again"
                ) from None
        elif one.key in ("target", "positive", "kind", "format"):
            told[one.key] = one.value
    if not isinstance(told.get("classes", []), list):
        raise Refusal("the classifier's metadata 'classes' is no list", where=where, remedy="write the file again")
    return told


def _thresholds(told: Mapping[str, Any], where: str) -> dict[str, float]:
    found = told.get("thresholds", {})
    good = isinstance(found, dict) and all(isinstance(one, int | float) and 0 <= one <= 1 for one in found.values())
    if not good:
        raise Refusal("the classifier's thresholds are no shares", where=where, remedy="write the file again")
    return {str(name): float(value) for name, value in found.items()}


def _matrix(
    model: Any, inputs: Sequence[tuple[str, int]], told: Mapping[str, Any], asked: AskedTask, where: str
) -> tuple[str, ...]:
    """The names behind one wide input, as scikit-learn models without a preparation of their own have it."""
    if len(inputs) != 1 or inputs[0][0] in asked.columns:
        return ()
    dims = _fed(model)[0].type.tensor_type.shape.dim
    width = dims[1].dim_value if len(dims) == 2 else 0
    named = told.get("columns", [])
    names = [str(one.get("name") if isinstance(one, dict) else one) for one in named] if isinstance(named, list) else []
    if len(names) != width or not names:
        raise Refusal(
            "the classifier takes one matrix, and its metadata 'columns' do not say which columns that is",
            where=where,
            remedy="write their names, in order, into the metadata 'columns' as a JSON list",
        )
    for name in names:
        _check_column(name, asked, where)
        if asked.columns[name] != "number":
            raise Refusal(
                f"the classifier takes the words of {name!r} as numbers",
                where=where,
                remedy="give it an input of texts",
            )
    return tuple(names)


def _check_columns(inputs: Sequence[tuple[str, int]], asked: AskedTask, where: str) -> None:
    for name, kind in inputs:
        _check_column(name, asked, where)
        wanted = "category" if kind == STRING else "number"
        if asked.columns[name] != wanted or (kind != STRING and kind not in NUMBERS):
            raise Refusal(
                f"the classifier takes {name!r} as a {wanted}, and in the study it is a {asked.columns[name]}",
                where=where,
                remedy="train it on the study's columns",
            )


def _check_column(name: str, asked: AskedTask, where: str) -> None:
    if name not in asked.columns:
        raise Refusal(
            f"the classifier needs the column {name!r}, which the study does not have; "
            f"{suggest_name(name, asked.columns)}",
            where=where,
            remedy="send one that was trained on the study's columns",
        )


def _output(model: Any, classes: int, where: str) -> str:
    for one in model.graph.output:
        tensor = one.type.tensor_type
        dims = tensor.shape.dim
        if tensor.elem_type in (FLOAT, DOUBLE) and len(dims) == 2 and dims[1].dim_value in (0, classes):
            return str(one.name)
    raise Refusal(
        f"the classifier gives no probabilities of {classes} classes",
        where=where,
        remedy="write it with an output of shape (rows, classes); with skl2onnx by the option zipmap=False",
    )


def _session(content: bytes, where: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refusal(
            f"the classifier cannot be loaded ({str(error).splitlines()[0][:120]})",
            where=where,
            remedy="write it again",
        ) from None


def _try(loaded: LoadedClassifier, asked: AskedTask, where: str) -> None:
    """A few rows of 0, 1, ... and one of missing values: shares that add up, or it is no classifier."""
    frame = pd.DataFrame(
        {
            name: [*map(float, range(TRIED - 1)), np.nan]
            if kind == "number"
            else np.array(["", *map(str, range(TRIED - 1))], dtype=object)
            for name, kind in asked.columns.items()
        }
    )
    scores = loaded.scores(frame)
    if scores.shape != (TRIED,) or not np.all((scores[:-1] >= -1e-6) & (scores[:-1] <= 1 + 1e-6)):
        raise Refusal(
            "the classifier gives no probabilities between 0 and 1",
            where=where,
            remedy="write probabilities, not scores, as its output",
        )


def kind_for_exchange(series: "pd.Series[Any]") -> str:
    """Whether a column is of numbers or of categories, as classifiers are told."""
    return "number" if kind_of(series) in ("number", "flag", "empty") else "category"
