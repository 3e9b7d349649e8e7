"""The process that exports are forked from (see `support.programs`): all they import, and one export to try it on."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import sklearn.datasets  # noqa: F401 - what the shipped models are trained on
import torch
import tqdm

import shootout.models.sources.__main__  # noqa: F401 - the program itself
from shootout.models.sources import torch_files
from shootout.models.zoo import digits
from support.trained import trained_once


def _import_the_rest() -> None:
    """What torch imports only as it exports."""
    tqdm.tqdm.monitor_interval = 0  # a thread, which no fork would have
    with tempfile.TemporaryDirectory() as folder:
        torch_files.write_module(torch.nn.Linear(2, 2).eval(), {"x": np.ones((1, 2), np.float32)}, Path(folder))
    assert "onnxruntime" not in sys.modules, "it starts a thread, without which a fork can't end"


digits.train = functools.partial(trained_once, digits.train)
_import_the_rest()
