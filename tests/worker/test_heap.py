"""Where arrays lie is drawn for each arm in each restart; processes forked from one would be alike in it otherwise."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.exports import obtain

from shootout.backends._numpy.session import _read_weights
from shootout.core import backends
from shootout.core.contract import Arm, Target
from shootout.core.exported.model import ALIGNMENT
from shootout.core.host.placement import PADDING, child_environment
from shootout.core.worker import fork_server
from shootout.core.worker.worker import Worker

FORKS = """
import json, os, sys
import numpy as np
from shootout.core.worker.fork_server import shift_heap
gaps = [np.empty(size, np.uint8) for size in range(2000, 60_000, 1111)]
del gaps[::2]  # as imports leave them, and arrays that fill one lie where that one begins
for offset in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if not os.fork():
        if offset is not None:
            shift_heap(offset)
        arrays = [np.empty(size, np.uint8) for size in (1500, 4096, 16_384, 65_536)]
        print(json.dumps([array.ctypes.data for array in arrays]))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def addresses(*offsets: int | None) -> list[list[int]]:
    """Return where arrays lie in processes forked from one, each with its offset; None: without any."""
    command = [sys.executable, "-c", FORKS, json.dumps(offsets)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=child_environment(1, 0)).stdout
    return [json.loads(line) for line in said.splitlines()]


def test_forked_processes_have_their_arrays_in_one_place_without_a_draw():
    first, second = addresses(None, None)
    assert first == second


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="not the heap of glibc 2.33 or newer")
def test_a_draw_moves_every_array_by_as_much():
    first, *others = addresses(0, 16, 32, 48, 4080)
    for offset, found in zip((16, 32, 48, 4080), others, strict=True):
        assert [there - here for here, there in zip(first, found, strict=True)] == [offset] * len(first)


def test_a_worker_shifts_its_heap_by_its_draw_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    order: list[object] = []
    adapter = backends.get("numpy")
    arm = Arm(target=Target(backend="numpy"), model="identity", threads=1)
    built = adapter.build(obtain("identity", {}, 1), arm, tmp_path)
    load = type(adapter).load
    monkeypatch.setenv(PADDING, "x" * 48)
    monkeypatch.setattr(fork_server, "shift_heap", order.append)
    monkeypatch.setattr(type(adapter), "load", lambda self, built: order.append("load") or load(self, built))
    Worker().load(built)
    assert order == [48, "load"]


def test_numpys_weights_begin_on_a_cache_line(tmp_path: Path):
    arm = Arm(target=Target(backend="numpy"), model="residual_mlp", threads=1)
    exported = obtain("residual_mlp", {"d_model": 20, "n_layers": 4}, 1)
    backends.get("numpy").build(exported, arm, tmp_path)
    weights = _read_weights(tmp_path)
    assert [array.ctypes.data % ALIGNMENT for array in weights.values()] == [0] * 4
