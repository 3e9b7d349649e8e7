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
from shootout.models.onnx.onnx_files import every_node

LEAST_IR = 10
"""The last IR version that brought more than types and notes for distributing a model."""
_STANDARD = {"": "", "ai.onnx": "", CLASSICAL_DOMAIN: CLASSICAL_DOMAIN}
"""The domains of operators that ONNX itself describes, under the names that files give them."""
ESTABLISHED_OPSET = 17
"""Every ONNX Runtime that this package runs with knows it."""
RUNTIME_DOMAIN = "com.microsoft"
_AHEAD = 9
"""A runtime knows at most so many versions that the installed `onnx` doesn't know."""


def lower_versions(model: ModelProto, called: str) -> None:
    """Lower a model's IR version, and the opsets that ONNX Runtime doesn't know, if its operators stay the same.

    Args:
        model: a copy, which is changed; weights or not.
        called: the file, as the user does.

    Raises:
        ModelError: ONNX Runtime doesn't know a version that the contents need; says which one it knows.
    """
    model.ir_version = min(model.ir_version, LEAST_IR)
    for domain in (CLASSICAL_DOMAIN, ""):
        opsets = [one for one in _every_opset(model) if _STANDARD.get(one.domain) == domain]
        newest = max((one.version for one in opsets), default=0)
        if newest <= (known := _find_known(domain, newest)):
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
def _find_known(domain: str, opset: int) -> int:
    """Return the newest opset of a domain that ONNX Runtime loads, at most this one."""
    if opset <= ESTABLISHED_OPSET:
        return opset
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "version", ends[:1], ends[1:])
    most = _AHEAD + int(helper.VERSION_TABLE[-1][2 + bool(domain)])
    for version in range(min(opset, most), 0, -1):
        opsets = {"": ESTABLISHED_OPSET, domain: version}
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets.items()])
        model.ir_version = LEAST_IR
        with contextlib.suppress(Exception):  # of the library's own kinds
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return version
    return opset


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
