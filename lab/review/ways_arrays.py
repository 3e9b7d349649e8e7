"""NumPy and JAX: the residual MLP as an array library is handed it, weights (out, in), and as its users store them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case  # type: ignore[import-not-found] # beside this file, which `cases.py` alone imports

NUMPY_SIZES = ((128, 128, 1), (128, 128, 32), (512, 16, 4))
JAX_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
JAX_LAYERS = 16
COPIED = {"512 B": 128, "600 kB": 150_528}


def weights_of(width: int, layers: int) -> dict[str, Any]:
    """By the names that PyTorch gives them; the sum of all layers stays of the size of one."""
    rng = np.random.default_rng(0)
    scale = 1 / np.sqrt(width * layers)
    return {
        f"layers.{layer}.weight": (rng.standard_normal((width, width)) * scale).astype(np.float32)
        for layer in range(layers)
    }


def numpy_cases() -> Iterator[Case]:
    """A formatted name and a transposed view in each layer, or a list of matrices (in, out)."""
    for width, layers, batch in NUMPY_SIZES:
        weights, x = weights_of(width, layers), np.ones((batch, width), np.float32)
        kernels = [np.ascontiguousarray(one.T) for one in weights.values()]

        def named(_: int, weights: Any = weights, x: Any = x, layers: int = layers) -> Any:
            y = x
            for layer in range(layers):
                y = y + np.maximum(y @ weights[f"layers.{layer}.weight"].T, 0)
            return y

        def laid_out(_: int, kernels: Any = kernels, x: Any = x) -> Any:
            y = x
            for kernel in kernels:
                y = y + np.maximum(y @ kernel, 0)
            return y

        yield Case(
            name=f"NumPy, {layers} layers of {width}, batch {batch}",
            ways={"(out, in), found by name": named, "(in, out), listed": laid_out},
        )


def jax_cases() -> Iterator[Case]:
    """Weights are arguments either way, as an adapter has them: a compiler can't fold a transpose into one."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]

    def torch_order(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = x + jnp.maximum(x @ weight.T, 0)
        return x

    def laid_out(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = x + jnp.maximum(x @ weight, 0)
        return x

    for width in (128, 512):
        stored = list(weights_of(width, JAX_LAYERS).values())
        given = [jax.device_put(one) for one in stored]
        kernels = [jax.device_put(np.ascontiguousarray(one.T)) for one in stored]
        for batch in JAX_BATCHES:
            x = jax.device_put(np.ones((batch, width), np.float32))
            before = jax.jit(torch_order).lower(given, x).compile()
            after = jax.jit(laid_out).lower(kernels, x).compile()
            yield Case(
                name=f"JAX, {JAX_LAYERS} layers of {width}, batch {batch}",
                ways={
                    "(out, in)": lambda _, run=before, w=given, x=x: run(w, x).block_until_ready(),
                    "(in, out)": lambda _, run=after, w=kernels, x=x: run(w, x).block_until_ready(),
                },
            )
    yield from _jax_inputs(jax)


def _jax_inputs(jax: Any) -> Iterator[Case]:
    """An array given to the executable, or copied first by a program of its own; aligned, since only that is shared."""
    for size, count in COPIED.items():
        room = np.zeros(count + 16, np.float32)
        array = room[(-room.ctypes.data // 4) % 16 :][:count]
        pick = jax.jit(lambda x: x[:1]).lower(array).compile()
        copy = jax.jit(lambda x: x.copy()).lower(array).compile()

        def copied(_: Any, a: Any = array, pick: Any = pick, copy: Any = copy) -> Any:
            return np.asarray(pick(copy(a)))

        yield Case(
            name=f"JAX, input of {size}",
            ways={"copied by a program": copied, "given as it is": lambda _, a=array, pick=pick: np.asarray(pick(a))},
        )


def cases(_: Path) -> Iterator[Case]:
    """NumPy's first: JAX's threads would stand beside it."""
    yield from numpy_cases()
    yield from jax_cases()
