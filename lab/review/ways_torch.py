"""PyTorch: inference mode in each call or around all, channels_last, and what torch.compile can be told."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cases import Case  # type: ignore[import-not-found] # beside this file, which `cases.py` alone imports

from shootout import models

BF16_APART, FP32_APART = 3e-2, 1e-3
MODES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "freezing": {"freezing": True},
    "max_autotune alone": {"max_autotune": True},
    "max_autotune, frozen": {"max_autotune": True, "freezing": True},
}


def net(model: str, **parameters: Any) -> Any:
    """A shipped model's module with torch's own seeded init, since nothing here depends on what it learnt."""
    import torch

    torch.manual_seed(0)
    chosen = models.get(model)
    return chosen.module(chosen.check(parameters))


def forward(run: Any, x: Any) -> Callable[[int], Any]:
    """A call in whichever mode the caller holds; its result as NumPy has it."""
    return lambda _: run(x).float().numpy()


def inference_cases(torch: Any) -> Iterator[Case]:
    """The mode entered in each call, or held by the loop around them; inputs are of the mode either way."""
    module, x = net("mlp", hidden=100, inputs=100, outputs=100), torch.ones(1, 100)
    scripted = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(module)))
    held = torch.inference_mode()

    def entering(run: Any) -> Callable[[int], Any]:
        def call(_: int) -> Any:
            with torch.inference_mode():
                return run(x).numpy()

        return call

    def outside_or_in(way: str, inside: list[bool]) -> None:
        if (way == "held around the loop") != bool(inside):
            if inside:
                held.__exit__(None, None, None)
                inside.clear()
            else:
                held.__enter__()
                inside.append(True)

    inside: list[bool] = []
    for name, run in (("eager", module), ("TorchScript", scripted)):
        yield Case(
            name=f"inference mode, net of two layers of 100, {name}",
            ways={"entered in each call": entering(run), "held around the loop": forward(run, x)},
            before=partial(outside_or_in, inside=inside),
        )
    outside_or_in("", inside)


def layout_cases(torch: Any) -> Iterator[Case]:
    """Filters and images in torch's own order, and with the channels last."""
    nets = {
        "digits CNN, batch 8": (net("digits_cnn"), torch.rand(8, 1, 8, 8)),
        "ResNet-14, 224 pixels": (net("resnet", variant="14"), torch.rand(1, 3, 224, 224)),
    }
    for name, (module, x) in nets.items():
        for precision, dtype in (("FP32", torch.float32), ("BF16", torch.bfloat16)):
            ordered = copy.deepcopy(module).to(dtype)
            last = copy.deepcopy(module).to(dtype).to(memory_format=torch.channels_last)
            yield Case(
                name=f"channels_last, {name}, {precision}",
                ways={"torch's order": forward(ordered, x.to(dtype)), "channels_last": forward(last, x.to(dtype))},
                apart=FP32_APART if dtype is torch.float32 else BF16_APART,
            )


def compile_cases(torch: Any) -> Iterator[Case]:
    """Options of Inductor's on a CPU, each on a copy of the module compiled in inference mode."""
    wide = net("residual_mlp", d_model=512, n_layers=4)
    nets = {
        "BF16, 4 layers of 512, batch 8": (wide.to(torch.bfloat16), torch.ones(8, 512, dtype=torch.bfloat16)),
        "FP32, 4 layers of 512, batch 8": (copy.deepcopy(wide).float(), torch.ones(8, 512)),
        "FP32, digits CNN, batch 8": (net("digits_cnn"), torch.rand(8, 1, 8, 8)),
    }
    for name, (module, x) in nets.items():
        torch._dynamo.reset()  # which compiles one function eight times and no more
        ways = {mode: forward(compiled(torch, copy.deepcopy(module), x, options), x) for mode, options in MODES.items()}
        yield Case(name=f"torch.compile, {name}", ways=ways, apart=BF16_APART)
    torch._dynamo.reset()
    x = torch.ones(1, 128)
    run = compiled(torch, net("residual_mlp", d_model=128, n_layers=64), x, {})
    yield Case(
        name="torch.compile, FP32, 64 layers of 128, batch 1",
        ways={"guards checked": forward(run, x), "guards skipped": forward(run, x)},
        before=lambda way: torch.compiler.set_stance(skip_guard_eval_unsafe=way == "guards skipped"),
    )


def compiled(torch: Any, module: Any, x: Any, options: dict[str, Any]) -> Any:
    """The module after its first call.

    The options are Inductor's configuration meanwhile, since Dynamo asks that whether weights are to be constants, and
    torch.compile's too, so that what was compiled with others isn't taken.
    """
    run = torch.compile(module, fullgraph=True, dynamic=False, options=options)
    with torch._inductor.config.patch(options):
        run(x)
    return run


def cases(folder: Path) -> Iterator[Case]:
    """What isn't compiled first; from there on all in inference mode, as a serving loop is."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    import torch
    import torch._inductor.config

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    yield from inference_cases(torch)
    with torch.inference_mode():
        yield from layout_cases(torch)
        yield from compile_cases(torch)
