"""ExecuTorch's runtime in this process: the extension alone, its threads, and its own record of what ran (ETDump)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shootout.backends._executorch.files import ETDUMP, read_flatbuffer

FORWARD = "forward"
WARM_UP = 3


def import_runtime(threads: int) -> Any:
    """The extension, with so many threads in this process, for all files; the caller's is one of them.

    It is imported by itself: the package's own `executorch.runtime` brings the whole compiler with it, five seconds.
    """
    import executorch  # noqa: F401 - named by itself where it is missing
    import torch  # noqa: F401 - whose libraries the extension needs loaded
    from executorch.extension.pybindings import _C

    _C._unsafe_reset_threadpool(threads)
    return _C


def record_calls(path: Path, threads: int, inputs: Sequence[Any], calls: int) -> list[list[Mapping[str, Any]]]:
    """What the runtime writes down of some warm calls: by call, the parts of it with their times in nanoseconds.

    Args:
        inputs: tensors, in the file's order.
    """
    program = import_runtime(threads)._load_program(str(path), enable_etdump=True)
    method = program.load_method(FORWARD)
    for _ in range(WARM_UP + calls):
        method.call(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "calls.etdp"
        program.write_etdump_result_to_file(str(dump), str(Path(folder) / "debug"))
        runs = read_flatbuffer(dump.read_bytes(), ETDUMP, "--size-prefixed")["run_data"]
    told = [[one["profile_event"] for one in run["events"]] for run in runs if run["name"] == "Execute"]
    return told[WARM_UP:]
