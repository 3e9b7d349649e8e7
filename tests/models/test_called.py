"""A user's factory is run: whatever it returns gets one form, and every mistake is one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.factories import HEAD, apart, run, write  # noqa: F401 - a fixture is asked for by name

from shootout.errors import UsageError
from shootout.models.user import source

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
        ("import not_there.deep", "ModuleNotFoundError: No module named 'not_there' (install 'not_there'"),
        ("return None", "returned None: expected (torch module, example inputs)"),
        ("return 1, 2, 3, 4", "returned a tuple of 4"),
        ("return 5, torch.ones(1)", "returned a int as the module"),
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
def test_the_place_of_a_mistake_is_in_the_users_own_code(tmp_path: Path):
    library = write(tmp_path / ".venv/lib/site-packages/bad.py", "def fail():\n\n    raise ValueError('no')\n").parent
    head = f"import sys\nsys.path.insert(0, {str(library)!r})\nimport bad\n"
    path = write(tmp_path / "plain.py", f"{head}def make():\n    bad.fail()\n")
    with pytest.raises(UsageError, match=r"raised ValueError: no \(plain.py line 5\)"):
        run(path)


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
    from shootout.models.user import called

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
    from shootout.models.user import called

    with pytest.raises(UsageError, match="returned a str at 'y1', expected tensors"):
        called.run(source.find(f"{path}:make"), {"form": "other"})
