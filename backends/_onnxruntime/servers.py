"""What Triton's ONNX Runtime backend is told of a shipped session, and what it has no word for.

By its code and README (triton-inference-server/onnxruntime_backend): a graph's `level` of 2 leaves it as it is, which a
graph that is optimised already needs; of the session's configuration entries it passes on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shootout.backends.adapter import Served

LEVELS = {"ORT_ENABLE_BASIC": -1, "ORT_ENABLE_EXTENDED": 1, "ORT_DISABLE_ALL": 2}
"""Its numbers for ONNX Runtime's levels; without one it optimises all it can."""
MODES = {"ORT_SEQUENTIAL": "0", "ORT_PARALLEL": "1"}
PASSED = {"session.use_device_allocator_for_initializers"}


def triton(options: Mapping[str, Any]) -> Served:
    """A session's settings in Triton's words."""
    session = options["session"]
    entries = session["entries"]
    return Served(
        backend="onnxruntime",
        level=LEVELS.get(session["graph_optimization_level"]),
        settings={
            "intra_op_thread_count": str(session["intra_op_num_threads"]),
            "inter_op_thread_count": str(session["inter_op_num_threads"]),
            "execution_mode": MODES[session["execution_mode"]],
            **{name: value for name, value in entries.items() if name in PASSED},
        },
        lost=tuple(f"{name}={value}" for name, value in entries.items() if name not in PASSED),
    )
