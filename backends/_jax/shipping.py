"""How a JAX arm is shipped: XLA's executable as it was raced, and its weights; it needs no tracing and no torch.

`jax.export` would ship StableHLO, which XLA compiles anew where it is loaded: another program, and seconds later.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from shootout.backends._jax.session import ASYNC_DISPATCH, BUFFERS, EXECUTABLE, PLATFORMS, is_async
from shootout.backends.adapter import Built, Shipment
from shootout.backends.common import DTYPES
from shootout.contract import Precision
from shootout.host.environment import native_flags

WEIGHTS = "weights.npz"


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the executable, and write the weights in its order."""
    from safetensors.numpy import load_file

    arm, names = built.arm, list(built.facts["weights"])
    shutil.copyfile(built.folder / EXECUTABLE, folder / EXECUTABLE)
    stored = dict(load_file(built.folder / BUFFERS))
    if absent := set(names) - stored.keys():
        stored |= built.exported.weights(absent)
    np.savez(folder / WEIGHTS, *(stored[name] for name in names))  # without names: arr_0, arr_1 …
    native = arm.target.precision is Precision.NATIVE
    options = {
        "config": {
            "jax_enable_compilation_cache": False,
            ASYNC_DISPATCH: is_async(arm.options),
            "jax_platforms": PLATFORMS[arm.target.device],
        },
        "weights": len(names),
        "floats": None if native else DTYPES.get(arm.target.precision, "float32"),
    }
    return Shipment(options=options, isa=native_flags(), installs=("jax",))
