"""What a first compilation by Inductor imports and registers: for a process that is forked before each of many.

Its children save 1.5 s each. Nothing here compiles, starts a thread or is remembered of a model.
"""

from __future__ import annotations

import importlib

import torch
import torch._inductor.compile_fx
from torch._inductor.fx_passes import fuse_attention

for name in ("torch.distributed.tensor.experimental", "torch.utils.cpp_extension", "sympy.physics.units"):
    importlib.import_module(name)
fuse_attention._sfdp_init(torch.device("cpu"))
