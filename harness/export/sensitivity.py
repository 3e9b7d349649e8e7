"""Rank the layers by the error that each causes if it is quantized alone, the worst first.

The work is done in a process of its own (`python -m shootout.export.sensitivity FOLDER RESULT PARENT_PID`), so that
torch and ONNX Runtime stay out of the caller's.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shootout.constants import BUILD_TIMEOUT_S
from shootout.contract import Artifact
from shootout.errors import ModelError, ShootoutError, UsageError, install
from shootout.export import cache
from shootout.export.client import Request, obtain
from shootout.export.request import error_from_json, error_to_json
from shootout.exported.layers import Layer, find_layer, layers_of
from shootout.exported.model import ExportedModel, open_exported
from shootout.host.child import ONE_THREAD, leave_with, run
from shootout.host.environment import saturates
from shootout.quantize.sensitivity import LayerSensitivity, ranked
from shootout.schemes import parse


def rank_layers(request: Request) -> list[LayerSensitivity]:
    """Rank every layer of a model that can be quantized, the most harmful first.

    Args:
        request: a plain or pruned model.

    Raises:
        UsageError: the request is wrong, its calibration data can't be used, or a package is missing.
        ModelError: the model can't be exported, or has nothing to quantize.
    """
    if parse(request.variant).is_quantized:
        raise UsageError(f"variant {request.variant!r} is quantized already: name the plain model")
    exported = obtain(request)
    with cache.workshop() as folder:
        result = folder / "layers.json"
        how = run("shootout.export.sensitivity", [exported.folder, result], BUILD_TIMEOUT_S, ONE_THREAD).how
        try:
            said = json.loads(result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise ModelError(f"the sensitivity of {exported.model} failed: {how}") from None
    if "error" in said:
        raise error_from_json(said["error"])
    return [LayerSensitivity(**layer) for layer in said["layers"]]


def order_layers(request: Request) -> list[Layer]:
    """Return the layers that can be quantized, the most harmful first; see `rank_layers`."""
    import onnx

    layers = layers_of(onnx.load(obtain(request).path(Artifact.ONNX), load_external_data=False))
    found = (find_layer(layers, node=one.name, weight=one.weight) for one in rank_layers(request))
    return [layer for layer in found if layer]


def _rank_layers(exported: ExportedModel) -> list[LayerSensitivity]:
    from shootout.quantize.qdq import Quantizer

    quantizer = Quantizer(exported.path(Artifact.ONNX), exported.calibration(), reduced=saturates())
    return ranked(quantizer, exported)


def main() -> None:
    """Write the layers, or the error, of the exported model in a folder."""
    leave_with(int(sys.argv[3]))
    try:
        said: dict[str, Any] = {"layers": [asdict(layer) for layer in _rank_layers(open_exported(Path(sys.argv[1])))]}
    except ModuleNotFoundError as error:
        said = {"error": error_to_json(UsageError(f"sensitivity needs {error.name}: {install('onnxruntime')}"))}
    except ShootoutError as error:
        said = {"error": error_to_json(error)}
    except ValueError as error:
        said = {"error": error_to_json(UsageError(str(error)))}
    Path(sys.argv[2]).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main()
