"""A user's factory is run: whatever it returns gets one form, and every mistake is one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.factories import HEAD, apart, run, write  # noqa: F401 - a fixture is asked for by name
from torch import nn

from shootout.core.errors import UsageError
from shootout.models import source
from shootout.models.programs import find_state
from shootout.models.sources.called import Flat

OUTPUTS = f"""{HEAD}
import dataclasses
import collections

@dataclasses.dataclass
class Result:
    scores: torch.Tensor
    nothing: None
    hidden: tuple

class Net(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.line = form, nn.Linear(4, 3)

    def forward(self, x, scale=None, shift=None):
        y = self.line(x)
        y = y if shift is None else y + shift
        match self.form:
            case "tuple": return y, (y * 2, y.argmax(-1))
            case "dict": return {{"a": y, "b": [y + 1]}}
            case "dataclass": return Result(y, None, (y * 3,))
            case "other": return [y, "text"]
        return (y,)

def make(form="one", named=False):
    x = torch.ones(2, 4, dtype=torch.float64)
    return Net(form), {{"shift": torch.ones(2, 3), "x": x}} if named else x
"""


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('no\\n such width')", "raised ValueError: no such width (bad.py line 4)"),
        ("raise SystemExit(3)", "raised SystemExit: 3 (bad.py line 4)"),
        (
            "import not_there.deep",
            "No module named 'not_there' (install the package that has 'not_there' into this env",
        ),
        ("return None", "returned None: expected (torch module, example inputs)"),
        ("return 1, 2, 3, 4", "returned a tuple of 4"),
        ("return 5, torch.ones(1)", "returned an int as the module"),
        ("return nn.Linear(2, 2), [[1.0, 2.0]]", "input 'input' is a list, expected a torch tensor"),
        ("return nn.Linear(2, 2), torch.ones(1, 2).to_sparse()", "no backend takes: give a dense one"),
        ("return nn.Linear(2, 2), torch.ones(1, 3)", "raised RuntimeError"),
        ("return nn.Linear(2, 2), ()", "no example inputs"),
    ],
)
def test_what_running_shows_is_one_line(tmp_path: Path, body: str, says: str):
    path = write(tmp_path / "bad.py", f"{HEAD}def make():\n    {body}\n")
    with pytest.raises(UsageError) as caught:
        run(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("one", ("y0",)),
        ("tuple", ("y0", "y1_0", "y1_1")),
        ("dict", ("a", "b.0")),
        ("dataclass", ("scores", "hidden.0")),
    ],
)
def test_outputs_of_any_form_become_named_tensors(tmp_path: Path, form: str, names: tuple[str, ...], named: bool):
    import torch

    path = write(tmp_path / "outputs.py", OUTPUTS)
    from shootout.models.sources import called

    found = called.run(source.find(f"{path}:make"), {"form": form, "named": named})
    assert found.outputs == names
    assert list(found.inputs) == (["shift", "x"] if named else ["x"])
    assert found.inputs["x"].dtype == np.float32
    assert not found.module.training
    with torch.no_grad():
        raw = found.module(*map(torch.from_numpy, found.inputs.values()))
        first = raw[0] if len(names) > 1 else raw
        wanted = found.module.module.line(torch.ones(2, 4)) + (1 if named else 0)
    assert torch.equal(first, wanted)
    assert found.dtypes[-1] == ("int64" if form == "tuple" else "float32")


@pytest.mark.usefixtures("apart")
def test_an_output_that_holds_no_tensor_is_refused(tmp_path: Path):
    path = write(tmp_path / "outputs.py", OUTPUTS)
    from shootout.models.sources import called

    with pytest.raises(UsageError, match="returned a str at 'y1', expected tensors"):
        called.run(source.find(f"{path}:make"), {"form": "other"})


CHANGES = f"""{HEAD}
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.line = how, nn.Linear(4, 3)

    def forward(self, x, ids):
        match self.how:
            case "scales": x.mul_(2)
            case "same": x.clamp_(-99, 99)
            case "alias":
                y = F.dropout(x, 0.5, self.training)
                y += 1
            case "behind": x.data *= 2
            case "view": x[:, 0] = 0
            case "whole": ids += 1
        return self.line(x) + ids

def make(how="no", named=False):
    x, ids = torch.randn(2, 4), torch.tensor([[1], [2]])
    return Net(how), {{"x": x, "ids": ids}} if named else (x, ids)
"""


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("how", "changed"),
    [
        ("no", None),
        ("scales", "x"),
        ("same", "x"),
        ("alias", "x"),
        ("behind", "x"),
        ("view", "x"),
        ("whole", "ids"),
    ],
)
def test_a_forward_that_changes_its_input_gets_a_copy_in_each_call(
    tmp_path: Path, how: str, changed: str | None, named: bool
):
    """Else it would compute on numbers that grow from call to call; another module gets no copy, which takes time."""
    made = run(write(tmp_path / "outputs.py", CHANGES), how=how, named=named)
    notes = [note for note in made.notes if "in place" in note]
    assert notes == (
        [f"forward changes its input {changed!r} in place, so each call gets a copy of it"] * bool(changed)
    )
    inputs = [torch.from_numpy(array) for array in made.inputs.values()]
    before = [one.clone() for one in inputs]
    first, again = made.module(*inputs), made.module(*inputs)
    assert torch.equal(first, again)
    assert all(map(torch.equal, inputs, before))
    assert [one._version for one in inputs] == [0, 0]


class Keeping(nn.Module):
    """Keeps something from call to call."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.calls, self.line = how, 0, nn.Linear(2, 2)
        self.seen: list[int] = []
        self.last: torch.Tensor | None = None
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.how:
            case "counts":
                self.calls += 1
            case "lists":
                self.seen.append(1)
            case "keeps":
                self.last = x * torch.rand(())
            case "averages":
                self.mean.mul_(0.9).add_(1)
        return x


@pytest.mark.parametrize(
    ("how", "state"),
    [("no", ""), ("counts", "'calls' (0, then 1)"), ("lists", "'seen'"), ("keeps", "'last'"), ("averages", "'mean'")],
)
def test_what_a_forward_keeps_from_call_to_call_is_named(how: str, state: str):
    net, x = Keeping(how), torch.ones(2)
    assert find_state(Flat(net, None, [()]), lambda: net(x)) == state
    inside = nn.Sequential(nn.ReLU(), Keeping(how))
    assert find_state(inside, lambda: inside(x)) == (f"'1.{state[1:]}" if state else "")
