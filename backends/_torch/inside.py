"""Read what eager PyTorch computes between a model's layers, and what each module's operations take.

A module shows its result by a hook, and its time by an annotation around it in torch's profile. A user's file comes as
one graph without modules: each of its operations shows its result, and none has a name that the file knows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shootout.backends._torch import quantize
from shootout.backends._torch.session import Facts, configure, module_of, profile_calls, session_on
from shootout.backends.common import precision_of
from shootout.backends.optional import Inside, RanNode
from shootout.backends.trace_events import spans
from shootout.core.adapter import Event, Session
from shootout.core.contract import SCALED, Array, Arrays
from shootout.models.onnx.operations import is_product

if TYPE_CHECKING:
    import torch

    from shootout.core.adapter import Built

CALLS = 10
CONVERSIONS = ("aten::_to_copy", "aten::copy_")
MARK = "shootout/"
"""The beginning of the name of a module's annotation."""
SLOWED = "torch's profiler takes time of its own for each operation: shares tell more than times"


def look_inside(built: Built, sets: Sequence[Arrays]) -> Inside:
    """Run the input sets with every module or operation watched, then profile some calls."""
    import torch

    arm = built.arm
    configure(arm)
    quantized = arm.target.precision in SCALED
    module = quantize.load_module(built.exported, built.folder) if quantized else module_of(built.exported, arm)
    seen, outputs = list[dict[str, Array]](), list[Arrays]()
    is_graph = isinstance(module, torch.fx.GraphModule)
    run, close = (_watch_graph if is_graph else _watch_modules)(module, seen)
    session = session_on(run, arm, built.exported, _tell_nothing)
    for one in sets:
        seen.append({})
        outputs.append(dict(session.fetch(session.execute(session.stage(one, 0)))))
    session.close()
    close()
    names = [name for name in seen[0] if all(name in one for one in seen)]
    return Inside(
        tensors={name: tuple(one[name] for one in seen) for name in names},
        names="lost" if is_graph else "modules",
        outputs=tuple(outputs),
        nodes=() if is_graph else tuple(_list_nodes(module, built, sets[0])),
        notes=("a file's graph has no modules, so its operations' times have no names",) if is_graph else (SLOWED,),
    )


def _tell_nothing(_: list[Any]) -> Facts:
    return {}


def _watch_modules(
    module: torch.nn.Module, seen: list[dict[str, Array]]
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Keep each module's result in the last of `seen`, unless it is called several times; return what undoes that."""
    counts = Counter[tuple[int, str]]()

    def keep(name: str) -> Callable[..., None]:
        def hook(_: Any, __: Any, result: Any) -> None:
            counts[len(seen), name] += 1
            if counts[len(seen), name] > 1:
                seen[-1].pop(name, None)
            elif (array := _as_array(result)) is not None:
                seen[-1][name] = array

        return hook

    handles = [part.register_forward_hook(keep(name)) for name, part in module.named_modules() if name]

    def close() -> None:
        for handle in handles:
            handle.remove()

    return module, close


def _watch_graph(module: Any, seen: list[dict[str, Array]]) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Run a graph operation by operation, and keep each result in the last of `seen`."""
    import torch

    class Watcher(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if n.op == "call_function" and (array := _as_array(result)) is not None:
                seen[-1][n.name] = array
            return result

    return Watcher(module).run, lambda: None


def _as_array(result: Any) -> Array | None:
    import torch

    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return None
    array: Array = result.detach().float().cpu().numpy().copy()
    return array


def _list_nodes(module: torch.nn.Module, built: Built, inputs: Arrays) -> Iterator[RanNode]:
    """Yield each kind of operation in each module, with the time of one call; Python's part of a module apart."""
    import torch

    session = session_on(module, built.arm, built.exported, _tell_nothing)
    precisions, handles = dict[str, str](), list[Any]()
    for name, part in module.named_modules():
        if name:
            handles += _annotate(part, name, torch.profiler.record_function)
        if (weight := getattr(part, "weight", None)) is not None:
            scaled = type(weight) not in (torch.nn.Parameter, torch.Tensor)
            dtype = str(weight.dtype).removeprefix("torch.")
            precisions[name] = built.arm.target.precision.value if scaled else precision_of(dtype)
    events = profile_calls(lambda: _call(session, inputs), CALLS, built.arm.target.device)
    session.close()
    for handle in handles:
        handle.remove()
    took = _sum_own_us(events)
    products = defaultdict[str, list[str]](list)
    for (name, kind), _ in sorted(took.items(), key=lambda one: -one[1]):
        if is_product(kind):
            products[name].append(kind)
    for (name, kind), us in took.items():
        first, *others = products[name] if kind in products[name] else (kind,)
        if kind != first:  # the layers of torch around a kernel are products by name, too
            continue
        yield RanNode(
            kind=kind,
            ns=1e3 * (us + sum(took[name, other] for other in others)) / CALLS,
            names=(name, f"{name}.weight") if name else (),
            precision=precisions.get(name, "") if is_product(kind) else "",
            converts=kind in CONVERSIONS,
        )


def _annotate(part: torch.nn.Module, name: str, annotation: Callable[[str], Any]) -> list[Any]:
    """Put an annotation around a module's calls; return the handles of its hooks."""
    opened = list[Any]()

    def begin(*_: Any) -> None:
        opened.append(annotation(f"{MARK}{name}"))
        opened[-1].__enter__()

    def end(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    return [part.register_forward_pre_hook(begin), part.register_forward_hook(end)]


def _call(session: Session, inputs: Arrays) -> Arrays:
    return session.fetch(session.execute(session.stage(inputs, 0)))


def _sum_own_us(events: Sequence[Event]) -> dict[tuple[str, str], float]:
    """Sum the time that operations take by themselves, by the module around them and their kind."""
    own_us = defaultdict[tuple[str, str], float](float)
    around = list[tuple[Event, str, tuple[str, str]]]()
    for event in spans(events):
        while around and around[-1][0]["ts"] + around[-1][0]["dur"] <= event["ts"]:
            around.pop()
        name = str(event["name"])
        is_module = name.startswith(MARK)
        module = name.removeprefix(MARK) if is_module else around[-1][1] if around else ""
        key = module, "Python" if is_module else name
        if around:
            own_us[around[-1][2]] -= event["dur"]
        own_us[key] += event["dur"]
        around.append((event, module, key))
    return {key: max(0.0, us) for key, us in own_us.items()}
