"""Checks a classifier file from another site before anything of it runs: bytes, operators, shapes.

A file is data from a stranger. It is parsed as a protocol buffer and never run before it passed: its size, the
versions of its operator sets, every operator on the allow-list, no graph inside a node, no function of its own, no data
in other files, sizes of all tensors known and small. Pickle and other formats that run what they read are never opened.
"""

from typing import Any

from wardround.classifiers.operators import ALLOWED, HOLDS_PATIENTS, OPSETS, REPEATS
from wardround.core.errors import Refusal

MOST_BYTES = 64 * 2**20
MOST_NODES = 5_000
MOST_CONSTANTS = 10_000
WIDEST = 100_000
"""Numbers a row at most in any tensor on the way."""
ROWS = "rows"


def check_file(content: bytes, *, where: str) -> Any:
    """The parsed model; refused, in one paragraph, where it is not one that may run."""
    import onnx
    from google.protobuf.message import DecodeError

    refuse_large(len(content), where)
    try:
        model = onnx.load_model_from_string(content)
    except (DecodeError, ValueError, RuntimeError):
        raise _refusal(
            "is no ONNX file", where, "send the .onnx file that the site's classifier was written to"
        ) from None
    if not model.graph.node:
        raise _refusal("is no ONNX file", where, "send the .onnx file that the site's classifier was written to")
    _check_versions(model, where)
    _check_nodes(model, where)
    _check_constants(model, where)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise _refusal(
            f"is no valid ONNX model ({str(error).splitlines()[0][:100]})", where, "write it again"
        ) from None
    _check_shapes(model, where)
    return model


def refuse_large(size: int, where: str) -> None:
    """Before the file is read into memory."""
    if size > MOST_BYTES:
        raise _refusal(
            f"has {size / 2**20:,.0f} MB, and at most {MOST_BYTES // 2**20} MB are read",
            where,
            "send a smaller classifier: fewer or less deep trees",
        )


def _refusal(what: str, where: str, remedy: str) -> Refusal:
    return Refusal(f"the classifier {what}", where=where, remedy=remedy)


def _check_versions(model: Any, where: str) -> None:
    for one in model.opset_import:
        domain = "" if one.domain == "ai.onnx" else one.domain
        if domain not in OPSETS:
            raise _refusal(
                f"uses operators of '{one.domain}', which are not known", where, "use standard operators only"
            )
        if one.version not in OPSETS[domain]:
            known = OPSETS[domain]
            raise _refusal(
                f"uses version {one.version} of the operators '{domain or 'ai.onnx'}'",
                where,
                f"write it for a version from {known[0]} to {known[-1]}",
            )
    if len(model.functions) or len(model.training_info):
        raise _refusal("brings functions of its own", where, "write it with standard operators only")


def _check_nodes(model: Any, where: str) -> None:
    from onnx import AttributeProto

    graphs = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
    if len(model.graph.node) > MOST_NODES:
        raise _refusal(f"has more than {MOST_NODES:,} operators", where, "send a smaller classifier")
    for node in model.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if node.op_type in HOLDS_PATIENTS:
            raise _refusal(
                f"is a support vector machine with a kernel ({node.op_type}), whose file holds rows of its patients",
                where,
                "choose another kind, such as a linear one; do not send this file",
            )
        if node.op_type in REPEATS or any(one.type in graphs for one in node.attribute):
            raise _refusal(f"holds a loop or a branch ({node.op_type})", where, "use classifiers without")
        if node.op_type not in ALLOWED.get(domain, frozenset()):
            name = f"{domain}.{node.op_type}" if domain else node.op_type
            raise _refusal(f"uses the operator {name}, which is not allowed", where, "write it without this operator")


def _check_constants(model: Any, where: str) -> None:
    from onnx import TensorProto

    tensors = [*model.graph.initializer]
    for node in model.graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t] if attribute.HasField("t") else []
            tensors += attribute.tensors
            if attribute.HasField("sparse_tensor") or len(attribute.sparse_tensors):
                raise _refusal("holds sparse tensors", where, "write it with dense ones")
    if len(model.graph.sparse_initializer):
        raise _refusal("holds sparse tensors", where, "write it with dense ones")
    if len(tensors) > MOST_CONSTANTS:
        raise _refusal(f"has more than {MOST_CONSTANTS:,} constants", where, "send a smaller classifier")
    for tensor in tensors:
        if tensor.data_location == TensorProto.EXTERNAL or len(tensor.external_data):
            raise _refusal("keeps data in another file", where, "write it as one file")
        if _size(tensor.dims) > MOST_BYTES:
            raise _refusal("declares a constant larger than any file that is read", where, "send a smaller classifier")


def _size(dims: Any) -> int:
    total = 1
    for one in dims:
        if one < 0:
            return MOST_BYTES + 1
        total *= int(one)
    return total


def _check_shapes(model: Any, where: str) -> None:
    """Every tensor's width is known and small; only the number of rows is open."""
    import onnx

    try:
        known = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    except Exception as error:
        reason = str(error).splitlines()[0][:100]
        raise _refusal(f"has tensors whose shapes do not fit ({reason})", where, "write it again") from None
    for value in (*known.input, *known.value_info, *known.output):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            raise _refusal(
                f"gives '{value.name}' in another form than a tensor", where, "write it with the option zipmap=False"
            )
        dims = [one.dim_value for one in tensor.shape.dim if one.HasField("dim_value")]
        if _size(dims) > WIDEST:
            raise _refusal(
                f"makes a tensor of {_size(dims):,} numbers ('{value.name}')", where, f"at most {WIDEST:,} are allowed"
            )


def needed_part(model: Any, output: str) -> Any:
    """The same model with nothing but what one output is computed from: only that runs."""
    import onnx

    wanted, kept = {output}, []
    for node in reversed(model.graph.node):  # in the order in which they are computed
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(node.input)
    part = onnx.ModelProto()
    part.CopyFrom(model)
    for name, values in (
        ("node", list(reversed(kept))),
        ("initializer", [one for one in model.graph.initializer if one.name in wanted]),
        ("output", [one for one in model.graph.output if one.name == output]),
        ("value_info", []),
    ):
        part.graph.ClearField(name)
        getattr(part.graph, name).extend(values)
    return part


def check_rows(model: Any, where: str) -> int:
    """Refuse what does not compute every row by itself; gives the numbers a row of the widest tensor.

    Rows times rows would grow without end, and one patient's risk would depend on who else is asked about.
    """
    import onnx

    constants = {one.name: _size(one.dims) for one in model.graph.initializer}
    told = onnx.ModelProto()
    told.CopyFrom(model)
    for node in model.graph.node:
        if node.op_type == "ArrayFeatureExtractor":
            if node.input[1] not in constants:
                raise _refusal("picks columns by what it computed", where, "pick columns by constants")
            kind, shape = onnx.TensorProto.FLOAT, [ROWS, constants[node.input[1]]]
            told.graph.value_info.append(onnx.helper.make_tensor_value_info(node.output[0], kind, shape))
    known = onnx.shape_inference.infer_shapes(told).graph
    tensors = {value.name: value.type.tensor_type for value in (*known.input, *known.value_info, *known.output)}
    widest = 1
    for name in dict.fromkeys(one for node in model.graph.node for one in node.output if one):
        tensor = tensors.get(name)
        if tensor is None or not tensor.HasField("shape"):
            raise _refusal(f"makes a tensor of unknown shape ('{name}')", where, "write it again")
        if any(not one.HasField("dim_value") for one in tensor.shape.dim[1:]):
            raise _refusal(
                f"makes a tensor whose width grows with the number of patients ('{name}')",
                where,
                "compute every row by itself",
            )
        widest = max(widest, _size([one.dim_value for one in tensor.shape.dim if one.HasField("dim_value")]))
    return widest
