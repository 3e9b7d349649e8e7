"""Import what a first compilation by Inductor imports, registers and hashes, in a process that is then forked for each.

Its children save 2 s each. Nothing here compiles, starts a thread or is remembered of a model.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

import torch

from shootout.backends._torch.inductor import import_inductor

import_inductor()
for name in ("torch.distributed.tensor.experimental", "torch.utils.cpp_extension", "sympy.physics.units"):
    importlib.import_module(name)
with suppress(ImportError, AttributeError, TypeError):  # torch's own affair: without it a compilation does it itself
    importlib.import_module("torch._inductor.fx_passes.fuse_attention")._sfdp_init(torch.device("cpu"))
