"""Read what LiteRT computes between a model's layers: the tensors of the raced file, from LiteRT's own kernels.

XNNPACK, which runs most of a raced file, keeps its tensors to itself, and LiteRT's profiler can't be reached from
Python. So the same file runs in LiteRT's own kernels, which may round otherwise, and no times are told. The converter
keeps no names: the harness finds the layers by their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._litert.session import MODEL
from shootout.backends.optional import Inside
from shootout.core.contract import Array, Arrays

if TYPE_CHECKING:
    from shootout.core.adapter import Built

OWN_KERNELS = "tensors are from LiteRT's own kernels on the raced file: XNNPACK shows none, and no times are told"


def look_inside(built: Built, sets: Sequence[Arrays]) -> Inside:
    """Run the input sets through an interpreter that keeps all tensors."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_path=str(built.folder / MODEL),
        num_threads=built.arm.threads or None,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    made = [*dict.fromkeys(_list_made(built.folder / MODEL))]
    details = {one["index"]: one for one in interpreter.get_tensor_details()}
    signature = interpreter.get_signature_runner()
    seen, outputs = list[dict[int, Array]](), list[Arrays]()
    for one in sets:
        answers = signature(**_name_inputs(built, signature, one))
        outputs.append(
            {
                spec.name: _widen(
                    answers[f"output_{place}"], signature.get_output_details()[f"output_{place}"]
                ).reshape(spec.shape)
                for place, spec in enumerate(built.exported.outputs)
            }
        )
        seen.append({index: _read(interpreter, details[index]) for index in made if index in details})
    shown = [index for index in made if index in details and seen[0][index].dtype.kind == "f"]
    return Inside(
        tensors={f"{index} {details[index]['name']}": tuple(one[index] for one in seen) for index in shown},
        names="lost",
        outputs=tuple(outputs),
        notes=(OWN_KERNELS,),
    )


def _list_made(path: Path) -> Iterator[int]:
    """Yield the tensors that the file's operations make, by index, in the order in which they run."""
    from ai_edge_litert.tools import flatbuffer_utils

    graph = flatbuffer_utils.read_model(str(path)).subgraphs[0]
    for operator in graph.operators:
        yield from (int(one) for one in operator.outputs if one >= 0)


def _name_inputs(built: Built, signature: Any, inputs: Arrays) -> dict[str, Array]:
    """Name the inputs as the converter does, and round them where the file wants integers."""
    wanted = signature.get_input_details()
    named = {f"args_{place}": inputs[spec.name] for place, spec in enumerate(built.exported.inputs)}
    return {name: array.astype(wanted[name]["dtype"]) for name, array in named.items() if name in wanted}


def _read(interpreter: Any, detail: dict[str, Any]) -> Array:
    try:
        return _widen(interpreter.get_tensor(detail["index"]), detail)
    except ValueError:  # of a tensor that no operation filled
        return np.zeros(0, np.int8)


def _widen(array: Array, detail: dict[str, Any]) -> Array:
    """Return the floats that a tensor's integers stand for; others as they are."""
    scale, zero = detail["quantization"]
    return (array.astype(np.float32) - zero) * np.float32(scale) if scale and array.dtype.kind in "iu" else array
