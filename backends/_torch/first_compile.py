"""What a first compilation by Inductor imports, registers and hashes: for a process that is forked before each of many.

Its children save 2 s each. Nothing here compiles, starts a thread or is remembered of a model.
"""

from __future__ import annotations

import importlib

import torch
import torch._inductor.compile_fx
from torch._inductor import codecache
from torch._inductor.fx_passes import fuse_attention

for name in ("torch.distributed.tensor.experimental", "torch.utils.cpp_extension", "sympy.physics.units"):
    importlib.import_module(name)
fuse_attention._sfdp_init(torch.device("cpu"))
codecache.torch_key()  # of torch's own sources, for the caches of graphs
