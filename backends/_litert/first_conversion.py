"""Import what a conversion imports, in a process that is then forked for each: 1 to 2 s. It installs nothing."""

from __future__ import annotations

import importlib

import torch

from shootout.backends._litert.converter import find_converter

if not find_converter():
    raise ImportError("LiteRT's converter isn't installed yet: the first build installs it")
with torch.no_grad():
    importlib.import_module("litert_torch")
