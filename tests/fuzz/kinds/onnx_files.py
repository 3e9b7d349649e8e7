"""ONNX files: real bytes with edits, and graphs that are well-formed messages and make no sense."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from onnx import ModelProto, TensorProto, helper, numpy_helper

from shootout.export import client
from shootout.export.client import Request
from shootout.export.request import check_sizes, input_texts
from shootout.exported import onnx_files
from shootout.study.look import look_at
from tests.fuzz.edits import NASTY_NUMBERS, NASTY_TEXT, edited_bytes, places

BIG = np.arange(1500, dtype=np.float32).reshape(4, 375)


def _value(name: str, *shape: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


@cache
def _models() -> tuple[ModelProto, ...]:
    weight = numpy_helper.from_array(BIG, "w")
    linear = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"], name="act")],
        "g",
        [_value("x", "batch", 4)],
        [_value("y", "batch", 375)],
        [weight],
    )
    branch = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "b", [], [_value("z", 1, 3, None, None)])
    conv = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["c"], kernel_shape=[3, 3]),
            helper.make_node("If", ["t"], ["y"], then_branch=branch, else_branch=branch),
        ],
        "g",
        [_value("x", "batch", 3, None, "w"), helper.make_tensor_value_info("t", TensorProto.BOOL, [])],
        [_value("y", 1, 3, None, None), _value("c", 1, 2, None, None)],
        [numpy_helper.from_array(np.zeros((2, 3, 3, 3), np.float32), "k")],
    )
    scales = [numpy_helper.from_array(np.array(v, t), n) for v, t, n in ((0.1, np.float32, "s"), (3, np.uint8, "p"))]
    quantized = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "p"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "p"], ["y"]),
        ],
        "g",
        [_value("x", "N", 8)],
        [_value("y", "N", 8)],
        scales,
    )
    found = [
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]) for graph in (linear, conv, quantized)
    ]
    beside = ModelProto()
    beside.CopyFrom(found[0])
    tensor = beside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "model.onnx.data"), ("offset", "0"), ("length", str(BIG.nbytes))):
        tensor.external_data.add(key=key, value=text)
    return (*found, beside)


@st.composite
def _messages(draw: st.DrawFn) -> bytes:
    """A model with up to four of its fields changed, dropped or doubled."""
    model = ModelProto()
    model.CopyFrom(draw(st.sampled_from(_models())))
    for _ in range(draw(st.integers(1, 4))):
        parts = list(_parts(model))
        part = parts[draw(places) % len(parts)]
        named = part.DESCRIPTOR.fields
        field = named[draw(places) % len(named)]
        how = draw(st.integers(0, 3))
        try:
            _change(draw, part, field, how)
        except (ValueError, TypeError, UnicodeError):
            continue
    return model.SerializeToString()


def _change(draw: st.DrawFn, part: Message, field: object, how: int) -> None:
    name, many = field.name, field.is_repeated if hasattr(field, "is_repeated") else field.label == 3  # type: ignore[attr-defined]
    if how == 0:
        part.ClearField(name)
    elif field.message_type is not None:  # type: ignore[attr-defined]
        if many:
            there = getattr(part, name)
            there.add().CopyFrom(there[0]) if there else there.add()
        else:
            getattr(part, name).SetInParent()
    else:
        value = draw(st.sampled_from(_values_for(field)))
        if many:
            getattr(part, name).append(value)
        else:
            setattr(part, name, value)


def _values_for(field: object) -> list[object]:
    if field.type == 9:  # type: ignore[attr-defined]
        words = (
            "x",
            "w",
            "y",
            "batch",
            "location",
            "offset",
            "length",
            "Loop",
            "Scan",
            "../x",
            "/dev/zero",
            "Gemm",
            "h",
        )
        return [*words, *(one for one in NASTY_TEXT if "\ud800" not in one)]
    if field.type == 12:  # type: ignore[attr-defined]
        return [b"", b"x", b"\xff\xfe", b"0" * 40, "é".encode()]
    if field.type in (1, 2):  # type: ignore[attr-defined]
        return [one for one in NASTY_NUMBERS if isinstance(one, float)]
    return [0, 1, 2, 3, 6, 7, 9, 10, 16, 20, 23, -1, 2**31 - 1, 2**63 - 1, -(2**63), 4, 5]


def _parts(message: Message) -> list[Message]:
    found = [message]
    for _, value in message.ListFields():
        inner = list(value) if hasattr(value, "__iter__") and not isinstance(value, str | bytes) else [value]
        found += [part for one in inner if isinstance(one, Message) for part in _parts(one)]
    return found


def inputs() -> SearchStrategy[bytes]:
    wholes = [model.SerializeToString() for model in _models()]
    return st.one_of(edited_bytes(wholes), _messages(), _messages())


def read(data: bytes, folder: Path) -> None:
    """As a run's plan and its dry run read it, in the parent; the rest is read in the export's own process."""
    file = folder / "model.onnx"
    file.write_bytes(data)
    (folder / "model.onnx.data").write_bytes(BIG.tobytes())
    onnx_files.header.__globals__["_header"].cache_clear()
    head = onnx_files.header(file)
    free = [
        dim.dim_param or f"{one.name}.{at}"
        for one in head.graph.input
        for at, dim in enumerate(_dims(one))
        if not dim.dim_value
    ]
    request = Request(model=str(file), parameters=dict.fromkeys(free[1:], 8), batch=2)
    check_sizes(request)
    input_texts(str(file))
    client.check(request)
    found = look_at(request)
    told = [*(one.text for one in found.inputs), *(one.filled for one in found.inputs), *found.notes]
    assert all(isinstance(one, str) for one in (*told, *found.operators)), told
    onnx_files.parameter_count(head)


def _dims(info: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    return list(info.type.tensor_type.shape.dim)
