"""What servers that run OpenVINO are told of a shipped model's properties, and what they have no word for.

Triton's OpenVINO backend has words for a few (its README, "Parameters"); OpenVINO Model Server passes all of them on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shootout.backends.adapter import Served

NAMED = ("PERFORMANCE_HINT", "NUM_STREAMS", "INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS")
"""Those that Triton's backend calls by OpenVINO's own names."""
PRECISION = "INFERENCE_PRECISION_HINT"


def triton(options: Mapping[str, Any]) -> Served:
    """A model's properties in Triton's words; of precisions these have BF16 alone."""
    properties: dict[str, str] = dict(options["properties"])
    settings = {name: properties.pop(name) for name in NAMED if name in properties}
    if properties.get(PRECISION) == "bf16":
        del properties[PRECISION]
        settings["HINT_BF16"] = "YES"
    return Served(backend="openvino", settings=settings, lost=tuple(_lost(properties)))


def ovms(options: Mapping[str, Any]) -> Served:
    """A model's properties, as they are."""
    return Served(backend=options["device"], settings=options["properties"])


def _lost(properties: Mapping[str, str]) -> list[str]:
    why = {PRECISION: ": a CPU with AMX or AVX512_BF16 then computes in BF16"}
    return [f"{name}={value}{why.get(name, '')}" for name, value in properties.items()]
