"""A module that torch.compile compiles anew in each call is refused at its build, with the attribute that changes."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from shootout.backends._torch import compile as compiled
from shootout.core.contract import Arm, Target
from shootout.core.errors import NotRunKind, SkippedArm


class Keeping(nn.Module):
    """Changes something of its own with each call."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.calls, self.share, self.seen = how, 0, 1.0, list[int]()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "calls":
            self.calls += 1
        elif self.how == "share":
            self.share *= 0.5
        elif self.how == "seen":
            self.seen.append(1)
        elif self.how == "count":
            self.count.add_(1)
        return torch.relu(x)


def refuse(how: str) -> None:
    """Compile with Dynamo's own guards, and without Inductor."""
    torch._dynamo.reset()
    module, arm = Keeping(how), Arm(target=Target(backend="torch-compile"), model="m")
    run: Any = torch.compile(module, fullgraph=True, dynamic=False, backend="eager")
    with torch.inference_mode():
        run(torch.ones(3))
    compiled._refuse_recompiling(module, run, cast("Any", None), arm)


def test_an_attribute_that_changes_with_each_call_is_named(monkeypatch: pytest.MonkeyPatch):
    """Eight compilations, until Dynamo's limit, looked like a hang."""
    monkeypatch.setattr(compiled, "example_of", lambda *_: (torch.ones(3),))
    for how in ("", "count"):  # in a tensor, a counter is no constant
        refuse(how)
    for how in ("calls", "share", "seen"):
        with pytest.raises(SkippedArm, match=rf"an attribute changes with each call \('{how}'") as caught:
            refuse(how)
        assert caught.value.why.kind is NotRunKind.UNFIT
