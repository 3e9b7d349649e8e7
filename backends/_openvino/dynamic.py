"""Products that round their activations while they run, found in oneDNN's log, the only place that names them.

OpenVINO's graph shows a layer with compressed weights the same way, whether its activations stay float or are rounded
to 8 bits on the fly. So a second process compiles the same file with the log on. Only its creation part is on: with the
whole log some kernels fail ("could not execute a primitive", OpenVINO 2026.4).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from shootout.backends._openvino.graph import DEVICE, import_openvino
from shootout.core.host.child import leave_with, run

LOG = {"ONEDNN_VERBOSE": "profile_create"}
ROUNDED = re.compile(r"inner_product,.*src_dyn_quant_group_size:[1-9].*ic(\d+)oc(\d+)")
TIMEOUT_S = 600


def rounding_products(path: Path, properties: Mapping[str, str]) -> set[tuple[int, int]]:
    """Return the sizes (inputs, outputs) of products whose activations are rounded to 8 bits at run time.

    OpenVINO decides by size, and creates layers of one size once, so a size stands for all layers that have it.

    Raises:
        RuntimeError: the model can't be compiled; with the process's last words.
    """
    ended = run("shootout.backends._openvino.dynamic", [path, json.dumps(dict(properties))], TIMEOUT_S, LOG)
    if ended.code != 0:
        raise RuntimeError(f"OpenVINO could not compile the model a second time: {ended.how}")
    return {(int(inputs), int(outputs)) for inputs, outputs in ROUNDED.findall(ended.said)}


def main() -> None:
    """Compile the file in the first argument with the properties in the second; the third is the parent."""
    leave_with(int(sys.argv[3]))
    core = import_openvino().Core()
    core.compile_model(core.read_model(sys.argv[1]), DEVICE, json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
