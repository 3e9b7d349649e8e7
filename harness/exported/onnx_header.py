"""An ONNX file without its weights: what it asks for and computes, in milliseconds, however large the file.

Protobuf's own parser reads all of a message into memory. So the file is mapped, and what tensors hold is stepped over
before anything is parsed.
"""

from __future__ import annotations

import mmap
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import category

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from shootout.errors import ModelError, UsageError

KEPT_BYTES = 1 << 12
"""Shapes, thresholds and normalisations are smaller, weights that matter for time are larger."""
_DATA = frozenset("raw_data float_data int32_data int64_data double_data uint64_data string_data".split())  # noqa: SIM905
_COMMENTS = frozenset(
    "doc_string metadata_props external_data quantization_annotation producer_name producer_version".split()  # noqa: SIM905
)
"""Fields that nobody here shows or looks anything up by, or whose words are checked where they are read."""
_SHOWN = frozenset(
    f"onnx.{name}"
    for name in (
        "NodeProto.op_type",
        "NodeProto.domain",
        "OperatorSetIdProto.domain",
        "ValueInfoProto.name",
        "TensorShapeProto.Dimension.dim_param",
    )
)
"""Names that people get to read."""
_STEERING = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode's categories of controls, halves of pairs, and ends of lines and paragraphs."""
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Which turn around the order in which a text is shown."""
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
"""Protobuf's wire types, https://protobuf.dev/programming-guides/encoding/."""


def header(path: Path) -> ModelProto:
    """The model without the contents of its larger tensors, kept for the next who asks: not to be changed.

    Raises:
        UsageError: `path` can't be read.
        ModelError: it is not an ONNX model.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, a device has no end
            raise UsageError(f"{path} is no ordinary file")
        return _header(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error


@lru_cache(maxsize=8)
def _header(path: Path, _mtime_ns: int, _size: int) -> ModelProto:
    model = ModelProto()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model.ParseFromString(bytes(_without_data(data, 0, len(data), ModelProto.DESCRIPTOR)))
    except (DecodeError, ValueError, RecursionError) as error:  # an empty file can't be mapped
        raise ModelError(f"{path} is not an ONNX model, or is cut short ({error}); export it again") from error
    if not all(isinstance(text, str) and not (is_shown and _steers(text)) for text, is_shown in _names(model)):
        raise ModelError(f"{path} is not an ONNX model: it has names that are no plain text; export it again")
    if not model.graph.output:
        raise ModelError(f"{path} is not an ONNX model: it has no graph with an output; export it again")
    return model


def _steers(text: str) -> bool:
    """Whether it would steer a terminal, or show something else than is written."""
    return not text.isprintable() and any(one in _DIRECTIONS or category(one) in _STEERING for one in text)


def _names(message: Any) -> Iterator[tuple[str | bytes, bool]]:
    """Every name in a message, and whether it is shown; bytes where it isn't Unicode, which protobuf lets pass.

    Comments are none.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and field.name not in _COMMENTS:
            is_shown = field.full_name in _SHOWN
            yield from ((one, is_shown) for one in (value if _is_many(value) else [value]))
        elif field.message_type is not None and field.name not in _COMMENTS:
            for one in value if _is_many(value) else [value]:
                yield from _names(one)


def _is_many(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__len__")


def _without_data(data: mmap.mmap, at: int, end: int, kind: Any) -> bytearray:
    """A message of this kind (a protobuf descriptor) as it was written, but for what large tensors hold."""
    slim = bytearray()
    while at < end:
        start = at
        tag, at = _varint(data, at)
        at, after = _extent(data, at, end, tag & 7)
        field = kind.fields_by_number.get(tag >> 3)
        if after - at <= KEPT_BYTES:
            slim += data[start:after]
        elif field is not None and field.message_type is not None:
            inner = _without_data(data, at, after, field.message_type)
            slim += _encoded(tag) + _encoded(len(inner)) + inner
        elif kind is not TensorProto.DESCRIPTOR or field is None or field.name not in _DATA:
            slim += data[start:after]
        at = after
    return slim


def _extent(data: mmap.mmap, at: int, end: int, wire: int) -> tuple[int, int]:
    """Where the contents of a field begin and end, in a message that ends at `end`.

    Raises:
        ValueError: they reach beyond it, or are of a kind that ONNX doesn't have.
    """
    if wire == _BYTES:
        size, at = _varint(data, at)
        after = at + size
    elif wire == _VARINT:
        after = _varint(data, at)[1]
    elif wire in (_EIGHT, _FOUR):
        after = at + (8 if wire == _EIGHT else 4)
    else:
        raise ValueError(f"wire type {wire}")
    if after > end:
        raise ValueError("a field reaches beyond its end")
    return at, after


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """The number at this place, and where it ends.

    Raises:
        ValueError: it doesn't end.
    """
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a number doesn't end")


def _encoded(value: int) -> bytearray:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return out
