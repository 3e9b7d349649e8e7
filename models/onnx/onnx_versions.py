"""Make a copy of an ONNX file one that more runtimes read: older versions, and no functions of its own.

`onnx` stamps its newest IR version and opset on what it writes, and runtimes refuse numbers that are newer than they.
Most files hold nothing that is new in these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache

from onnx import ModelProto, OperatorSetIdProto, TensorProto, defs, helper, inliner

from shootout.core.errors import ModelError
from shootout.models.onnx import CLASSICAL_DOMAIN
from shootout.models.onnx.onnx_files import every_node, tensors

LEAST_IR = 10
"""The last IR version that brought more than types and notes for distributing a model."""
_IR_OF = {"FLOAT4E2M1": 11, "FLOAT8E8M0": 12, "UINT2": 13, "INT2": 13, "FLOAT6E2M3": 14, "FLOAT6E3M2": 14}
"""By type: the IR version that brought it."""
_STANDARD = {"": "", "ai.onnx": "", CLASSICAL_DOMAIN: CLASSICAL_DOMAIN}
"""The domains of operators that ONNX itself describes, under the names that files give them."""
ESTABLISHED_OPSET = 17
"""Every ONNX Runtime that this package runs with knows it."""
RUNTIME_DOMAIN = "com.microsoft"
_AHEAD = 9
"""A runtime knows at most so many versions that the installed `onnx` doesn't know."""


def lower_versions(model: ModelProto, called: str) -> None:
    """Lower a model's IR version, and the opsets that ONNX Runtime doesn't know, if its contents stay the same.

    Args:
        model: a copy, which is changed; weights or not.
        called: the file, as the user does.

    Raises:
        ModelError: ONNX Runtime doesn't know a version that the contents need; says which one it knows.
    """
    if model.ir_version > LEAST_IR:
        model.ir_version = min(model.ir_version, _find_needed_ir(model))
    if model.ir_version > LEAST_IR and model.ir_version > (known := _find_known("", 0, model.ir_version)):
        needed = f"{called} has types of IR version {model.ir_version}"
        raise ModelError(f"{needed}; {_tell_known(known)}: export it without these types")
    for domain in (CLASSICAL_DOMAIN, ""):
        opsets = [one for one in _every_opset(model) if _STANDARD.get(one.domain) == domain]
        newest = max((one.version for one in opsets), default=0)
        if newest <= (known := _find_known(domain, newest, LEAST_IR)):
            continue
        if (new := _find_new_operator(model, domain, newest, known)) is not None:
            name = f"opset {newest}{f' of {domain}' if domain else ''}{new}"
            fix = f"target_opset={ {domain: known} }" if domain else f"opset_version={known}"
            raise ModelError(f"{called} has {name}; {_tell_known(known)}: export it again with {fix}")
        for one in opsets:
            one.version = min(one.version, known)


def inline_functions(model: ModelProto) -> None:
    """Put the nodes of a model's own functions where they are called: OpenVINO and quantizers look into none.

    Operators of ONNX Runtime's domain stay, since it may have a faster kernel than the function.
    """
    own = [(one.domain, one.name) for one in model.functions if one.domain != RUNTIME_DOMAIN]
    if own:
        with contextlib.suppress(Exception):  # functions that contradict each other: ONNX Runtime says how
            model.CopyFrom(inliner.inline_selected_functions(model, own))


def _tell_known(known: int) -> str:
    import onnxruntime

    return f"the newest that ONNX Runtime {onnxruntime.__version__} knows is {known}"


def _every_opset(model: ModelProto) -> Iterator[OperatorSetIdProto]:
    yield from model.opset_import
    for function in model.functions:
        yield from function.opset_import


@lru_cache(maxsize=32)
def _find_known(domain: str, opset: int, ir_version: int) -> int:
    """Return the newest opset of a domain that ONNX Runtime loads, at most this one; without one, the IR version."""
    if opset <= ESTABLISHED_OPSET and ir_version <= LEAST_IR:
        return opset
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "version",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    newest = opset or ir_version
    _, ir, *described = helper.VERSION_TABLE[-1][:4]
    most = _AHEAD + int(described[bool(domain)] if opset else ir)
    for version in range(min(newest, most), 0, -1):
        opsets = {"": ESTABLISHED_OPSET, **({domain: version} if opset else {})}
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets.items()])
        model.ir_version = ir_version if opset else version
        with contextlib.suppress(Exception):  # of the library's own kinds
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return version
    return newest


def _find_needed_ir(model: ModelProto) -> int:
    """Return the least IR version that has all types of the model; the model's own if a type is unknown."""
    names = {number: name for name, number in TensorProto.DataType.items()}
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    found = {info.type.tensor_type.elem_type for info in infos} | {tensor.data_type for tensor in tensors(model)}
    found |= {
        attribute.i
        for node in every_node(model)
        for attribute in node.attribute
        if attribute.name in ("to", "dtype", "output_dtype")
    }
    if found - names.keys():
        return model.ir_version
    return max([LEAST_IR, *(_IR_OF.get(names[one], 0) for one in found)])


def _find_new_operator(model: ModelProto, domain: str, newest: int, known: int) -> str | None:
    """Say which operator of an opset isn't that of an older one; None if there is none, "" if nothing is known."""
    described = int(helper.VERSION_TABLE[-1][2 + bool(domain)])
    if newest > described:
        return ""
    used = {node.op_type for node in every_node(model) if _STANDARD.get(node.domain) == domain}
    new = next((one for one in sorted(used) if not _is_same(one, domain, newest, known)), None)
    return None if new is None else f", and its {new} changed since opset {known}"


def _is_same(operator: str, domain: str, newest: int, known: int) -> bool:
    """Return whether an operator means the same in two opsets, types apart: a runtime refuses types that it lacks."""
    try:
        schemas = [defs.get_schema(operator, version, domain) for version in (newest, known)]
    except defs.SchemaError:  # unknown in one of them, or a function of the model's own
        return False
    later, earlier = (
        (
            one.doc,
            [(parameter.name, parameter.option) for parameter in (*one.inputs, *one.outputs)],
            {name: (own.type, own.required, str(own.default_value)) for name, own in one.attributes.items()},
        )
        for one in schemas
    )
    return schemas[0].since_version == schemas[1].since_version or later == earlier
