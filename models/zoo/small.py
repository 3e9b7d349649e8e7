"""Build small networks: `residual_mlp`, `mlp` and `recurrent`.

`residual_mlp`, the toy model, has many small layers in a row, where a runtime's overhead per layer shows most. Its init
is scaled by depth: with torch's default each block grows the signal about 1.2 times, so that 128 layers overflow FP16
and every error figure is meaningless. `mlp` has one hidden layer, as small control and reinforcement-learning policies
do: is such a net too small for a GPU? `recurrent` is one RNN, GRU or LSTM: a chain of small products that no batch of
steps can put together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters, seeded, variance_kept
from shootout.models.zoo.operations import vectors

if TYPE_CHECKING:
    import torch
    from torch import nn

ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda xp, x: xp.maximum(x, 0),
    # The tanh form (Hendrycks & Gimpel, arXiv:1606.08415, section 2): NumPy has no erf.
    "gelu": lambda xp, x: 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
    "tanh": lambda xp, x: xp.tanh(x),
    # x * sigmoid(x), through tanh so that exp can't overflow.
    "silu": lambda xp, x: 0.5 * x * (1 + xp.tanh(0.5 * x)),
}


def _add_layers(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Return `y = x + activation(x W^T)`, n_layers times."""
    activation = ACTIVATIONS[str(parameters["activation"])]
    layers = [weights[f"layers.{layer}.weight"].T for layer in range(int(parameters["n_layers"]))]

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for matrix in layers:
            y = y + activation(xp, y @ matrix)
        return {"y": y}

    return run


def _make_residual(parameters: Parameters) -> nn.Module:
    from torch import nn

    kinds = {"relu": nn.ReLU(), "gelu": nn.GELU(approximate="tanh"), "tanh": nn.Tanh(), "silu": nn.SiLU()}
    width, depth = int(parameters["d_model"]), int(parameters["n_layers"])

    class ResidualMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
            self.activation = kinds[str(parameters["activation"])]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = x + self.activation(layer(x))
            return x

    return ResidualMLP().eval()


def _draw_residual(parameters: Parameters) -> nn.Module:
    """Draw seeded normal weights with a standard deviation of 1/sqrt(d_model * n_layers)."""
    import torch

    std = (int(parameters["d_model"]) * int(parameters["n_layers"])) ** -0.5
    generator = torch.Generator().manual_seed(int(parameters["seed"]))
    model = _make_residual(parameters)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std, generator=generator)
    return model


RESIDUAL_MLP = Model(
    name="residual_mlp",
    description="a deep residual MLP of small layers (d_model wide, n_layers deep)",
    parameters={
        "d_model": IntRange(default=128, low=1, high=65_536),
        "n_layers": IntRange(default=128, low=1, high=4_096),
        "activation": Choice(default="relu", choices=tuple(ACTIVATIONS)),
        "seed": SEED,
    },
    parameter_count=lambda given: int(given["n_layers"]) * int(given["d_model"]) ** 2,
    inputs=vectors("d_model"),
    forward=_add_layers,
    module=_make_residual,
    trained=_draw_residual,
)


def _count_both(parameters: Parameters) -> int:
    """Count the weights and biases of both layers."""
    wide, hidden, narrow = (int(parameters[name]) for name in ("inputs", "hidden", "outputs"))
    return (wide + 1) * hidden + (hidden + 1) * narrow


def _add_both(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Compute linear, ReLU, linear."""
    first, second = (weights[f"{layer}.weight"].T for layer in (0, 2))
    first_bias, second_bias = (weights[f"{layer}.bias"] for layer in (0, 2))

    def run(x: Arrays) -> dict[str, Array]:
        hidden = xp.maximum(x["x"] @ first + first_bias, 0)
        return {"y": hidden @ second + second_bias}

    return run


def _make_mlp(parameters: Parameters) -> nn.Module:
    from torch import nn

    wide, hidden, narrow = (int(parameters[name]) for name in ("inputs", "hidden", "outputs"))
    return nn.Sequential(nn.Linear(wide, hidden), nn.ReLU(), nn.Linear(hidden, narrow)).eval()


MLP = Model(
    name="mlp",
    description="one hidden layer of 100 units with ReLU; 4, 64 or a million inputs",
    parameters={
        "inputs": IntRange(default=64, low=1, high=2**20),
        "hidden": IntRange(default=100, low=1, high=65_536),
        "outputs": IntRange(default=10, low=1, high=65_536),
        "seed": SEED,
    },
    parameter_count=_count_both,
    inputs=vectors("inputs"),
    forward=_add_both,
    module=_make_mlp,
    trained=lambda parameters: variance_kept(_make_mlp, parameters),
)


State = tuple[Array, ...]
"""The hidden state, and what else a cell hands on to the next step."""
Cell = Callable[[Any, Array, Array, State], State]
"""Takes (array library, W_ih x + b_ih, W_hh h + b_hh, the state) and returns the next state."""
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def _list_steps(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, steps, inputs)."""
    shape = (batch, int(parameters["steps"]), int(parameters["inputs"]))
    return (TensorSpec(name="x", shape=shape, dtype="float32"),)


def _count_gates(parameters: Parameters) -> int:
    """Count for each gate a matrix for the input, one for the hidden state, and a bias for each of them."""
    wide, hidden = int(parameters["inputs"]), int(parameters["hidden"])
    return GATES[str(parameters["kind"])] * hidden * (wide + hidden + 2)


def _run_steps(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Compute the last hidden state, (batch, hidden), by torch's documented equations of RNN, GRU and LSTM."""
    cell, hidden, steps = CELLS[str(parameters["kind"])], int(parameters["hidden"]), int(parameters["steps"])
    into, again = (weights[f"rnn.weight_{kind}_l0"].T for kind in ("ih", "hh"))
    into_bias, again_bias = (weights[f"rnn.bias_{kind}_l0"] for kind in ("ih", "hh"))

    def run(x: Arrays) -> dict[str, Array]:
        inward = x["x"] @ into + into_bias
        start = xp.zeros_like(inward[:, 0, :hidden])
        state: State = (start, start)
        for step in range(steps):
            state = cell(xp, inward[:, step], state[0] @ again + again_bias, state)
        return {"y": state[0]}

    return run


def _make_recurrent(parameters: Parameters) -> nn.Module:
    import torch
    from torch import nn

    layer = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[str(parameters["kind"])]
    wide, hidden = int(parameters["inputs"]), int(parameters["hidden"])

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = layer(wide, hidden, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.rnn(x)[0][:, -1])

    return Recurrent().eval()


def _draw_recurrent(parameters: Parameters) -> nn.Module:
    """Return the module with torch's own init, seeded."""
    with seeded(parameters):
        return _make_recurrent(parameters).requires_grad_(False)


def _rnn_cell(xp: Any, inward: Array, around: Array, state: State) -> State:  # noqa: ARG001 - a `Cell`
    return (xp.tanh(inward + around),)


def _gru_cell(xp: Any, inward: Array, around: Array, state: State) -> State:
    (reset_in, update_in, new_in), (reset, update, new) = (xp.split(part, 3, axis=1) for part in (inward, around))
    update = _sigmoid(xp, update_in + update)
    new = xp.tanh(new_in + _sigmoid(xp, reset_in + reset) * new)
    return ((1 - update) * new + update * state[0],)


def _lstm_cell(xp: Any, inward: Array, around: Array, state: State) -> State:
    enter, forget, new, leave = xp.split(inward + around, 4, axis=1)
    kept = _sigmoid(xp, forget) * state[1] + _sigmoid(xp, enter) * xp.tanh(new)
    return _sigmoid(xp, leave) * xp.tanh(kept), kept


def _sigmoid(xp: Any, x: Array) -> Array:
    """Go through tanh, so that exp can't overflow."""
    return 0.5 + 0.5 * xp.tanh(0.5 * x)  # type: ignore[no-any-return]


CELLS: dict[str, Cell] = {"rnn": _rnn_cell, "gru": _gru_cell, "lstm": _lstm_cell}

RECURRENT = Model(
    name="recurrent",
    description="one recurrent layer (rnn, gru or lstm) of 100 units over 16 steps; gives the last hidden state",
    parameters={
        "kind": Choice(default="lstm", choices=tuple(GATES)),
        "inputs": IntRange(default=64, low=1, high=65_536),
        "hidden": IntRange(default=100, low=1, high=65_536),
        "steps": IntRange(default=16, low=1, high=4_096),
        "seed": SEED,
    },
    parameter_count=_count_gates,
    inputs=_list_steps,
    forward=_run_steps,
    module=_make_recurrent,
    trained=_draw_recurrent,
)
